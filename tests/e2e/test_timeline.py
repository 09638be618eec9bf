# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The exported timeline of a live recording against the Chrome trace that torch.profiler writes of the same steps in the same process."""

import json
from collections import Counter

import helpers
import pytest
from helpers import PYTHON

pytestmark = helpers.needs_bpf

EVERYWHERE = ["mlp", "conv", "transformer", "lstm", "embedding", "function", "checkpoint"]
NEWER = ["scripted", "custom_op", "autocast", "compiled_aot"]


def traced(bench, model, *args, python=PYTHON):
    """(ours, torch.profiler's, the recording)"""
    theirs = bench.directory / "kineto.json"
    record, _ = bench.recorded(
        "ops.py", "--model", model, "--trace", theirs, *args, python=python, options=("--ops", "--shapes", "--timeline")
    )
    exported = helpers.stepflame("export", record.file, "-f", "chrome")
    assert exported.returncode == helpers.OK and not exported.stderr, exported.stderr
    return json.loads(exported.stdout), json.loads(theirs.read_text()), record


def flows(trace):
    """{(operator, node): how many arrows lead from one to the other}"""
    slices = {(e["pid"], e["tid"], e["ts"]): [] for e in trace["traceEvents"] if e["ph"] in "sf"}
    for event in trace["traceEvents"]:
        at = (event["pid"], event.get("tid"), event.get("ts"))
        if event["ph"] == "X" and at in slices:
            slices[at].append(event)
    ends = {}
    for event in trace["traceEvents"]:
        if event["ph"] in "sf" and event["cat"] == "fwdbwd":
            ends.setdefault(event["id"], {})[event["ph"]] = slices[event["pid"], event["tid"], event["ts"]]
    name = lambda found: sorted(found, key=lambda e: e["dur"])[0]["name"]
    return Counter((name(end["s"]), name(end["f"])) for end in ends.values())


@pytest.fixture(params=["torch 2", "Debian's torch 1.13"])
def python(request):
    return PYTHON if request.param == "torch 2" else request.getfixturevalue("debian_python")


@pytest.mark.parametrize("model", EVERYWHERE)
def test_flows(bench, python, model):
    ours, theirs, _ = traced(bench, model, python=python)
    assert flows(theirs)
    assert flows(ours) == flows(theirs)


@pytest.mark.parametrize("model", NEWER)
def test_flows_2(bench, model):
    ours, theirs, _ = traced(bench, model)
    assert flows(ours) == flows(theirs)
