# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
A library is brought into running programs, which compare what they compute, and what each of their system calls returns and
how long it takes, with what must be; stepflame is killed meanwhile; and who is refused.
"""

import bisect
import ctypes
import os
import random
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import gpu
import helpers
import pytest
import recfile
from gpu_train import Train

pytestmark = helpers.needs_bpf

TOOL = Path(helpers.STEPFLAME).parent / "tools" / "inject"
ENTRY = "InitializeInjection"
CALLS = ["nanosleep", "abstime", "poll", "select", "epoll", "cond", "semaphore", "read", "recv", "accept", "wait"]
CALLS += ["registers", "signals"]
LOOP = "plain_loop.py"
LONG = (LOOP, "--epochs", 4, "--batches", 50, "--workers", 2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("inject")


@pytest.fixture(scope="module")
def library(folder):
    return helpers.compiled(folder / "library.so", helpers.JOBS / "inject_library.c", "-shared", "-fPIC")


@pytest.fixture(scope="module")
def blocked(folder):
    return helpers.compiled(folder / "blocked", helpers.JOBS / "blocked.c", "-pthread")


@pytest.fixture(scope="module")
def cuda(folder):
    """Empty libraries of CUDA's names."""
    source = folder / "empty.c"
    source.write_text("int empty;\n")
    for name in ("libcuda.so.1", "libcupti.so.12"):
        helpers.compiled(folder / name, source, "-shared", "-fPIC")
    return folder


class Blocked:
    """The program, and what it says at its end."""

    def __init__(self, bench, program, which, seconds):
        self.log = bench.directory / ("log%d" % len(bench.started))
        self.process = bench.process(program, which, seconds, env=dict(os.environ, INJECT_LOG=str(self.log)))
        self.pid = self.process.pid
        self.process.until_ready()

    def check(self):
        assert self.process.wait() == 0, self.process.what()
        found = re.search(r"^end rounds (\d+) wrong 0$", self.process.stdout, re.M)
        assert found and int(found.group(1)) > 0, self.process.what()

    def calls(self):
        return re.findall(r"^pid (\d+) tid (\d+) int 1 usr1 1$", self.log.read_text(), re.M) if self.log.exists() else []


def inject(pid, library, entry=ENTRY):
    """(exit status, {tid, stopped_us, loaded_us, result}, why)"""
    done = subprocess.run([TOOL, str(pid), str(library), entry], capture_output=True, text=True, timeout=120)
    numbers, _, why = done.stdout.strip().partition(" why=")
    return done.returncode, {key: int(value) for key, value in re.findall(r"(\w+)=(-?\d+)", numbers)}, why


def tasks(pid):
    try:
        return {int(tid) for tid in os.listdir("/proc/%d/task" % pid)}
    except FileNotFoundError:
        return set()


def test_each_call(bench, blocked, library):
    """One program for each, all at once: they do nothing but wait."""
    jobs = {call: Blocked(bench, blocked, call, 6) for call in CALLS}
    for call, job in jobs.items():
        before = tasks(job.pid)
        for _ in range(2):  # how many it has room for
            status, found, why = inject(job.pid, library)
            assert (status, why, found["result"]) == (0, "", 42), call
            assert found["tid"] in before | tasks(job.pid), call
        helpers.until(5, lambda job=job: len(job.calls()) == 2, lambda call=call: "not said that it was called: " + call)
        for pid, tid in job.calls():
            assert int(pid) == job.pid and int(tid) not in before, "in a thread of its own: " + call
    for job in jobs.values():
        job.check()


@pytest.mark.parametrize("which", ["handler", "lock"])
def test_unsafe(bench, blocked, library, which):
    """A thread in a signal handler, or one that waits for a lock, is never the one that is stopped."""
    job = Blocked(bench, blocked, which, 3)
    time.sleep(0.5)  # until the lock is taken
    status, found, why = inject(job.pid, library)
    assert (status, why, found["tid"]) == (0, "", job.pid)
    job.check()


def test_many(bench, blocked, library):
    """One after the other, all calls at once in each."""
    for _ in range(5 if helpers.LONG else 2):
        jobs = [Blocked(bench, blocked, "all", 2) for _ in range(10)]
        for job in jobs:
            status, found, why = inject(job.pid, library)
            assert (status, why, found["result"]) == (0, "", 42)
        for job in jobs:
            job.check()
            assert len(job.calls()) == 1


