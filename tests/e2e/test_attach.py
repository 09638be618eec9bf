# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Jobs that change all the time while they are looked at: none is refused, by `record`, `dump` or `doctor`, at any moment.

STEPFLAME_ATTACHES: how often each job is attached to in the long test, in each of the three ways.
"""

import json
import os
import subprocess
import time

import helpers
import pytest
import pythons
from helpers import OK

pytestmark = helpers.needs_bpf

PLAIN = ["functions", "threads", "compiles", "recursion", "forks", "generators"]
WITH_TORCH = ["lightning", "loop", "workers"]
ATTACHES = int(os.environ.get("STEPFLAME_ATTACHES", 15))


def start(bench, kind, python=helpers.PYTHON):
    job = bench.process(python, helpers.JOBS / "busy.py", kind).until_ready()
    return job


def looked_at(job, how, file):
    """None, or what is wrong with what stepflame says of the job."""
    command = {
        "record": ["record", "-p", job.pid, "-d", "0.1s", "--children", "none", "-o", file],
        "dump": ["dump", "-p", job.pid, "--json"],
        "doctor": ["doctor", "-p", job.pid, "--json"],
    }[how]
    result = helpers.stepflame(*command, seconds=5 * helpers.END_SECONDS)
    if how == "doctor":
        (python,) = [check for check in json.loads(result.stdout)["checks"] if check["name"] == "Python"]
        return None if python["verdict"] == "OK" else python
    if result.returncode != OK:
        return result.returncode, result.stderr
    if how == "dump":
        main = [thread for thread in json.loads(result.stdout)["threads"] if thread["tid"] == job.pid]
        if not main or main[0]["stack"] == "none":
            return "no stack", main
    return None


def look(bench, job, ways, times):
    refused = []
    for i in range(times):
        for how in ways:
            wrong = looked_at(job, how, bench.directory / "attach.rec")
            if wrong:
                refused.append((i, how, wrong))
            time.sleep(0.003 * (i % 7))  # clock: so that no rhythm of the job's is met at the same place
    assert job.running(), job.what()
    assert not refused, "%d of %d: %s" % (len(refused), times * len(ways), refused[:3])


def test_lightning(bench):
    """Batches of less than a millisecond, under ten callbacks."""
    look(bench, start(bench, "lightning"), ["record", "dump", "dump"], 5)


@pytest.mark.long
@pytest.mark.parametrize("kind", WITH_TORCH)
def test_torch(bench, kind):
    look(bench, start(bench, kind), ["record", "dump", "doctor"], ATTACHES)


@pytest.mark.long
@pytest.mark.parametrize("kind", PLAIN)
@pythons.on_each
def test_plain(bench, kind, python):
    look(bench, start(bench, kind, python), ["record", "dump", "doctor"], ATTACHES)


@pytest.mark.parametrize("kind", PLAIN)
def test_few(bench, kind):
    look(bench, start(bench, kind, pythons.NEWEST), ["dump"], 3)


def check_refused(pid):
    """`record` refuses it, and `doctor` fails in the same words, with the same exit code."""
    recorded = helpers.stepflame("record", "-p", pid, "-d", "0.1s", "-o", "/dev/null")
    checked = helpers.stepflame("doctor", "-p", pid)
    error, fix = recorded.stderr.splitlines()[:2]
    why = error.removeprefix("stepflame: error: ")
    assert recorded.returncode == checked.returncode != OK, (recorded, checked)
    failed = [line.split(None, 1) for line in checked.stdout.splitlines()]
    at = next(i for i, words in enumerate(failed) if words[0] == "FAIL" and words[1].endswith(" " + why))
    assert " ".join(failed[at + 1]) == fix.strip()


def test_refused(bench):
    check_refused(bench.process("sleep", 60).pid)
    ended = subprocess.Popen(["true"])
    ended.wait()
    check_refused(ended.pid)


@pytest.mark.parametrize("python", [python for python, minor in pythons.MINOR.items() if minor == 7])
def test_old_python(bench, python):
    """It is recorded without stacks, and `doctor` says so in the same words."""
    job = bench.process(python, "-c", "import time; print('ready', flush=True); time.sleep(60)").until_ready()
    assert "no Python stacks" in warned(bench, job)


def test_no_framework(bench):
    """Of a Python without torch `record` warns, and so does `doctor`."""
    warned(bench, start(bench, "functions", pythons.NEWEST))


def warned(bench, job):
    """What both warn of."""
    recorded = helpers.stepflame("record", "-p", job.pid, "-d", "0.1s", "-o", bench.directory / "no.rec")
    checked = helpers.stepflame("doctor", "-p", job.pid, "--json")
    assert recorded.returncode == checked.returncode == OK
    (warning,) = [check["found"] for check in json.loads(checked.stdout)["checks"] if check["verdict"] == "WARN"]
    assert "stepflame: warning: " + warning in recorded.stderr
    return warning
