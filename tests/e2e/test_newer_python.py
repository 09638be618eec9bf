# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Interpreters of versions that stepflame does not know: read by their own tables, or recorded without stacks, in the same words everywhere."""

import json
import re
import struct

import helpers
import newer_python
import pytest
import pythons
from namespace import Host, needs_namespace
from test_plain import rows_by_part

pytestmark = helpers.needs_bpf

REFUSED = "no Python stacks, functions, actions or collections; labels, operators, steps, waits, I/O and GPU calls are there"
TRIED = "is laid out as no version that this stepflame knows"
# 3.13's table has nothing of generators, so it is no such version; it can lie all the same
TABLES = {name: python for name, python in pythons.SUPPORTED.items() if pythons.MINOR[python] >= 14}
NEWEST = [python for python in pythons.WITH_GIL.values() if pythons.MINOR[python] >= 13][-1:]

# Tells its stack, and then waits in it.
PROGRAM = """
import asyncio, json, sys, time, traceback
def tell(): print(json.dumps([[f.filename, f.lineno, f.name] for f in traceback.extract_stack()][::-1])); print("ready", flush=True); time.sleep(600)
def down(n): return down(n - 1) if n else tell()
def inner():
    yield 1
    down(40)
def outer(): yield from inner()
async def awaited(): list(outer())
async def main(): await awaited()
class Made:
    def __init__(self):
        asyncio.run(main())
try:
    raise ValueError
except ValueError:
    sorted([1], key=lambda _: Made())
"""


def start(bench, python, change=None):
    command, environment = newer_python.patched(python, bench.directory, change)
    program = bench.directory / "program.py"
    program.write_text(PROGRAM)
    return bench.process("env", *("%s=%s" % pair for pair in environment.items()), *command, program).until_ready()


def checked(job, name="Python"):
    """(exit code, verdict, text) of doctor's check."""
    result = helpers.stepflame("doctor", "-p", job.pid, "--json")
    (check,) = [check for check in json.loads(result.stdout)["checks"] if check["name"] == name]
    return result.returncode, check["verdict"], check["found"]


@pythons.parametrize(TABLES)
def test_as_if_unknown(bench, python):
    """The version is said to be 3.99: the stack is true, and each command says how it was read."""
    job = start(bench, python)
    dumped = json.loads(helpers.stepflame("dump", "-p", job.pid, "--json").stdout)
    (main,) = [thread for thread in dumped["threads"] if thread["tid"] == job.pid]
    told = json.loads(job.stdout.splitlines()[0])
    frames = [(frame["file"], frame["line"], frame["name"].rsplit(".", 1)[-1]) for frame in main["frames"]]
    assert frames == [tuple(frame) for frame in told if not frame[0].startswith("<frozen")] and len(frames) > 50
    record = bench.record("-p", job.pid, "-d", "300ms")
    assert record.wait() == helpers.OK, record.what()
    version = "Python 3.99.0" + "t" * (python in pythons.FREE_THREADED.values())
    assert version + " " + TRIED in record.stderr, record.what()
    assert any(TRIED in note for note in helpers.report(record.file)["notes"])
    code, verdict, found = checked(job)
    assert (code, verdict) == (helpers.OK, "WARN") and TRIED in found
    assert job.running(), job.what()


def word(at, value):
    """A change of the table: the word at that byte of it is another."""
    return lambda data, runtime: struct.pack_into("<Q", data, runtime + at, value)


ODD = "not supported or not laid out as expected"
LIES = {
    "no cookie": newer_python.break_table,
    "another version": word(8, 0x036200F0),
    "free-threaded": word(16, 1),
    "no sizes": word(24, 0),
    "interpreters elsewhere": word(40, 64),
    "threads elsewhere": word(72, 8),
    "huge": word(72, (1 << 64) - 8),
    "all zero": lambda data, runtime: data.__setitem__(slice(runtime + 24, runtime + 600), bytes(576)),
    "shifted": lambda data, runtime: data.__setitem__(slice(runtime + 24, runtime + 600), bytes(8) + data[runtime + 24 : runtime + 592]),
    "ends early": lambda data, runtime: data.__setitem__(slice(runtime + 300, runtime + 1000), bytes(700)),
}


