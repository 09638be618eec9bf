# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
What processes use, against psutil in the job itself. Sums only grow, so each that psutil saw has to lie between those that stepflame saw
before and after it, however busy the machine is.
"""

import csv
import io
import json
import types

import helpers
import pytest
import recfile

pytestmark = helpers.needs_bpf

GROW = 5_000_000  # bytes a second
WRITE, READ = 300_000, 500_000  # bytes a step
SECONDS = 15
TICK = 0.01  # the kernel's CPU times
SLACK = 16 << 20  # of the memory: what a step allocates and frees
MEMORY, SWAP, DISK, NET, LEFT = 1, 2, 4, 8, 16


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Two jobs in one recording: one's memory grows, and one of its children is killed; the other's does not."""
    bench = helpers.Bench(tmp_path_factory.mktemp("resources"))
    folders = [bench.directory / name for name in ("grows", "flat")]
    for folder in folders:
        folder.mkdir()
    grows = bench.job("resources.py", "--seconds", SECONDS, "--grow", GROW, "--write", WRITE, "--read", READ, "--kill", "--directory", folders[0])
    flat = bench.job("resources.py", "--seconds", SECONDS, "--directory", folders[1])
    for job in (grows, flat):
        job.until_ready()
    record = bench.record("-p", grows.pid, "-p", flat.pid).until_armed()
    for job in (grows, flat):
        job.release()
    truths = grows.truth(), flat.truth()
    assert record.wait() == helpers.OK, record.what()
    samples = {}
    for kind, row in recfile.read_records(record.file):
        if kind == "RESOURCES":
            samples.setdefault(row.pid, []).append(row)
    yield types.SimpleNamespace(file=record.file, grows=truths[0], flat=truths[1], samples=samples, report=helpers.report(record.file, "--steps"))
    bench.close()


def use(recorded, pid):
    return next(row for row in recorded.report["resources"] if row["pid"] == pid)


def around(samples, row):
    """The samples before and after a look of psutil's; None: there are none."""
    before = [s for s in samples if s.time_ns < row["begin"] * 1e9]
    after = [s for s in samples if s.time_ns > row["end"] * 1e9]
    # a sample's time is taken when it has been read: the next one is surely later than the look
    return (before[-1], after[min(1, len(after) - 1)]) if before and after else None


@pytest.mark.parametrize("which", ["grows", "flat"])
def test_sums_are_those_of_psutil(recorded, which):
    truth = getattr(recorded, which)
    samples, compared = recorded.samples[truth["pid"]], 0
    for row in truth["rows"]:
        pair = around(samples, row)
        if not pair:
            continue
        a, b = pair
        compared += 1
        assert a.known & (MEMORY | DISK | NET) == MEMORY | DISK | NET
        assert a.user_ns / 1e9 - TICK <= row["user"] <= b.user_ns / 1e9 + TICK
        assert a.system_ns / 1e9 - TICK <= row["system"] <= b.system_ns / 1e9 + TICK
        assert a.read_bytes <= row["read"] <= b.read_bytes
        assert a.written_bytes <= row["written"] <= b.written_bytes
        assert a.received_bytes <= row["received"] <= b.received_bytes
        assert a.sent_bytes <= row["sent"] <= b.sent_bytes
        assert a.minor_faults <= row["minor"] <= b.minor_faults
        assert a.major_faults <= row["major"] <= b.major_faults
        if b.known & MEMORY:
            assert min(a.rss_bytes, b.rss_bytes) - SLACK <= row["rss"] <= max(a.rss_bytes, b.rss_bytes) + SLACK
            assert min(a.shared_bytes, b.shared_bytes) - SLACK <= row["shared"] <= max(a.shared_bytes, b.shared_bytes) + SLACK
    assert compared >= SECONDS / 2


def test_one_look_a_second(recorded):
    samples = recorded.samples[recorded.flat["pid"]]
    seconds = (samples[-1].time_ns - samples[0].time_ns) / 1e9
    assert SECONDS / 2 <= len(samples) <= seconds + 3


def test_rates(recorded):
    row, truth = use(recorded, recorded.grows["pid"]), recorded.grows
    assert row["role"] == "main" and row["samples"] == len(recorded.samples[truth["pid"]])
    # the file system may write more than the job does: whole blocks, its journal
    written = truth["rows"][-1]["written"] - truth["rows"][0]["written"]
    assert written >= truth["steps"] * WRITE * 0.9
    assert row["written_bytes_per_s"] * row["seconds"] == pytest.approx(written, rel=0.25)
    assert use(recorded, recorded.flat["pid"])["written_bytes_per_s"] < 0.01 * row["written_bytes_per_s"]
    first, last = recorded.samples[truth["pid"]][0], recorded.samples[truth["pid"]][-1]
    cpu = (last.user_ns + last.system_ns - first.user_ns - first.system_ns) / 1e9
    assert row["cpu_percent"] / 100 * row["seconds"] == pytest.approx(cpu)
    assert row["swap_max_bytes"] is not None and row["received_bytes_per_s"] is not None


