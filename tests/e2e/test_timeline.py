# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
The exported timeline of a live recording against the Chrome trace that torch.profiler writes of the same steps in the
same process; and shapes, FLOPs and bytes, which both have of the same operators.
"""

import functools
import gzip
import json
import subprocess
from collections import Counter

import helpers
import ops_compare
import pytest
import tb_plugin
from helpers import PYTHON

pytestmark = helpers.needs_bpf

EVERYWHERE = ["mlp", "conv", "transformer", "lstm", "embedding", "function", "checkpoint", "library", "autocast"]
# In 1.13 TorchScript makes a node outside of any operator; torch's rule then links it to the one that happened to begin
# last.
SHAPES = ["mlp", "conv", "transformer", "lstm", "embedding", "autocast"]
MEMORY = ["mlp", "conv", "transformer", "lstm"]
NEWER = ["scripted", "custom_op", "compiled_aot"]
RANK = '"distributedInfo": {"rank": 0},\n'


OPTIONS = ("--ops", "--shapes", "--memory", "--timeline")


class Traced:
    """A job under both: their traces as text and read, and what the job knows of itself."""

    def __init__(self, directory, model, python, *args, env=None):
        bench, path = helpers.Bench(directory), directory / "kineto.json"
        try:
            args = ("--model", model, "--shapes", "--flops", "--memory", "--trace", path, *args)
            record, self.truth = bench.recorded("ops.py", *args, python=python, options=OPTIONS, env=env)
        finally:
            bench.close()
        exported = helpers.stepflame("export", record.file, "-f", "chrome")
        assert exported.returncode == helpers.OK and not exported.stderr, exported.stderr
        self.ours_text, self.theirs_text = exported.stdout, path.read_text()
        self.ours, self.theirs = events(self.ours_text), events(self.theirs_text)
        self.record = record


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    """Of a model, a Python and arguments: made once."""
    return functools.lru_cache(lambda *what: Traced(tmp_path_factory.mktemp("traced"), *what))


def events(text):
    trace = json.loads(text)
    return trace if isinstance(trace, list) else trace["traceEvents"]


def place(event):
    return event["pid"], event["tid"], event["ts"]


def arrows(trace):
    """{where it ends: where it begins}, each the innermost slice that begins there."""
    ends = {}
    for event in trace:
        if event["ph"] in "sf":
            ends.setdefault(event["id"], {})[event["ph"]] = place(event)
    at = {where: None for end in ends.values() for where in end.values()}
    for event in trace:
        if event["ph"] == "X" and event["cat"] == "cpu_op" and place(event) in at:
            known = at[place(event)]
            at[place(event)] = event if not known or event["dur"] <= known["dur"] else known
    return [(at[end["s"]], at[end["f"]]) for end in ends.values()]


def links(trace):
    """{(operator, node): how many arrows lead from one to the other}"""
    return Counter((start["name"], end["name"]) for start, end in arrows(trace))


def check_links(traced):
    ours = links(traced.ours)
    assert ours == {(op, node): count for op, node, count in traced.truth["links"]}
    if not isinstance(json.loads(traced.theirs_text), list):  # Debian's is built without Kineto, and its traces have no arrows
        assert ours == links(traced.theirs)


def check_shapes_and_memory(traced, model):
    rows, truth = helpers.report(traced.record.file, "--ops", "--shapes")["ops"], traced.truth
    for field in ("count", "flops") if model in SHAPES else ():
        ops_compare.check_same(rows, truth["by_shape"], field, by_shape=True)
    # torch.profiler 2.5 says other bytes of the same job in each run: docs/ops-accuracy.md
    if model in MEMORY and ops_compare.works("assert not torch.__version__.startswith('2.5')"):
        ops_compare.check_same(helpers.report(traced.record.file, "--ops")["ops"], truth["ops"], "self_cpu_memory")


@pytest.mark.parametrize("python, model", helpers.on_torches(EVERYWHERE, old=["mlp", "checkpoint"]), indirect=["python"])
def test_operators_in_full(traced, python, model):
    """Arrows from operators to their nodes, in both traces; by shape the same calls and FLOPs, and of each operator the same bytes."""
    run = traced(model, python)
    if python == PYTHON:
        check_shapes_and_memory(run, model)
    check_links(run)
    assert run.truth["links"]
    for start, end in arrows(run.ours):
        assert start["args"]["Sequence number"] == end["args"]["Sequence number"]
        assert end["args"]["Fwd thread id"] == start["tid"]


@pytest.mark.parametrize("model", NEWER)
def test_links_2(traced, model):
    if model == "custom_op":
        ops_compare.needs("torch.library.custom_op")
    check_links(traced(model, PYTHON))


def test_links_of_threads(traced):
    """Each thread has its own numbers, which are those of the other's, too."""
    ops_compare.needs("torch._C._profiler._ExperimentalConfig(profile_all_threads=True)")
    run = traced("trainers", PYTHON, "--all-threads")
    assert links(run.ours) == links(run.theirs)
    assert all(start["tid"] == end["tid"] for start, end in arrows(run.ours))
    assert len({end["tid"] for _, end in arrows(run.ours)}) > 2


