# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Steps that end with calls of a jitted function of JAX, in recordings made here: what calls of others say of them."""

import helpers
import pytest
import recfile as rec

PID, MS, START, JIT_RULE = 4242, 10**6, 10**9, 7


def recorded(tmp_path, functions, step_calls, longest=0):
    """functions: {name: (calls, ms of each)}; calls of one of them, so many, ended steps."""
    records = [rec.host(), rec.target(PID), rec.window(START, START + step_calls * 5 * MS, step_calls, JIT_RULE)]
    for ident, (name, (calls, ms)) in enumerate(functions.items(), 1):
        records += [rec.name(ident, "jit " + name), rec.agg(PID, rec.JIT, ident, calls, int(calls * ms * MS) + longest, max_ns=max(longest, int(ms * MS)))]
    records += [rec.boundary(PID, PID, i, START + i * 5 * MS, [MS] * 5, JIT_RULE) for i in range(1, step_calls + 1)]
    records += [rec.sample(PID, PID, rec.CPU, START + i * 50 * MS, 50 * MS) for i in range(1, step_calls // 10)]
    file = tmp_path / "a.rec"
    file.write_bytes(rec.recording(records))
    return file


ALONE = {"train_step": (200, 4), "eval_step": (20, 5)}
THREE = {"encode": (200, 1), "decode": (200, 1), "update": (200, 1.1)}  # none has half
PREPARED = {"train_step": (200, 1), "normalize": (400, 0.7), "add": (800, 0.2), "log": (4, 0.5)}
COMPILED_LATE = {"train_step": (200, 1), "normalize": (400, 0.7), "summary": (4, 0.1)}  # and once a compile of 300 ms
EAGER = {"matmul": (200, 0.52), "tanh": (200, 0.38), "dot_general": (350, 0.15), "mul": (500, 0.09), "_mean": (50, 0.5), "div": (50, 0.06)}
STEPS = {
    "alone": (ALONE, 200, 0, True),
    "three": (THREE, 200, 0, True),
    "prepared": (PREPARED, 200, 0, True),
    "compiled late": (COMPILED_LATE, 200, 300 * MS, True),
    "eager": (EAGER, 200, 0, False),
}


@pytest.mark.parametrize("name", STEPS)
def test_parts(tmp_path, name):
    """Where operators are called one by one, the one with most of the time is called many times a step: then no step is known."""
    functions, calls, longest, known = STEPS[name]
    file = recorded(tmp_path, functions, calls, longest)
    found = helpers.report(file, "--steps")
    assert len(found["steps"]) == (calls - 1 if known else 0)
    assert (found["window"]["steps"], found["window"]["step_rule"]) == ((calls, "jit") if known else (0, None))
    for words in (["--steps"], []):
        text = " ".join(helpers.report_text(file, *words).split())
        assert ("no jitted function is called once a step for sure" in text) == (not known), text


@pytest.mark.parametrize("every, share", [(4, 15 / 31), (2, 9 / 23), (1, 8 / 19)])
def test_compiles_with_their_tracing(tmp_path, every, share):
    """
    A step that compiles takes 16 ms, of which XLA has 8, the one behind it 7, others 4: Python's tracing and the first run are won, too,
    where there are such others.
    """
    other, jit, compiles = 0, 8, 9
    records = [rec.host(), rec.target(PID), rec.name(1, "jit train_step"), rec.agg(PID, rec.JIT, 1, 201, 800 * MS)]
    at = START
    for i in range(201):
        compiled, behind = i % every == 0, (i - 1) % every == 0
        ns = {other: 5 * MS if behind else 2 * MS, jit: 6 * MS if compiled else 2 * MS, compiles: 8 * MS if compiled else 0}
        at += sum(ns.values())
        records.append(rec.boundary(PID, PID, i + 1, at, [ns.get(phase, 0) for phase in range(12)], JIT_RULE))
        records.append(rec.sample(PID, PID, rec.CPU, at, MS))
    file = tmp_path / "a.rec"
    file.write_bytes(rec.recording([rec.window(START, at, 201, JIT_RULE), *records]))
    found = helpers.report(file, "--steps")["verdict"]
    assert found["class"] == "compile-bound"
    assert found["share"] == pytest.approx(share, abs=0.01), found