def children(pid):
    try:
        return [int(child) for child in Path("/proc/%d/task/%d/children" % (pid, pid)).read_text().split()]
    except OSError:
        return []


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def is_free(pid):
    """No thread of it is stopped or traced."""
    for tid in tasks(pid):
        try:
            text = Path("/proc/%d/task/%d/status" % (pid, tid)).read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if "TracerPid:\t0\n" not in text or re.search(r"^State:\s[tT]", text, re.M):
            return False
    return True


@pytest.mark.parametrize("who", ["both", "parent"])
def test_killed(bench, blocked, library, who):
    """Whoever is killed, whenever: the program does not notice. It is stopped no longer, and nobody traces it."""
    chance, took, loaded = random.Random(1), 0.02, 0
    rounds = 6 if helpers.LONG else 2
    for _ in range(rounds):
        jobs = [Blocked(bench, blocked, "all", 3) for _ in range(7)]
        for job in jobs:
            began = time.monotonic()  # clock: for a moment that is any
            tool = subprocess.Popen([TOOL, str(job.pid), str(library), ENTRY], stdout=subprocess.DEVNULL)
            if job is jobs[0]:
                assert tool.wait(60) == 0
                took = time.monotonic() - began  # clock: likewise
                continue
            time.sleep(chance.random() * took)  # clock: likewise
            injector = children(tool.pid) if who == "both" else []
            for pid in [*injector, tool.pid]:
                kill(pid)
            tool.wait()
        for job in jobs:
            helpers.until(helpers.END_SECONDS, lambda: is_free(job.pid), job.process.what)
        for job in jobs:
            job.check()
            loaded += len(job.calls())
    assert loaded >= rounds


# ptrace's calls in their order; POKEDATA, of which there are 48, comes fourth.
STEPS = {"seize": 1, "interrupt": 2, "getregs": 3, "first poke": 4, "some poke": 25, "last poke": 51, "setregs": 52, "detach": 53}


@pytest.mark.skipif(not shutil.which("strace"), reason="no strace")
@pytest.mark.parametrize("steps", list(zip(list(STEPS)[::2], list(STEPS)[1::2])), ids=" and ".join)
def test_killed_in_step(bench, blocked, library, steps):
    """Killed on the way into each call that does something to the program: before it is done."""
    jobs = {}
    for step in steps:
        jobs[step] = [Blocked(bench, blocked, call, 3) for call in ("poll", "cond", "read", "registers", "nanosleep")]
        for job in jobs[step]:
            inject_at = "inject=ptrace:signal=SIGKILL:when=%d" % STEPS[step]
            log = bench.directory / "strace"
            command = ["strace", "-f", "-o", log, "-e", "trace=ptrace", "-e", inject_at, TOOL, str(job.pid), str(library), ENTRY]
            done = subprocess.run(command, capture_output=True, text=True, timeout=120)
            said = log.read_text()
            assert "killed by SIGKILL" in said and "the process stepflame-inject was killed" in done.stdout, (said, done)
            name = "PTRACE_" + step.split()[-1].upper()
            assert name in [line for line in said.splitlines() if "ptrace(" in line][-1], said
            assert is_free(job.pid)
    for step in steps:
        for job in jobs[step]:
            job.check()
        loaded = sum(len(job.calls()) for job in jobs[step])
        assert loaded == (5 if step == "detach" else 0), "it is in the registers that the thread goes elsewhere"


def test_python(bench, library):
    """A training loop computes the same, with a library brought into it and its threads, under load."""
    alone = bench.job(*LONG).until_ready()
    alone.release()
    truth = alone.truth()
    job = bench.job(*LONG).until_ready()
    job.release()
    job.until_ready().until_ran()
    for _ in range(5):
        status, found, why = inject(job.pid, library)
        assert (status, why, found["result"]) == (0, "", 42)
    assert str(library) in Path("/proc/%d/maps" % job.pid).read_text()
    mine = job.truth()
    assert mine["weights"] == truth["weights"] and mine["steps"] == truth["steps"]


def test_cannot_be_loaded(bench, blocked, library, folder):
    job = Blocked(bench, blocked, "all", 3)
    status, found, why = inject(job.pid, folder / "none.so")
    assert status == 1 and "none.so" in why and "No such file" in why
    status, found, why = inject(job.pid, library, "NoSuchFunction")
    assert status == 1 and "NoSuchFunction" in why
    job.check()


