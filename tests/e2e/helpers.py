# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Starting jobs and stepflame, and comparing what stepflame says with what the job knows of itself."""

import array
import functools
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import forked
import pytest

ROOT = Path(__file__).resolve().parents[2]
STEPFLAME = str(ROOT / os.environ.get("STEPFLAME", "build/stepflame"))
PYTHON = os.environ.get("STEPFLAME_PYTHON", sys.executable)
JOBS = Path(__file__).resolve().parent / "jobs"

LONG = bool(os.environ.get("STEPFLAME_LONG"))  # more of what is done at random, and each job started anew
GATE = bool(os.environ.get("STEPFLAME_GATE"))  # make test: no verdict depends on how fast the machine is

OLD_TORCH = "Debian's torch 1.13"
SYSTEM_PYTHON = "/usr/bin/python3"  # of Debian, whose torch tools/setup.sh installs
# What the gate starts jobs with whose torch does not matter, and that are forked from nobody: up to a first step Debian's torch takes a quarter of the time.
COLD_PYTHON = SYSTEM_PYTHON if GATE and os.path.exists("/usr/lib/python3/dist-packages/torch") else PYTHON

PATIENCE = int(os.environ.get("STEPFLAME_PATIENCE", 1))  # how many times slower than others the machine is: one that is emulated
READY_SECONDS = 180 * PATIENCE  # a cold import of torch from disk, or compilers of it, on a slow machine
ARMED_SECONDS = 30 * PATIENCE
END_SECONDS = 60 * PATIENCE
BLOCKED_SECONDS = 120 * PATIENCE

OK, ERROR, USAGE, PERMISSION, TARGET, UNSUPPORTED = range(6)  # exit codes


def why_no_bpf():
    """Why stepflame cannot record here, or None."""
    if os.geteuid() != 0:
        return "recording needs root"
    if not os.path.exists("/sys/kernel/btf/vmlinux"):
        return "the kernel has no BTF (/sys/kernel/btf/vmlinux)"
    return None


needs_bpf = pytest.mark.skipif(why_no_bpf() is not None, reason=str(why_no_bpf()))


def on_torches(values, old):
    """
    Pairs for parametrize("python, ...", ..., indirect=["python"]): each value with the jobs' torch, and with one of another age (conftest.py's
    `python`) those in `old`; in `make test-all` all.
    """
    return [("torch 2", value) for value in values] + [
        pytest.param(OLD_TORCH, value, marks=() if value in old else pytest.mark.long) for value in values
    ]


def until(seconds, condition, what, delayed=lambda: 0):
    """
    The first true value of condition(), polled; fails after `seconds` with what what() says. Time that delayed() has come
    to meanwhile does not count.
    """
    begin = time.monotonic() - delayed()
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() - begin > seconds + delayed():
            pytest.fail("%d s passed: %s" % (seconds, what()))
        time.sleep(0.01)


def delayed(pid):
    """Seconds for which that of its threads which had to wait longest was ready to run, and did not."""
    most = 0
    try:
        for task in os.scandir("/proc/%d/task" % pid):
            most = max(most, int(Path(task.path, "schedstat").read_text().split()[1]))
    except (OSError, IndexError):
        pass  # it ends
    return most / 1e9


