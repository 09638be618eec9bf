# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Steps and their phases in loops of all kinds, against the job's own clock."""

import re
import struct

import helpers
import pytest
import recfile as rec

pytestmark = helpers.needs_bpf

PHASES = ["other", "data", "forward", "backward", "optimizer", "comm", "checkpoint", "validation", "jit", "compile", "await", "transfer"]
LIGHTNING, LOADER_OPTIMIZER, OPTIMIZER, PROFILER, ANNOTATION, BACKWARD, JIT, LOADER, USER = range(1, 10)
SAMPLE_SECONDS = 1 / 99  # what a sample of the timer stands for
PATIENCE = 32  # boundaries until backward alone, or the DataLoader alone, counts


def read_steps(file):
    """[(start, end, {phase: ns})] of the rule that came last, after checks of what holds for every recording."""
    records = [
        struct.unpack("=QQIIII%dQ" % len(PHASES), payload) for kind, payload in rec.read_records(file) if kind == rec.STEP_END
    ]
    rule = records[-1][3]
    records = [r for r in records if r[3] == rule]
    assert [r[1] for r in records] == list(range(records[0][1], records[0][1] + len(records)))
    assert len({r[4] for r in records}) == 1, "one thread makes all boundaries"
    assert not any(records[0][6:]), "the first boundary has no step before it"
    steps = []
    for before, after in zip(records, records[1:]):
        assert sum(after[6:]) == after[0] - before[0], "phases add up to the step"
        steps.append((before[0], after[0], dict(zip(PHASES, after[6:]))))
    return rule, len(records), steps


def folded(file):
    """[(stack, seconds)]"""
    done = helpers.stepflame("flame", file, "--folded")
    assert done.returncode == helpers.OK, done.stderr
    return [(stack, int(us) / 1e6) for stack, us in (line.rsplit(" ", 1) for line in done.stdout.splitlines())]


def overlap(intervals, start, end):
    return sum(max(0, min(end, b) - max(start, a)) for a, b in intervals)


def check_phases(steps, truth):
    """Totals over all steps: within 2 %, and an empty label on each side each time that the loop was in the phase."""
    start, end = steps[0][0], steps[-1][1]
    spans = {}
    for phase, a, b in truth["intervals"]:
        if b * 1e9 > start and a * 1e9 < end:
            spans.setdefault(phase, []).append((a * 1e9, b * 1e9))
    for phase in PHASES[1:]:
        ours = sum(phases[phase] for _, _, phases in steps)
        theirs = overlap(spans.get(phase, []), start, end)
        entries = len(spans.get(phase, []))
        if phase == "optimizer" and "closures" in spans:  # which has the others inside
            theirs = overlap(spans["closures"], start, end)
            theirs -= sum(overlap(spans[inner], start, end) for inner in ("forward", "backward"))
        what = "%s: %.6f s, in truth %.6f s, entered %d times" % (phase, ours / 1e9, theirs / 1e9, entries)
        assert abs(ours - theirs) <= 0.02 * theirs + (2 * truth["label"] * entries + truth["delayed"]) * 1e9, (what, truth["label"])


# The loop, by which rule its steps are told, and how many of its iterations have no boundary.
LOOPS = [
    ("accumulate", LOADER_OPTIMIZER, 0),
    ("gan", LOADER_OPTIMIZER, 0),
    ("no_loader", OPTIMIZER, 0),
    ("validation", LOADER_OPTIMIZER, 0),
    ("validation_first", LOADER_OPTIMIZER, 0),
    ("validation_workers", LOADER_OPTIMIZER, 0),
    ("validation_part", LOADER_OPTIMIZER, 0),
    ("one_loop", LOADER_OPTIMIZER, 0),
    ("zipped", LOADER_OPTIMIZER, 0),
    ("two_iterators", LOADER_OPTIMIZER, 0),
    ("skips", LOADER_OPTIMIZER, 0),
    ("fetches_ahead", LOADER_OPTIMIZER, 0),
    ("lbfgs", LOADER_OPTIMIZER, 0),
    ("save", LOADER_OPTIMIZER, 0),
    ("manual", BACKWARD, PATIENCE - 1),
    ("manual_loader", BACKWARD, PATIENCE - 1),
    ("inference", LOADER, PATIENCE - 2),  # the call that ends the loop is one, too
]


@pytest.mark.parametrize("loop, rule, waited", LOOPS, ids=[loop[0] for loop in LOOPS])
def test_loops(bench, loop, rule, waited):
    record, truth = bench.recorded("loops.py", loop)
    found_rule, boundaries, steps = read_steps(record.file)
    assert (found_rule, boundaries) == (rule, truth["steps"] - waited)
    check_phases(steps, truth)
    found = helpers.report(record.file, "--all")
    assert found["window"]["steps"] == boundaries
    assert found["lost"] == {}


