# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Steps and their phases in loops of all kinds, against the job's own clock."""

import re

import helpers
import pytest
import recfile as rec
from intervals import length

pytestmark = helpers.needs_bpf

GIL_SECONDS = 0.005  # sys.getswitchinterval(): for which another thread keeps it

PHASES = ["other", "data", "forward", "backward", "optimizer", "comm", "checkpoint", "validation", "jit", "compile", "await", "transfer"]
LIGHTNING, LOADER_OPTIMIZER, OPTIMIZER, PROFILER, ANNOTATION, BACKWARD, JIT, LOADER, USER = range(1, 10)
SAMPLE_SECONDS = 1 / 99  # what a sample of the timer stands for


class Boundary:
    def __init__(self, row):
        self.time, self.index, self.rule, self.tid, self.serial = row.time_ns, row.index, row.rule, row.tid, row.serial
        self.forward, self.phases = row.forward_ns, dict(zip(PHASES, row.phase_ns))

    def phases_by(self, rule):
        forward = self.forward if self.rule == rule else 0
        return dict(self.phases, other=self.phases["other"] - forward, forward=self.phases["forward"] + forward)


def read_boundaries(file):
    """{thread: boundaries by whatever rule}, after checks of what holds for every recording of which nothing is lost."""
    threads = {}
    for kind, row in rec.read_records(file):
        if kind == "STEP":
            boundary = Boundary(row)
            threads.setdefault(boundary.tid, []).append(boundary)
    for thread in threads.values():
        thread.sort(key=lambda b: b.serial)
        assert [b.serial for b in thread] == list(range(1, len(thread) + 1))
        assert not any(thread[0].phases.values()), "what was before the first is not known"
        for before, after in zip(thread, thread[1:]):
            assert sum(after.phases.values()) == after.time - before.time, "phases add up"
        for rule in {b.rule for b in thread}:
            by_rule = [b.index for b in thread if b.rule == rule]
            assert by_rule == list(range(by_rule[0], by_rule[0] + len(by_rule)))
            assert by_rule[0] in (0, 1)
    return threads


def together(phases):
    """What a report takes out of a plain loop's forward, by samples, is data or other."""
    divided = ("data", "forward", "other")
    rest = {phase: seconds for phase, seconds in phases.items() if phase not in divided and seconds}
    return dict(rest, divided=sum(phases.get(phase, 0) for phase in divided))


def read_steps(file, rule=None):
    """[(start, end, {phase: ns})] by a rule, None: the best one, of the thread that made most; as the report has them."""
    threads = read_boundaries(file)
    rule = rule or min(b.rule for thread in threads.values() for b in thread)
    _, thread = min(threads.items(), key=lambda t: (-sum(b.rule == rule for b in t[1]), t[0]))
    steps, sums, before = [], {}, None
    for boundary in thread:
        for phase, ns in boundary.phases_by(rule).items():
            sums[phase] = sums.get(phase, 0) + ns
        if boundary.rule != rule:
            continue
        if before:
            assert sum(sums.values()) == boundary.time - before.time, "phases add up to the step"
            steps.append((before.time, boundary.time, sums))
        before, sums = boundary, {}
    found = helpers.report(file, "--steps")
    assert found["lost_steps"] == 0
    assert [step["duration_s"] for step in found["steps"]] == [(end - start) / 1e9 for start, end, _ in steps]
    for step, (_, _, phases) in zip(found["steps"], steps):
        told, own = (together(each) for each in (step["phases"], {phase: ns / 1e9 for phase, ns in phases.items()}))
        assert told == pytest.approx(own, abs=1e-9)
    return rule, sum(b.rule == rule for b in thread), steps


def check_lengths(steps, truth, first=0):
    """Each as long as by the job's own clock, which it read behind each boundary, or before it."""
    (ends,) = truth["ends"].values()
    theirs = [b - a for a, b in zip(ends[first:], ends[first + 1 :])]
    assert len(steps) == len(theirs)
    for (start, end, _), seconds in zip(steps, theirs):
        assert (end - start) / 1e9 == pytest.approx(seconds, rel=0.02, abs=4 * truth["label"] + truth["delayed"])


def folded(file):
    """[(stack, seconds)]"""
    done = helpers.stepflame("flame", file, "--folded")
    assert done.returncode == helpers.OK, done.stderr
    return [(stack, int(us) / 1e6) for stack, us in (line.rsplit(" ", 1) for line in done.stdout.splitlines())]


