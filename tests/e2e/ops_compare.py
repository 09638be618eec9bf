# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Comparing the operators of a recording with torch.profiler's rows of the same steps."""

import functools
import re
import subprocess
from collections import Counter

import helpers
import pytest

# Rows that one side has and the other has not, by pattern, and why. Whatever is not here has to agree in its count.
ACCEPTED = {
    r"\[memory\]": "not a call: allocations outside of any operator, which torch.profiler counts as a row",
    # torch makes these when torch.autograd.profiler._is_profiler_enabled, and at no other time
    r"## Call CompiledFxGraph \w+ ##|AOTDispatcher Runtime Wrapper Prologue|Pregraph bytecode": "torch.compile's, "
    "only while a profiler of torch's own is on",
    r"<forward op>|<backward op>|_grad_sum_to_size|forward": "functions of TorchScript, which run inside of its "
    "interpreter and call nothing: ours has the operators that they call",
}

# Rows of functions that are local to torch's libraries, which a stripped one (Debian's) does not name.
LOCAL = {"detach", "detach_"}

SHARE_POINTS = 3
SHARE_FROM_PERCENT = 2
TRIES = 3  # of a comparison of times: a virtual machine is stopped where its own kernel does not see it


@functools.lru_cache
def works(expression):
    code = "import torch, torch._C._profiler; " + expression
    return subprocess.run([helpers.PYTHON, "-c", code], capture_output=True).returncode == 0


def needs(expression):
    """Skips where the jobs' torch has no such thing."""
    if not works(expression):
        pytest.skip("this torch has no " + expression)


def accepted(name):
    return any(re.fullmatch(pattern, name) for pattern in ACCEPTED)


def recorded(bench, *args, python=helpers.PYTHON, options=(), script="ops.py"):
    """The operators report of a job recorded from before its profiled steps to its end. (report, truth)"""
    record, truth = bench.recorded(script, *args, python=python, options=("--ops", *options))
    if python != helpers.PYTHON:
        for kind in ("tree", "ops"):
            truth[kind] = [row for row in truth[kind] if row["name"] not in LOCAL]
    return helpers.report(record.file, "--ops"), truth


def key(row, by_shape):
    # of an event with no arguments torch has an empty list, of a report by name only an empty text
    return (row["name"], str(row["input_shapes"] or [])) if by_shape else row["name"]


def summed(rows, field, by_shape=False):
    """{name: sum of field}, of the rows that the two sides have to agree on."""
    found = Counter()
    for row in rows:
        if not accepted(row["name"]):
            found[key(row, by_shape)] += row[field] or 0
    return found


def differences(rows, truth, field, by_shape=False):
    """Lines that name what is not the same in both."""
    ours, theirs = summed(rows, field, by_shape), summed(truth, field, by_shape)
    names = sorted({*ours, *theirs}, key=str)
    return ["%s: %s, torch.profiler %s" % (n, ours.get(n), theirs.get(n)) for n in names if ours.get(n) != theirs.get(n)]


def check_same(rows, truth, field, by_shape=False):
    """The same names, and for each the same sum of field."""
    off = differences(rows, truth, field, by_shape)
    assert not off, "%s of %d rows:\n%s" % (field, len(off), "\n".join(off))


def check_counts(rows, truth):
    """The same names and counts as torch.profiler's tree of events, and where its table is right, as that."""
    check_same(rows, truth["tree"], "count")
    if truth["exact"]:
        check_same(rows, truth["ops"], "count")


def check_consistent(rows):
    """What holds for any recording, whatever ran."""
    keys = [(row["name"], row["kind"], row["action"]) for row in rows]
    assert len(set(keys)) == len(keys), "a row comes twice"
    for row in rows:
        assert row["count"] > 0, row
        assert 0 <= row["self_cpu_us"] <= row["cpu_total_us"] + 1e-3, row
        assert abs(row["cpu_avg_us"] * row["count"] - row["cpu_total_us"]) <= 0.01 * row["cpu_total_us"] + 1e-3 * row["count"], row


def shares(rows):
    """{name: percent of the self time of all}."""
    spent = summed(rows, "self_cpu_us")
    whole = sum(spent.values())
    return {name: 100 * us / whole for name, us in spent.items()}


def shares_off(rows, truth):
    ours, theirs = shares(rows), shares(truth)
    large = [n for n in {**ours, **theirs} if max(ours.get(n, 0), theirs.get(n, 0)) > SHARE_FROM_PERCENT]
    assert large
    off = [n for n in large if abs(ours.get(n, 0) - theirs.get(n, 0)) > SHARE_POINTS]
    return ["%s: %.1f %%, torch.profiler %.1f %%" % (n, ours.get(n, 0), theirs.get(n, 0)) for n in sorted(off)]
