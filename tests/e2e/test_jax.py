# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""JAX on the CPU, in a Python without torch, against the job's own counts and clocks, jax.monitoring and jax.profiler's trace."""

import json
import re

import helpers
import pytest

pytestmark = helpers.needs_bpf

RELATIVE = 0.02
# Seconds a call: the job's clock has Python around ours, and what probes cost.
PER_CALL = {"jit train_step": 100e-6, "xla wait": 100e-6, "xla to host": 150e-6, "xla to device": 250e-6, "xla compile": 2e-3}
ROWS = {"train_step": "jit train_step", "wait": "xla wait", "to host": "xla to host", "put": "xla to device"}


def rows_of(record, *options):
    return helpers.actions(helpers.report(record.file, "--all", *options))


def check(rows, truth, names):
    """names: {part of the truth: row}."""
    parts = {row: tuple(truth["parts"][part]) for part, row in names.items()}
    helpers.check_counts({name: rows[name] for name in parts}, {name: cnt for name, (cnt, _) in parts.items()})
    helpers.check_totals(rows, parts, RELATIVE, PER_CALL, truth["delayed"])


@pytest.mark.alone
def test_equals_its_clock(bench, jax_python):
    record, truth = bench.recorded("jax_loop.py", "--labels", python=jax_python)
    rows = rows_of(record)
    check(rows, truth, ROWS)
    assert rows["mein Étikett"]["count"] == truth["steps"]
    # A wait is in one row: that of a value which goes to the host, too.
    assert "xla compile" not in rows and "no torch" not in record.stderr
    found = helpers.report(record.file)
    assert found["window"]["step_rule"] == "jit"
    # it takes some calls to find the function
    assert truth["steps"] - 8 <= found["window"]["steps"] < truth["steps"]
    (target,) = found["target"]
    assert target["torch"] is None and re.fullmatch(r"\d+\.\d+\.\d+", target["jax"])
    helpers.check_lost_at_most(found, "open_at_start")
    text = helpers.report_text(record.file, "--simple")
    assert "calls of a jitted function" in text and "the calls of 'jit train_step'" in re.sub(r"\s+", " ", text)
    assert "JAX " + target["jax"] in text


@pytest.mark.alone
def test_compiles(bench, jax_python):
    """A shape that changes: each is a compile in its step, and the steps' slowness is told by it."""
    record, truth = bench.recorded("jax_loop.py", "--recompile", 10, "--batches", 60, python=jax_python)
    rows = rows_of(record)
    count, seconds = truth["compiled"]
    assert count >= 6
    helpers.check_counts({"xla compile": rows["xla compile"]}, {"xla compile": count})
    # JAX's interval has its Python in it
    assert 0.5 * seconds < rows["xla compile"]["total_s"] < seconds + truth["delayed"]
    check(rows, truth, {"train_step": "jit train_step"})
    steps = helpers.report(record.file, "--steps")
    total = sum(step["phases"].get("compile", 0) for step in steps["steps"])
    assert total == pytest.approx(rows["xla compile"]["total_s"], rel=0.5)
    slow = [step for step in steps["steps"] if step["phases"].get("compile", 0) > 0]
    assert len(slow) >= 4 and all(step["duration_s"] > 2 * steps["median_s"] for step in slow)


def test_equals_jax_profiler(bench, jax_python):
    """JAX's own trace has an event of each call, PjitFunction(train_step), and of each annotation."""
    record, truth = bench.recorded("jax_loop.py", "--profile", "--annotate", "--labels", "--evaluate", 7, python=jax_python)
    rows, events = rows_of(record), truth["events"]
    assert rows["jit train_step"]["count"] == events["PjitFunction(train_step)"] == truth["steps"]
    assert rows["jit eval_step"]["count"] == events["PjitFunction(eval_step)"] == 7
    # two arrays a step by device_put; two of numpy's, as arguments
    assert rows["xla to device"]["count"] == 2 * truth["steps"] + 2 * 7
    assert rows["train"]["count"] == events["train"] == truth["steps"]
    assert rows["mein Étikett"]["count"] == events["mein Étikett"] == truth["steps"]


@pytest.mark.parametrize("args, rule, steps", [(["--annotate"], "step_annotation", 50), (["--step-at"], "step_at", 50)])
def test_steps(bench, jax_python, args, rule, steps):
    options = ["--step-at", "jit train_step"] if args == ["--step-at"] else []
    record, truth = bench.recorded("jax_loop.py", *(a for a in args if a != "--step-at"), "--sleep", 0.005, python=jax_python, options=options)
    found = helpers.report(record.file, "--steps")
    assert found["window"]["step_rule"] == rule and found["window"]["steps"] == steps == truth["steps"]
    # a step adds up, with what it slept
    assert all(sum(s["phases"].values()) == pytest.approx(s["duration_s"], abs=1e-6) for s in found["steps"][1:])
    assert found["median_s"] > 0.005


def test_window_of_steps(bench, jax_python):
    job = bench.job("jax_loop.py", "--batches", 400, "--sleep", 0.005, python=jax_python).until_ready()
    record = bench.record("-p", job.pid, "--steps", 20).until_armed()
    job.release()
    assert record.wait() == helpers.OK, record.what()
    assert helpers.report(record.file)["window"]["steps"] == 20
    job.kill()


def test_exceptions(bench, jax_python):
    """A call that raises is a call; a C++ exception has passed nothing of ours."""
    record, truth = bench.recorded("jax_loop.py", "--fail-every", 5, python=jax_python)
    rows = rows_of(record)
    failed = truth["parts"]["failed"][0]
    assert failed == 10 and rows["jit train_step"]["count"] == truth["steps"] + failed


def test_short_capture(bench, jax_python):
    """Of a running job, for a fifth of a second: stacks, calls and steps."""
    job = bench.job("jax_loop.py", "--batches", 100000, "--sleep", 0.002, python=jax_python).until_ready()
    job.release()
    record = bench.record("-p", job.pid, "-d", "200ms", "-F", "999")
    assert record.wait() == helpers.OK, record.what()
    found = helpers.report(record.file, "--advanced")
    names = {f["name"] for action in found["actions"] for f in action["functions"]}
    assert "train" in names and found["window"]["steps"] > 3
    assert 0.15 < found["window"]["seconds"] < 5
    job.kill()


def test_what_is_said(bench, jax_python):
    job = bench.job("jax_loop.py", python=jax_python).until_ready()
    line = next(line for line in helpers.stepflame("ps").stdout.splitlines() if line.split()[:1] == [str(job.pid)])
    assert "JAX 0." in line and "jitted calls" in line
    result = helpers.stepflame("doctor", "-p", job.pid, "--json")
    assert result.returncode == helpers.OK, result.stdout
    checks = {c["name"]: c for c in json.loads(result.stdout)["checks"]}
    assert "torch" not in checks and checks["JAX's landmarks"]["verdict"] == "OK", checks
    dump = helpers.stepflame("dump", "-p", job.pid).stdout
    assert "JAX 0." in dump and "common.py" in dump