def check_phases(steps, truth):
    """Totals over all steps: within 2 %, and an empty label on each side each time that the loop was in the phase."""
    start, end = steps[0][0], steps[-1][1]
    spans = {}
    for phase, a, b in truth["intervals"]:
        if b * 1e9 > start and a * 1e9 < end:
            spans.setdefault(phase, []).append((a * 1e9, b * 1e9))
    for phase in PHASES[1:]:
        ours = sum(phases[phase] for _, _, phases in steps)
        theirs = length(spans.get(phase, []), start, end)
        entries = len(spans.get(phase, []))
        if phase == "optimizer" and "closures" in spans:  # which has the others inside
            theirs = length(spans["closures"], start, end)
            theirs -= sum(length(spans[inner], start, end) for inner in ("forward", "backward"))
        what = "%s: %.6f s, in truth %.6f s, entered %d times" % (phase, ours / 1e9, theirs / 1e9, entries)
        assert abs(ours - theirs) <= 0.02 * theirs + (2 * truth["label"] * entries + truth["delayed"]) * 1e9, (what, truth["label"])


# The loop, by which rule its steps are told, and how many boundaries it makes beyond its iterations.
LOOPS = [
    ("accumulate", LOADER_OPTIMIZER, 0),
    ("gan", LOADER_OPTIMIZER, 0),
    ("no_loader", OPTIMIZER, 0),
    ("actor_critic", OPTIMIZER, 0),
    ("turns", OPTIMIZER, -6),  # the first updates of the other optimizer might be a turn of the first one's
    ("another_optimizer", OPTIMIZER, -6),  # likewise
    ("validation", LOADER_OPTIMIZER, 0),
    ("validation_first", LOADER_OPTIMIZER, 0),
    ("validation_alone", OPTIMIZER, 0),
    ("validation_workers", LOADER_OPTIMIZER, 0),
    ("validation_part", LOADER_OPTIMIZER, 0),
    ("one_loop", LOADER_OPTIMIZER, 0),
    ("zipped", LOADER_OPTIMIZER, 0),
    ("two_iterators", LOADER_OPTIMIZER, 0),
    ("skips", LOADER_OPTIMIZER, 0),
    ("fetches_ahead", LOADER_OPTIMIZER, 0),
    ("one_ahead", LOADER_OPTIMIZER, 0),
    ("bursts", LOADER_OPTIMIZER, 0),
    ("lbfgs", LOADER_OPTIMIZER, 0),
    ("save", LOADER_OPTIMIZER, 0),
    ("manual", BACKWARD, 0),
    ("manual_loader", BACKWARD, 0),
    ("inference", LOADER, 1),  # the call that ends the loop is one, too
    ("late_optimizer", LOADER_OPTIMIZER, 0),
    ("late_optimizer_no_loader", OPTIMIZER, 0),
    ("infers_then_trains", LOADER_OPTIMIZER, 0),
    ("two_models", OPTIMIZER, 0),
]


# Much like zipped, late_optimizer, and the two that infer and train.
MORE_OF_THE_SAME = ("two_iterators", "late_optimizer_no_loader", "infers_then_trains")


@pytest.mark.parametrize("loop, rule, more", [pytest.param(*of, marks=pytest.mark.long if of[0] in MORE_OF_THE_SAME else (), id=of[0]) for of in LOOPS])
def test_loops(bench, loop, rule, more):
    record, truth = bench.recorded("loops.py", loop)
    found_rule, boundaries, steps = read_steps(record.file)
    assert (found_rule, boundaries) == (rule, truth["steps"] + more)
    check_phases(steps, truth)
    found = helpers.report(record.file, "--all")
    assert found["window"]["steps"] == boundaries
    assert found["lost"] == {}


def test_optimizers_inside_backward(bench):
    """Of many optimizers that step inside of a backward none ends a step: the backward does."""
    record, truth = bench.recorded("loops.py", "inside_backward")
    rule, boundaries, steps = read_steps(record.file)
    assert (rule, boundaries, len(steps)) == (BACKWARD, truth["steps"], truth["steps"] - 1)
    assert all(phases["optimizer"] and phases["backward"] for _, _, phases in steps)
    (row,) = [row for row in helpers.report(record.file)["actions"] if row["name"] == "backward"]
    assert row["count"] == truth["steps"]


@pytest.mark.parametrize("loop", ["one_batch", "looks"])
def test_trains_with_what_it_has(bench, loop):
    """Batches of a DataLoader that come hardly ever are none of the training, which shows when as many updates as one may have are over."""
    record, truth = bench.recorded("loops.py", loop)
    _, boundaries, steps = read_steps(record.file, OPTIMIZER)
    assert boundaries == truth["steps"] - 65  # behind a batch
    check_phases(steps, truth)
    found = helpers.report(record.file, "--all")
    assert (found["window"]["steps"], found["window"]["step_rule"], found["lost"]) == (boundaries, "optimizer", {})


