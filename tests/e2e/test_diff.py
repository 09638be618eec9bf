# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""stepflame diff of recordings made by hand, whose steps, waits and functions are known."""

import json
import random
import statistics
import subprocess

import helpers
import pytest
import recfile as rf

MS = 10**6
PID, MAIN, OTHER = 100, 100, 101  # a thread that makes steps, and one that does not
DATA, FORWARD, BACKWARD = 1, 2, 3  # enum phase
LOAD, MODEL, FIRST = 10, 11, 12  # functions


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


def test_error(tmp_path):
    """The error is that of the mean of values that vary, as statistics has it."""
    a, b = write(tmp_path, "a.rec", recording(6)), write(tmp_path, "b.rec", recording(6, seed=2))
    found = changes(a, b, "--all")
    slept = []
    for seed in (1, 2):
        noise = random.Random(seed)
        slept.append([(6 + noise.uniform(-0.1, 0.1), noise.uniform(-0.1, 0.1))[0] / 1e3 for _ in range(200)])
    row = by_name(found["phases"])["data"]
    variance = sum(statistics.variance(values) / len(values) for values in slept)
    assert row["change_s"] == pytest.approx(statistics.mean(slept[1]) - statistics.mean(slept[0]), abs=1e-8)
    assert row["error_s"] == pytest.approx(1.96 * variance**0.5, rel=1e-3)
    assert not any(changes(a, b)[section] for section in ("phases", "waits", "functions", "actions", "ops"))


def test_threshold(tmp_path):
    a, b = write(tmp_path, "a.rec", recording(6)), write(tmp_path, "b.rec", recording(7, seed=2))
    for threshold, code in [(5, 6), (9, 6), (11, 0), (500, 0)]:
        done = diff(a, b, "--threshold", threshold)
        assert done.returncode == code, done.stderr
        assert ("slower: " in done.stderr) == (code == 6)
    assert diff(b, a, "--threshold", 0).returncode == 0  # faster is no harm
    assert diff(a, a, "--threshold", 0).returncode == 0


def test_text(tmp_path):
    a, b = write(tmp_path, "a.rec", recording(6)), write(tmp_path, "b.rec", recording(9))
    text = diff(a, b).stdout
    assert "A  %s: 200 steps of 1 process, median " % a in text
    assert "B's median step takes 30." in text
    assert "Net.forward" not in text
    assert max(map(len, text.splitlines())) < 120


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
