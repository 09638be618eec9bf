# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the GPU did, by CUPTI in the injection library: against the log of the doubles of CUDA's libraries, which say what they really played."""

import json
import os
import re
import signal
from collections import Counter
from pathlib import Path

import gpu
import helpers
import pytest
import recfile
from gpu_train import GPU, NEEDS_CUPTI, OPS, Activities, Train, check_ops, check_times, started

pytestmark = NEEDS_CUPTI


@pytest.mark.parametrize(
    "cupti", ["", "shuffle=1,late_ms=30", "buffer_records=16", "offset_ns=-1000000000,drift_ppm=-300", "version=18"]
)
def test_all_arrives(bench, cupti):
    """The window ends before the job: kernels, copies, sets of all its steps, on all threads, streams and devices."""
    args = ["-s", 60, "-u", 20000, "-l", 12, "-c", 4, "-m", 2, "-t", 3, "-S", 2, "-d", 2, "-g", 3]
    train, record = started(bench, *args, cupti=cupti)
    train.release()
    helpers.until(30, lambda: len(train.log("op")) > 500, record.what)
    record.interrupt()
    assert record.wait() == helpers.OK, record.what()
    train.end()
    found = Activities(record.file)
    check_times(check_ops(found, train))
    assert found.gpu[train.pid]["tier"] == 2 and not found.gpu[train.pid]["why"] and not found.gpu[train.pid]["lost"]
    assert not any(found.counters[name] for name in ("gpu_dropped", "gpu_ring_full", "gpu_bad"))
    assert found.devices[0][0] == "Double 0" and found.devices[1][0] == "Double 1"
    assert all(device[1] > 0 and device[2] > 0 and device[3] >> 16 for device in found.devices.values())


@pytest.mark.parametrize("args", [(), ("-p",)])
def test_calls(bench, args):
    """Those that ask something of a GPU, with their thread; the others are not told."""
    train, record = started(bench, "-s", 20, "-t", 3, "-u", 1000, *args)
    tids = {int(tid) for tid in os.listdir("/proc/%d/task" % train.pid)}
    train.release()
    train.end()
    assert record.wait() == helpers.OK, record.what()
    found = Activities(record.file)
    check_ops(found, train)
    asking = re.compile(r"cu(da)?(Launch|Memcpy|Memset|\w*Synchronize)|cu(da)?StreamWaitEvent")
    calls = [c for c in train.log("call") if c["recorded"] and asking.match(c["name"])]
    wanted = Counter((gpu.plain(c["name"]), c["tid"], c["correlation"]) for c in calls)
    assert Counter((r["name"], r["tid"], r["correlation"]) for r in found.of(recfile.GPU_API_CALL)) == wanted
    assert len({tid for _, tid, _ in wanted}) >= 3 and not {tid for _, tid, _ in wanted} <= tids
    # Each piece of work has its call.
    asked = {r["correlation"] for r in found.of(recfile.GPU_API_CALL)}
    assert all(r["correlation"] in asked for r in found.of(*OPS.values()))
    syncs = [s for s in train.log("sync") if s["recorded"]]
    assert Counter(r["correlation"] for r in found.of(recfile.GPU_SYNC)) == Counter(s["correlation"] for s in syncs)


def test_overhead(bench):
    """What CUPTI says that it cost, as the double played it: times and threads."""
    train, record = started(bench, "-s", 60, "-u", 2000, cupti="buffer_records=16")
    train.release()
    train.end()
    assert record.wait() == helpers.OK, record.what()
    found = Activities(record.file)
    played = train.log("overhead")
    rows = [(r["start"], r["end"]) for r in found.of(recfile.OVERHEAD)]
    assert len(played) >= len(rows) > 0
    for start, end in rows:
        near = min(played, key=lambda o: abs(o["start"] - start))
        assert abs(near["start"] - start) < 50000 and abs(near["end"] - end) < 50000, (near, start, end)
    tids = {r["tid"] for r in found.of(recfile.OVERHEAD)}
    assert tids <= {o["tid"] for o in played} and 0 not in tids
    report = helpers.report(record.file, "--gpu")
    (row,) = report["overheads"]
    assert (row["kind"], row["count"], row["profiling"]) == ("buffer_flush", len(rows), True)
    assert report["profiling_us"] == pytest.approx(sum(end - start for start, end in rows) / 1e3)


