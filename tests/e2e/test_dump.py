# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`stepflame dump` against what faulthandler says inside the job, on every CPython that is installed."""

import json
import os
import re
import subprocess
import time

import helpers
import pytest
import pythons
from helpers import OK, TARGET, UNSUPPORTED, USAGE, check_message, stepflame

JOB = helpers.JOBS / "hang.py"


CAUSES = {
    "sleeps": "sleep",
    "locks": "lock",
    "gets": "lock",
    "reads_pipe": "pipe",
    "receives": "socket",
    "selects": "poll",
    "waits_for_child": "child_wait",
    "recurses": "sleep",
    "generates": "sleep",
    "makes": "sleep",
    "exits": "sleep",
    "runs_loop": "poll",
    "runs_blocked_loop": "sleep",
}


class Hang:
    def __init__(self, bench, python, *args):
        self.start = time.monotonic()  # clock: for test_how_long
        self.out = str(bench.directory / "hang")
        self.process = bench.process(python, JOB, self.out, python, *args, start_new_session=True)
        self.pid = self.process.pid

    def until_ready(self):
        self.process.until_ready()
        with open(self.out + ".json") as file:
            told = json.load(file)
        self.child, self.native = told["child"], told["native"]
        self.tids = {name: thread["tid"] for name, thread in told["threads"].items()}
        self.idents = {thread["ident"]: name for name, thread in told["threads"].items()}
        return self

    def stacks(self):
        """{thread: [(file, line, name)]} of faulthandler; None last, where 3.14's loses its way: below a frame of the interpreter's own."""
        stacks = {}
        with open(self.out + ".txt") as file:
            for line in file:
                thread = re.match(r"(?:Current thread|Thread) 0x([0-9a-f]+)", line)
                frame = re.match(r'  File "(.*)", line (\d+|\?\?\?) in (.*)$', line)
                if thread:
                    stack = stacks.setdefault(self.idents.get(int(thread.group(1), 16)), [])
                elif frame and frame.group(2) != "???":
                    stack.append((frame.group(1), int(frame.group(2)), frame.group(3)))
                elif "<invalid frame>" in line:
                    stack.append(None)
        return stacks

    def dump(self):
        result = stepflame("dump", "-p", self.pid, "--json")
        assert result.returncode == OK and not result.stderr, result
        found = json.loads(result.stdout)
        assert found["report"] == "dump"
        self.targets = {target["pid"]: target for target in found["target"]}
        return {(thread["pid"], thread["tid"]): thread for thread in found["threads"]}


@pytest.fixture
def hang(bench):
    jobs = []

    def start(python, *args):
        jobs.append(Hang(bench, python, *args))
        return jobs[-1].until_ready()

    yield start
    for job in jobs:
        os.killpg(job.pid, 9)  # its children too


def frames(thread):
    """As faulthandler has them: names without their class, 100 frames at most."""
    return [(frame["file"], frame["line"], frame["name"].rsplit(".", 1)[-1]) for frame in thread["frames"]][:100]


def switches(pid, tid):
    with open("/proc/%d/task/%d/status" % (pid, tid)) as status:
        return [line for line in status if "ctxt_switches" in line]


@pythons.on_each
def test_waiting(hang, python):
    job = hang(python)
    before = {tid: switches(job.pid, tid) for tid in job.tids.values()}
    found = job.dump()
    assert {tid: switches(job.pid, tid) for tid in job.tids.values()} == before, "a thread was woken"

    assert set(job.tids) == set(CAUSES)
    truth = job.stacks()
    for name, tid in job.tids.items():
        thread = found[job.pid, tid]
        seen = frames(thread)
        if truth[name][-1] is None:
            seen[len(truth[name]) - 1 :] = [None]
        assert seen == truth[name], name
        assert (thread["stack"], thread["state"], thread["blocked_on"]) == ("whole", "sleeping", CAUSES[name]), name
        assert thread["op"] is None and thread["holds_gil"] is False
    qualified = "Made.__init__" if pythons.MINOR[python] >= 11 else "__init__"
    assert found[job.pid, job.tids["makes"]]["frames"][0]["name"] == qualified
    main = found[job.pid, job.pid]
    assert [name for _, _, name in frames(main)] == ["sleeps", "main", "<module>"]
    assert [file for file, _, _ in frames(main)] == [str(JOB)] * 3


@pythons.on_few
def test_processes(hang, python):
    """Children are there, those that were forked and those that were started; and threads that run no Python."""
    job = hang(python)
    found = job.dump()
    assert job.targets[job.pid]["role"] == "main" and job.targets[job.child]["role"] == "child"
    assert job.targets[job.child]["python"] == job.targets[job.pid]["python"]
    assert len(job.targets) == 3  # that of waits_for_child
    child = found[job.child, job.child]
    assert [name for _, _, name in frames(child)][:2] == ["sleeps", "forked"] and child["blocked_on"] == "sleep"
    (started,) = set(job.targets) - {job.pid, job.child}
    assert [(file, line) for file, line, _ in frames(found[started, started])] == [("<string>", 1)]
    if job.native:
        thread = found[job.pid, job.native]
        assert thread["stack"] == "none" and thread["frames"] == [] and thread["syscall"] == 34  # pause