def test_growth(recorded):
    row = use(recorded, recorded.grows["pid"])
    assert row["growth"], row
    assert row["growth"]["bytes_per_s"] == pytest.approx(GROW, rel=0.1)
    assert row["growth"]["least_bytes_per_s"] <= row["growth"]["bytes_per_s"] <= row["growth"]["most_bytes_per_s"]
    assert row["growth"]["full_s"] > 60 and row["growth"]["of"] in ("machine", "cgroup")
    assert row["rss_max_bytes"] - row["rss_min_bytes"] == pytest.approx(GROW * SECONDS, rel=0.25)
    assert use(recorded, recorded.flat["pid"])["growth"] is None
    said = "memory of process %d (main) grows by " % recorded.grows["pid"]
    for text in (helpers.report_text(recorded.file, "--steps"), helpers.report_text(recorded.file)):
        assert text.count("grows by") == 1 and said in text
    assert len(helpers.report_text(recorded.file).splitlines()) <= 24
    assert helpers.report(recorded.file, "--summary")["resources"].startswith(said)


def test_children_that_end(recorded):
    """One ends by itself and one is killed: what they used stays, and nothing has failed."""
    for pid in recorded.grows["children"]:
        row = use(recorded, pid)
        assert row["role"] == "child" and row["samples"] >= 3 and row["rss_last_bytes"] > 0
    assert "resources_lost" not in str(recorded.report["lost"])


