# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""stepflame diff: of recordings made by hand, whose steps, waits and functions are known, and of jobs that know their times themselves."""

import json
import math
import random
import re
import statistics
import subprocess

import helpers
import pytest
import recfile as rf

MS, SECOND = 10**6, 10**9
PID, MAIN, OTHER = 100, 100, 101  # a thread that makes steps, and one that does not
DATA, FORWARD, BACKWARD = 1, 2, 3  # enum phase
LOAD, MODEL, FIRST = 10, 11, 12  # functions
BLOCKS, STUDENT_19 = 20, 2.093  # a table's value: 95 % of the distribution with 19 degrees of freedom lie within
SECTIONS = ("step", "phases", "waits", "functions", "actions", "ops")


def functions():
    for number, (file, name) in enumerate([("/a/train.py", "load"), ("/b/model.py", "Net.forward"), ("/a/train.py", "main")]):
        yield rf.name(20 + 2 * number, file)
        yield rf.name(21 + 2 * number, name)
        yield rf.code(LOAD + number, 20 + 2 * number, 21 + 2 * number, 5)
    yield rf.stack(40, [(LOAD, 0), (FIRST, 0)])
    yield rf.stack(41, [(MODEL, 0), (FIRST, 0)])


def recording(data_ms, steps=200, forward_ms=4, seed=1, pid=PID, op_us=10):
    """Steps of data_ms of sleep, then a forward sampled as if at 1 ms; with some noise."""
    noise = random.Random(seed)
    at = 10**9
    yield rf.host()
    yield rf.target(pid)
    yield from functions()
    yield rf.name(30, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")
    yield rf.path(50, [(rf.LABEL, 30)])
    yield rf.boundary(pid, pid, 0, at)
    for index in range(1, steps + 1):
        slept = round((data_ms + noise.uniform(-0.1, 0.1)) * MS)
        ran = round((forward_ms + noise.uniform(-0.1, 0.1)) * MS)
        yield rf.sample(pid, pid, rf.WAIT, at + slept, slept, 40, 50, cause="sleep")
        for ms in range(forward_ms):
            yield rf.sample(pid, pid, rf.CPU, at + slept + ms * MS, MS, 41)
        at += slept + ran
        yield rf.sample(pid, pid + 1, rf.WAIT, at, slept + ran, 41, cause="lock")  # an idle thread
        yield rf.boundary(pid, pid, index, at, (0, slept, ran, 0, 0, 0, 0, 0))
    yield rf.name(7, "aten::mm")
    yield rf.op(pid, rf.SPAN_OP, 7, 10 * steps, op_us * 1000 * steps, op_us * 1000 * steps)
    yield rf.op_window(pid, 0, 0, steps, 10**9, at)
    yield rf.name(8, "training_step")
    yield rf.agg(pid, rf.ACTION, 8, steps, steps * 5 * MS, first_ns=10**9)
    yield rf.window(10**9, at, steps, 1)


def write(directory, name, records):
    path = directory / name
    path.write_bytes(rf.recording(records))
    return path


def snapshots(records, steps):
    """The bytes of a recording with a snapshot every so many steps."""
    out, pending, boundaries = rf.header(), b"", 0
    for one in records:
        pending += one
        boundaries += one[0] == rf.NUMBERS["STEP"]
        if boundaries == steps:
            out, pending, boundaries = out + rf.mark(pending), b"", 0
    return out + rf.mark(pending)


def diff(*args):
    return subprocess.run([helpers.STEPFLAME, "diff", *map(str, args)], capture_output=True, text=True)


def changes(a, b, *args):
    done = diff(a, b, "--json", *args)
    assert done.returncode == helpers.OK, done.stderr
    return json.loads(done.stdout)


def by_name(rows):
    return {row["name"]: row for row in rows}


def test_slower_data(tmp_path):
    a = write(tmp_path, "a.rec", recording(6))
    b = write(tmp_path, "b.rec", recording(9, steps=150, seed=2, op_us=30))
    found = changes(a, b)
    assert found["per"] == "step"
    assert (found["a"]["steps"], found["b"]["steps"]) == (200, 150)
    assert found["slower_percent"] == pytest.approx(30, abs=1)
    for section, name, change_ms in [
        ("phases", "data", 3),
        ("waits", "sleep", 3),
        ("functions", "train.py:load", 3),
        ("ops", "aten::mm", 0.02),
    ]:
        row = by_name(changes(a, b, "--all")[section])[name]
        assert row["change_s"] == pytest.approx(change_ms / 1e3, abs=2e-5), name
        assert row["changed"] == (name != "aten::mm")  # which is less than a hundredth of a step
    # only what changed, and nothing of the idle thread
    assert [[row["name"] for row in found[s]] for s in ("phases", "waits", "functions", "actions", "ops")] == [
        ["data"],
        ["sleep"],
        ["train.py:load"],
        [],
        [],
    ]


def batch_error(values):
    """Of their mean, by the means of 20 blocks of as many."""
    size = len(values) // BLOCKS
    means = [statistics.mean(values[i * size : (i + 1) * size]) for i in range(BLOCKS)]
    return STUDENT_19 * statistics.stdev(means) / math.sqrt(BLOCKS)


def test_error(tmp_path):
    """The error is that of the mean of blocks that vary, as statistics has it."""
    a, b = write(tmp_path, "a.rec", recording(6)), write(tmp_path, "b.rec", recording(6, seed=2))
    found = changes(a, b, "--all")
    slept = []
    for seed in (1, 2):
        noise = random.Random(seed)
        slept.append([(6 + noise.uniform(-0.1, 0.1), noise.uniform(-0.1, 0.1))[0] / 1e3 for _ in range(200)])
    row = by_name(found["phases"])["data"]
    assert row["change_s"] == pytest.approx(statistics.mean(slept[1]) - statistics.mean(slept[0]), abs=1e-8)
    assert row["error_s"] == pytest.approx(math.hypot(*map(batch_error, slept)), rel=1e-3)
    assert not any(changes(a, b)[section] for section in SECTIONS)
    text = diff(a, b).stdout
    assert "No row changed by more than chance and more than a hundredth of a step.\n" in text
    assert re.search(r"A's: the difference, [+-]\d+\.\d %, may be chance \(\+- \d+\.\d %\)\.\n", text), text


def counted(seed, steps=200, ms=5, each=3, every=10, at=0.0):
    """
    An action that is called so many times a step, and an operator; snapshots every so many steps, at that share of a step.
    (records, seconds of the action's calls in whole steps).
    """
    noise = random.Random(seed)
    calls, records = [], [rf.target(PID), rf.name(8, "training_step"), rf.name(7, "aten::mm")]
    for index in range(steps + 1):
        records.append(rf.boundary(PID, PID, index, (100 + 20 * index) * MS, (0, 20 * MS) if index else ()))
        calls += [round(noise.uniform(0.9, 1.1) * ms * MS / each) for _ in range(each)]  # of the step that begins
        if index % every == 0:
            so_far, now = each * index + int(at * each), int((100 + 20 * index + 20 * at) * MS)
            records.append(rf.window(100 * MS, now, index, 1))
            records.append(rf.agg(PID, rf.ACTION, 8, so_far, sum(calls[:so_far]), first_ns=100 * MS))
            records.append(rf.op(PID, rf.SPAN_OP, 7, index, index * MS, index * MS))
            records.append(rf.op_window(PID, 0, 0, index, 100 * MS, (100 + 20 * index) * MS))
    return records, [ns / 1e9 for ns in calls[: each * steps]]


def test_error_of_counted_rows(tmp_path):
    (first, a_calls), (second, b_calls) = counted(1), counted(2)
    found = changes(write(tmp_path, "a.rec", first), write(tmp_path, "b.rec", second), "--all")
    row, op = by_name(found["actions"])["training_step"], by_name(found["ops"])["aten::mm"]
    assert row["a_s"] == pytest.approx(sum(a_calls) / 200, rel=1e-6) and row["b_s"] == pytest.approx(sum(b_calls) / 200, rel=1e-6)
    assert row["error_s"] == pytest.approx(3 * math.hypot(batch_error(a_calls), batch_error(b_calls)), rel=1e-3)
    assert not row["changed"] and op["a_s"] == pytest.approx(1e-3) and op["error_s"] == pytest.approx(0, abs=1e-9)
    assert found["a"]["actions_of"] == found["a"]["ops_of"] == 200


def test_error_by_histogram(tmp_path):
    """Of a recording without snapshots among its steps the histogram tells how actions vary, if calls do not depend on each other."""
    noise = random.Random(4)

    def once(values):
        hist = [0] * rf.BUCKETS
        for ns in values:
            hist[ns.bit_length() - 1] += 1
        yield rf.target(PID)
        yield rf.name(8, "training_step")
        for index in range(len(values) + 1):
            yield rf.boundary(PID, PID, index, (100 + 20 * index) * MS, (0, 20 * MS) if index else ())
        yield rf.agg(PID, rf.ACTION, 8, len(values), sum(values), min_ns=min(values), max_ns=max(values), hist=hist)
        yield rf.window(100 * MS, (100 + 20 * len(values)) * MS, len(values), 1)

    sides = [[round(noise.lognormvariate(0, 0.6) * 5 * MS) for _ in range(100)] for _ in range(2)]
    a, b = (write(tmp_path, name, once(values)) for name, values in zip(("a.rec", "b.rec"), sides))
    row = by_name(changes(a, b, "--all")["actions"])["training_step"]
    assert row["a_s"] == pytest.approx(statistics.mean(sides[0]) / 1e9)
    truth = 1.96 * math.sqrt(sum(statistics.variance(values) / len(values) for values in sides)) / 1e9
    assert row["error_s"] == pytest.approx(truth, rel=0.2)


@pytest.mark.parametrize("at", [0.1, 0.5, 0.9])
def test_snapshots_within_steps(tmp_path, at):
    """Which calls of a step a snapshot has is chance: what each step calls as often takes so many calls' mean, however few steps there are."""
    records, calls = counted(1, at=at)
    whole = write(tmp_path, "whole.rec", records)
    for steps in (10, 30, 50, 110):
        part = counted(1, steps=steps, at=at)[0]
        row = by_name(changes(write(tmp_path, "part.rec", part), whole, "--all")["actions"])["training_step"]
        assert row["a_s"] == pytest.approx(statistics.mean(calls) * 3, rel=0.03), steps
        assert not row["changed"]


def test_behind_the_last_snapshot(tmp_path):
    """What came behind it is of no snapshot, and not read; of a file without any, all is."""
    whole = list(recording(6))
    more = list(recording(60, seed=3))
    head = rf.recording(whole)
    cut = tmp_path / "cut.rec"
    cut.write_bytes(head + rf.chunk(b"".join(more)))
    a = write(tmp_path, "a.rec", whole)
    done = diff(cut, a, "--json")
    assert "goes on behind its last snapshot" in done.stderr
    found = json.loads(done.stdout)
    assert found["a"]["steps"] == found["b"]["steps"] == 200 and not any(found[section] for section in SECTIONS)
    cut.write_bytes(rf.header() + rf.chunk(b"".join(whole)))
    assert changes(cut, a)["a"]["steps"] == 200


def test_one_percentile(tmp_path):
    """p99 and median are those of report --steps, by nearest rank."""
    rng = random.Random(5)
    for steps in (1, 2, 7, 99, 100, 101, 250, 300):
        a = write(tmp_path, "a.rec", recording(6, steps=steps, seed=rng.random()))
        of_steps, of_diff = helpers.report(a, "--steps"), changes(a, a)["a"]
        durations = sorted(step["duration_s"] for step in of_steps["steps"])
        for key, rank in [("p99_s", math.ceil(steps * 99 / 100)), ("median_s", math.ceil(steps / 2))]:
            assert of_diff[key] == of_steps[key] == durations[rank - 1], (steps, key)
        assert of_diff["steps"] == len(durations)


def test_words(tmp_path):
    """What was compared, where both recordings are not of one kind."""

    def two_ranks():
        yield from recording(6, steps=50)
        yield from recording(6, steps=50, pid=PID + 10)

    a = write(tmp_path, "a.rec", recording(6))
    two = write(tmp_path, "two.rec", two_ranks())
    assert "A has 1 process, B has 2: figures are per process, on average." in diff(a, two).stdout
    assert "Actions are compared as counted: in 200 steps of A and 100 of B." in diff(a, two).stdout
    bare = write(tmp_path, "bare.rec", [one for one in recording(6) if one[0] not in (rf.NUMBERS["SAMPLE"], rf.NUMBERS["STEP"])])
    text = diff(a, bare, "--all").stdout
    assert "Figures are time per second, not per step: B has no steps, which only a recording with samples has (not with record -F 0)" in text
    assert "Waits and functions are not compared: B has none (no samples)." in text
    assert "Python functions" not in text and "Actions, with what is inside" in text
    other = write(tmp_path, "other.rec", [one for one in recording(6) if one[0] not in (rf.NUMBERS["OP"], rf.NUMBERS["OP_WINDOW"])])
    text = diff(other, a).stdout
    assert "Operators are not compared: A has none (record --ops)." in text
    ruled = [rf.boundary(PID, PID, i, 10**9 + 10 * i * MS, (0, 10 * MS), rule=2) for i in range(9)]
    ruled += [rf.target(PID), rf.window(10**9, 2 * 10**9, 9, 2)]
    text = diff(write(tmp_path, "ruled.rec", ruled), a).stdout
    assert "in A the first Optimizer.step after a batch, in B Lightning's run_training_batch" in text


def test_threshold(tmp_path):
    a, b = write(tmp_path, "a.rec", recording(6)), write(tmp_path, "b.rec", recording(7, seed=2))
    for threshold, code in [(5, 6), (9, 6), (11, 0), (500, 0)]:
        done = diff(a, b, "--threshold", threshold)
        assert done.returncode == code, done.stderr
        assert ("slower: " in done.stderr) == (code == 6)
    assert diff(b, a, "--threshold", 0).returncode == 0  # faster is no harm
    assert diff(a, a, "--threshold", 0).returncode == 0


def test_chance_is_not_slower(tmp_path):
    """Two recordings of the same: the one whose median is longer by chance fails no threshold."""
    a = write(tmp_path, "a.rec", recording(6, steps=40))
    others = [write(tmp_path, "%d.rec" % seed, recording(6, steps=40, seed=seed)) for seed in range(2, 10)]
    longer = [b for b in others if 0 < changes(a, b)["slower_percent"] <= changes(a, b)["slower_error_percent"]]
    assert longer
    for b in longer:
        done = diff(a, b, "--threshold", 0)
        assert done.returncode == helpers.OK, done.stderr
        assert "may be chance" in done.stderr and "slower: " not in done.stderr


def test_text(tmp_path):
    a, b = write(tmp_path, "a.rec", recording(6)), write(tmp_path, "b.rec", recording(9))
    text = diff(a, b).stdout
    assert "A  %s: 200 steps of 1 process in 1.999 s, median " % a in text
    assert "B's median step takes 30." in text
    assert "Net.forward" not in text
    assert max(len(line.replace(str(a), "a.rec").replace(str(b), "b.rec")) for line in text.splitlines()) < 120
    assert not [line for line in text.splitlines() if line.startswith("~")]
    rows = [line for line in diff(a, b, "--all").stdout.splitlines() if " +- " in line and "median" not in line]
    assert any(line.startswith("~ forward") for line in rows) and any(line.startswith("  data") for line in rows)


def test_without_steps(tmp_path):
    """Then time per second is compared, and a threshold has nothing to stand on."""

    def stepless(cause):
        yield rf.target(PID)
        yield from functions()
        yield rf.sample(PID, PID, rf.WAIT, 2 * 10**9, 5 * 10**8, 40, cause=cause)
        yield rf.window(10**9, 2 * 10**9)

    a, b = write(tmp_path, "a.rec", stepless("sleep")), write(tmp_path, "b.rec", recording(6))
    found = changes(a, b, "--all")
    assert found["per"] == "second" and found["slower_percent"] is None
    assert by_name(found["functions"])["train.py:load"]["a_s"] == pytest.approx(0.5)
    done = diff(a, b, "--threshold", 5)
    assert done.returncode == helpers.ERROR and "a.rec has no steps" in done.stderr and "fix: " in done.stderr


def test_nothing_in_common(tmp_path):
    def other():
        yield rf.target(7)
        yield rf.name(1, "validation_step")
        yield rf.agg(7, rf.ACTION, 1, 5, 10)
        yield rf.window(0, 10**9)

    a, b = write(tmp_path, "a.rec", recording(6)), write(tmp_path, "b.rec", other())
    done = diff(a, b)
    assert done.returncode == helpers.ERROR
    assert "have nothing in common" in done.stderr and not done.stdout


def test_usage(tmp_path):
    a = write(tmp_path, "a.rec", recording(6, steps=3))
    for args in ([], [a], [a, a, a], [a, a, "--threshold", "x"], [a, a, "--threshold", -1], [a, a, "--limit", "no"]):
        assert diff(*args).returncode == helpers.USAGE
    assert diff(a, tmp_path / "none.rec").returncode == helpers.ERROR


def all_rows(found):
    return [(section, row) for section in SECTIONS for row in found[section]]


def test_cuts_of_a_steady_job(tmp_path):
    """The beginning of a recording differs from the whole of it by chance alone, where nothing but chance moves the job's times."""
    rng = random.Random(1)
    rows = beyond = 0
    for seed in range(10):
        data = snapshots(recording(6, steps=400, seed=seed), steps=20)
        whole, cut = tmp_path / "whole.rec", tmp_path / "cut.rec"
        whole.write_bytes(data)
        for at in (rng.randrange(len(data) // 5, len(data)) for _ in range(8)):
            cut.write_bytes(data[:at])
            found = changes(cut, whole, "--all", "--limit", 0)
            told = [row for _, row in all_rows(found) if row["error_s"] is not None]
            assert not [row for row in told if row["changed"]], found
            rows, beyond = rows + len(told), beyond + len([row for row in told if abs(row["change_s"]) > row["error_s"]])
    assert rows > 300 and beyond <= 0.05 * rows, (rows, beyond)


def kept(snapshots, first=1000, last=1200):
    """What --max-size has kept of a recording: its last steps, of 10 ms, and the totals of all; at these steps it has a snapshot."""
    yield rf.host()
    yield rf.target(PID)
    yield from functions()
    yield rf.name(8, "training_step")
    yield rf.record("DROPPED", time_ns=SECOND + (first - 5) * 10 * MS, events=1000)
    yield rf.boundary(PID, MAIN, first, SECOND + first * 10 * MS)
    for index in range(first + 1, last + 1):
        at = SECOND + index * 10 * MS
        yield rf.boundary(PID, MAIN, index, at, (0, 5 * MS, 5 * MS, 0, 0, 0, 0, 0))
        yield rf.sample(PID, MAIN, rf.CPU, at - 1, MS, 40)
        if index in snapshots or index == last:
            yield rf.window(SECOND, at + MS, index, 1)
            yield rf.agg(PID, rf.ACTION, 8, index, index * 5 * MS, first_ns=SECOND + 5, min_ns=5 * MS, max_ns=5 * MS)


@pytest.mark.parametrize("snapshots, steps", [(range(1020, 1200, 20), 160), ((1050, 1100), 50), ((1100,), 0)])
def test_totals_of_dropped_steps(tmp_path, snapshots, steps):
    """They are no time of the steps that were kept: these are compared between snapshots, or not at all."""
    path = write(tmp_path, "a.rec", kept(snapshots))
    whole = write(tmp_path, "b.rec", recording(6, steps=300))
    found = changes(path, whole, "--all")
    assert found["a"]["actions_of"] == pytest.approx(steps, abs=0.2)
    rows = by_name(found["actions"])
    assert (rows["training_step"]["a_s"] == pytest.approx(0.005)) if steps else rows == {}
    assert ("Actions are not compared: A has none of the steps that record --max-size or --last has kept." in found["notes"]) == (not steps)
