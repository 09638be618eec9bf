# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The headline of `report --steps` is the right one, with its place, for loops that are written in any order and do other things now and then."""

import helpers
import pytest

pytestmark = helpers.needs_bpf

HELD = 0.04  # answers.py's HELD_SECONDS
EVERY = 25
FORWARD_SECONDS = 0.0002  # between a perf_counter() of the job and a boundary of ours, and Python in between


def answer(bench, *args):
    record, truth = bench.recorded("answers.py", *args)
    found = helpers.report(record.file, "--steps")
    assert found["lost"] == {}, found["lost"]
    assert found["window"]["step_rule"] == "optimizer"
    assert found["remainder_s"] <= 0.02 * found["all"]["total_s"]
    return record, truth, found


def phase_of(found, name):
    return next(phase["total_s"] for phase in found["all"]["phases"] if phase["name"] == name)


def check_slow(found, truth):
    slow = [step["index"] for step in found["steps"] if step["cause"] in ("extra_work", "sleep")]
    assert slow == truth["planted"], (slow, found["causes"])
    first = found["causes"][0]
    assert first["rhythm"]["shortest"] == first["rhythm"]["longest"] == EVERY
    assert "every %dth step" % EVERY in found["verdict"]["why"]
    return first


@pytest.mark.parametrize("order", [("late",), ("early",), ("late", "--clip")], ids=["tutorial", "early", "clip"])
def test_one_forward(bench, order):
    """The row, samples and waits have the same forward, wherever zero_grad stands; the phases have what is in front of the model apart."""
    record, truth, found = answer(bench, "--kind", "sleep", "--zero", *order)
    log = truth["log"]
    forward = sum(row[1] + row[2] for row in log[1:])
    tolerance = FORWARD_SECONDS * len(log) + truth["delayed"]
    row = helpers.actions(helpers.report(record.file, "--all"))["forward"]
    # the first one begins with the first landmark that is seen: zero_grad, where that is in front of backward
    assert row["count"] == len(log) - (order[0] == "early")
    assert row["total_s"] == pytest.approx(forward, abs=tolerance)
    apart = sum(phase_of(found, name) for name in ("data", "other") if name in {phase["name"] for phase in found["all"]["phases"]})
    assert phase_of(found, "forward") - tolerance <= forward <= phase_of(found, "forward") + apart + tolerance
    # the wait is in front of the model, in some steps only, and each sample of it is in the row
    first = check_slow(found, truth)
    assert first["cause"] == "sleep" and first["phase"] in ("forward", "other")
    assert first["where"][0]["name"].endswith("write_log")
    assert "write_log" in found["verdict"]["place"]
    slept = sum(step["waits"].get("sleep", 0) for step in found["steps"])
    assert slept == pytest.approx(HELD * len(truth["planted"]), rel=0.05)
    advanced = helpers.report(record.file, "--advanced", "--action", "forward", "--all")
    (forward,) = advanced["actions"]
    (row,) = [f for f in forward["functions"] if f["qualname"].endswith("write_log")]
    assert row["cumtime_s"] == pytest.approx(slept, rel=0.05)


@pytest.mark.parametrize("kind, name", [("evaluate", "estimate_loss"), ("python", "stir"), ("inline", "second")])
def test_second_work(bench, kind, name):
    """What slow steps do that others do not is named by its function, and by its rhythm."""
    record, truth, found = answer(bench, "--kind", kind)
    first = check_slow(found, truth)
    verdict = found["verdict"]
    assert (first["cause"], verdict["class"]) == ("extra_work", "extra-work"), verdict
    assert first["where"][0]["name"] == name
    assert name in verdict["place"] and verdict["place"] in verdict["why"]
    worked = sum(row[2] for row in truth["log"])
    assert verdict["share"] == pytest.approx(worked / found["all"]["total_s"], abs=0.1)
    assert len(verdict["next"]) == 1
    assert name in helpers.report_text(record.file, "--steps")


def test_compile(bench):
    """Calls in which torch.compile is at work are slow for that, and for nothing else."""
    record, truth, found = answer(bench, "--kind", "compile")
    # the first step that is whole came behind the first compile
    compiles = [step["index"] for step in found["steps"] if step["cause"] == "compile"]
    assert compiles == truth["planted"], (compiles, found["causes"])
    verdict = found["verdict"]
    assert (verdict["class"], verdict["cause"]) == ("compile-bound", "compile"), verdict
    assert verdict["place"].startswith("answers.py:") and verdict["place"].endswith(" train"), verdict
    held = sum(row[1] for i, row in enumerate(truth["log"]) if i + 1 in truth["planted"])
    assert found["compile"]["seconds"] == pytest.approx(held, rel=0.15)
    assert "compile: " in helpers.report_text(record.file, "--steps")
    assert "TORCH_LOGS" in verdict["next"][0]


def test_no_step(bench):
    """A process that makes no step: what it did instead."""
    record, _ = bench.recorded("answers.py", "--kind", "python", "--batches", 0, "--idle")
    found = helpers.stepflame("report", "--steps", record.file)
    assert found.returncode == helpers.OK
    assert "No step was seen" in found.stdout and " stir" in found.stdout, found.stdout


def test_nothing_else(bench):
    _, _, found = answer(bench)
    assert found["verdict"]["class"] in ("CPU-op-bound", "compute-bound", "CPU-starved"), found["verdict"]
    assert len(found["verdict"]["next"]) == 1