def state_of(pid):
    """Of its main thread, a letter; none where it has ended."""
    try:
        return Path("/proc/%d/stat" % pid).read_text(errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return ""


def children_of(pid):
    """That its main thread has started."""
    try:
        return [int(child) for child in Path("/proc/%d/task/%d/children" % (pid, pid)).read_text().split()]
    except OSError:
        return []


class Process:
    """A child whose output goes to files, so that it never blocks on us and we can read it while it runs."""

    def __init__(self, directory, name, command, **popen):
        self.name = name
        self.out_path = directory / (name + ".stdout")
        self.err_path = directory / (name + ".stderr")
        with open(self.out_path, "wb") as out, open(self.err_path, "wb") as err:
            popen.setdefault("stdin", subprocess.DEVNULL)
            self.popen = self.start([str(word) for word in command], stdout=out, stderr=err, **popen)
        self.pid = self.popen.pid

    def start(self, command, **popen):
        return subprocess.Popen(command, **popen)

    @property
    def stdout(self):
        return self.out_path.read_text(errors="replace")

    @property
    def stderr(self):
        return self.err_path.read_text(errors="replace")

    def what(self):
        return "%s: exit %s\n%s\n%s" % (self.name, self.popen.poll(), self.stdout[-2000:], self.stderr[-4000:])

    def running(self):
        return self.popen.poll() is None

    def delayed(self):
        return delayed(self.pid)

    def ran(self):
        """Seconds for which its threads, those that have not ended, have had a CPU."""
        try:
            return sum(int(Path(task.path, "schedstat").read_text().split()[0]) for task in os.scandir("/proc/%d/task" % self.pid)) / 1e9
        except (OSError, IndexError):
            pytest.fail("it ends: " + self.what())

    def until_ran(self, seconds=0.2):
        """Until it has had a CPU for so long: what a test waits for where the job shall do something meanwhile."""
        begin = self.ran()
        until(END_SECONDS, lambda: self.ran() >= begin + seconds, self.what, self.delayed)
        return self

    def wait(self, seconds=END_SECONDS):
        until(seconds, lambda: not self.running(), lambda: "still running: " + self.what(), self.delayed)
        return self.popen.poll()

    def until_says(self, pattern, seconds, stream):
        """Waits for a line that matches on "stdout" or "stderr"; fails if the process ends first."""

        def look():
            ended = not self.running()
            found = re.search(pattern, getattr(self, stream), re.M)
            if not found and ended:
                pytest.fail("ended without saying %r: %s" % (pattern, self.what()))
            return found

        return until(seconds, look, self.what, self.delayed)

    def until_ready(self):
        """Until it has said so, as jobs/common.py does and most programs of tests."""
        self.until_says(r"^ready\b", READY_SECONDS, "stdout")
        return self

    def interrupt(self):
        self.popen.send_signal(signal.SIGINT)

    def kill(self):
        if self.running():
            self.popen.kill()
            self.popen.wait()


class Job(Process):
    """
    A training job from jobs/, or another command, which waits for release() before its first step.

    Where nothing speaks against it, it is forked from a process that has imported torch. cold: it is not, and has COLD_PYTHON.
    """

    def __init__(self, directory, name, script, *args, python=PYTHON, command=None, env=None, cold=LONG):
        self.nursery = None
        if cold and python == PYTHON:
            python = COLD_PYTHON
        if python == PYTHON and not (command or env or cold):
            self.nursery = self.modules_of(JOBS / script)
        self.go = directory / (name + ".go")
        self.out = directory / (name + ".truth")
        self.args = [str(a) for a in args]
        self.script = script
        command = [*(command or [python, JOBS / script]), *self.args, "--wait", self.go, "--out", self.out]
        super().__init__(directory, name, command, env=dict(os.environ, PYTHONUNBUFFERED="1", **(env or {})))

    @staticmethod
    def modules_of(script):
        """What the script imports of what takes long, directly or by torch's optimizers; None: nothing."""
        text = script.read_text()
        if "import torch" not in text and "import lightning" not in text:
            return None
        return ("torch", "torch._dynamo", *(["lightning.pytorch"] if "import lightning" in text else []))

    def start(self, command, **popen):
        if not self.nursery:
            return super().start(command, **popen)
        nursery = forked.Nursery.of(PYTHON, self.nursery)
        return nursery.start(command[1:], str(self.out_path), str(self.err_path))

    def release(self):
        self.go.touch()

    def truth(self):
        """Waits for the end, which has to be a good one."""
        assert self.wait() == 0, self.what()
        return json.loads(self.out.read_text())


class Record(Process):
    """`stepflame record`, to a file of its own."""

    def __init__(self, directory, name, *args, output=None):
        assert os.access(STEPFLAME, os.X_OK), "%s is not there: run make" % STEPFLAME
        self.file = output or directory / (name + ".rec")
        self.delays, self.blocked, self.looked, self.most = {}, 0, time.monotonic(), 0
        super().__init__(directory, name, [STEPFLAME, "record", "-o", self.file, *args])

    def delayed(self):
        """
        With its children, which attach the probes and read the target. What waits in the kernel without end to it waits for others: to put a
        breakpoint in, the kernel waits until no process of the host is being forked.
        """
        now = time.monotonic()
        if now - self.looked < 0.1:
            return self.most
        for pid in [self.pid, *children_of(self.pid)]:
            self.delays[pid] = max(delayed(pid), self.delays.get(pid, 0))
            self.blocked += (now - self.looked) * (state_of(pid) == "D")
        self.looked = now
        self.most = sum(self.delays.values()) + min(self.blocked, BLOCKED_SECONDS)
        return self.most

    def until_armed(self):
        self.until_says("armed", ARMED_SECONDS, "stderr")
        return self


class Bench:
    """Starts things for one test, and ends those of them that are left when it ends."""

    def __init__(self, directory):
        self.directory = directory
        self.started = []

    def _name(self, kind):
        return "%s%d" % (kind, len(self.started))

    def _keep(self, process):
        self.started.append(process)
        return process

    def job(self, script, *args, **job):
        return self._keep(Job(self.directory, self._name(Path(script).stem), script, *args, **job))

    def record(self, *args, output=None):
        return self._keep(Record(self.directory, self._name("record"), *args, output=output))

    def process(self, *command, **popen):
        return self._keep(Process(self.directory, self._name("process"), command, **popen))

    def recorded(self, script, *args, options=(), **job):
        """Runs a job to its end under `record`, from before its first step. (record, truth)"""
        job = self.job(script, *args, **job).until_ready()
        record = self.record("-p", job.pid, *options).until_armed()
        job.release()
        truth = job.truth()
        assert record.wait() == OK, record.what()
        return record, truth

    def close(self):
        for process in self.started:
            process.kill()


def command_of(pid):
    try:
        return Path("/proc/%s/cmdline" % pid).read_text(errors="replace").split("\0")
    except OSError:
        return []


def guardians(parent=None, target=None):
    """
    Pids of the processes that attach the probes: of one recording, of all recordings of a target, that of a killed one too, or of all. Those that
    wait for their parent to notice their end are none.
    """
    found = set()
    for stat in glob.glob("/proc/[0-9]*/stat"):
        try:
            pid, name, state, of = re.match(r"(?s)(\d+) \((.*)\) (\S) (\d+)", Path(stat).read_text(errors="replace")).groups()
        except OSError:
            continue
        if name == "stepflame-guard" and state != "Z" and (int(of) == parent.pid if parent else not target or str(target.pid) in command_of(pid)):
            found.add(int(pid))
    return found


# with the events of tracefs, where it is not mounted in a mount namespace of its own
EVENTS = "/sys/kernel/tracing/uprobe_events"
MOUNTED = 'test -e %s || mount -t tracefs tracefs /sys/kernel/tracing && exec "$@"' % EVENTS
WITH_TRACEFS = ["unshare", "-m", "sh", "-c", MOUNTED, "sh"]

PAGE = os.sysconf("SC_PAGESIZE")
PAGE_PRESENT, PAGE_OF_FILE = 1 << 63, 1 << 61  # of /proc/PID/pagemap
BREAKPOINT = 0xCC


def breakpoints(pid):
    """Where uprobes are in a process's code: {(file, offset)} of the breakpoints in its memory that its files do not have."""
    found = set()
    with open("/proc/%d/pagemap" % pid, "rb", 0) as pagemap, open("/proc/%d/mem" % pid, "rb", 0) as memory:
        for line in Path("/proc/%d/maps" % pid).read_text().splitlines():
            span, access, offset, _, _, *path = line.split()
            if "x" not in access or not path or not path[0].startswith("/"):
                continue
            low, high = (int(word, 16) for word in span.split("-"))
            pages = array.array("Q", os.pread(pagemap.fileno(), (high - low) // PAGE * 8, low // PAGE * 8))
            with open(path[0], "rb", 0) as file:
                for number, page in enumerate(pages):
                    # a page with a breakpoint is the process's own, no longer the file's
                    if page & PAGE_PRESENT and not page & PAGE_OF_FILE:
                        at = int(offset, 16) + number * PAGE
                        ours, theirs = os.pread(memory.fileno(), PAGE, low + number * PAGE), os.pread(file.fileno(), PAGE, at)
                        if ours != theirs:
                            found |= {(path[0], at + i) for i, (a, b) in enumerate(zip(ours, theirs)) if a == BREAKPOINT != b}
    return found


def compiled(out, source, *flags):
    """`out`, by the C compiler; the test is skipped where there is none."""
    if not shutil.which("cc"):
        pytest.skip("no C compiler")
    subprocess.run(["cc", "-O1", "-w", "-o", str(out), str(source), *map(str, flags)], check=True)
    return out


def stepflame(*args, seconds=END_SECONDS, **run):
    """Runs stepflame to its end; the result has returncode, stdout and stderr."""
    assert os.access(STEPFLAME, os.X_OK), "%s is not there: run make" % STEPFLAME
    command = [STEPFLAME, *(str(a) for a in args)]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds, **run)


def report_text(file, *options):
    result = stepflame("report", file, *options)
    assert result.returncode == OK, result.stderr
    return result.stdout


class Busy(AssertionError):
    """
    What does not hold, and what the machine did may be why: the test is repeated when it is calm (conftest.py), and the
    last time this is a failure like any other.
    """


def blame_the_machine(what):
    """Raises Busy; in the gate, where a busy machine must not matter, only prints it."""
    if not GATE:
        raise Busy(what)
    print("not held against the job, for the machine may be to blame: %s" % (what,))


CALM = 0.05  # of the time, in which something was ready to run and did not


def stalled_seconds():
    """For how long something of this machine was ready to run and did not, since its start."""
    return int(re.search(r"^some .* total=(\d+)$", Path("/proc/pressure/cpu").read_text(), re.M)[1]) / 1e6


def await_calm(seconds):
    """Until the machine has had a calm second, or so many have passed."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        before = stalled_seconds()
        time.sleep(1)
        if stalled_seconds() - before < CALM:
            return


# So many rows in a hundred may be off by no more than this: a virtual machine is stopped where its own kernel does not
# see it.
STRAY_PERCENT = 3
STRAY_SECONDS = 0.02


def check_error(error, allowed, delayed, what):
    """
    |error| <= allowed. delayed: seconds that the job's thread waited for a CPU: where that falls between the job's reading of
    the clock and ours, it is the error of neither.
    """
    if abs(error) > allowed:
        assert abs(error) <= allowed + delayed + STRAY_SECONDS, what
        blame_the_machine(what)


# Now and then the timer meets a thread while it makes a frame, some 2 samples in 10,000.
TORN_STACKS = 2


def without_stacks(lost):
    """Without the stacks, and the reads of a frame whose page was not in memory just then."""
    stacks = lost.get("stack_lost", 0)
    return {name: count for name, count in lost.items() if name != "stack_lost" and not (name == "bad_read" and count <= stacks)}


class Lost(dict):
    """
    What a report says was lost. Where it is what it should be but for a torn stack or two, the test is repeated; in the gate, but for any number
    of stacks, since some kernels do not show all switches to BPF, and a busy machine switches more.
    """

    def __eq__(self, other):
        same = dict.__eq__(self, other)
        rest = without_stacks(self)
        if not same and (GATE or self.get("stack_lost", 0) <= TORN_STACKS) and rest == other:
            blame_the_machine("%s, and should be %s" % (dict(self), other))
            return True
        return same

    def __ne__(self, other):
        return not self == other


def check_lost_at_most(found, *names):
    """Nothing but of these kinds."""
    lost = without_stacks(found["lost"]) if "stack_lost" in names else found["lost"]
    assert Lost({name: count for name, count in lost.items() if name not in names}) == {}, found["lost"]


@functools.lru_cache
def schema():
    """That of the JSON of all reports, as the program prints it."""
    result = stepflame("report", "--json-schema")
    assert result.returncode == OK, result.stderr
    return json.loads(result.stdout)


@functools.lru_cache
def schema_validator():
    """None where the package jsonschema is missing."""
    try:
        import jsonschema
    except ImportError:
        return None
    return jsonschema.Draft202012Validator(schema())


def check_schema(found):
    """A report's JSON is as `report --json-schema` says."""
    validator = schema_validator()
    if validator:
        error = next(validator.iter_errors(found), None)
        assert not error, (error.message[:300], [list(e.absolute_path) + [e.message[:200]] for e in error.context][:20])


def report(file, *options):
    found = json.loads(report_text(file, "--json", *options))
    found["lost"] = Lost(found["lost"])
    return found


def actions(found):
    """{name: row} of a simple report's JSON; no name may come twice."""
    rows = {row["name"]: row for row in found["actions"]}
    assert len(rows) == len(found["actions"]), "a name comes twice"
    return rows


def check_counts(rows, truth):
    """truth: {name: count}. The same names and the same counts."""
    counts = {name: row["count"] for name, row in rows.items()}
    off = [name for name in {**truth, **counts} if counts.get(name) != truth.get(name)]
    assert not off, "\n".join("%s: %s, in truth %s" % (name, counts.get(name), truth.get(name)) for name in off)


COLD_SECONDS = 5e-6  # a row's first call runs code, of probes too, that no cache holds


def check_totals(rows, truth, relative, per_call, delayed, crowded=False):
    """
    truth: {name: (count, seconds)}. Totals agree within relative * seconds + per_call[name] * count + COLD_SECONDS, but for
    strays. per_call may be one number for all names. delayed: as check_error has it; no moment of it is in two rows' errors.
    crowded: the job's own workers take its CPU, and no calm would change that.
    """
    off = []
    for name, (count, seconds) in truth.items():
        error = abs(rows[name]["total_s"] - seconds)
        each = per_call[name] if isinstance(per_call, dict) else per_call
        allowed = relative * seconds + each * count + COLD_SECONDS
        if error > allowed:
            what = (name, rows[name]["total_s"], seconds, count)
            off.append((error, error - allowed, "%s: %.9f s, in truth %.9f s in %d calls" % what))
    strays = (len(truth) * STRAY_PERCENT + 50) // 100
    if len(off) <= strays and all(error < STRAY_SECONDS for error, _, _ in off):
        return
    text = "\n".join(line for _, _, line in off) + "\ndelayed %.9f s" % delayed
    over = sum(over for _, over, _ in off)
    assert over <= delayed + STRAY_SECONDS, text
    if not crowded or over > delayed:
        blame_the_machine(text)


def check_message(result, code):
    """One error message, with its fix, and this exit code."""
    assert result.returncode == code, (result.returncode, result.stdout, result.stderr)
    assert result.stderr.count("stepflame: error:") == 1, result.stderr
    assert "fix:" in result.stderr, result.stderr
