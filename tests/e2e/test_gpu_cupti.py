# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
What the GPU did, by CUPTI in the injection library: against the log of the doubles of CUDA's libraries, which say what
they really played. The doubles are in tests/gpu/.
"""

import json
import os
import re
import resource
import signal
import statistics
import subprocess
import time
from collections import Counter
from pathlib import Path

import gpu
import helpers
import pytest
import recfile

GPU = Path(gpu.DOUBLES)

pytestmark = [helpers.needs_bpf, gpu.needs_doubles, gpu.needs_cupti]

OPS = {"kernel": recfile.KERNEL, "copy": recfile.COPY, "set": recfile.SET}
PATIENCE_SECONDS = 5  # GPU_RING_PATIENCE_NS
# enum gpu_direction by CUpti_ActivityMemcpyKind
DIRECTIONS = {1: recfile.HTOD, 2: recfile.DTOH, 8: recfile.DTOD, 9: recfile.HTOH, 10: recfile.DTOD}
ALL_ONES = 0xFFFFFFFF


class Train:
    """The program that trains, with the doubles' log."""

    def __init__(self, bench, *args, cupti="", inject=True, command=(), **more):
        self.log_path = bench.directory / ("log%d" % len(bench.started))
        self.go = bench.directory / ("go%d" % len(bench.started))
        env = dict(os.environ, LD_LIBRARY_PATH=str(GPU), GPU_DOUBLE_LOG=str(self.log_path), GPU_DOUBLE_CUPTI=cupti, **more)
        if inject:
            env["CUDA_INJECTION64_PATH"] = str(gpu.INJECT)
        program = command or [GPU / "train", *args, "--early", "--wait", self.go]
        self.process = bench.process(*program, env=env)
        found = self.process.until_says(r"^ready (\d+)$", helpers.READY_SECONDS, "stdout")
        self.pid = int(found[1]) if not command else self.process.pid

    def release(self):
        self.go.touch()

    def log(self, kind=None, pid=None):
        path = Path("%s.%d" % (self.log_path, pid or self.pid))
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        found = [json.loads(line) for line in lines]
        return [line for line in found if kind in (None, line["log"])]

    def cupti(self):
        """Names of the functions of CUPTI that were called."""
        return [line["name"] for line in self.log("cupti")]

    def until_cupti(self, name, times=1, seconds=helpers.ARMED_SECONDS):
        helpers.until(seconds, lambda: self.cupti().count(name) >= times, lambda: name + ": " + str(self.cupti()))

    def end(self):
        assert self.process.wait() == 0, self.process.what()
        assert not self.log("error")


def start(bench, *args, options=(), **more):
    """(train, record): a window is open in it, and it waits for release()."""
    train = Train(bench, *args, **more)
    record = bench.record("-p", train.pid, "--gpu", "cupti", "-F", 0, "--no-syscalls", *options).until_armed()
    return train, record


def started(bench, *args, **more):
    train, record = start(bench, *args, **more)
    train.until_cupti("cuptiActivityFlushPeriod")
    return train, record


class Activities:
    """REC_GPU_ACTIVITY and what goes with it."""

    def __init__(self, path):
        self.rows, self.names, self.devices, self.gpu, self.counters, self.last = [], {}, {}, {}, {}, {}
        same = ("bytes", "pid", "tid", "correlation", "kind", "direction", "device", "context", "stream")
        for kind, row in recfile.read_records(path):
            if kind == "NAME":
                self.names[row.id] = recfile.text_of(row)
            elif kind == "GPU_ACTIVITY":
                times = {"start": row.start_ns, "end": row.start_ns + row.duration_ns}
                more = {"name": self.names.get(row.name, ""), "detail": tuple(row.detail)}
                self.rows.append({**times, **more, **{field: getattr(row, field) for field in same}})
            elif kind == "GPU_DEVICE":
                self.devices[row.device] = (row.name, row.memory_bytes, row.multiprocessors, row.compute)
            elif kind == "GPU_WINDOW":
                how = recfile.WINDOW_ENDS[row.end]
                self.last[row.pid, row.index] = dict(start=row.start_ns, end=row.end_ns, how=how, error=row.error)
            elif kind == "GPU":
                self.gpu[row.pid] = dict(tier=row.tier, ns=row.cupti_ns, lost=row.lost, version=row.cupti_version, why=row.why)
            elif kind == "COUNTER":
                self.counters[row.name] = row.value

    def windows(self, pid):
        """In their order, the last word on each."""
        return [window for key, window in sorted(self.last.items()) if key[0] == pid]

    def of(self, *kinds):
        return [row for row in self.rows if row["kind"] in kinds]