@pytest.mark.parametrize("python", NEWEST)
@pytest.mark.parametrize("lie", LIES)
def test_lying_table(bench, python, lie):
    """Refused with words, and what needs no Python is recorded; the process runs on."""
    job = start(bench, python, LIES[lie])
    record = bench.record("-p", job.pid, "-d", "200ms")
    assert record.wait() == helpers.OK, record.what()
    version = "3.99.0t" if lie == "free-threaded" else "3.99.0"
    assert "process %d runs Python %s, which is %s: " % (job.pid, version, ODD) + REFUSED in record.stderr, record.what()
    assert checked(job)[:2] == (helpers.OK, "WARN")
    dumped = helpers.stepflame("dump", "-p", job.pid)
    assert dumped.returncode == helpers.UNSUPPORTED and ODD in dumped.stderr, dumped
    assert job.running(), job.what()


def unreadable(bench, script, *args):
    """A job whose Python cannot be read, whatever version it is."""
    command, environment = newer_python.patched(helpers.PYTHON, bench.directory, newer_python.break_table)
    return bench.job(script, *args, command=[*command, helpers.JOBS / script], env=environment)


def test_training(bench):
    """A job of such a Python: its steps and labels are there, beside another job whose Python can be read."""
    jobs = [unreadable(bench, "plain_loop.py", "--labels").until_ready(), bench.job("plain_loop.py", "--labels").until_ready()]
    code, verdict, found = checked(jobs[0])
    assert (code, verdict) == (helpers.OK, "WARN") and found.endswith(REFUSED)
    (seen,) = [row for row in json.loads(helpers.stepflame("ps", "--json").stdout)["processes"] if row["pid"] == jobs[0].pid]
    assert "labels, no stacks (Python cannot be read)" in json.dumps(seen)
    record = bench.record("-p", "%d,%d" % (jobs[0].pid, jobs[1].pid)).until_armed()
    assert found in record.stderr
    for job in jobs:
        job.release()
    truths = [job.truth() for job in jobs]
    assert record.wait() == helpers.OK, record.what()
    assert re.search(r"process %d: Python 3\.99\.0 cannot be read:\s+no Python stacks" % jobs[0].pid, record.stdout), record.what()
    helpers.check_counts(rows_by_part(helpers.report(record.file, "--all")), {name: sum(truth["parts"][name]["count"] for truth in truths) for name in truths[0]["parts"]})


def test_exact_is_refused(bench):
    """What is nothing but Python's is not begun."""
    job = unreadable(bench, "plain_loop.py").until_ready()
    record = bench.record("-p", job.pid, "--exact", "-d", 1)
    assert record.wait() == helpers.UNSUPPORTED and "is not supported or not laid out as expected" in record.stderr, record.what()


@needs_namespace
def test_all(bench):
    """`record --all`, of two jobs."""
    command, environment = newer_python.patched(helpers.PYTHON, bench.directory, newer_python.break_table)
    either = bench.directory / "either"
    settings = " ".join("%s='%s'" % pair for pair in environment.items())
    either.write_text("#!/bin/sh\n[ -z \"$NEWER\" ] || exec env %s '%s' \"$@\"\nexec '%s' \"$@\"\n" % (settings, command[0], helpers.PYTHON))
    either.chmod(0o755)
    host = Host(bench, "NEWER=", "NEWER=1", python=either)
    file = bench.directory / "all.rec"
    result = host.run("record", "--all", "-d", "300ms", "-o", file)
    assert result.returncode == helpers.OK and REFUSED in result.stderr, result
    assert {process["pid"] for process in helpers.report(file, "--all", "--per-rank")["target"] if process["role"] == "main"} == set(host.pids)
    host.process.kill()
