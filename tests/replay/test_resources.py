# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What `report --steps` says of memory that grows, of recordings made here."""

import helpers
import pytest
import recfile as rec

PID, S, MB, GB = 7, 10**9, 10**6, 10**9
MEMORY, LEFT, LEFT_CGROUP = 1, 16, 32  # enum resources_known


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