def check_ops(found, train, ops=None):
    """Each piece of work that CUPTI has recorded arrived, as it was, once. Errors of the times, in ns."""
    ops = [op for op in train.log("op") if op["recorded"] and op["kind"] in OPS] if ops is None else ops
    rows = {(row["correlation"], row["kind"], row["detail"][7]): row for row in found.of(*OPS.values())}
    wanted = {(op["correlation"], OPS[op["kind"]], op["graph_node"] & ALL_ONES): op for op in ops}
    assert len(wanted) == len(ops) > 0
    assert len(rows) == len(found.of(*OPS.values()))
    assert rows.keys() == wanted.keys()
    errors = []
    for key, op in wanted.items():
        row = rows[key]
        assert row["pid"] == train.pid
        assert [row[k] for k in ("device", "context", "stream")] == [op[k] for k in ("device", "context", "stream")]
        if op["kind"] == "kernel":
            assert row["name"] == op["name"]
            assert row["detail"][:6] == (*op["grid"], *op["block"]) and row["bytes"] == op["shared"]
        else:
            assert row["bytes"] == op["bytes"]
        if op["kind"] == "copy":
            assert row["direction"] == DIRECTIONS[op["direction"]]
        errors += [abs(row["start"] - op["start"]), abs(row["end"] - op["end"])]
    return errors


def check_times(errors):
    """A pair of readings is no wider than 1 ms, and ordinarily one microsecond."""
    assert max(errors) < 500_000
    assert statistics.median(errors) < 50_000


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


def plain(name):
    """As C has a function of CUPTI's tables."""
    while re.search(r"_(ptsz|ptds|v\d+)$", name):
        name = name[: name.rindex("_")]
    return name


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
    wanted = Counter((plain(c["name"]), c["tid"], c["correlation"]) for c in calls)
    assert Counter((r["name"], r["tid"], r["correlation"]) for r in found.of(recfile.GPU_API_CALL)) == wanted
    assert len({tid for _, tid, _ in wanted}) >= 3 and not {tid for _, tid, _ in wanted} <= tids
    # Each piece of work has its call.
    asked = {r["correlation"] for r in found.of(recfile.GPU_API_CALL)}
    assert all(r["correlation"] in asked for r in found.of(*OPS.values()))
    syncs = [s for s in train.log("sync") if s["recorded"]]
    assert Counter(r["correlation"] for r in found.of(recfile.GPU_SYNC)) == Counter(s["correlation"] for s in syncs)


def test_doctor(bench):
    train = Train(bench, "-s", 10)
    pid = train.pid
    said = helpers.stepflame("doctor", "-p", pid).stdout
    assert re.search(r"^OK +GPU +tier 2: stepflame can record what the GPU does", said, re.M)
    record = bench.record("-p", pid, "--gpu", "cupti", "-F", 0, "--no-syscalls").until_armed()
    helpers.until(helpers.ARMED_SECONDS, lambda: "another stepflame is recording" in helpers.stepflame("doctor", "-p", pid).stdout, record.what)
    train.release()
    train.end()
    assert record.wait() == helpers.OK, record.what()
    assert not train.log("error")


