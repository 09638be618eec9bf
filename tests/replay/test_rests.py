# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What reports say of a process that rested, for its budget: recordings made here, of which it is known."""

import helpers
import pytest
import recfile as rec

from .loops import MS, PID, START, preamble

STEP = 20 * MS
S = 1000 * MS
TICK = 10  # enum step_rule


def steps(at, first, count, rested):
    """Boundaries from one at `at`; rested: the first of them is the first behind a rest."""
    out = [rec.boundary(PID, PID, first, at, rule=3, flags=rec.RESTED if rested else 0)]
    for i in range(1, count + 1):
        out.append(rec.boundary(PID, PID, first + i, at + i * STEP, [MS, 9 * MS, 4 * MS, 5 * MS, MS], 3))
    return out


def ticks(at, lengths):
    """Steps of a rest, by its ticks."""
    out = [rec.boundary(PID, PID, 1000, at, rule=TICK, serial=1 << 31, flags=rec.RESTED)]
    for i, length in enumerate(lengths, 1):
        at += length
        out.append(rec.boundary(PID, PID, 1000 + i, at, [length], TICK, serial=1 << 31 | i))
    return out


def written(file, *parts, end, rests, cost=0, more=()):
    """parts: (when the first boundary was, steps behind it)."""
    records, index = list(preamble()), 0
    for number, (at, count) in enumerate(parts):
        records += steps(START + at, index, count, bool(number))
        index += count + 1
    records += [rec.rest(PID, *args) for args in rests]
    records += [rec.window(START, START + end, index, 3), rec.agg(PID, rec.BACKWARD, 101, index, index * 5 * MS), rec.cost(cost, cost, 1000, 0, 0)]
    file.write_bytes(rec.recording([*records, *more]))
    return file


def test_parts(tmp_path):
    """Two windows of 2 s in 20 s: all shares are of what was seen, and the time between is no step, no stall and no loss."""
    rests = [(0, 0, 0), (1, 0, START + 2 * S), (1, 0, START + 2 * S, START + 18 * S)]
    file = written(tmp_path / "a.rec", (0, 99), (18 * S + STEP, 98), end=20 * S, rests=rests, cost=40000)
    found = helpers.report(file, "--steps")
    assert len(found["steps"]) == 99 + 98 and found["lost_steps"] == 0
    assert max(step["duration_s"] for step in found["steps"]) == pytest.approx(0.02)
    assert found["window"] == {"seconds": 4.0, "steps": 199, "step_rule": "optimizer", "whole_seconds": 20.0, "rests": 1}
    assert found["overhead"]["budget_percent"] == 1.0 and found["overhead"]["percent"] == pytest.approx(0.2)
    assert helpers.report(file, "--summary")["stall"] is None
    text = " ".join(helpers.report_text(file).split())
    assert "Recorded 4.0 s of process 4242" in text and "Budget 1 % of the time: recorded in 2 parts of 20.0 s; all below is of these" in text, text
    simple = " ".join(helpers.report_text(file, "--simple").split())
    assert "window: 4 s of 20 s (in 2 parts, for --budget 1), 199 steps ended" in simple, simple
    assert helpers.actions(helpers.report(file, "--simple", "--all"))["backward"]["percent"] == pytest.approx(100 * 199 * 0.005 / 4)


def test_ticks(tmp_path):
    """Steps of the rest are counted apart, and what recording costs is said as it was measured; the steps that were recorded are as without."""
    rests = [(0, 0, 0), (1, 0, START + 2 * S), (1, 0, START + 2 * S, START + 18 * S)]
    more = ticks(START + 3 * S, [19 * MS] * 700 + [S] + [18 * MS] * 9)
    more.append(rec.record("OVERHEAD", pid=PID, pairs=12, accounted_micros=4100, measured_micros=12300, error_micros=2500, rest_micros=100))
    parts = (0, 99), (18 * S + STEP, 98)
    plain = helpers.report(written(tmp_path / "a.rec", *parts, end=20 * S, rests=rests), "--steps")
    file = written(tmp_path / "b.rec", *parts, end=20 * S, rests=rests, more=more)
    found = helpers.report(file, "--steps")
    assert found["window"].pop("rest_steps") == {"count": 710, "median_s": pytest.approx(0.019), "longest_s": pytest.approx(1)}
    measured = {"measured_percent": 1.23, "measured_error_percent": 0.25, "accounted_percent": 0.41, "pairs": 12}
    assert {name: found["overhead"].pop(name) for name in measured} == pytest.approx(measured)
    assert found == plain
    text = " ".join(helpers.report_text(file).split())
    assert "steps between them: 710, median 19 ms, longest 1.0 s" in text, text
    assert "recorded steps take 1.2 % longer than these (+-0.25); their hits say 0.41 %" in text, text
    assert "Cost job 0.25 % slower (measured, +-0.05)" in text, text


def test_paused(tmp_path):
    """A rest without a budget: somebody has paused the job, which the reports say."""
    file = written(tmp_path / "a.rec", (0, 99), (18 * S + STEP, 98), end=20 * S, rests=[(1, 0, START + 2 * S, START + 18 * S, 0)])
    found = helpers.report(file, "--steps")
    assert len(found["steps"]) == 99 + 98 and found["window"]["rests"] == 1 and found["overhead"]["budget_percent"] is None
    text = " ".join(helpers.report_text(file).split())
    assert "Paused recorded in 2 parts of 20.0 s; all below is of these" in text and "Budget" not in text, text
    simple = " ".join(helpers.report_text(file, "--simple").split())
    assert "window: 4 s of 20 s (in 2 parts, paused in between), 199 steps ended" in simple, simple


def test_rests_at_the_end(tmp_path):
    """It has stopped in the middle of a rest: nobody knows whether it made steps since."""
    file = written(tmp_path / "a.rec", (0, 99), end=60 * S, rests=[(1, 0, START + 2 * S)])
    assert helpers.report(file, "--summary")["stall"] is None
    text = " ".join(helpers.report_text(file).split())
    assert "recorded in 1 part of 60.0 s" in text, text
    # awake again, it stands still
    file = written(tmp_path / "b.rec", (0, 99), end=60 * S, rests=[(1, 0, START + 2 * S, START + 30 * S)])
    assert helpers.report(file, "--summary")["stall"]["seconds"] == pytest.approx(30.02)


def test_budget_without_a_rest(tmp_path):
    file = written(tmp_path / "a.rec", (0, 99), end=2 * S, rests=[(0, 0, 0)])
    found = helpers.report(file, "--steps")
    assert found["overhead"]["budget_percent"] == 1.0 and "rests" not in found["window"]
    assert "Budget" not in helpers.report_text(file)


def test_lies(tmp_path):
    """Rests that end before they begin, or are longer than the recording."""
    file = written(tmp_path / "a.rec", (0, 99), end=2 * S, rests=[(1, 0, START + S, START)])
    assert helpers.report(file, "--steps")["lost"]["malformed_records"] == 1
    file = written(tmp_path / "b.rec", (0, 99), end=2 * S, rests=[(3, 1 << 63, START, 1 << 63), (2**32 - 1, 1 << 63, 1, 0)])
    assert helpers.report(file, "--steps")["window"]["seconds"] == 0
    helpers.report_text(file)
    helpers.report_text(file, "--simple")