def test_evaluation(bench):
    """Named in each step that it hits, as its cause, and in the samples: by the job's own clock."""
    record, truth = bench.recorded("loops.py", "validation", "--work", 768)
    evaluations = [(start, end) for phase, start, end in truth["intervals"] if phase == "validation"]
    found = helpers.report(record.file, "--steps")
    causes = {step["index"]: step["cause"] for step in found["steps"]}
    evaluated = [11 + 20 * i + 1 for i in range(len(evaluations))]
    assert len(evaluations) == 4
    assert [index for index, cause in causes.items() if cause == "validation"] == evaluated
    (group,) = [group for group in found["causes"] if group["cause"] == "validation"]
    assert (group["rhythm"]["shortest"], group["rhythm"]["longest"]) == (20, 20)
    assert all(spot["file"].endswith("loops.py") and spot["name"].endswith("evaluate") for spot in group["where"])
    seconds = sum(end - start for start, end in evaluations)
    # as the report of actions has it, which counts it by itself
    (row,) = [row for row in helpers.report(record.file)["actions"] if row["name"] == "validation"]
    assert row["count"] == 4
    for what, ours in (
        ("row", row["total_s"]),
        ("phase", sum(step["phases"].get("validation", 0) for step in found["steps"])),
    ):
        assert ours == pytest.approx(seconds, rel=0.02, abs=truth["delayed"]), what
    # by its samples, each of some 10 ms
    of_phase = sum(weight for stack, weight in folded(record.file) if stack.startswith("validation;"))
    of_action = sum(f["tottime_s"] for a in helpers.report(record.file, "--advanced")["actions"] if a["name"] == "validation" for f in a["functions"])
    error = 4 * (seconds * SAMPLE_SECONDS) ** 0.5
    assert of_phase == pytest.approx(seconds, abs=error), error
    assert of_action == pytest.approx(seconds, abs=error), error


# What Lightning does in each phase, by its own profiler's names; of those that lie in each other only the outer.
LIGHTNING_PHASES = {
    "data": r".*(train_dataloader_next|batch_to_device)",
    "forward": r".*\.training_step",
    "backward": r"\[Strategy\].*\.backward",
    "checkpoint": r"\[Callback\]ModelCheckpoint.*_end",
}


@pytest.mark.parametrize("args", [[], ["--accumulate", 4, "--no-callbacks"]], ids=["fit", "accumulate"])
def test_lightning(bench, args):
    """Each batch is a step; validations and checkpoints are in the step behind them."""
    epochs, batches = 2, 40
    record, truth = bench.recorded("lightning_fit.py", "--batches", batches, "--epochs", epochs, *args)
    rule, boundaries, steps = read_steps(record.file)
    assert (rule, boundaries) == (LIGHTNING, epochs * batches)
    totals = {phase: sum(phases[phase] for _, _, phases in steps) for phase in PHASES}
    for phase, pattern in LIGHTNING_PHASES.items():
        calls = [s for name, durations in truth["actions"].items() if re.fullmatch(pattern, name) for s in durations]
        # some of them are before the first boundary, behind the last, or in a validation
        assert totals[phase] <= sum(calls) * 1.02e9 + 20e3 * len(calls) + truth["delayed"] * 1e9, phase
        if phase in ("forward", "backward"):
            theirs = (sum(calls) - calls[0]) * 1e9
            assert abs(totals[phase] - theirs) <= 0.02 * theirs + 20e3 * len(calls) + truth["delayed"] * 1e9, phase
    evaluated = [i for i, (_, _, phases) in enumerate(steps) if phases["validation"]]
    assert evaluated == [batches - 1], "the one between the epochs; the last is behind the last boundary"
    if not args:
        assert max(range(len(steps)), key=lambda i: steps[i][2]["checkpoint"]) == batches - 1


def test_lightning_manual(bench):
    """Two optimizers, two backwards a batch."""
    record, truth = bench.recorded("lightning_gan.py")
    rule, boundaries, _ = read_steps(record.file)
    assert (rule, boundaries) == (LIGHTNING, 50)


def test_step_at(bench):
    record, truth = bench.recorded("plain_loop.py", "--labels", "--epochs", 1, options=["--step-at", "inner \N{GREEK SMALL LETTER LAMDA}"])
    rule, boundaries, _ = read_steps(record.file)
    assert (rule, boundaries) == (USER, truth["steps"])
    assert "(--step-at)" in helpers.report_text(record.file)


def test_step_at_nothing(bench):
    """A name that never comes: said on stderr, in the report, and by the exit code; with names that did."""
    job = bench.job("plain_loop.py", "--labels", "--epochs", 1).until_ready()
    record = bench.record("-p", job.pid, "--step-at", "my lable").until_armed()
    job.release()
    job.truth()
    assert record.wait() == helpers.ERROR, record.what()
    assert record.stderr.count("stepflame: error:") == 1 and "fix:" in record.stderr, record.stderr
    assert "my lable" in record.stderr and "Optimizer.step#SGD.step" in record.stderr
    text = helpers.report_text(record.file)
    assert "note: no step was found" in text and "no step boundary found" in text
