# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`record --exact`: every call of a Python function, against cProfile; and that the job is left as it was."""

import os
import re
import signal
import struct
import subprocess
from pathlib import Path

import helpers
import pytest
import pythons
import recfile

pytestmark = helpers.needs_bpf

JOB = "exact_calls.py"
SECONDS = 60  # longer than the job
PER_CALL = 100e-6  # a few probes
# What runs around the functions that cProfile sees, in the same file.
AROUND = {"main", "run_threads", "call"}


def profiled(bench, python):
    """{"LINE NAME": [calls, primitive calls, tottime, cumtime]} by cProfile."""
    job = bench.job(JOB, "--profile", python=python).until_ready()
    job.release()
    truth = job.truth()
    # since 3.12 cProfile misses the first call of a thread now and then, on a busy machine
    threaded = next(row for key, row in truth["rows"].items() if key.endswith(" threaded"))
    threaded[:2] = [truth["threads"]] * 2
    if pythons.VERSIONS[python] >= (3, 14):  # close() enters a generator without a handler only where somebody profiles
        echo = next(row for key, row in truth["rows"].items() if key.endswith(" echo"))
        rounds = next(row[0] for key, row in truth["rows"].items() if key.endswith(" generator_raises")) // 2
        echo[:2] = [echo[0] - rounds] * 2
    return truth["rows"]


def recorded(bench, python, *args):
    record, truth = bench.recorded(JOB, *args, python=python, options=("--exact=force", "-F", 0, "-d", SECONDS))
    rows = {}
    for (_, file, line, name), row in recfile.read_calls(record.file).items():
        name = name.rsplit(".", 1)[-1]
        if file.endswith(JOB) and name not in AROUND:
            rows["%d %s" % (line, name)] = row
    return record, rows, truth


def check_counts(rows, truth):
    counts = {key: (row[0], row[1]) for key, row in rows.items()}
    expected = {key: (row[0], row[1]) for key, row in truth.items()}
    off = [key for key in {**expected, **counts} if counts.get(key) != expected.get(key)]
    assert not off, "\n".join("%s: %s, by cProfile %s" % (key, counts.get(key), expected.get(key)) for key in off)


@pythons.parametrize(pythons.SUPPORTED, long=(9, 10))
def test_counts(bench, python):
    """ncalls and primitive calls are cProfile's: recursive, generators, exceptions, threads, asyncio, objects."""
    truth = profiled(bench, python)
    record, rows, own = recorded(bench, python)
    if (3, 11, 0) <= pythons.VERSIONS[python] < (3, 11, 4):  # CPython gh-104405
        truth.pop(next(key for key in truth if key.endswith(" __getitem__")))
        rows = {key: row for key, row in rows.items() if not key.endswith(" __getitem__")}
        assert "__getitem__" in helpers.report_text(record.file, "--simple")
    check_counts(rows, truth)
    lost = helpers.report(record.file)["lost"]
    # functions of exec() are gone before their lines are read
    assert set(lost) <= {"call_unseen", "lines_lost"} and lost.get("call_unseen", 0) < 30, lost
    # what takes long takes what it takes
    busy, around = (next(rows[key] for key in rows if key.endswith(name)) for name in (" busy", " around"))
    assert own["busy"] <= busy[2] / 1e9 <= own["busy"] + PER_CALL + own["delayed"]
    assert busy[2] == busy[3] <= around[3] and around[2] / 1e9 <= PER_CALL + own["delayed"]


LOADS_LIBRARY = """
import ctypes, sys, time
ctypes.CDLL(sys.argv[1])
print("ready", flush=True)
time.sleep(600)
"""


@pythons.parametrize(pythons.of_minor(13))
def test_a_file_searched_before(bench, python):
    """The interpreter's library, which another process maps that does not run by it, and in which something else is looked for."""
    job = bench.job(JOB, python=python).until_ready()
    library = next(path for path in Path("/proc/%d/maps" % job.pid).read_text().split() if "/libpython" in path)
    other = bench.process(pythons.SYSTEM, "-c", LOADS_LIBRARY, library).until_ready()
    pids = "%d,%d" % (other.pid, job.pid)  # in this order
    record = bench.record("-p", pids, "--exact=force", "-F", 0, "-d", 5, "--action", library + ":PyObject_IsTrue").until_armed()
    job.release()
    job.truth()
    assert record.wait() == helpers.OK, record.what()
    assert sum(row[0] for row in recfile.read_calls(record.file).values()) > 1000