def test_how_long(hang):
    """blocked_s grows by the time that passes, and began before the job was ready."""
    if not os.path.exists("/proc/self/sched"):
        pytest.skip("this kernel has no /proc/PID/sched")
    job = hang(pythons.NEWEST)
    ready = time.monotonic()
    for pause in (0, 1.0):
        time.sleep(pause)
        least = time.monotonic() - ready
        found = job.dump()
        most = time.monotonic() - job.start
        for name, tid in job.tids.items():
            assert least - 0.05 < found[job.pid, tid]["blocked_s"] < most, name


LINES = {name: number for number, line in enumerate(JOB.read_text().splitlines(), 1) for name in re.findall(r"def (\w+)\(", line)}
CALLS = {
    "calls": [("starts", LINES["starts"] + 2)],
    "called": [("calls", LINES["calls"] + 2), ("called", LINES["called"] + 1)],
    "left": [("calls", LINES["calls"] + 3)],
    "right": [("calls", LINES["calls"] + 4)],
    "within_left": [("left", LINES["left"] + 1)],
    "within_right": [("right", LINES["right"] + 2)],
}
THREADING = ("run", "_bootstrap_inner", "_bootstrap")


@pythons.on_few
def test_busy(hang, python):
    """Threads that run, and take the GIL from each other: what is printed of a stack in motion is true."""
    job = hang(python, "--busy")
    waits, holds, whole, torn = 0, 0, 0, []
    for _ in range(60):
        found = job.dump()
        spins, calls = (found[job.pid, job.tids[name]] for name in ("spins", "calls"))
        for thread in (spins, calls):
            assert thread["blocked_on"] in (None, "gil"), thread
            assert not (thread["blocked_on"] and thread["state"] != "sleeping")
            waits += thread["blocked_on"] == "gil"
            holds += thread["holds_gil"]
            inner, outer = frames(thread)[:-4], frames(thread)[-4:]
            assert tuple(name for _, _, name in outer) == ("starts",) + THREADING, outer
            assert all(file == str(JOB) for file, _, _ in inner)
            if thread is spins and thread["stack"] == "whole":
                ((_, line, name),) = inner
                assert name == "spins" and line in (LINES["spins"] + 1, LINES["spins"] + 2)
            if thread is calls:
                whole += thread["stack"] == "whole"
                for (_, line, name), (_, caller_line, caller) in zip(inner, [*inner[1:], outer[0]]):
                    assert name in CALLS and caller in {caller for caller, _ in CALLS[name]}, (inner, name)
                    if (caller, caller_line) not in CALLS[name]:
                        torn.append((inner, name))
                    assert LINES[name] <= line < LINES[name] + 5
    if python in pythons.FREE_THREADED.values():
        assert not waits and not holds and whole > 5, (waits, holds, whole)
    else:
        assert waits > 5 and holds > 5 and whole > 5, (waits, holds, whole)
    # that several readings of a running thread agree is no proof (docs/dump.md)
    assert len(torn) <= 1, torn


def test_text(hang):
    job = hang(pythons.OLDEST)
    result = stepflame("dump", "-p", "%d,%d" % (job.pid, job.child))
    assert result.returncode == OK and not result.stderr, result
    assert result.stdout.count("pid %d (" % job.child) == 1
    told = "thread %d " % job.tids["reads_pipe"]
    lines = result.stdout.splitlines()
    (at,) = [i for i, line in enumerate(lines) if told in line]
    assert re.search(r": sleeping, pipe \(read\)( \d+\.\d s)?$", lines[at])
    assert lines[at + 1] == "    %s:%d reads_pipe" % (JOB, LINES["reads_pipe"] + 1)


def test_recursion(bench):
    """Deeper than what is kept: the innermost frames, and it is said."""
    code = "import sys, time, threading\nsys.setrecursionlimit(10000)\nthreading.stack_size(512 << 20)\ndef f(n):\n    f(n - 1) if n else (print('ready', flush=True), time.sleep(60))\nt = threading.Thread(target=f, args=(5000,), daemon=True)\nt.start()\nt.join()\n"
    job = bench.process(pythons.NEWEST, "-c", code).until_ready()
    found = json.loads(stepflame("dump", "-p", job.pid, "--json").stdout)
    (deep,) = [thread for thread in found["threads"] if thread["tid"] != job.pid]
    assert deep["stack"] == "cut" and len(deep["frames"]) == 4096
    assert {(frame["name"], frame["line"]) for frame in deep["frames"]} == {("f", 5)}


def test_not_python(bench):
    sleep = bench.process("sleep", 60)
    helpers.until(10, lambda: open("/proc/%d/syscall" % sleep.pid).read().startswith("230 "), sleep.what)
    result = stepflame("dump", "-p", sleep.pid)
    assert result.returncode == OK and "sleep (clock_nanosleep)" in result.stdout, result
    assert sleep.running()


@pytest.mark.parametrize("python", [python for python, minor in pythons.MINOR.items() if minor == 7])
def test_old_python(bench, python):
    """Its threads are there, without stacks."""
    job = bench.process(python, "-c", "import time; print('ready', flush=True); time.sleep(60)").until_ready()
    result = stepflame("dump", "-p", job.pid)
    check_message(result, UNSUPPORTED)
    assert "(no stacks: " in result.stdout and "thread %d " % job.pid in result.stdout


def test_errors():
    child = subprocess.Popen(["true"])
    child.wait()
    check_message(stepflame("dump", "-p", child.pid), TARGET)
    for args in (["-p", "x"], ["-p", "1", "more"], ["-p", "1,"]):
        result = stepflame("dump", *args)
        assert result.returncode == USAGE and not result.stdout, result
