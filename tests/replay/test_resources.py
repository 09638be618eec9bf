# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What `report --steps` says of memory that grows, of recordings made here."""

import helpers
import pytest
import recfile as rec

PID, OTHER, S, MB, GB = 7, 8, 10**9, 10**6, 10**9
MEMORY, SWAP, LEFT, LEFT_CGROUP = 1, 2, 16, 32  # enum resource_known


def growing(path, cgroup=False):
    """Cgroups, and what is left of their memory, are looked at less often."""
    rows = [rec.record("RESOURCES", time_ns=(1 + i) * S, pid=PID, known=MEMORY, rss_bytes=GB + i * 10 * MB) for i in range(40)]
    for i in range(0, 40, 10):
        rows[i] = rec.record("RESOURCES", time_ns=(1 + i) * S, pid=PID, known=MEMORY | LEFT | LEFT_CGROUP * cgroup, rss_bytes=GB + i * 10 * MB, left_bytes=(9 - i // 10) * GB)
    path.write_bytes(rec.recording([rec.host(), rec.target(PID), rec.window(S, 41 * S), *rows]))
    return path


@pytest.mark.parametrize("cgroup", [False, True], ids=["machine", "cgroup"])
def test_when_memory_is_full(tmp_path, cgroup):
    """By what was left when it was looked at last: others took some of it meanwhile."""
    file = growing(tmp_path / "grows.rec", cgroup)
    (row,) = helpers.report(file, "--steps")["resources"]
    growth = row["growth"]
    assert growth["bytes_per_s"] == pytest.approx(10 * MB)
    assert growth["full_s"] == pytest.approx(6 * GB / (10 * MB))
    assert growth["of"] == ("cgroup" if cgroup else "machine")


def shared(path, own, shared_part, machine, other=0):
    """MB a second by which a process grows, for itself and of its shared part; by which the machine's available memory shrinks; and by which another process grows."""
    rows = []
    for i in range(40):
        sizes = {"rss_bytes": 4 * GB + i * (own + shared_part) * MB, "shared_bytes": 3 * GB + i * shared_part * MB}
        rows.append(rec.record("RESOURCES", time_ns=(1 + i) * S, pid=PID, known=MEMORY | LEFT, left_bytes=90 * GB, **sizes))
        rows.append(rec.record("RESOURCES", time_ns=(1 + i) * S, pid=OTHER, known=MEMORY, rss_bytes=GB + i * other * MB))
        rows.append(rec.record("MACHINE", time_ns=(1 + i) * S, pid=PID, processors=8, memory_bytes=100 * GB, available_bytes=90 * GB - i * machine * MB))
    path.write_bytes(rec.recording([rec.host(), rec.target(PID), rec.target(OTHER, rec.WORKER, parent=PID), rec.window(S, 41 * S), *rows]))
    return path


@pytest.mark.parametrize(
    "own, shared_part, machine, other, grows",
    [
        (0, 50, 0, 0, {}),  # of a mapped file: the kernel may drop these pages
        (2, 50, 2, 0, {PID: 2}),
        (2, -50, 2, 0, {PID: 2}),  # it has dropped some
        (0, 50, 50, 0, {PID: 50}),  # of shared memory
        (2, 50, 52, 0, {PID: 52}),
        (0, 50, 50, 50, {OTHER: 50}),  # a mapped file, and another process that grows
    ],
    ids=["mapped", "both", "dropped", "shm", "shm and own", "other"],
)
def test_mapped_files_are_no_growth(tmp_path, own, shared_part, machine, other, grows):
    """What a process has touched of files is resident, and costs no memory; shared memory does."""
    file = shared(tmp_path / "a.rec", own, shared_part, machine, other)
    found = {row["pid"]: row["growth"] for row in helpers.report(file, "--steps")["resources"]}
    assert {pid: growth["bytes_per_s"] / MB for pid, growth in found.items() if growth} == pytest.approx(grows)
    for text in (helpers.report_text(file, "--steps"), helpers.report_text(file)):
        assert ("grows by" in text) == bool(grows), text


@pytest.mark.parametrize("swapped, said", [(300 * 1000, None), (40 * MB, None), (60 * MB, "has 60 MB in swap")])
def test_some_pages_in_swap(tmp_path, swapped, said):
    """Linux moves to the swap what nobody uses: a little of it is nothing wrong."""
    rows = [rec.record("RESOURCES", time_ns=(1 + i) * S, pid=PID, known=MEMORY | SWAP, rss_bytes=GB, swap_bytes=swapped) for i in range(20)]
    file = tmp_path / "a.rec"
    file.write_bytes(rec.recording([rec.host(), rec.target(PID), rec.window(S, 21 * S), *rows]))
    found, text = helpers.report(file, "--summary")["resources"], helpers.report_text(file, "--steps")
    assert (said in found and said in text) if said else (found is None and "wrong:" not in text), (found, text)