@pytest.mark.parametrize("loop, rule, more", [("manual", BACKWARD, 0), ("manual_loader", BACKWARD, 0), ("inference", LOADER, 1)])
def test_few_steps(bench, loop, rule, more):
    """Ten of 200 ms, by a rule that might yet be replaced: told, with their phases, as the job itself timed them."""
    batches = 11 - more
    record, truth = bench.recorded("loops.py", loop, "--batches", batches, "--pause", 0.2)
    found_rule, boundaries, steps = read_steps(record.file)
    assert (found_rule, boundaries, len(steps)) == (rule, 11, 10)
    check_phases(steps, truth)
    if not more:
        check_lengths(steps, truth)
    found = helpers.report(record.file, "--steps")
    assert (found["window"]["steps"], found["lost"]) == (11, {})
    # and waits are in the phase in which the job slept
    waits = {phase["name"]: phase["waits"].get("sleep", 0) for phase in found["all"]["phases"]}
    slept = "other" if loop == "manual_loader" else "forward"
    assert waits[slept] == pytest.approx(2.0, rel=0.05, abs=truth["delayed"]), found["all"]
    assert found["remainder_s"] < 0.01
    text = helpers.report_text(record.file, "--steps")
    assert "No whole step" not in text and "steps: 10 (" in text


def test_late_optimizer_alone(bench):
    """The only optimizer's step ends one that began before: the backwards in it are none."""
    record, truth = bench.recorded("loops.py", "late_optimizer", "--batches", 20)
    assert truth["steps"] == 1
    (thread,) = read_boundaries(record.file).values()
    assert [b.rule for b in thread] == [LOADER] + 20 * [BACKWARD] + [LOADER_OPTIMIZER]
    found = helpers.report(record.file, "--steps")
    assert found["steps"] == [] and found["window"]["steps"] == 1
    assert found["window"]["step_rule"] == "loader_optimizer"


def test_infers_long(bench):
    """Far longer than it trains: these are the steps that are told."""
    record, truth = bench.recorded("loops.py", "infers_long", "--pause", 0.02)
    rule, boundaries, steps = read_steps(record.file, LOADER)
    assert (boundaries, len(steps)) == (truth["steps"] + 2, truth["steps"] + 1)  # and the first batch that it trains with
    assert helpers.report(record.file)["window"]["step_rule"] == "loader"
    forward = sum(phases["forward"] for _, _, phases in steps[: truth["steps"]])
    theirs = sum(end - start for phase, start, end in truth["intervals"] if phase == "forward" and end < steps[-1][0] / 1e9)
    assert forward / 1e9 == pytest.approx(theirs, rel=0.02, abs=truth["delayed"])


def test_changing_rhythm(bench):
    record, truth = bench.recorded("loops.py", "changing", "--batches", 20)
    rule, boundaries, steps = read_steps(record.file)
    assert (rule, boundaries) == (BACKWARD, 60)
    check_lengths(steps, truth)
    check_phases(steps, truth)


@pytest.mark.parametrize("loop, rule", [("threads", OPTIMIZER), ("threads_loader", LOADER_OPTIMIZER)])
def test_threads(bench, loop, rule):
    """Two that train: the steps of one are told, each as long as by its own clock, and none is lost."""
    record, truth = bench.recorded("loops.py", loop)
    found_rule, boundaries, steps = read_steps(record.file)
    assert (found_rule, boundaries) == (rule, truth["steps"])
    threads = read_boundaries(record.file)
    told = {tid: [b.time / 1e9 for b in thread if b.rule == rule] for tid, thread in threads.items()}
    assert set(told) == {int(tid) for tid in truth["ends"]}
    for tid, ends in truth["ends"].items():
        for ours, theirs in zip(told[int(tid)], ends, strict=True):
            # the job looks at its clock when it has the GIL again
            assert -0.001 - GIL_SECONDS - truth["delayed"] <= ours - theirs <= 0.001, (ours, theirs)
    lengths = [(end - start) / 1e9 for start, end, _ in steps]
    own = [[b - a for a, b in zip(ends, ends[1:])] for ends in truth["ends"].values()]
    assert any(lengths == pytest.approx(one, abs=0.001 + GIL_SECONDS + truth["delayed"]) for one in own)
    found = helpers.report(record.file, "--steps")
    assert (found["lost_steps"], found["lost"], found["window"]["steps"]) == (0, {}, truth["steps"])


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
    assert "(--step-at)" in helpers.report_text(record.file, "--simple")


def test_step_at_nothing(bench):
    """A name that never comes: said on stderr, in the report, and by the exit code; with names that did."""
    job = bench.job("plain_loop.py", "--labels", "--epochs", 1).until_ready()
    record = bench.record("-p", job.pid, "--step-at", "my lable").until_armed()
    job.release()
    job.truth()
    assert record.wait() == helpers.ERROR, record.what()
    assert record.stderr.count("stepflame: error:") == 1 and "fix:" in record.stderr, record.stderr
    seen = re.search("no span named 'my lable' .*; seen: (.*)$", record.stderr, re.M)[1].split("; ")
    actions = [row["name"] for row in helpers.report(record.file, "--all")["actions"]]
    assert len(seen) == 5 and set(seen) <= set(actions), (seen, actions)
    text = helpers.report_text(record.file, "--simple")
    assert "note: no step was found" in text and "no step boundary found" in text
