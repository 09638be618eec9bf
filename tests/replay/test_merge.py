# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""stepflame merge: recordings made by hand, of hosts whose clocks and process numbers have nothing to do with each other."""

import json
import subprocess

import helpers
import pytest
import recfile as rf

SECOND = 10**9


def of_rank(rank, hostname="host", pid=100, boot_ns=0, start_ns=SECOND, calls=10, notes=("a note",), role=rf.MAIN):
    """A recording whose host booted at boot_ns of real time, and which began at start_ns of real time and took a second."""
    at = start_ns - boot_ns  # by its own clock
    yield rf.host(hostname=hostname, monotonic_ns=at, realtime_ns=start_ns)
    yield rf.target(pid, rank=rank, role=role, parent=1)
    yield rf.name(7, "training_step")
    yield rf.agg(pid, rf.ACTION, 7, calls, calls * 1000, first_ns=at + 5, min_ns=1000, max_ns=1000)
    yield rf.code(50, 0, 0)
    yield rf.stack(60, [(50, 0)])
    yield rf.sample(pid, pid + 1, rf.WAIT, at + 1000, 500, 60, cause="lock", waker=(pid, pid + 2))
    yield rf.counter("ring_full", 1)
    yield rf.counter("ring_full", 2 + rank)  # the last one holds
    yield from map(rf.note, notes)
    yield rf.window(at, at + SECOND // 2, 5, 1)
    yield rf.window(at, at + SECOND, 10 + rank, 1)
    yield rf.cost(100, 60 + rank, 1000, 20, 30)


def write(directory, name, records):
    path = directory / name
    path.write_bytes(rf.recording(records))
    return path


def merge(*args):
    return subprocess.run([helpers.STEPFLAME, "merge", *map(str, args)], capture_output=True, text=True)


def report(file, *args):
    command = [helpers.STEPFLAME, "report", str(file), "--json", *args]
    return json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


def samples(file):
    return [row for kind, row in rf.read_records(file) if kind == "SAMPLE"]


def test_two_hosts(tmp_path):
    """The same process number on both; the second's clock began 1,000 s later, and it started 0.25 s later."""
    a = write(tmp_path, "a.rec", of_rank(0, "alpha"))
    b = write(tmp_path, "b.rec", of_rank(1, "beta", boot_ns=-1000 * SECOND, start_ns=SECOND * 5 // 4))
    out = tmp_path / "out.rec"
    done = merge(a, b, "-o", out)
    assert (done.returncode, done.stdout) == (helpers.OK, ""), done.stderr

    found = report(out, "--per-rank")
    assert [(t["rank"], t["host"]) for t in found["target"]] == [(0, "alpha"), (1, "beta")]
    assert len({t["pid"] for t in found["target"]}) == 2
    assert found["actions"][0]["count"] == 20
    assert [p["actions"][0]["count"] for p in found["processes"]] == [10, 10]
    assert found["window"]["seconds"] == pytest.approx(1.25)
    assert found["window"]["steps"] == 11
    assert found["lost"] == {"ring_full": 5}
    assert found["overhead"]["hits"] == 200
    first, second = samples(out)
    assert second.time_ns - first.time_ns == SECOND // 4
    assert (first.pid, first.tid) == (100, 101) and (first.waker_pid, first.waker_tid) == (100, 102)
    assert second.tid - second.pid == 1 and second.waker_tid - second.waker_pid == 2
    text = subprocess.run([helpers.STEPFLAME, "report", str(out), "--simple"], capture_output=True, check=True, text=True).stdout
    assert "target: pid 100 on alpha, rank 0" in text and "target: pid 100 on beta, rank 1" in text
    assert text.count("a note") == 1


def stepping(pid, rank, start_ns, seconds):
    """Ten steps a second for so long, of a job that goes on."""
    yield rf.host(monotonic_ns=start_ns, realtime_ns=10**18 + start_ns)
    yield rf.target(pid, rank=rank)
    yield from (rf.name(7, "train"), rf.code(50, 7, 7), rf.stack(60, [(50, 0)]))
    for index in range(seconds * 10):
        at = start_ns + 10**6 + index * SECOND // 10
        yield rf.sample(pid, pid, rf.CPU, at, 10**7, 60)
        yield rf.boundary(pid, pid, index, at, (0, SECOND // 20, SECOND // 20, 0, 0, 0, 0, 0))
    yield rf.window(start_ns, start_ns + seconds * SECOND, seconds * 10, 1)


def test_time_in_which_a_rank_was_not_recorded(tmp_path):
    """It is no time without steps: the first rank does not stand still as soon as the recording of the other goes on alone."""
    files = [write(tmp_path, f"{rank}.rec", stepping(100 + rank, rank, start * SECOND, seconds)) for rank, start, seconds in ((0, 1, 10), (1, 4, 15), (2, 21, 9))]
    two, three = tmp_path / "two.rec", tmp_path / "three.rec"
    assert merge(*files[:2], "-o", two).returncode == merge(two, files[2], "-o", three).returncode == helpers.OK
    for path in (files[0], two, three):
        said = helpers.report_text(path)
        assert "Stalled" not in said and "No step" not in said
        for process in report(path, "--steps", "--per-rank")["processes"]:
            assert process["outside"]["before"]["seconds"] == pytest.approx(0.001)
            assert process["outside"]["after"]["seconds"] == pytest.approx(0.099)
    assert subprocess.run([helpers.STEPFLAME, "export", "-f", "arrow", "-o", tmp_path / "tables", three]).returncode == helpers.OK
    rows = pytest.importorskip("pyarrow").ipc.open_file(tmp_path / "tables/windows.arrow").read_all().to_pylist()
    assert {pid: sum(row["seen_ns"] for row in rows if row["pid"] == pid) / SECOND for pid in (100, 101, 102)} == pytest.approx({100: 10, 101: 15, 102: 9})


WHOLE = {"HOST", "TARGET", "WINDOW", "COST", "COUNTER"}  # one for all that is merged, or what tells recordings apart


def moved_fields(type_name):
    """{name: kind} of those that merge changes."""
    return {field["name"]: field["kind"] for field in rf.LAYOUTS[type_name].fields if field["kind"] in ("time", "pid", "tid")}


@pytest.mark.parametrize("type_name", [name for name in sorted(rf.LAYOUTS.keys() - WHOLE) if moved_fields(name)])
def test_each_record(tmp_path, type_name):
    """Of a record of a second host each process, thread and time moves; what is 0 stays so."""
    kinds = moved_fields(type_name)
    values = {name: (7000 * SECOND if kind == "time" else 100) + i for i, (name, kind) in enumerate(kinds.items())}
    a = write(tmp_path, "a.rec", of_rank(0, "alpha"))
    more = [rf.record(type_name, **values), rf.record(type_name)]
    b = write(tmp_path, "b.rec", [*of_rank(1, "beta", boot_ns=-1000 * SECOND), *more])
    out = tmp_path / "out.rec"
    assert merge(a, b, "-o", out).returncode == helpers.OK
    layout = rf.LAYOUTS[type_name]
    rows = [layout.unpack(payload) for kind, payload in rf.read_packed(out) if kind == layout.type]
    moved, zero = rows[:2] if type_name == "RECORDED" else rows[-2:]  # of which merge adds one itself
    assert not any(getattr(zero, name) for name in values)
    for name, value in values.items():
        told = getattr(moved, name)
        assert told - value == -1000 * SECOND if kinds[name] == "time" else (told % 2**22 == value and told > 2**22), name


def test_one_host(tmp_path):
    """Numbers stay as they are, and two readings of one clock that differ by a little are of one clock."""
    a = write(tmp_path, "a.rec", of_rank(0, pid=100))
    b = write(tmp_path, "b.rec", of_rank(1, pid=200, boot_ns=3_000_000))
    out = tmp_path / "out.rec"
    assert merge(a, b, "-o", out).returncode == helpers.OK
    found = report(out)
    assert "host" not in found["target"][0]
    first, second = samples(out)
    assert (first.pid, second.pid) == (100, 200)
    assert first.time_ns - second.time_ns == 3_000_000  # as each clock had it


@pytest.mark.parametrize("first", [0, 1])
def test_rank_that_another_rank_started(tmp_path, first):
    """Rank 0 has started rank 1 and is recorded with it, and rank 1 by itself: it counts once, and so does its worker."""
    child = [rf.target(200, rank=1, role=rf.CHILD, parent=100), rf.target(300, role=rf.WORKER, parent=200), rf.target(400, role=rf.WORKER, parent=100)]
    seen = [rf.agg(pid, rf.ACTION, 7, 3, 3000, first_ns=SECOND + 5) for pid in (200, 300, 400)]
    a = write(tmp_path, "a.rec", [*of_rank(0, pid=100), *child, *seen])
    b = write(tmp_path, "b.rec", [*of_rank(1, pid=200), rf.target(300, role=rf.WORKER, parent=200), rf.agg(300, rf.ACTION, 7, 4, 4000, first_ns=SECOND + 5)])
    out = tmp_path / "out.rec"
    assert merge(*[(a, b), (b, a)][first], "-o", out).returncode == helpers.OK
    found = report(out, "--per-rank")
    assert {(t["pid"], t["role"], t["rank"]) for t in found["target"]} == {(100, "main", 0), (200, "main", 1), (300, "worker", None), (400, "worker", None)}
    assert {row.pid: row.calls for kind, row in rf.read_records(out) if kind == "AGG"} == {100: 10, 200: 10, 300: 4, 400: 3}
    assert sorted(row.pid for row in samples(out)) == [100, 200]


def test_apart(tmp_path):
    a = write(tmp_path, "a.rec", of_rank(0, "alpha"))
    b = write(tmp_path, "b.rec", of_rank(1, "beta", start_ns=10 * SECOND))
    done = merge(a, b, "-o", tmp_path / "out.rec")
    assert done.returncode == helpers.OK
    assert "a.rec and %s were recorded at different times" % b in done.stderr


@pytest.mark.parametrize(
    "second, says",
    [
        (of_rank(0, "beta", pid=200), "are both of rank 0"),
        (of_rank(1, "host"), "are both of process 100"),
    ],
)
def test_not_of_one_job(tmp_path, second, says):
    a, b = write(tmp_path, "a.rec", of_rank(0)), write(tmp_path, "b.rec", second)
    done = merge(a, b, "-o", tmp_path / "out.rec")
    assert done.returncode == helpers.ERROR
    assert says in done.stderr and "fix: " in done.stderr
    assert not (tmp_path / "out.rec").exists()


def test_usage(tmp_path):
    a = write(tmp_path, "a.rec", of_rank(0))
    b = write(tmp_path, "b.rec", of_rank(1, "beta"))
    for args in ([], [a], [a, "-o", "out.rec"], [a, b], [a, b, "-o", b]):
        assert merge(*args).returncode == helpers.USAGE
    assert b.stat().st_size  # not emptied
    done = merge(a, tmp_path / "none.rec", "-o", tmp_path / "out.rec")
    assert done.returncode == helpers.ERROR and "no recording" in done.stderr
    done = merge(a, b, "-o", tmp_path / "nowhere" / "out.rec")
    assert done.returncode == helpers.ERROR and "cannot write" in done.stderr
    done = merge(a, b, "-o", "/dev/full")
    assert done.returncode == helpers.ERROR and "No space left" in done.stderr and "cannot read" not in done.stderr


@pytest.mark.parametrize("order", [1, -1])
def test_busiest(tmp_path, order):
    """The process that pays most is one, in one of the recordings: no product of one's hits and what a hit costs the other."""
    costs = [rf.cost(900, 800, 10, 20, 30), rf.cost(90, 80, 1000, 20, 30, calls=3, call_ns=5, sampler_ns=7)]
    files = [
        write(tmp_path, "%d.rec" % n, [*list(of_rank(n, "h%d" % n))[:-1], cost]) for n, cost in enumerate(costs[::order])
    ]
    assert merge(*files, "-o", tmp_path / "out.rec").returncode == helpers.OK
    (cost,) = [row for kind, row in rf.read_records(tmp_path / "out.rec") if kind == "COST"]
    assert (cost.busiest_hits, cost.hit_ns, cost.busiest_calls, cost.call_ns, cost.busiest_sampler_ns) == (80, 1000, 3, 5, 7)
    assert cost.hits == 990


def test_three(tmp_path):
    """Merging what was merged is merging all."""
    files = [write(tmp_path, "%d.rec" % n, of_rank(n, "h%d" % n, start_ns=SECOND + n)) for n in range(3)]
    assert merge(*files[:2], "-o", tmp_path / "two.rec").returncode == helpers.OK
    assert merge(tmp_path / "two.rec", files[2], "-o", tmp_path / "nested.rec").returncode == helpers.OK
    assert merge(*files, "-o", tmp_path / "all.rec").returncode == helpers.OK
    nested, whole = report(tmp_path / "nested.rec", "--per-rank"), report(tmp_path / "all.rec", "--per-rank")
    for one in (nested, whole):
        assert [t["host"] for t in one["target"]] == ["h0", "h1", "h2"]
        assert len({t["pid"] for t in one["target"]}) == 3
        assert one["lost"] == {"ring_full": 9}
    assert nested["actions"] == whole["actions"]