@pythons.parametrize({name: python for name, python in pythons.SUPPORTED.items() if pythons.MINOR[python] != 12}, long=(9, 10))
def test_deep(bench, python):
    """More calls in each other than are kept: the rest is counted as lost. CPython 3.12 cannot recurse so deep while watched."""
    record, rows, _ = recorded(bench, python, "--deep", 2000)
    kept, whole = next(row[0] for key, row in rows.items() if key.endswith(" deep")), 2 * 2001
    assert whole - 2 * 1000 < kept < whole - 2 * 900
    # and the leaf at the end of each
    assert helpers.report(record.file)["lost"]["stack_full"] == whole - kept + 2


RECURSES = """
import time
def down(n): return n and down(n - 1)
print("ready", flush=True)
end = time.monotonic() + 5
while time.monotonic() < end:
    down(900)
    time.sleep(0.01)
"""


@pythons.parametrize(pythons.of_minor(11, 12, 13, 15))
def test_recursion(bench, python):
    """Within the limit of the program, that is none of its errors: so 3.12.1, where it would be one, is left alone."""
    job = bench.process(python, "-c", RECURSES).until_ready()
    record = bench.record("-p", job.pid, "--exact", "-F", 0, "-d", 1)
    if pythons.VERSIONS[python] == (3, 12, 1):
        assert record.wait() == helpers.UNSUPPORTED, record.what()
        assert "RecursionError" in record.stderr and "--exact=force" in record.stderr, record.what()
    else:
        assert record.wait() == helpers.OK, record.what()
    assert job.wait() == 0, job.what()


@pytest.mark.parametrize("options", [("--steps", 3), ("-d", "1s")], ids=["steps", "time"])
def test_with_torch(bench, options):
    """A training loop, in a window of it: calls and steps agree, and calls are told apart by the spans around them."""
    job = bench.job("plain_loop.py", "--epochs", 1, "--batches", 400, "--labels").until_ready()
    record = bench.record("-p", job.pid, "--exact=force", *options).until_armed()
    job.release()
    assert record.wait() == helpers.OK, record.what()
    assert job.wait() == 0, job.what()
    rows = recfile.read_calls(record.file)
    steps = helpers.report(record.file)["window"]["steps"]
    (step,) = [row for (_, file, _, name), row in rows.items() if file.endswith("optim/sgd.py") and name.endswith("step")] or [[0]]
    assert abs(step[0] - steps) <= 1 and steps


class Word:
    """The word that --exact writes, read from outside."""

    def __init__(self, pid, stderr):
        self.pid = pid
        self.address = int(re.search(r"8 bytes at 0x([0-9a-f]+)", stderr).group(1), 16)

    def read(self):
        with open("/proc/%d/mem" % self.pid, "rb", 0) as f:
            f.seek(self.address)
            return struct.unpack("=Q", f.read(8))[0]


ENDS = [(python, "killed") for python in pythons.FEW.values()] + [(pythons.NEWEST, "interrupted"), (pythons.NEWEST, "time is over")]
AGES = {pythons.OLDEST: "oldest", pythons.NEWEST: "newest"}


@pytest.mark.alone
@pytest.mark.parametrize("python, end", ENDS, ids=["%s-%s" % (AGES.get(python, python), end) for python, end in ENDS])
def test_left_as_it_was(bench, python, end):
    """The word is NULL again, and no probe is left, however stepflame ends."""
    job = bench.job("exact_speed.py", python=python).until_ready()
    job.release()
    job.until_says(r" ns$", 10, "stdout")
    assert not helpers.breakpoints(job.pid)
    record = bench.record("-p", job.pid, "--exact=force", "-d", 2 if end == "time is over" else SECONDS).until_armed()
    word = Word(job.pid, record.stderr) if pythons.MINOR[python] >= 11 else None
    assert not word or word.read() != 0
    assert helpers.breakpoints(job.pid)
    if end == "killed":
        record.popen.send_signal(signal.SIGKILL)
    elif end == "interrupted":
        record.interrupt()
    record.wait()
    if word:
        helpers.until(5, lambda: word.read() == 0, lambda: hex(word.read()))
    helpers.until(5, lambda: not helpers.guardians(target=job), lambda: helpers.guardians(target=job))
    # uprobes are taken away behind us when the process was killed
    helpers.until(10, lambda: not helpers.breakpoints(job.pid), lambda: str(helpers.breakpoints(job.pid)))
    assert job.running()


