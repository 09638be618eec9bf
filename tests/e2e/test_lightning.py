# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The simple report of a Lightning job against Lightning's own SimpleProfiler in the same process."""

import json
import math
import re
import subprocess

import helpers
import pytest

pytestmark = helpers.needs_bpf

# Our clock is read outside of Lightning's: the generator's resumption and Profiler.start lie between.
RELATIVE, PER_CALL = 0.02, 5e-6
# Of manual optimization: what Lightning does between its own clock and torch's label (docs/simple-report.md).
MANUAL_OPTIMIZER_STEP = 30e-6

RUNS = {
    "fit": ["lightning_fit.py"],
    "fit-datamodule": ["lightning_fit.py", "--datamodule"],
    "fit-accumulate": ["lightning_fit.py", "--accumulate", 3],
    "fit-bare": ["lightning_fit.py", "--logger", "none", "--no-callbacks"],
    "fit-iterable": ["lightning_fit.py", "--iterable"],
    "fit-workers": ["lightning_fit.py", "--workers", 2, "--batches", 50],
    "fit-setup-row": ["lightning_fit.py", "--workers", 2, "--batches", 50, "--setup-row"],
    "fit-setup-row-iterable": ["lightning_fit.py", "--iterable", "--batches", 50, "--setup-row"],
    "validate": ["lightning_fit.py", "--stage", "validate", "--batches", 400],
    "test": ["lightning_fit.py", "--stage", "test", "--batches", 400],
    "predict": ["lightning_fit.py", "--stage", "predict", "--batches", 400],
    "gan": ["lightning_gan.py", "--batches", 200],
}


# The others run in `make test-all`: each is another path through Lightning's loops.
OFTEN = ["fit", "fit-accumulate", "fit-workers", "validate", "gan"]


@pytest.mark.alone
@pytest.mark.parametrize("run", [pytest.param(run, marks=() if name in OFTEN else pytest.mark.long, id=name) for name, run in RUNS.items()])
def test_equals_simple_profiler(shared, run):
    record, truth = shared.recorded(*run)
    rows = helpers.actions(helpers.report(record.file))

    helpers.check_counts(rows, {name: len(d) for name, d in truth["actions"].items()})
    totals = {name: (len(d), math.fsum(d)) for name, d in truth["actions"].items()}
    per_call = {name: MANUAL_OPTIMIZER_STEP if name == "optimizer_step" else PER_CALL for name in totals}
    helpers.check_totals(rows, totals, RELATIVE, per_call, truth["delayed"], crowded="--workers" in run)
    for name, durations in truth["actions"].items():
        row = rows[name]
        assert row["min_s"] <= row["mean_s"] <= row["max_s"], row
        assert row["mean_s"] == pytest.approx(row["total_s"] / row["count"])
        if len(durations) >= 10 and not helpers.GATE:
            assert row["min_s"] == pytest.approx(min(durations), rel=0.1, abs=5 * PER_CALL), row
    assert ("setup_train_dataloader" in rows) == ("--setup-row" in run)
    # in the order of first occurrence
    assert list(rows) == truth["order"]
    assert sorted(rows, key=lambda name: rows[name]["first_s"]) == truth["order"]


WAYS = "sweep many_callbacks finds_rate closures fails interrupted combined compiled by_steps all_stages"


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS.split())
def test_other_ways(bench, way):
    """Several fits, those that fail or are interrupted, a search for a rate, closures: the counts and the order are Lightning's."""
    record, truth = bench.recorded("lightning_ways.py", "--way", way)
    found = helpers.report(record.file)
    rows = helpers.actions(found)
    assert found["lost"] == {}
    helpers.check_counts(rows, {name: len(d) for name, d in truth["actions"].items()})
    assert list(rows) == truth["order"]


