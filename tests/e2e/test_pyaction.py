# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`record --action FILE.py:QUALNAME`: Python functions, against what they count and time themselves; and where it cannot be, that it is said."""

import os
import subprocess

import helpers
import pytest
import pythons

pytestmark = helpers.needs_bpf

JOB = "py_calls.py"
FUNCTIONS = [
    "plain",
    "outer",
    "recursive",
    "raises",
    "generator",
    "early",
    "a_name_that_is_longer_than_sixty_four_characters_so_that_its_length_wraps_around",
    "Rows.__getitem__",
    "Rows.__call__",
    "in_thread.<locals>.threaded",
    "forks",
]
# Our clock is read outside of the function's own, by a probe and the interpreter's way in and out.
RELATIVE, PER_CALL = 0.02, 5e-6


MINOR = pythons.version_of(helpers.PYTHON)[1]
OLD = {name: python for name, python in pythons.SUPPORTED.items() if pythons.MINOR[python] <= 10}  # all calls can be seen


# The one between them in make test-all alone.
@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.long if pythons.MINOR[OLD[name]] == 9 else ()) for name in OLD] or ["none"])
def old_python(request):
    if request.param not in OLD:
        pytest.skip("no CPython 3.8 to 3.10 here (looked in ~/.pyenv/versions)")
    return OLD[request.param]


def wanted(*functions, file=JOB):
    return [word for name in functions for word in ("--action", "%s:%s" % (file, name))]


@pytest.mark.alone
def test_all_calls(bench, old_python):
    """Called by Python and by C, by four threads, recursive, raising, resumed, forked inside: counts are exact."""
    record, truth = bench.recorded(JOB, python=old_python, options=wanted(*FUNCTIONS))
    found = helpers.report(record.file)
    rows = helpers.actions(found)
    helpers.check_counts(rows, {"%s:%s" % (JOB, name): truth["calls"][name][0] for name in FUNCTIONS})
    totals = {"%s:%s" % (JOB, name): truth["calls"][name] for name in ("plain", "outer")}
    helpers.check_totals(rows, totals, RELATIVE, PER_CALL, truth["delayed"])
    assert found["lost"] == {}
    for name in FUNCTIONS:
        assert ("%s stands for every" % name in helpers.report_text(record.file, "--simple").replace("\n  ", " ")) == ("." in name)


def test_deep(bench, old_python):
    """More calls in each other than are kept: the rest is counted as lost."""
    record, truth = bench.recorded(JOB, python=old_python, options=wanted("deep"))
    found = helpers.report(record.file)
    count = helpers.actions(found)["%s:deep" % JOB]["count"]
    assert count > 30
    assert found["lost"] == {"stack_full": truth["calls"]["deep"][0] - count}


@pytest.mark.parametrize("file", ["jobs/py_calls.py", str(helpers.JOBS / JOB)], ids=["end of the path", "whole path"])
def test_file(bench, old_python, file):
    record, truth = bench.recorded(JOB, python=old_python, options=wanted("early", file=file))
    rows = helpers.actions(helpers.report(record.file))
    helpers.check_counts(rows, {"%s:early" % file: truth["calls"]["early"][0]})


@pytest.mark.parametrize("file, function", [("y_calls.py", "plain"), (JOB, "plai"), (JOB, "never"), ("other.py", "plain")])
def test_not_seen(bench, old_python, file, function):
    """A name that is no function's, or an end of a file's name that begins within a word: said in the report."""
    record, _ = bench.recorded(JOB, python=old_python, options=wanted(function, file=file))
    assert helpers.report(record.file)["actions"] == []
    assert "--action %s:%s has no calls" % (file, function) in helpers.report_text(record.file, "--simple")


def test_does_not_change_the_job(bench, old_python):
    job = bench.job(JOB, python=old_python).until_ready()
    job.release()
    expected = {name: count for name, (count, _) in job.truth()["calls"].items()}
    _, truth = bench.recorded(JOB, python=old_python, options=wanted(*FUNCTIONS))
    assert {name: count for name, (count, _) in truth["calls"].items()} == expected


def only_where(condition):
    """A test that is of no concern elsewhere, and so is not there."""
    return lambda test: test if condition else None


def greenlet_path(python):
    """Where that Python finds greenlet, or None."""
    command = [python, "-c", "import greenlet, os; print(os.path.dirname(os.path.dirname(greenlet.__file__)))"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip() or None


WITH_GREENLETS = [python for python in OLD.values() if greenlet_path(python)]


@only_where(WITH_GREENLETS)
@pytest.mark.parametrize("old_python", WITH_GREENLETS)
def test_greenlets(bench, old_python):
    """Stacks are switched inside of the functions: what is timed is right, and the program lives."""
    options = wanted("switches", "callback", file="greenlets.py")
    record, truth = bench.recorded("greenlets.py", python=old_python, options=options)
    rows = helpers.actions(helpers.report(record.file))
    assert rows["greenlets.py:callback"]["count"] == truth["callback"]
    switches = rows.get("greenlets.py:switches", {"count": 0, "max_s": 0})
    assert switches["count"] <= truth["switches"]
    assert switches["max_s"] <= truth["longest"] + PER_CALL + truth["delayed"]


@only_where(MINOR <= 10)  # make test-matrix
def test_lightning(bench):
    """A hook of the user's, against Lightning's own time for the action around it."""
    record, truth = bench.recorded("lightning_fit.py", options=wanted("training_step", file="lightning_fit.py"))
    rows = helpers.actions(helpers.report(record.file))
    (action,) = [name for name in truth["actions"] if name.endswith(".training_step")]
    row = rows["lightning_fit.py:training_step"]
    assert row["count"] == len(truth["actions"][action])
    assert 0.5 * rows[action]["total_s"] < row["total_s"] < rows[action]["total_s"]


@only_where(MINOR >= 11)  # up to 3.10 all calls are seen
def test_inlined(bench):
    """From 3.11 on: said at once and in the report, with the way out; all else is recorded."""
    record, truth = bench.recorded("plain_loop.py", "--epochs", 1, options=wanted("epoch", file="plain_loop.py"))
    said = helpers.report_text(record.file, "--simple")
    for text in (record.stderr, said):
        assert "3.11" in text and "torch.profiler.record_function" in text, text
    assert "plain_loop.py:epoch" in said
    found = helpers.report(record.file, "--all")
    assert "plain_loop.py:epoch" not in helpers.actions(found)
    assert found["window"]["steps"] == truth["steps"]


@only_where(MINOR >= 11)  # up to 3.10 all calls are seen
def test_inlined_without_torch(bench):
    """A process in which nothing can be seen is refused."""
    job = bench.job(JOB).until_ready()
    result = helpers.stepflame("record", "-p", job.pid, "-F", 0, "-o", bench.directory / "r", *wanted("plain"))
    helpers.check_message(result, helpers.UNSUPPORTED)
    assert "record_function" in result.stderr
    job.release()
    job.truth()


@pytest.mark.parametrize("action", ["train.py", "train.py:", ":f", "train.py:\u00e9tape", "train.py:" + "f" * 600])
def test_usage(tmp_path, action):
    result = helpers.stepflame("record", "-p", os.getpid(), "--action", action, cwd=tmp_path)
    assert result.returncode == helpers.USAGE, result
    assert "FILE.py:QUALNAME" in result.stderr
