# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Plain torch loops, with no Lightning, against the perf_counter pairs that the loop itself keeps."""

import re
from pathlib import Path

import helpers
import pytest

pytestmark = helpers.needs_bpf

RELATIVE = 0.02
# Seconds a call, by part of the loop. The job's clock lies outside of torch's labels and of the autograd engine.
PER_CALL = {
    # torch's Python around the label
    "data": 30e-6,
    "zero_grad": 40e-6,
    "step": 40e-6,
    "label": 30e-6,
    # Tensor.backward(): Python, and the first gradient made, before the engine is entered
    "backward": 80e-6,
    # ours begins when zero_grad's label ends and ends when the engine is entered: the two above, and the job's own
    # clock
    "forward": 120e-6,
}

# The part of the loop as the job calls it, and our row's name.
ROWS = {
    "data": r"enumerate\(DataLoader\)#_(SingleProcess|MultiProcessing)DataLoaderIter\.__next__",
    "zero_grad": r"Optimizer\.zero_grad#\w+\.zero_grad",
    "forward": r"\W*forward\W*",
    "backward": r"\W*backward\W*",
    "step": r"Optimizer\.step#\w+\.step",
    "label": r"my label",
}


RUNS = {
    "SGD": (),
    "labels": ("--labels",),
    "Adam": ("--optimizer", "Adam", "--labels"),
    "workers": ("--workers", 2, "--epochs", 1),
}


def rows_by_part(found):
    """{part: row}, each of exactly one row."""
    parts = {}
    for part, pattern in ROWS.items():
        rows = [row for row in found["actions"] if re.fullmatch(pattern, row["name"], re.I)]
        assert len(rows) <= 1, rows
        if rows:
            parts[part] = rows[0]
    return parts


def in_python(job):
    """Where probes are in the interpreter."""
    return [at for file, at in helpers.breakpoints(job.pid) if "python3" in Path(file).name]


def test_probes(bench):
    """While it trains without Lightning, the interpreter has two probes: at the callback of a garbage collection, and at the end of a code object."""
    job = bench.job("plain_loop.py", "--epochs", 1000).until_ready()
    record = bench.record("-p", job.pid).until_armed()

    assert len(in_python(job)) > 2
    job.release()
    helpers.until(helpers.END_SECONDS, lambda: len(in_python(job)) == 2, job.what, job.delayed)
    record.interrupt()
    assert record.wait() == helpers.OK
    assert helpers.report(record.file)["lost"] == {}


def test_modules_are_read_later(bench):
    """What it has imported cannot be read at first; as soon as it can, the probes for Lightning go."""
    job = bench.job("many_modules.py").until_ready()
    record = bench.record("-p", job.pid).until_armed()
    job.until_ran(0.3)
    assert len(in_python(job)) > 2
    job.release()
    helpers.until(helpers.END_SECONDS, lambda: len(in_python(job)) <= 2, job.what, job.delayed)  # imports end code objects: one may be detached for a while
    record.interrupt()
    assert record.wait() == helpers.OK


@pytest.mark.alone
@pytest.mark.parametrize("python, run", helpers.on_torches(RUNS, old=["labels"]), indirect=["python"])
def test_equals_perf_counter(shared, python, run):
    args = RUNS[run]
    record, truth = shared.recorded("plain_loop.py", *args, python=python)
    found = helpers.report(record.file, "--all")
    parts = rows_by_part(found)
    assert parts["backward"]["count"] == truth["parts"]["backward"]["count"]
    helpers.check_counts(parts, {name: p["count"] for name, p in truth["parts"].items()})
    totals = {name: (p["count"], p["seconds"]) for name, p in truth["parts"].items()}
    helpers.check_totals(parts, totals, RELATIVE, PER_CALL, truth["delayed"], crowded="--workers" in args)
    for name, (_, seconds) in totals.items():
        # whatever the machine does, ours lies within the job's pair, but for forward, which encloses it
        assert (parts[name]["total_s"] > seconds) == (name == "forward"), name
    assert found["window"]["steps"] == truth["steps"]
    assert found["lost"] == {}


def test_labels(shared, python):
    record, truth = shared.recorded("plain_loop.py", "--labels", python=python)
    rows = helpers.actions(helpers.report(record.file, "--all"))
    for name in ("my label", "outer", "inner \N{GREEK SMALL LETTER LAMDA}"):
        assert rows[name]["count"] == truth["steps"]
    assert rows["inner \N{GREEK SMALL LETTER LAMDA}"]["total_s"] < rows["outer"]["total_s"]


def test_beside_torch_profiler(bench, python):
    """The user's own torch.profiler, with a schedule, runs in the same process: both are right."""
    record, truth = bench.recorded("plain_loop.py", "--torch-profiler", "--batches", 20, python=python)
    found = helpers.report(record.file, "--all")
    steps = [row for row in found["actions"] if row["name"].startswith("ProfilerStep#")]
    # one more than steps: the last schedule.step() begins a label that the profiler's end closes
    assert sum(row["count"] for row in steps) == truth["steps"] + 1
    parts = rows_by_part(found)
    assert parts["step"]["count"] == truth["steps"]


@pytest.mark.alone
@pytest.mark.parametrize("threads", [1, 2])
def test_slow_data(bench, threads):
    """A loop that waits for its data: the row says so."""
    record, truth = bench.recorded("plain_loop.py", "--slow", 0.0002, "--epochs", 1, "--threads", threads)
    parts = rows_by_part(helpers.report(record.file, "--all"))
    assert max(parts, key=lambda part: parts[part]["total_s"]) == "data"
    data = truth["parts"]["data"]
    helpers.check_totals({"data": parts["data"]}, {"data": (data["count"], data["seconds"])}, RELATIVE, PER_CALL, truth["delayed"])


def test_exceptions(shared, python):
    """Exceptions through labels, ops and the autograd engine: the job lives, what ended is counted, the rest is named."""
    record, truth = shared.recorded("exceptions.py", python=python)
    assert truth["raised"]["bad op"] == 500
    found = helpers.report(record.file, "--all")
    entered = truth["entered"]
    # a backward that raises leaves Engine::execute by a C++ exception: counted, and timed until it left
    backward = rows_by_part(found)["backward"]
    raised = truth["raised"]["backward raises"] + truth["raised"]["bad backward"]
    assert backward["count"] == entered["good"] + entered["backward"] + raised
    assert found["lost"] == {}
    # and it lends its start to no other
    assert backward["max_s"] < max(truth["longest"].values())

    rows = helpers.actions(found)
    for name in ("good", "bad op", "bad python", "outer", "bad backward"):
        assert rows[name]["count"] == entered[name], name
    assert rows["inner"]["count"] == entered["outer"]


def test_labels_that_cross(bench):
    """A label of a generator, of a coroutine or of an ExitStack ends by itself, whichever others are open then."""
    record, truth = bench.recorded("cross_labels.py")
    found = helpers.report(record.file, "--all")
    rows = helpers.actions(found)
    assert {name: rows[name]["count"] for name in truth["entered"]} == truth["entered"]
    # the job's clock is inside each label
    assert all(rows[name]["total_s"] >= seconds for name, seconds in truth["seconds"].items())
    assert (found["window"]["steps"], found["lost"]) == (truth["steps"], {})


def test_exceptions_do_not_change_the_job(bench, shared):
    alone = bench.job("exceptions.py").until_ready()
    alone.release()
    expected = alone.truth()
    _, truth = shared.recorded("exceptions.py", python=helpers.PYTHON)
    for key in ("entered", "raised", "weights"):
        assert truth[key] == expected[key]