def test_launched(bench):
    """A command that is started with --gpu cupti has the library; its first work may come before the window."""
    log = bench.directory / "log"
    env = dict(os.environ, LD_LIBRARY_PATH=str(GPU), GPU_DOUBLE_LOG=str(log))
    out = bench.directory / "launched.rec"
    record = bench.process(helpers.STEPFLAME, "record", "--gpu", "cupti", "-o", out, "--", GPU / "train", "-s", 150, "-u", 50000, env=env)
    assert record.wait() == helpers.OK, record.what()
    (path,) = log.parent.glob("log.*")
    ops = [op for op in map(json.loads, path.read_text().splitlines()) if op["log"] == "op" and op["recorded"]]
    assert len(Activities(out).of(*OPS.values())) == len(ops) > 100


def test_joined(bench):
    """Work of the GPU finds the calls that the probes saw: each one's own thread, around CUPTI's times."""
    train, record = started(bench, "-s", 60, "-u", 20000, "-t", 3)
    train.release()
    train.end()
    assert record.wait() == helpers.OK, record.what()
    assert not Activities(record.file).counters["gpu_untimed"]
    (tier,) = helpers.report(record.file, "--gpu")["tiers"]
    assert tier["tier"] == 2 and tier["activities"] > 500
    assert tier["unjoined"] <= tier["activities"] / 100


def test_namespace(bench):
    """In a PID namespace of its own the program numbers its threads differently."""
    go = bench.directory / "go"
    inner = [GPU / "train", "-s", 200, "-u", 10000, "-t", 3, "--early", "--wait", go]
    train = Train(bench, command=["unshare", "--pid", "--fork", *inner])
    pid = int(Path("/proc/%d/task/%d/children" % (train.pid, train.pid)).read_text())
    record = bench.record("-p", pid, "--gpu", "cupti", "-F", 0, "--no-syscalls").until_armed()
    helpers.until(10, lambda: "cuptiActivityFlushPeriod" in [c["name"] for c in train.log("cupti", 1)], record.what)
    go.touch()
    helpers.until(30, lambda: len(train.log("op", 1)) > 500, record.what)
    tids = {int(tid) for tid in os.listdir("/proc/%d/task" % pid)}
    record.interrupt()
    assert record.wait() == helpers.OK, record.what()
    train.end()
    found = Activities(record.file)
    assert {row["pid"] for row in found.rows} == {pid}
    inner = Counter(c["tid"] for c in train.log("call", 1) if c["recorded"] and c["name"].startswith("cudaLaunchKernel"))
    outer = Counter(row["tid"] for row in found.of(recfile.GPU_API_CALL) if row["name"] == "cudaLaunchKernel")
    assert set(outer) <= tids and not set(outer) & set(inner)
    assert sorted(outer.values()) == sorted(inner.values()) and len(outer) == 3


def test_file_size(bench):
    """Some 2,000 launches a step, of kernels at random: bytes of the file for each thing that CUPTI told, calls that the probes saw included."""
    train, record = started(bench, "-s", 8, "-l", 2000, "-k", 2000, "-j", 30, "-u", 50000)
    train.release()
    train.end()
    assert record.wait() == helpers.OK, record.what()
    found = Activities(record.file)
    check_ops(found, train)
    assert len(found.rows) > 3 * 8 * 2000  # a kernel, a call of the runtime and one of the driver
    size = record.file.stat().st_size / len(found.rows)
    print("%.1f bytes per activity" % size)
    assert size <= 24


def test_two_windows(bench):
    train = Train(bench, "-s", 400, "-u", 20000)
    train.release()
    windows = []
    for i in range(2):
        first = len(train.log("op"))
        record = bench.record("-p", train.pid, "--gpu", "cupti", "-d", "1500ms", "-F", 0, "--no-syscalls")
        assert record.wait() == helpers.OK, record.what()
        train.until_cupti("cuptiFinalize", i + 1)
        helpers.until(10, lambda n=first: train.log("op")[-1]["recorded"] is False, record.what)
        ops = [op for op in train.log("op")[first:] if op["recorded"]]
        windows.append((Activities(record.file), ops))
    for found, ops in windows:
        check_times(check_ops(found, train, ops))
        assert found.gpu[train.pid]["tier"] == 2
    assert not {op["correlation"] for op in windows[0][1]} & {op["correlation"] for op in windows[1][1]}