def test_stopped(bench, blocked, library):
    job = Blocked(bench, blocked, "all", 4)
    os.kill(job.pid, signal.SIGSTOP)
    helpers.until(5, lambda: "State:\tT" in Path("/proc/%d/status" % job.pid).read_text(), lambda: "it runs")
    status, _, why = inject(job.pid, library)
    assert status == 1 and why
    assert "State:\tT" in Path("/proc/%d/status" % job.pid).read_text()
    os.kill(job.pid, signal.SIGCONT)
    assert job.process.wait() in (0, 1)  # SIGSTOP itself ends epoll_wait by EINTR
    assert not re.search("^(?!epoll|end)[a-z]+ rounds [0-9]+ wrong [^0]", job.process.stdout, re.M), job.process.what()


# ---- record --inject ----

IDLE = """
import ctypes, sys, threading, time
for name in sys.argv[1:]:
    ctypes.CDLL(name)
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
%s
print('ready', flush=True)
while True:
    time.sleep(1)
"""
FILTER = """
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
allow = (ctypes.c_ubyte * 8)(6, 0, 0, 0, 0, 0, 0xff, 0x7f)
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(Program(1, ctypes.addressof(allow))), 0, 0) == 0
"""


def idle(bench, *libraries, extra="", prefix=(), **env):
    command = [*prefix, helpers.PYTHON, "-c", IDLE % extra, *libraries]
    job = bench.process(*command, env=dict(os.environ, **env)).until_ready()
    return job


def record(bench, job, library, *options):
    env = dict(os.environ, STEPFLAME_INJECT=str(library))
    out = bench.directory / "inject.rec"
    return helpers.stepflame("record", "-p", job.pid, "-d", "1", "-o", out, "--inject", *options, env=env)


def test_recorded(bench, cuda, library):
    log = bench.directory / "log"
    job = idle(bench, cuda / "libcuda.so.1", cuda / "libcupti.so.12", INJECT_LOG=str(log))
    done = record(bench, job, library)
    assert done.returncode == helpers.OK, done.stderr
    said = [line for line in done.stderr.splitlines() if "--inject" in line]
    assert re.search(r"--inject: stops one thread of %d for about \d+ ms and loads %s into it" % (job.pid, library), said[0])
    assert re.search(r"thread \d+ of %d was stopped for [\d.]+ ms" % job.pid, said[1])
    assert log.read_text().count("pid %d" % job.pid) == 1
    assert job.running()


def test_not_asked_for(bench, cuda, library):
    job = idle(bench, cuda / "libcuda.so.1", cuda / "libcupti.so.12")
    before = Path("/proc/%d/maps" % job.pid).read_text()
    env = dict(os.environ, STEPFLAME_INJECT=str(library))
    done = helpers.stepflame("record", "-p", job.pid, "-d", "1", "-o", bench.directory / "none.rec", env=env)
    assert done.returncode == helpers.OK and "inject" not in done.stderr
    assert before.count(".so") == Path("/proc/%d/maps" % job.pid).read_text().count(".so")


@gpu.needs_cupti
def test_own_library(bench, cuda):
    """The library itself: its memory, its thread; a second recording finds it there."""
    job = idle(bench, cuda / "libcuda.so.1", cuda / "libcupti.so.12")
    done = record(bench, job, gpu.INJECT)
    assert done.returncode == helpers.OK, done.stderr
    files = [os.readlink(entry.path) for entry in os.scandir("/proc/%d/fd" % job.pid)]
    assert len([name for name in files if name.startswith("/memfd:stepflame-gpu")]) == 1
    names = [Path("/proc/%d/task/%d/comm" % (job.pid, tid)).read_text().strip() for tid in tasks(job.pid)]
    assert names.count("stepflame-gpu") == 1
    done = record(bench, job, gpu.INJECT)
    assert done.returncode == helpers.OK and "already" in done.stderr, done.stderr
    assert job.running()


