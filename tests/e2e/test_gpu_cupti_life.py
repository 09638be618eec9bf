# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The injection library in a program: asleep, refused, killed with its recorder, in children, beside other tools, and gone when its window ends."""

import os
import re
import subprocess
import time
from pathlib import Path

import gpu
import helpers
import pytest
import recfile
from gpu_train import NEEDS_CUPTI, OPS, PATIENCE_SECONDS, Activities, Train, check_ops, check_ops_of, check_times, start, started

pytestmark = NEEDS_CUPTI


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
        ({"cupti": "fail_cuptiSubscribe_v2=35"}, ("the driver lets only root profile", "fix: options nvidia NVreg_RestrictProfilingToAdminUsers=0")),
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
    before = helpers.until(helpers.END_SECONDS, lambda: thread_of(train.pid), train.process.what, train.process.delayed)
    assert before[0] == 0
    train.until_ops(40)
    assert thread_of(train.pid) == before and not train.cupti()
    assert "libcupti" not in Path("/proc/%d/maps" % train.pid).read_text()
    record = bench.record("-p", train.pid, "--gpu", "cupti", "-d", "1s", "-F", 0)
    assert record.wait() == helpers.OK, record.what()
    train.until_cupti("cuptiFinalize")
    helpers.until(30, lambda: thread_of(train.pid) == (train.until_ops(40), thread_of(train.pid))[1], record.what)
    called, slept = len(train.cupti()), thread_of(train.pid)
    train.until_ops(100)
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


REFUSALS = {
    "busy=1": "another tool holds CUPTI: CUPTI for Kineto",
    "version=130300,several=1,busy=1": "another tool holds CUPTI: CUPTI for Kineto",  # it wants to be alone
    "version=130300,busy=2": "another tool holds CUPTI: CUPTI for Kineto",  # the driver is too old for several
    "version=130200,several=1,busy=2": "another tool holds CUPTI: CUPTI for Kineto",  # CUPTI is
    "fail_cuptiSubscribe_v2=15": "does not fit CUDA's driver",
    "fail_cuptiActivityEnable=14": "CUPTI refused, with error 14",  # as where another tool has used it for several
    "fail_cuptiSubscribe_v2=7": "CUPTI refused, with error 7",
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
    tries = 2 if "version=130300" in cupti else 1  # beside others, then alone
    assert names.count("cuptiSubscribe_v2") <= tries and "cuptiSubscribe" not in names
    assert ("cuptiActivityEnable" in names) == ("Enable" in cupti)
    if "Enable" in cupti:
        assert "cuptiUnsubscribe" in names


@pytest.mark.parametrize("cupti", ["busy=2", "busy=0", "busy=2,buffer_records=16,late_ms=30"])
def test_beside_others(bench, cupti):
    """Where CUPTI and its driver let several tools subscribe: all work arrives, and nothing is done that is of one tool alone (train.end)."""
    train, record = start(bench, "-s", 60, "-u", 2000, "-t", 3, "-g", 3, cupti="version=130300,several=1," + cupti)
    train.until_cupti("cuptiActivityFlushAll")
    train.release()
    helpers.until(helpers.END_SECONDS, lambda: len(train.log("op")) > 300, record.what)
    record.interrupt()
    assert record.wait() == helpers.OK, record.what()
    train.end()
    found = Activities(record.file)
    check_times(check_ops(found, train))
    assert found.gpu[train.pid]["tier"] == 2 and not found.gpu[train.pid]["why"]
    tids = {row["tid"] for row in found.of(recfile.GPU_API_CALL)}
    assert len(tids) >= 3 and tids <= {call["tid"] for call in train.log("call")}
    (subscribed,) = train.log("subscribed")
    assert subscribed == {"log": "subscribed", "name": "stepflame", "several": True, "result": 0}
    names = set(train.cupti())
    assert "cuptiUnsubscribe" in names and not {"cuptiFinalize", "cuptiActivityEnable", "cuptiActivityFlushPeriod", "cuptiSetThreadIdType"} & names


@pytest.mark.parametrize("late_ms", [400, 60000])
def test_beside_others_behind(bench, late_ms):
    """Beside others CUPTI is not made to give back what is not complete: the window's end waits for it, and counts what it waited for in vain."""
    train, record = start(bench, "-s", 400, "-u", 20000, "-t", 2, cupti="version=130300,several=1,busy=2,late_ms=%d" % late_ms)
    train.until_cupti("cuptiActivityFlushAll")
    train.release()
    helpers.until(helpers.END_SECONDS, lambda: len(train.log("op")) > 300, record.what)
    record.interrupt()
    assert record.wait() == helpers.OK, record.what()
    found = Activities(record.file)
    if late_ms < 1000:
        check_ops_of(found, train)
        assert not found.counters["gpu_dropped"] and not found.counters["gpu_bad"]
    else:
        assert found.counters["gpu_dropped"] > 0 and found.gpu[train.pid]["lost"] > 0
    train.end()


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
    program = bench.process(helpers.PYTHON, "-c", script, gpu.INJECT, go).until_ready()
    record = bench.record("-p", program.pid, "--gpu", "cupti", "-d", "1s")
    assert record.wait() == helpers.OK, record.what()
    assert "CUDA's driver is not in it" in record.stderr
    go.touch()
    assert program.wait() == 0, program.what()


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