def test_to_the_end(bench):
    """A program that is started under stepflame, and ends by itself: what was not flushed then is flushed."""
    train, record = started(bench, "-s", 10, "-u", 1000)
    train.release()
    train.end()
    assert record.wait() == helpers.OK, record.what()
    check_times(check_ops(Activities(record.file), train))


def test_ring_full(bench):
    """stepflame is held up for a while: what found no room is counted, and all the rest is there."""
    train, record = started(bench, "-s", 25, "-l", 1500, "-k", 100, "-c", 0, "-m", 0)
    record.popen.send_signal(signal.SIGSTOP)
    train.release()
    try:
        train.end()
    finally:
        record.popen.send_signal(signal.SIGCONT)
    assert record.wait() == helpers.OK, record.what()
    found = Activities(record.file)
    recorded = [op for op in train.log("op") if op["recorded"] and op["kind"] in OPS]
    calls = [c for c in train.log("call") if c["recorded"] and re.match("cu(da)?(Launch|Memcpy|Memset)", c["name"])]
    came = len(found.of(*OPS.values()))
    assert found.counters["gpu_ring_full"] > 0 and 0 < came < len(recorded)
    assert found.gpu[train.pid]["lost"] >= found.counters["gpu_ring_full"]
    told = [r for r in found.of(recfile.GPU_API_CALL) if re.match("cu(da)?(Launch|Memcpy|Memset)", r["name"])]
    assert came + len(told) + found.counters["gpu_ring_full"] >= len(recorded) + len(calls)


@pytest.mark.parametrize("cupti, counter", [("drop=7", "gpu_dropped"), ("no_time=5", "gpu_bad"), ("stale=5", "gpu_bad"), ("unknown=9", "gpu_bad")])
def test_losses(bench, cupti, counter):
    """What CUPTI dropped, what has no times or impossible ones, what is of a kind that nobody knows: counted, and the rest is there."""
    train, record = started(bench, "-s", 30, "-u", 1000, cupti=cupti)
    train.release()
    train.end()
    assert record.wait() == helpers.OK, record.what()
    found = Activities(record.file)
    recorded = [op for op in train.log("op") if op["recorded"] and op["kind"] in OPS]
    came = len(found.of(*OPS.values()))
    if counter == "gpu_dropped":
        assert found.counters[counter] == len(train.log("dropped")) > 0
        assert came == len(recorded)
    elif cupti.startswith(("no_time", "stale")):
        assert 0 < came < len(recorded) and came + found.counters[counter] == len(recorded)
    else:
        assert found.counters[counter] > 0 and came == len(recorded)
    assert found.gpu[train.pid]["lost"] == found.counters[counter]


@pytest.mark.parametrize("cupti", ["", "version=26", "version=26,per_thread=0"])
def test_many_threads(bench, cupti):
    """Each thread has a buffer of CUPTI's, and keeps it while the GPU works: there is one for all, without which CUPTI before 12.9 crashes (train.end)."""
    train, record = started(bench, "-s", 20, "-t", 40, "-u", 5000, cupti=cupti)
    train.release()
    train.end()
    assert record.wait() == helpers.OK, record.what()
    found = Activities(record.file)
    check_ops(found, train)
    assert len({row["tid"] for row in found.of(recfile.GPU_API_CALL)}) == 40
    assert not found.counters["gpu_dropped"]


@pytest.mark.parametrize("cupti", ["version=26", "version=27"])
def test_no_buffer(bench, cupti):
    """Records that are never complete keep all buffers: what finds none is counted, by CUPTI if it can be refused one."""
    train, record = started(bench, "-s", 2, "-l", 1500, "-k", 1000, cupti="buffer_records=2,late_ms=60000," + cupti)
    train.release()
    train.end()
    assert record.wait() == helpers.OK, record.what()
    found = Activities(record.file)
    dropped, refused = found.counters["gpu_dropped"], len(train.log("dropped"))
    alone = sum(line["records"] == 1 for line in train.log("delivered"))  # as what takes the rest wants them
    assert dropped > 500 and found.of(recfile.GPU_API_CALL)
    assert dropped == refused if cupti == "version=27" else alone - 5 <= dropped <= alone and not refused


def test_many_streams(bench):
    train, record = started(bench, "-s", 1, "-l", 6000, "-S", 3000, "-k", 1000)
    train.release()
    train.end()
    assert record.wait() == helpers.OK, record.what()
    found = Activities(record.file)
    check_ops(found, train)
    assert len({row["stream"] for row in found.of(recfile.KERNEL)}) == 3000