@pytest.mark.parametrize("run", ["fit", "fit-workers"])
def test_without_a_profiler(bench, run):
    """With no profiler configured, what an identical run with one says."""
    with_one = bench.job(*RUNS[run])
    record, truth = bench.recorded(*RUNS[run], "--profiler", "none")
    with_one.until_ready().release()
    expected = with_one.truth()
    assert truth["weights"] == expected["weights"]
    rows = helpers.actions(helpers.report(record.file))
    helpers.check_counts(rows, {name: len(d) for name, d in expected["actions"].items()})


@pytest.mark.parametrize("after", [0, 1.5], ids=["at once", "after another loop"])
def test_imported_later(bench, after):
    """Its actions are all there, whether or not the probes for them were detached as they had no use."""
    record, truth = bench.recorded("late_lightning.py", "--batches", 50, "--after", after)
    rows = {row["name"]: row for row in helpers.report(record.file)["actions"]}
    helpers.check_counts({name: rows[name] for name in truth["order"] if name in rows}, {name: len(d) for name, d in truth["actions"].items()})


def test_nothing_lost(shared):
    record, truth = shared.recorded(*RUNS["fit"])
    found = helpers.report(record.file)
    assert found["lost"] == {}
    assert found["window"]["steps"] == len(truth["actions"]["run_training_batch"])
    assert "lightning" in found["window"]["step_rule"]
    (target,) = found["target"]
    assert target["pid"] == truth["pid"]
    assert target["python"].startswith("3.")
    assert target["torch"]


# Prints, of the report on stdin.
LIGHTNINGS_TABLE = """
import json, sys
from lightning.pytorch.profilers import simple
found = json.load(sys.stdin)
profiler = simple.SimpleProfiler()
profiler.start_time = 0.0
simple.time.perf_counter = lambda: found["window"]["seconds"]
for row in found["actions"]:
    profiler.recorded_durations[row["name"]] = [row["total_s"]] + [0.0] * (row["count"] - 1)
print(profiler.summary())
"""


def test_table_is_lightnings(shared):
    """The text is what Lightning's own code prints of the figures in the JSON, tabs and numbers included."""
    record, _ = shared.recorded(*RUNS["fit"])
    found = helpers.report(record.file)
    text = helpers.report_text(record.file, "--simple", "--limit", "0")

    done = subprocess.run([helpers.PYTHON, "-c", LIGHTNINGS_TABLE], input=json.dumps(found), capture_output=True, text=True)
    assert done.returncode == 0, done

    def table(report):
        lines = report.splitlines()
        dashes = [i for i, line in enumerate(lines) if re.fullmatch("-+", line)]
        return lines[dashes[0] : dashes[-1] + 1]

    assert table(text) == table(done.stdout)
    assert re.match(r"(FIT )?Profiler Report\n\n-", text)


def test_leaf(shared):
    """--leaf lists only actions with no other inside: they add to at most the wall time."""
    record, _ = shared.recorded(*RUNS["fit-bare"])
    everything = helpers.actions(helpers.report(record.file))
    leaves = helpers.actions(helpers.report(record.file, "--leaf"))
    assert "[_TrainingEpochLoop].train_dataloader_next" in leaves
    assert "run_training_epoch" not in leaves and "run_training_batch" not in leaves
    assert set(leaves) < set(everything)
    found = helpers.report(record.file, "--leaf")
    assert sum(row["total_s"] for row in found["actions"]) <= found["window"]["seconds"]


def test_sort_and_limit(shared):
    record, _ = shared.recorded(*RUNS["gan"])
    for option, key in (("total", "total_s"), ("calls", "count"), ("mean", "mean_s")):
        found = helpers.report(record.file, "--sort", option)["actions"]
        assert [row[key] for row in found] == sorted((row[key] for row in found), reverse=True)
        assert helpers.report(record.file, "--sort", option, "--limit", 3)["actions"] == found[:3]
    only = helpers.report(record.file, "--action", "optimizer_step")["actions"]
    assert [row["name"] for row in only] == ["optimizer_step"]