@pytest.mark.parametrize("children", ["all", "none", "killed"])
def test_forks(bench, children):
    """A child has the word, too: it is seen or let go, and in the end left as it would have been."""
    job = bench.job("exact_forks.py", python=pythons.NEWEST).until_ready()
    options = ["--children", "none"] if children == "none" else []
    record = bench.record("-p", job.pid, "--exact=force", "-F", 0, "-d", SECONDS, *options).until_armed()
    job.release()
    child = int(job.until_says(r"^child (\d+)$", 10, "stdout").group(1))
    words = [Word(pid, record.stderr) for pid in (job.pid, child)]
    if children == "none":
        helpers.until(5, lambda: words[1].read() == 0, lambda: hex(words[1].read()))
    job.until_ran()
    assert words[0].read() != 0 and (words[1].read() == 0) == (children == "none")
    record.popen.send_signal(signal.SIGKILL if children == "killed" else signal.SIGINT)
    record.wait()
    helpers.until(5, lambda: not any(word.read() for word in words), lambda: [hex(word.read()) for word in words])
    if children != "killed":
        found = {pid for pid, _, _, name in recfile.read_calls(record.file) if name == "leaf"}
        assert found == ({job.pid} if children == "none" else {job.pid, child})


def test_compiled(bench):
    """torch.compile sets an evaluation function of its own: the job computes what it does, and it is said."""
    if not has_compile():
        pytest.skip("this torch has no torch.compile")
    options = [["-d", SECONDS], ["-d", SECONDS, "--exact=force"]]
    jobs = [bench.job("compiled.py", "--batches", 2000) for _ in options]
    records = [bench.record("-p", job.until_ready().pid, *more).until_armed() for job, more in zip(jobs, options)]
    for job in jobs:
        job.release()
    expected, truth = (job.truth() for job in jobs)
    assert [record.wait() for record in records] == [helpers.OK] * 2, [record.what() for record in records]
    assert truth["losses"] == expected["losses"]
    assert "set its own evaluation function" in helpers.report_text(records[1].file, "--simple").replace("\n  ", " ")


def has_compile():
    command = [helpers.PYTHON, "-c", "import torch; torch.compile(torch.nn.Identity(), backend='eager')(torch.ones(1))"]
    return subprocess.run(command, capture_output=True).returncode == 0


def has(module, python):
    return subprocess.run([python, "-c", "import " + module], capture_output=True).returncode == 0


WITH_GREENLETS = [python for python in dict.fromkeys([helpers.PYTHON, *pythons.SUPPORTED.values()]) if has("greenlet", python)]


@pytest.mark.parametrize("python", WITH_GREENLETS or [None])
def test_greenlets(bench, python):
    """Stacks are switched inside of calls: the program lives; what is never suspended is exact, the rest is counted as lost."""
    if not python:
        pytest.skip("no Python here has greenlet")
    record, truth = bench.recorded("greenlets.py", python=python, options=("--exact=force", "-F", 0, "-d", SECONDS))
    rows = {name: row for (_, _, _, name), row in recfile.read_calls(record.file).items()}
    assert rows["callback"][:2] == [truth["callback"], truth["callback"]]
    assert rows.get("switches", [0])[0] <= truth["switches"]
    assert helpers.report(record.file)["lost"]["unwound"] > 0


@pytest.mark.parametrize("options", [[], ["--ops"]])
def test_usage(tmp_path, options):
    result = helpers.stepflame("record", "-p", os.getpid(), "--exact", *options, cwd=tmp_path)
    assert result.returncode == helpers.USAGE, result
    assert "-d TIME or --steps N" in result.stderr