def test_elsewhere(bench, cuda, library, folder):
    """A process that does not see the library gets a copy, which is gone afterwards."""
    log, hidden = bench.directory / "log", folder / "hidden"
    hidden.mkdir(exist_ok=True)
    there = hidden / "library.so"
    there.write_bytes(library.read_bytes())
    script = 'mount --make-rprivate / && mount -t tmpfs none %s && exec "$@"' % hidden
    if subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", "true"], capture_output=True).returncode:
        pytest.skip("no mount namespaces")
    prefix = ["unshare", "-m", "sh", "-c", script, "sh"]
    job = idle(bench, cuda / "libcuda.so.1", cuda / "libcupti.so.12", prefix=prefix, INJECT_LOG=str(log))
    done = record(bench, job, there)
    assert done.returncode == helpers.OK, done.stderr
    copy = re.search(r"loads (\S+) \(a copy", done.stderr).group(1)
    assert not os.path.exists("/proc/%d/root%s" % (job.pid, copy))
    assert copy in Path("/proc/%d/maps" % job.pid).read_text()
    assert log.read_text().count("\n") == 1


def refused(bench, job, library, what, code=helpers.UNSUPPORTED):
    done = record(bench, job, library)
    assert done.returncode == code, done.stderr
    assert what in done.stderr and "fix:" in done.stderr and "--inject: stops" not in done.stderr
    assert str(library) not in Path("/proc/%d/maps" % job.pid).read_text()
    assert job.running()


def test_no_cuda(bench, library):
    refused(bench, idle(bench), library, "does not use CUDA")


def test_no_cupti(bench, cuda, library, folder):
    apart = folder / "apart"
    apart.mkdir(exist_ok=True)
    (apart / "libcuda.so.1").write_bytes((cuda / "libcuda.so.1").read_bytes())
    if list(Path("/usr/lib/x86_64-linux-gnu").glob("libcupti.so*")):
        pytest.skip("this machine has a libcupti that all programs see")
    script = 'mount --make-rprivate / && for d in /usr/local/cuda*; do mount -t tmpfs none $d || true; done; exec "$@"'
    prefix = ["unshare", "-m", "sh", "-c", script, "sh"]
    refused(bench, idle(bench, apart / "libcuda.so.1", prefix=prefix), library, "sees no libcupti")


def test_seccomp(bench, cuda, library):
    job = idle(bench, cuda / "libcuda.so.1", cuda / "libcupti.so.12", extra=FILTER)
    refused(bench, job, library, "seccomp")


def test_traced(bench, cuda, library):
    job = idle(bench, cuda / "libcuda.so.1", cuda / "libcupti.so.12")
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    assert libc.ptrace(0x4206, job.pid, None, None) == 0  # PTRACE_SEIZE: of this process, until the test ends
    refused(bench, job, library, "is being traced by process", helpers.ERROR)
    job.popen.kill()


def test_of_no_use(bench, cuda, library):
    job = idle(bench, cuda / "libcuda.so.1", cuda / "libcupti.so.12")
    assert record(bench, job, library, "--gpu", "uprobe").returncode == helpers.USAGE


def test_with_a_command():
    assert helpers.stepflame("record", "--inject", "--", "true").returncode == helpers.USAGE


@gpu.needs_doubles
@gpu.needs_cupti
def test_what_the_gpu_did(bench):
    """A program that trains since before, with doubles of CUDA and CUPTI: each kernel of their log, of the time recorded."""
    train = Train(bench, "--steps", 400, "--sleep-us", 10000, inject=False)
    train.release()
    time.sleep(0.5)
    out = bench.directory / "gpu.rec"
    done = helpers.stepflame("record", "-p", train.pid, "-d", "2", "-o", out, "--inject")
    assert done.returncode == helpers.OK, done.stderr
    train.end()
    truth = sorted((op["start"], op["end"]) for op in train.log("op") if op["kind"] == "kernel")
    rows = [row for kind, row in recfile.read_records(out) if kind == "GPU_ACTIVITY" and row.kind == recfile.KERNEL]
    told = sorted((row.start_ns, row.start_ns + row.duration_ns) for row in rows)
    slack_ns = 200000
    within = [one for one in truth if told[0][0] - slack_ns <= one[0] <= told[-1][0] + slack_ns]
    assert len(told) > 100 and abs(len(within) - len(told)) <= 2, (len(within), len(told))
    starts = [start for start, _ in truth]
    for start, end in told:
        at = bisect.bisect(starts, start)
        assert any(abs(s - start) < slack_ns and abs((e - s) - (end - start)) < 1000 for s, e in truth[max(at - 3, 0) : at + 3])