def test_torchs_validator(traced, tmp_path):
    code = "import sys; from torch.profiler import _trace_validator as v; print(v.validate_trace(sys.argv[1]))"
    path = tmp_path / "ours.pt.trace.json"
    path.write_text(traced("conv", PYTHON).ours_text)
    done = subprocess.run([helpers.PYTHON, "-c", code, path], capture_output=True, text=True)
    if "ImportError" in done.stderr:
        pytest.skip("torch 2.15 has it")
    assert done.stdout.strip() == "(True, [])", done


def hta_operators(hta, directory, text):
    """What HTA makes of a trace: {operator: (calls, microseconds)}."""
    directory.mkdir()
    with gzip.open(directory / "a.json.gz", "wt") as file:
        file.write(text)
    trace = hta.TraceAnalysis(trace_dir=str(directory), include_last_profiler_step=True).t
    table = trace.get_trace(0)
    symbols = dict(enumerate(trace.symbol_table.get_sym_table()))
    table = table[table["cat"].map(symbols) == "cpu_op"]
    names = table["name"].map(symbols)
    return table.groupby(names)["dur"].agg(["count", "sum"]).to_dict("index")


def test_tensorboard(traced, tmp_path):
    """The plugin finds in ours the operators of torch.profiler's own trace, and the steps of our report."""
    run = traced("conv", PYTHON)
    exported = helpers.stepflame("export", run.record.file, "-f", "tensorboard", "-o", tmp_path / "ours")
    assert exported.returncode == helpers.OK, exported.stderr
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "x_1.1.pt.trace.json").write_text(run.theirs_text)
    (file,) = (tmp_path / "ours").iterdir()
    ours, theirs = tb_plugin.read(tmp_path / "ours", file.name.split(".")[0]), tb_plugin.read(tmp_path / "theirs", "x_1")
    assert ours.operators == theirs.operators and len(ours.operators) > 10
    steps = {str(s["index"]): s["duration_s"] * 1e6 for s in helpers.report(run.record.file, "--steps")["steps"]}
    assert steps and ours.steps == pytest.approx(steps, abs=0.01)


def test_hta(traced, tmp_path):
    """HTA reads both, finds the same operators, and in ours the times that the file says."""
    (tmp_path / "job").mkdir()
    hta = pytest.importorskip("hta.trace_analysis", reason="tools/setup.sh python --readers installs HolisticTraceAnalysis")
    run = Traced(tmp_path / "job", "transformer", PYTHON, env={"RANK": "0"})  # HTA needs a rank
    assert RANK in run.ours_text
    theirs = run.theirs_text.replace('"displayTimeUnit"', RANK + '"displayTimeUnit"', 1)
    found = hta_operators(hta, tmp_path / "ours", run.ours_text)
    expected = hta_operators(hta, tmp_path / "theirs", theirs)
    assert {name: row["count"] for name, row in found.items()} == {name: row["count"] for name, row in expected.items()}
    spent = Counter()
    for event in run.ours:
        if event["ph"] == "X" and event["cat"] == "cpu_op":
            spent[event["name"]] += event["dur"]
    assert {name: row["sum"] for name, row in found.items()} == pytest.approx(spent, rel=0.01, abs=len(run.ours))
