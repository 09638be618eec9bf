# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""record --budget: the job is recorded in windows, and has no probes in between. Truth: when the job was in each of its steps."""

from bisect import bisect

import helpers
import pytest
import recfile as rec
from helpers import OK, stepflame

PROBED_SECONDS = 60
RULE_TICK = 10  # include/records.h


def check_steps(report, start_ns, ticks):
    """Each step that the report has is one of the job's: none is invented, and none lies over a rest."""
    assert report["steps"] and report["lost_steps"] == 0, report
    for step in report["steps"]:
        begin = start_ns + round(step["start_s"] * 1e9)
        inside = bisect(ticks, begin + round(step["duration_s"] * 1e9)) - bisect(ticks, begin)
        assert inside == 1, (step, inside)
    indexes = [step["index"] for step in report["steps"]]
    assert indexes == sorted(set(indexes))


def start_of(file):
    return [fields.start_ns for kind, fields in rec.read_records(file) if kind == "WINDOW"][-1]


class Ticking:
    def __init__(self, bench, *args, budget):
        self.stop = bench.directory / "stop"
        self.job = bench.job("ticking.py", "--stop", self.stop, *args).until_ready()
        self.record = bench.record("-p", self.job.pid, "--budget", budget).until_armed()
        self.job.release()

    def probed(self, yes):
        """Until the job has breakpoints, or has none but that of its ticks."""
        helpers.until(PROBED_SECONDS, lambda: (len(helpers.breakpoints(self.job.pid)) > 1) == yes, self.record.what, self.job.delayed)

    def end(self):
        self.record.interrupt()
        assert self.record.wait() == OK, self.record.what()
        assert not helpers.breakpoints(self.job.pid)
        self.stop.touch()
        return self.job.truth()["ticks"]


@helpers.needs_bpf
def test_rests(bench):
    """A job that pays far more than it may is left alone soon, and goes on; what was seen till then is right."""
    ticking = Ticking(bench, budget="0.01")
    ticking.probed(True)
    ticking.probed(False)
    ticking.job.until_ran(0.5)
    ticks = ticking.end()

    report = helpers.report(ticking.record.file, "--steps")
    window = report["window"]
    assert window["rests"] == 1 and window["whole_seconds"] - window["seconds"] >= 0.4 and report["overhead"]["budget_percent"] == 0.01
    check_steps(report, start_of(ticking.record.file), ticks)
    last = report["steps"][-1]
    assert last["start_s"] + last["duration_s"] < window["seconds"]
    assert len(ticks) > window["steps"]
    calls = helpers.actions(helpers.report(ticking.record.file, "--all"))
    assert calls["Optimizer.step#SGD.step"]["count"] == window["steps"]
    text = " ".join(helpers.report_text(ticking.record.file).split())
    assert "Budget 0.01 % of the time: recorded in 1 part of" in text, text
    assert "Stalled" not in text


@helpers.needs_bpf
@pytest.mark.alone  # what it pays of its time is less where it gets no processor
@pytest.mark.parametrize(
    ("kind", "workers", "budget"), [("plain", 0, 1), ("plain", 2, 1), ("two-optimizers", 0, 1), ("accumulate", 0, 1), ("lightning", 0, 3)]
)
def test_windows(bench, kind, workers, budget):
    """It rests and is recorded in turn: each step that was seen is one of the job's, and the job pays what it may."""
    ticking = Ticking(bench, "--kind", kind, "--workers", workers, budget=str(budget))
    for _ in range(2):
        ticking.probed(True)
        ticking.job.until_ran(0.2)
        ticking.probed(False)
    ticking.probed(True)
    ticks = ticking.end()

    report = helpers.report(ticking.record.file, "--steps")
    assert report["window"]["rests"] >= 2
    assert report["overhead"]["percent"] < 1.5 * budget  # the last window is not paid off
    check_steps(report, start_of(ticking.record.file), ticks)
    found = helpers.report(ticking.record.file, "--all")
    if kind == "plain":
        optimizers = helpers.actions(found)["Optimizer.step#SGD.step"]["count"]
        assert abs(optimizers - report["window"]["steps"]) <= report["window"]["rests"] + 1


@helpers.needs_bpf
@pytest.mark.parametrize(("kind", "each"), [("plain", 1), ("two-optimizers", 2), ("accumulate", 3)])
def test_ticks(bench, kind, each):
    """In a rest, one probe is left, which counts the steps there: each of them is one of the job's, and all of its steps so far are known."""
    ticking = Ticking(bench, "--kind", kind, "--work", 600, budget="0.5")  # of which it pays a few times as much, on a busy machine, too
    ticking.probed(True)
    ticking.probed(False)
    assert len(helpers.breakpoints(ticking.job.pid)) == 1
    ticking.job.until_ran(1)
    ticks = ticking.end()

    boundaries = [fields for name, fields in rec.read_records(ticking.record.file) if name == "STEP" and fields.rule == RULE_TICK]
    assert len(boundaries) > 20
    before = [bisect(ticks, fields.time_ns) for fields in boundaries]
    for i in range(1, len(boundaries)):
        if not boundaries[i].phase_ns[0]:  # the first of a rest ends no step
            continue
        assert before[i] == before[i - 1] + 1
        assert boundaries[i].phase_ns[0] == pytest.approx(boundaries[i].time_ns - boundaries[i - 1].time_ns, rel=0.01)
    # where a step has several backwards, a rest begins at any of them
    assert all(abs(fields.index - at) <= (each > 1) for fields, at in zip(boundaries, before)), (boundaries[0], before[0])
    steps = helpers.report(ticking.record.file, "--steps")
    timed = sum(fields.phase_ns[0] > 0 for fields in boundaries)
    assert steps["window"]["rest_steps"]["count"] == timed
    check_steps(steps, start_of(ticking.record.file), ticks)
    text = " ".join(helpers.report_text(ticking.record.file).split())
    assert "steps between them: %d, median" % timed in text, text


@helpers.needs_bpf
def test_enough(bench):
    """Who pays less than the budget is recorded all the time, and the report says what the budget was."""
    ticking = Ticking(bench, budget="100")
    ticking.probed(True)
    ticking.job.until_ran(0.5)
    ticks = ticking.end()
    report = helpers.report(ticking.record.file, "--steps")
    assert "rests" not in report["window"] and report["overhead"]["budget_percent"] == 100
    check_steps(report, start_of(ticking.record.file), ticks)
    assert "Budget" not in helpers.report_text(ticking.record.file)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--budget", "0"], "0.01 to 100 percent"),
        (["--budget", "101"], "0.01 to 100 percent"),
        (["--budget", "some"], "0.01 to 100 percent"),
        (["--budget", "1", "--steps", "5"], "leave out --steps"),
        (["--budget", "1", "--ops"], "leave out --ops"),
        (["--budget", "1", "--gpu", "uprobe"], "leave out --ops, --exact, --syscalls and --gpu"),
        (["--budget", "1", "--exact", "-d", "1s"], "leave out --ops, --exact"),
    ],
)
def test_usage(options, says):
    result = stepflame("record", "-p", "1", *options)
    assert result.returncode == helpers.USAGE and says in result.stderr, result