@pytest.mark.parametrize(
    "more, said",
    [
        ({"inject": False}, ("started without", "fix: record --inject -p PID")),
        ({"cupti": "fail_cuptiSubscribe=35"}, ("the driver lets only root profile", "fix: options nvidia NVreg_RestrictProfilingToAdminUsers=0")),
    ],
    ids=["no library", "no permission"],
)
def test_refused_is_told(bench, more, said):
    """Who asks for what the GPU does hears while it is recorded that nothing of it is."""
    train = Train(bench, "-s", 10, **more)
    record = bench.record("-p", train.pid, "--gpu", "cupti", "-F", 0, "--no-syscalls").until_armed()
    record.until_says(said[0] + ".*: stepflame records only its calls, not what its GPU does", helpers.ARMED_SECONDS, "stderr")
    record.interrupt()
    assert record.wait() == helpers.OK, record.what()
    assert record.stderr.count("not what its GPU does") == 1 and said[1] in record.stderr
    train.release()
    train.end()


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


def thread_of(pid):
    """(user and system ticks, switches) of the library's thread."""
    for tid in os.listdir("/proc/%d/task" % pid):
        task = Path("/proc/%d/task/%s" % (pid, tid))
        if (task / "comm").read_text().strip() == "stepflame-gpu":
            stat = (task / "stat").read_text().rsplit(")", 1)[1].split()
            switches = re.findall(r"ctxt_switches:\s+(\d+)", (task / "status").read_text())
            return int(stat[11]) + int(stat[12]), sum(map(int, switches))
    return None


def test_asleep(bench):
    """Before a window nothing of CUPTI is loaded, and behind it nothing is called; its thread does not run."""
    train = Train(bench, "-s", 3000, "-u", 20000)
    train.release()
    before = thread_of(train.pid)
    assert before[0] == 0
    time.sleep(0.5)
    assert thread_of(train.pid) == before and not train.cupti()
    assert "libcupti" not in Path("/proc/%d/maps" % train.pid).read_text()
    record = bench.record("-p", train.pid, "--gpu", "cupti", "-d", "1s", "-F", 0)
    assert record.wait() == helpers.OK, record.what()
    train.until_cupti("cuptiFinalize")
    helpers.until(5, lambda: thread_of(train.pid) == (time.sleep(0.3), thread_of(train.pid))[1], record.what)
    called, slept = len(train.cupti()), thread_of(train.pid)
    steps = len(train.log("op"))
    helpers.until(30, lambda: len(train.log("op")) > steps + 100, train.process.what)
    assert len(train.cupti()) == called and thread_of(train.pid)[1] == slept[1]
    last = [op for op in train.log("op")][-1]
    assert not last["recorded"]


def test_runs_as_main(bench):
    """The library's thread is not bound, polite or otherwise like the thread that it was made by, but like the main one."""
    script = """
import ctypes, os, sys, threading, time
def begin():
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 7)
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    assert ctypes.CDLL("libcudart.so.13").cudaFree(None) == 0
os.setpriority(os.PRIO_PROCESS, 0, 3)
thread = threading.Thread(target=begin)
thread.start()
thread.join()
print("ready %d" % os.getpid(), flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
"""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one CPU alone: no thread can be bound to less")
    go = bench.directory / "go"
    train = Train(bench, command=[helpers.PYTHON, "-c", script, go])

    def state(tid):
        return os.sched_getaffinity(tid), os.sched_getscheduler(tid), os.getpriority(os.PRIO_PROCESS, tid)

    def library():
        tids = [int(tid) for tid in os.listdir("/proc/%d/task" % train.pid)]
        return [state(tid) for tid in tids if Path("/proc/%d/task/%d/comm" % (train.pid, tid)).read_text() == "stepflame-gpu\n"]

    assert state(train.pid) == (os.sched_getaffinity(0), os.SCHED_OTHER, 3)
    helpers.until(5, lambda: library() == [state(train.pid)], lambda: str(library()))
    go.touch()
    train.end()


