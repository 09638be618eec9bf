# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Steps that become longer for good, from which on, and why: recordings made here, of which it is known."""

import random
import re

import helpers
import pytest
import recfile as rec
from .loops import FORWARD as IN_FORWARD, MS, PID, START, preamble

DATA, FORWARD, BACKWARD, OPTIMIZER, VALIDATION = 1, 2, 3, 4, 7
LOADS, MODEL = 210, 211  # stacks
IN_DATA, NEXT = 120, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
USUAL, LONGER = 20, 28  # ms


def run(file, *parts, noise=0):
    """parts: (number of steps, ms of a step, what more than USUAL goes into: "sleep", "model" or "validation")."""
    chance = random.Random(1)
    records, at, index = [*preamble(), rec.name(IN_DATA, NEXT), rec.path(IN_DATA, [(rec.LABEL, IN_DATA)]), rec.boundary(PID, PID, 0, START, rule=3)], START, 0
    for count, ms, what in parts:
        for _ in range(count):
            index += 1
            more = round(max(0, ms - USUAL) * MS)
            phases = [0] * 8
            phases[FORWARD], phases[BACKWARD], phases[OPTIMIZER] = 4 * MS, 5 * MS, MS
            phases[DATA] = round((min(ms, USUAL) - 10) * MS * chance.uniform(1 - noise, 1 + noise))
            phases[{"sleep": DATA, "model": FORWARD, "validation": VALIDATION}[what]] += more
            if more and what == "sleep":
                records.append(rec.sample(PID, PID, rec.WAIT, at + more, more, LOADS, IN_DATA, cause="sleep"))
            if more and what == "model":
                records += [rec.sample(PID, PID, rec.CPU, at + phases[DATA] + (3 + i) * MS, MS, MODEL, IN_FORWARD) for i in range(3)]
            at += sum(phases)
            records.append(rec.boundary(PID, PID, index, at, phases, 3))
    records.append(rec.window(START, at, index, 3))  # the one of the preamble is shorter
    file.write_bytes(rec.recording(records))
    return helpers.report(file, "--summary")["slowdown"], re.sub(r"\s+", " ", helpers.report_text(file))


def test_sleep(tmp_path):
    found, text = run(tmp_path / "a.rec", (1500, USUAL, "sleep"), (700, LONGER, "sleep"))
    assert (found["since_step"], found["cause"], found["phase"]) == (1501, "sleep", "data")
    assert (found["before_s"], found["after_s"], found["seconds"]) == pytest.approx((0.020, 0.028, 700 * 0.028))
    assert re.search(r"Slower since step 1501, 19.6 s before the end: 28 ms, 40 % longer than before \(20 ms\): sleeping in data, at train.py:\d+ load ", text), text


def test_model(tmp_path):
    """On the CPU; and neither noise nor single long steps hide it."""
    found, text = run(tmp_path / "a.rec", (900, USUAL, "sleep"), (1, 900, "sleep"), (600, USUAL, "sleep"), (800, 25, "model"), (1, 900, "sleep"), (50, 25, "model"), noise=0.4)
    assert found["since_step"] == pytest.approx(1502, abs=20) and (found["cause"], found["phase"]) == ("op", "forward"), found
    assert "more operators on the CPU in forward, at train.py:" in text, text


@pytest.mark.parametrize(
    "parts",
    [
        [(2200, USUAL, "sleep")],
        [(1500, LONGER, "sleep"), (700, USUAL, "sleep")],
        [(1500, USUAL, "sleep"), (700, LONGER, "sleep"), (300, USUAL, "sleep")],
        [(1500, USUAL, "sleep"), (700, 21, "sleep")],
        [(1500, USUAL, "sleep"), (300, LONGER, "sleep")],
        [(300, USUAL, "sleep"), (1500, LONGER, "sleep")],
        [(1500, USUAL, "sleep"), (700, LONGER, "validation")],
        [(500, USUAL, "sleep"), (200, LONGER, "sleep")] * 4,
    ],
    ids=["equal", "shorter", "recovers", "by little", "for short", "before was short", "validation", "again and again"],
)
def test_none(tmp_path, parts):
    found, text = run(tmp_path / "a.rec", *parts, noise=0.2)
    assert found is None and "Slower " not in text
