# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""stepflame diff: of recordings made by hand, whose steps, waits and functions are known, and of jobs that know their times themselves."""

import json
import random
import signal
import statistics
import time

import helpers
import pytest
from replay.test_diff import all_rows, by_name, changes, diff


def recorded_together(bench, *jobs):
    """Jobs that run at the same time, whatever else the machine does, each with a recording of its own: [(file, truth)]."""
    started = [bench.job("known.py", *args).until_ready() for args in jobs]
    records = [bench.record("-p", job.pid).until_armed() for job in started]
    for job in started:
        job.release()
    truths = [job.truth() for job in started]
    for record in records:
        assert record.wait() == helpers.OK, record.what()
    return [(record.file, truth) for record, truth in zip(records, truths)]


def check_change(found, section, name, truth_s):
    row = by_name(found[section])[name]
    assert row["error_s"] is not None and row["changed"] == (abs(row["change_s"]) > 2 * row["error_s"]), row
    assert row["change_s"] == pytest.approx(truth_s, abs=max(row["error_s"], 5e-5)), (section, name)


@pytest.mark.alone
@helpers.needs_bpf
def test_planted_changes(bench):
    """A, A again, A with 3 ms more in the optimizer's step, A with a forward of 2 ms more."""
    same, again, step, forward = recorded_together(bench, [], [], ["--step-ms", 5], ["--forward-ms", 6])

    def mean(run, part):
        return statistics.mean(run[1]["parts"][part][1:])  # the first step has no beginning

    found = changes(same[0], again[0], "--all", "--limit", 0)
    assert not [(section, row) for section, row in all_rows(found) if row["changed"]]
    assert all(row["error_s"] is not None for _, row in all_rows(found))
    for part, run, phase, action in [
        ("step", step, "optimizer", "Optimizer.step#SlowSGD.step"),
        ("forward", forward, "forward", "forward"),
    ]:
        found = changes(same[0], run[0], "--all", "--limit", 0)
        more = mean(run, part) - mean(same, part)
        check_change(found, "phases", phase, more)
        check_change(found, "actions", action, more)
        slept = by_name(found["waits"])["sleep"]
        for side, job, planted_s in [("a_s", same, 9e-3), ("b_s", run, 12e-3 if part == "step" else 11e-3)]:
            assert planted_s <= slept[side] <= mean(job, "sleep"), (part, side)  # the job's clock sees the run queue, too
        ends = [run[1]["ends"] for run in (same, run)]
        lasted = [(end[-1] - end[0]) / (len(end) - 1) for end in ends]
        check_change(found, "step", "mean", lasted[1] - lasted[0])
        check_change(found, "phases", "data", mean(run, "data") - mean(same, "data"))


def check_consistent(file):
    """What is cut short tells steps and actions of the same time. What its steps took."""
    simple, steps = helpers.report(file), helpers.report(file, "--steps")["steps"]
    by_action = helpers.actions(simple)
    if steps and by_action:
        # a call a step, but for those of a step at both ends
        assert abs(by_action["Optimizer.step#SlowSGD.step"]["count"] - len(steps)) <= 2
        assert 0 <= len(steps) - simple["window"]["steps"] + 1 <= 3
    # by samples, of which the whole has more: what is data or other in front of the model, or behind the step
    exact = ("backward", "optimizer")
    return [(step["index"], step["start_s"], step["duration_s"], {phase: step["phases"].get(phase) for phase in exact}) for step in steps]


@helpers.needs_bpf
def test_cut_recordings(bench, tmp_path):
    """The beginning of a recording has its first steps, and is compared with the whole of it; that of one whose recorder was killed, too."""
    job = bench.job("known.py", "--batches", 100000).until_ready()
    job.release()
    time.sleep(0.5)
    record = bench.record("-p", job.pid, "-d", "4").until_armed()
    assert record.wait() == helpers.OK, record.what()
    killed = bench.record("-p", job.pid).until_armed()
    time.sleep(3)
    killed.popen.send_signal(signal.SIGKILL)
    killed.popen.wait()
    job.kill()
    rng = random.Random(1)
    cut = tmp_path / "cut.rec"
    for whole, cuts in ((record.file, 16), (killed.file, 4)):
        data, steps = whole.read_bytes(), check_consistent(whole)
        assert len(steps) > 50
        for at in (rng.randrange(len(data) // 5, len(data)) for _ in range(cuts)):
            cut.write_bytes(data[:at])
            begun = check_consistent(cut)
            assert begun == steps[: len(begun)]
            done = diff(cut, whole, "--json")
            if done.returncode:
                assert "have nothing in common" in done.stderr  # it ends before the first snapshot
            else:
                assert json.loads(done.stdout)["a"]["steps"] == len(begun)