def test_steps(recorded):
    """CPU time over all steps is that of the loop by psutil; the memory at a step is the last that was seen."""
    pid = recorded.grows["pid"]
    found = helpers.report(recorded.file, "--steps", "--per-rank")["processes"]
    of = next(process for process in found if process["pid"] == pid)
    samples, start = recorded.samples[pid], window_start(recorded.file)
    known = [step for step in of["steps"] if step["resources"]]
    assert len(known) >= 0.8 * len(of["steps"])
    assert all(step["resources"]["cpu_percent"] >= 0 for step in known)
    for step in known[:: len(known) // 20]:
        end_ns = start + (step["start_s"] + step["duration_s"]) * 1e9
        last = [s for s in samples if s.time_ns <= end_ns + 1000][-1]
        assert step["resources"]["rss_bytes"] == last.rss_bytes
        assert (step["resources"]["shared_bytes"], step["resources"]["swap_bytes"]) == (last.shared_bytes, last.swap_bytes)
    cpu = sum(step["resources"]["cpu_percent"] / 100 * step["duration_s"] for step in known)
    rows = recorded.grows["rows"]
    assert cpu == pytest.approx(sum(rows[-1][key] - rows[0][key] for key in ("user", "system")), rel=0.35)


def window_start(file):
    return next(row.start_ns for kind, row in recfile.read_records(file) if kind == "WINDOW")


def test_exported(recorded):
    """The counters of an export: memory as each look had it, and rates that add up to the sums of the kernel."""
    trace = json.loads(helpers.stepflame("export", recorded.file, "-f", "chrome").stdout)
    for pid in (recorded.grows["pid"], recorded.flat["pid"]):
        samples, counters = recorded.samples[pid], {}
        for event in trace["traceEvents"]:
            if event.get("cat") == "resources" and event["pid"] == pid:
                counters.setdefault(event["name"], []).append(event["args"]["value"])
        assert counters["resident memory, bytes"] == [s.rss_bytes for s in samples if s.known & MEMORY]
        gaps = [(b.time_ns - a.time_ns) / 1e9 for a, b in zip(samples, samples[1:])]
        for name, sums, factor in (
            ("CPU, % of one processor", [s.user_ns + s.system_ns for s in samples], 1e7),
            ("written to disks, bytes/s", [s.written_bytes for s in samples], 1),
        ):
            if name in counters or pid == recorded.grows["pid"]:
                assert len(counters[name]) == len(gaps)
                added = sum(gap * value for gap, value in zip(gaps, counters[name]))
                assert added * factor == pytest.approx(sums[-1] - sums[0])


def test_csv(recorded):
    rows = list(csv.DictReader(io.StringIO(helpers.report_text(recorded.file, "--steps", "--csv"))))
    assert {"resources.cpu_percent", "resources.rss_bytes", "resources.read_bytes_per_s"} <= set(rows[0])
    assert any(row["resources.rss_bytes"] for row in rows)


def test_without_samples(tmp_path):
    """A recording that an earlier version made: nothing is said."""
    file = tmp_path / "old.rec"
    file.write_bytes(recfile.recording([recfile.host(), recfile.target(7), recfile.window(1, 10**9)]))
    assert helpers.report(file, "--steps")["resources"] == []
    assert "Resources" not in helpers.report_text(file, "--steps")
    assert helpers.report(file, "--summary")["resources"] is None


def test_gpus_of_steps(tmp_path):
    """Readings of the GPUs of the machine: the mean of a step, of what each reading says of the time before it, and the last of the rest."""
    S, PID = 10**9, 7
    rows = [recfile.host(), recfile.target(PID), recfile.window(S, 10 * S), *(sample(i) for i in range(10))]
    for i in range(10):
        rows.append(recfile.gpu_usage(0, (1 + i) * S, i << 30, 80 << 30, (10 * i, 1, 1000 * i, 30 + i, 1500), device_name="A GPU"))
        rows.append(recfile.gpu_usage(3, (1 + i) * S, 0, 0, (recfile.GPU_UNKNOWN, 1, 2500, recfile.GPU_UNKNOWN, 1)))
    ends = [int(S * s) for s in (2, 2.5, 4.5, 5, 9.5, 10.5)]
    rows += [recfile.boundary(PID, PID, i, end, [0, 0, end - before]) for i, (before, end) in enumerate(zip([0, *ends], ends))]
    file = tmp_path / "gpus.rec"
    file.write_bytes(recfile.recording(rows))
    found = [step["resources"] for step in helpers.report(file, "--steps")["steps"]]
    unknown = {"busy_percent": None, "memory_used_bytes": None, "power_w": 2.5, "temperature_c": None}
    # a reading at 3 s, of 20 %, is about the second before it
    busy = [20, (20 * 0.5 + 30 + 40 * 0.5) / 2, 40, (50 + 60 + 70 + 80 + 90 * 0.5) / 4.5]
    last = [1, 3, 3, 8]
    for resources, mean, reading in zip(found, busy, last):
        assert resources["gpus"] == {
            "0": {"busy_percent": pytest.approx(mean), "memory_used_bytes": reading << 30, "power_w": reading, "temperature_c": 30 + reading},
            "3": unknown,
        }
    assert found[-1] is None  # nobody looked behind it
    (row, *_) = csv.DictReader(io.StringIO(helpers.report_text(file, "--steps", "--csv")))
    assert (row["resources.gpus.0.busy_percent"], row["resources.gpus.3.power_w"], row["resources.gpus.3.busy_percent"]) == ("20.0", "2.5", "")
    text = " ".join(helpers.report_text(file, "--steps").split())
    assert "GPU 0: A GPU, 45.0 % busy, memory at most 9.7 of 85.9 GB, 4 W, 34 degrees" in text


def sample(i, **more):
    values = {"known": MEMORY | SWAP | LEFT, "rss_bytes": 10**9, "left_bytes": 360 * 10**9, **more}
    return recfile.record("RESOURCES", time_ns=(1 + i) * 10**9, pid=7, **values)


@pytest.mark.parametrize(
    "more,said",
    [
        (lambda i: {"rss_bytes": 10**9 + i * 10**6}, "grows by 60 MB a minute; at this rate the memory of its machine ends in 4 days"),
        (lambda i: {"known": MEMORY | LEFT | 32, "left_bytes": 36 * 10**8, "rss_bytes": 10**9 + i * 10**6}, "cgroup ends in 60 minutes"),
        (lambda i: {"swap_bytes": 250 * 10**6}, "process 7 (main) has 250 MB in swap"),
        (lambda i: {"swap_bytes": 25 * 10**6}, None),  # what it does not use
        (lambda i: {"swap_bytes": 25 * 10**6, "major_faults": 40 * i}, "process 7 (main) waits for pages from disk: 40 major faults a second"),
        (lambda i: {"major_faults": 40 * i}, "process 7 (main) waits for pages from disk: 40 major faults a second"),
        (lambda i: {"rss_bytes": 10**9 + i % 5 * 10**7}, None),
    ],
    ids=["growth", "cgroup", "swap", "little swap", "used swap", "faults", "nothing"],
)
def test_what_is_said(tmp_path, more, said):
    file = tmp_path / "made.rec"
    rows = [sample(i, **more(i)) for i in range(40)]
    file.write_bytes(recfile.recording([recfile.host(), recfile.target(7), recfile.window(10**9, 41 * 10**9), *rows]))
    found, text = helpers.report(file, "--summary")["resources"], helpers.report_text(file)
    assert (said in found and said in " ".join(text.split())) if said else (found is None and "Resources" not in text)