def cpu_seconds(library):
    """CPU time of the program that trains: 300,000 launches, which CUPTI's callbacks would slow down. Its time by the clock says less on a busy machine."""
    env = {**os.environ, "LD_LIBRARY_PATH": str(GPU), **({"CUDA_INJECTION64_PATH": str(gpu.INJECT)} if library else {})}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([GPU / "train", "-s", "1500", "-l", "200", "-k", "1", "-c", "0", "-m", "0"], env=env, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def asleep_ratios(rounds):
    """
    CPU time with the library, asleep, to that without: (of each round, of the least of all rounds), and without to
    without, likewise. The three of a round run in turn.
    """
    seconds = [[cpu_seconds(library) for library in (False, True, False)] for _ in range(rounds)]
    before, asleep, behind = zip(*seconds)
    paired = [2 * a / (b + c) for b, a, c in seconds], min(asleep) / min(before + behind)
    noise = [c / b for b, _, c in seconds], min(behind) / min(before)
    return paired, noise


@pytest.mark.alone
def test_asleep_cost():
    """The library that sleeps costs nothing that is seen beside what two runs without it differ by."""
    asleep, noise = asleep_ratios(15)
    for name, (ratios, least) in (("asleep", asleep), ("without", noise)):
        print("%s: %.4f (%.4f to %.4f), of the least %.4f" % (name, statistics.median(ratios), min(ratios), max(ratios), least))
    low, _, high = statistics.quantiles(noise[0], n=4)
    assert abs(statistics.median(asleep[0]) - 1) <= max(0.01, high - low)


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


REFUSALS = {
    "busy=1": "another tool uses CUPTI",
    "fail_cuptiSubscribe=15": "CUPTI refused, with error 15",
    "fail_cuptiActivityEnable=35": "lets only root profile",
    "version=150000": "unsupported version 150000",
}


@pytest.mark.parametrize("cupti", REFUSALS)
def test_refused(bench, cupti):
    """The calls are there all the same, and why there is no more is said."""
    train, record = start(bench, "-s", 10, "-u", 1000, cupti=cupti)
    record.until_says(REFUSALS[cupti], 10, "stderr")
    train.release()
    train.end()
    assert record.wait() == helpers.OK, record.what()
    found = Activities(record.file)
    assert found.gpu[train.pid]["tier"] == 1 and REFUSALS[cupti] in found.gpu[train.pid]["why"]
    assert not found.rows
    names = train.cupti()
    assert names.count("cuptiSubscribe") <= 1 and ("cuptiActivityEnable" in names) == ("Enable" in cupti)
    if "Enable" in cupti:
        assert "cuptiUnsubscribe" in names


def test_no_cupti(bench):
    train, record = start(bench, "-s", 10, STEPFLAME_CUPTI="/nonexistent/libcupti.so")
    record.until_says("cannot open libcupti", 10, "stderr")
    train.release()
    train.end()
    assert record.wait() == helpers.OK, record.what()
    assert Activities(record.file).gpu[train.pid]["tier"] == 1


def test_no_library(bench):
    train, record = start(bench, "-s", 10, inject=False)
    train.release()
    train.end()
    assert record.wait() == helpers.OK, record.what()
    found = Activities(record.file).gpu[train.pid]
    assert found["tier"] == 1 and "without libstepflame-inject.so" in found["why"]
    assert not train.cupti()


def test_killed(bench):
    """Without stepflame the library goes to sleep by itself; the next one finds it in order."""
    train, record = started(bench, "-s", 1500, "-u", 20000)
    train.release()
    record.kill()
    train.until_cupti("cuptiFinalize", seconds=4 * PATIENCE_SECONDS)
    record = bench.record("-p", train.pid, "--gpu", "cupti", "-F", 0, "--no-syscalls").until_armed()
    train.until_cupti("cuptiActivityFlushPeriod", 3)
    # And without that patience: one is killed, and another begins at once.
    record.kill()
    before = len(train.log("op"))
    record = bench.record("-p", train.pid, "--gpu", "cupti", "-F", 0, "--no-syscalls", "-d", "2s")
    assert record.wait() == helpers.OK, record.what()
    train.until_cupti("cuptiFinalize", 3)
    found = Activities(record.file)
    assert found.gpu[train.pid]["tier"] == 2 and found.of(recfile.KERNEL)
    recorded = {op["correlation"] for op in train.log("op")[before:] if op["recorded"]}
    assert {row["correlation"] for row in found.of(*OPS.values())} <= recorded


@pytest.mark.parametrize("when", ["before", "after"])
def test_forked(bench, when):
    """A child has no ring of its own unless it uses CUDA itself, and its parent's is left alone."""
    train, record = started(bench, "-s", 10, "-u", 5000, "--fork", when)
    train.release()
    train.end()
    assert record.wait() == helpers.OK, record.what()
    found = Activities(record.file)
    errors = check_ops_of(found, train)
    check_times(errors)


def check_ops_of(found, train):
    """Those of the program's first process; a child that trains may have its own."""
    found.rows = [row for row in found.rows if row["pid"] == train.pid]
    return check_ops(found, train)


def test_fork_in_window(bench):
    """Children of a program while a window is open: they begin no thread, call nothing of CUPTI's, and end as they should."""
    script = """
import ctypes, os, sys, time
cuda = ctypes.CDLL("libcudart.so.13")
assert cuda.cudaFree(None) == 0
print("ready %d" % os.getpid(), flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
for i in range(20):
    pid = os.fork()
    if not pid:
        names = [open("/proc/self/task/%s/comm" % tid).read().strip() for tid in os.listdir("/proc/self/task")]
        os._exit("stepflame-gpu" in names or "stepflame-gpu" in open("/proc/self/maps").read())
    assert os.waitpid(pid, 0)[1] == 0
    assert cuda.cudaDeviceSynchronize() == 0
"""
    go = bench.directory / "go"
    train, record = started(bench, command=[helpers.PYTHON, "-c", script, go])
    go.touch()
    train.end()
    assert record.wait() == helpers.OK, record.what()
    syncs = [s for s in train.log("sync") if s["recorded"]]
    assert len(Activities(record.file).of(recfile.GPU_SYNC)) == len(syncs) >= 20


def test_no_cuda(tmp_path):
    """The library in a program that never calls it does nothing: no output, thread, memory or open file."""
    script = "import os; print(len(os.listdir('/proc/self/task')), 'stepflame-gpu' in open('/proc/self/maps').read(), len(os.listdir('/proc/self/fd')))"
    outputs = []
    for env in ({}, {"LD_PRELOAD": str(gpu.INJECT), "CUDA_INJECTION64_PATH": str(gpu.INJECT)}):
        done = subprocess.run([helpers.PYTHON, "-c", script], env={**os.environ, **env}, capture_output=True, text=True)
        assert done.returncode == 0 and not done.stderr
        outputs.append(done.stdout)
    assert outputs[0] == outputs[1]
    symbols = subprocess.run(["nm", "-D", "--defined-only", gpu.INJECT], capture_output=True, text=True, check=True)
    assert re.findall(r" [A-Z] (\w+)", symbols.stdout) == ["InitializeInjection"]


def test_no_driver(bench):
    """The library in a program that has not begun with CUDA: real CUPTIs crash without a driver, and are not called."""
    script = """
import ctypes, os, sys, time
assert ctypes.CDLL(sys.argv[1]).InitializeInjection() == 1
print("ready", flush=True)
while not os.path.exists(sys.argv[2]):
    time.sleep(0.01)
assert "libcupti" not in open("/proc/self/maps").read()
"""
    go = bench.directory / "go"
    program = bench.process(helpers.PYTHON, "-c", script, gpu.INJECT, go)
    program.until_says("ready", helpers.READY_SECONDS, "stdout")
    record = bench.record("-p", program.pid, "--gpu", "cupti", "-d", "1s")
    assert record.wait() == helpers.OK, record.what()
    assert "CUDA's driver is not in it" in record.stderr
    go.touch()
    assert program.wait() == 0, program.what()


def test_ring_full(bench):
    """stepflame is held up for a while: what found no room is counted, and all the rest is there."""
    train, record = started(bench, "-s", 40, "-l", 1500, "-k", 100, "-c", 0, "-m", 0)
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


@pytest.mark.parametrize("cupti, counter", [("drop=7", "gpu_dropped"), ("no_time=5", "gpu_bad"), ("unknown=9", "gpu_bad")])
def test_losses(bench, cupti, counter):
    """What CUPTI dropped, what has no times, what is of a kind that nobody knows: counted, and the rest is there."""
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
    elif cupti.startswith("no_time"):
        assert 0 < came < len(recorded) and came + found.counters[counter] == len(recorded)
    else:
        assert found.counters[counter] > 0 and came == len(recorded)
    assert found.gpu[train.pid]["lost"] == found.counters[counter]


def test_many_streams(bench):
    train, record = started(bench, "-s", 1, "-l", 6000, "-S", 3000, "-k", 1000)
    train.release()
    train.end()
    assert record.wait() == helpers.OK, record.what()
    found = Activities(record.file)
    check_ops(found, train)
    assert len({row["stream"] for row in found.of(recfile.KERNEL)}) == 3000


def test_other_tool(bench):
    """A tool of the program's own can have CUPTI behind our window, as torch.profiler would; not in it."""
    script = """
import ctypes, os, sys, time
cuda, cupti = ctypes.CDLL("libcudart.so.13"), ctypes.CDLL("libcupti.so.13")
assert cuda.cudaFree(None) == 0
print("ready %d" % os.getpid(), flush=True)
tool = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_void_p)(lambda *args: None)
handle = ctypes.c_void_p()
for path in sys.argv[1:]:
    while not os.path.exists(path):
        cuda.cudaDeviceSynchronize()
        time.sleep(0.01)
    print("subscribed", cupti.cuptiSubscribe(ctypes.byref(handle), tool, None), flush=True)
"""
    within, behind = bench.directory / "within", bench.directory / "behind"
    train, record = started(bench, command=[helpers.PYTHON, "-c", script, within, behind])
    within.touch()
    train.process.until_says("subscribed 39", 10, "stdout")
    record.interrupt()
    assert record.wait() == helpers.OK, record.what()
    train.until_cupti("cuptiFinalize")
    behind.touch()
    train.process.until_says("subscribed 0", 10, "stdout")
    train.end()


def test_no_calls(bench):
    """A program that calls nothing behind the window: CUPTI is left without cuptiFinalize, which could harm it there."""
    train, record = started(bench, "-s", 10)
    record.interrupt()
    assert record.wait() == helpers.OK, record.what()
    train.until_cupti("cuptiUnsubscribe")
    assert "cuptiFinalize" not in train.cupti()
    train.release()
    train.end()


def test_graphs_stay(bench):
    """Where graphs were launched CUPTI is not taken out of the process: coming back has crashed programs."""
    train, record = started(bench, "-s", 100, "-u", 20000, "-g", 4)
    train.release()
    helpers.until(30, lambda: len(train.log("op")) > 100, record.what)
    record.interrupt()
    assert record.wait() == helpers.OK, record.what()
    train.until_cupti("cuptiUnsubscribe")
    train.end()
    assert "cuptiFinalize" not in train.cupti()
    assert any(row["detail"][7] for row in Activities(record.file).of(recfile.KERNEL))
