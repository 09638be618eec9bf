# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Operators against torch.profiler, which runs in the same process over the same steps."""

import json
import os
import signal
import subprocess
from pathlib import Path

import helpers
import ops_compare
import pytest
from helpers import PYTHON

pytestmark = helpers.needs_bpf

# Models of jobs/ops_models.py, and what torch's own profiler must be told to see all of them.
EVERYWHERE = ["mlp", "conv", "transformer", "lstm", "embedding", "function", "checkpoint", "labels"]
EVERYWHERE += ["scripted", "unobserved", "library", "autocast"]  # boxed calls
NEWER = ["custom_op", "compiled_aot", pytest.param("compiled_inductor", marks=pytest.mark.long)]  # whose compilers take half a minute
# Not storm_threads: there torch.profiler itself, without us, hung in 5 of 6 runs.
THREADS = {"threads": ["--all-threads"]}
# The kernels are most of the time there, not what either profiler adds to each call.
HEAVY = {  # in `make test` two of them
    "mlp": ["--work", 1536, "--batches", 30],
    "conv": ["--work", 512, "--batches", 30],
    "transformer": ["--work", 256, "--batches", 30],
    "lstm": ["--work", 256, "--batches", 30],
}


@pytest.fixture
def all_threads():
    ops_compare.needs("torch._C._profiler._ExperimentalConfig(profile_all_threads=True)")


def compare(bench, model, *args, python=PYTHON, options=()):
    found, truth = ops_compare.recorded(bench, "--model", model, *args, python=python, options=options)
    ops_compare.check_consistent(found["ops"])
    ops_compare.check_counts(found["ops"], truth)
    helpers.check_lost_at_most(found, "stack_lost")  # which is a matter of samples: test_samples.py
    return found, truth


@pytest.mark.parametrize("python, model", helpers.on_torches(EVERYWHERE, old=["mlp", "function", "labels", "unobserved"]), indirect=["python"])
def test_equals_torch_profiler(shared, python, model):
    compare(shared, model, python=python)


@pytest.mark.parametrize("model", NEWER)
def test_equals_torch_profiler_2(bench, model):
    if model == "custom_op":
        ops_compare.needs("torch.library.custom_op")
    compare(bench, model)


@pytest.mark.parametrize("model", THREADS)
def test_threads(shared, all_threads, model):
    """Both count what all threads do; torch.profiler has to be told to."""
    compare(shared, model, *THREADS[model])


def test_sees_threads_that_torch_profiler_does_not(shared, all_threads):
    """Told nothing, torch.profiler sees its own thread only; ours sees the job."""
    found, truth = ops_compare.recorded(shared, "--model", "threads")
    _, every = ops_compare.recorded(shared, "--model", "threads", "--all-threads")
    assert truth["ops"] == []
    ops_compare.check_counts(found["ops"], every)


def test_shapes_of_odd_tensors(bench):
    """Undefined, sparse, nested, quantized, meta, strided, of no size, of many sizes: what torch says of each."""
    record, truth = bench.recorded("ops.py", "--model", "odd", "--shapes", options=("--ops", "--shapes"))
    found = helpers.report(record.file, "--ops", "--shapes")
    assert any("nested" in name for name in truth["odd"]) and any("sparse" in name for name in truth["odd"])
    ops_compare.check_same(found["ops"], truth["by_shape"], "count", by_shape=True)


@pytest.mark.alone
@pytest.mark.parametrize("model", ["mlp", "transformer", *(pytest.param(name, marks=pytest.mark.long) for name in ("conv", "lstm"))])
def test_shares_of_time(bench, model):
    """Self time, where it matters. Either profiler's own work lies within the other's times, so the steps are long ones."""
    for _ in range(ops_compare.TRIES):
        found, truth = compare(bench, model, *HEAVY[model])
        off = ops_compare.shares_off(found["ops"], truth["ops"])
        if not off:
            return
    pytest.fail("\n".join(off))


@pytest.mark.parametrize("python", ["torch 2", pytest.param(helpers.OLD_TORCH, marks=pytest.mark.long)], indirect=True)
def test_storm(shared, python):
    """Exceptions through operators, nodes and hooks: the job lives, a call that threw is one, what follows is right."""
    found, truth = compare(shared, "storm", python=python)
    # of the known sequence, and of nothing that threw
    assert ops_compare.summed(found["ops"], "count")["aten::addmm"] == 10 * truth["steps"]
    slowest = max(row["cpu_total_us"] for row in found["ops"])
    assert slowest <= 1e6 * truth["seconds"], "a span was left open"


def test_storm_does_not_change_the_job(bench, shared):
    alone = bench.job("ops.py", "--model", "storm").until_ready()
    alone.release()
    expected = alone.truth()
    _, truth = ops_compare.recorded(shared, "--model", "storm")
    assert {r["name"]: r["count"] for r in truth["ops"]} == {r["name"]: r["count"] for r in expected["ops"]}


def test_fork_inside_an_operator(bench):
    """The child is born inside of a span of its parent's: the parent's figures stay, and the child's are not taken for its."""
    found, truth = ops_compare.recorded(bench, "--model", "forking")
    ours = [row for row in found["ops"] if row["name"] != "aten::erfinv"]
    ops_compare.check_same(ours, truth["ops"], "count")
    children = [row["count"] for row in found["ops"] if row["name"] == "aten::erfinv"]
    assert children in ([], [2 * truth["steps"]])


FORKS = """
import os, sys, time, torch
print("ready", flush=True)
while not os.path.exists(sys.argv[1]): time.sleep(0.01)
if not os.fork():
    time.sleep(60)
    os._exit(0)
os.wait()
"""


def test_child_is_relieved(bench):
    """A child inherits the breakpoints of its parent, and does not keep those of operators."""
    job = bench.process(PYTHON, "-c", FORKS, bench.directory / "go").until_ready()

    def recording(*options):
        record = bench.record("-p", job.pid, *options).until_armed()
        return record, helpers.breakpoints(job.pid)

    def ended(record):
        record.interrupt()
        assert record.wait() == helpers.OK, record.what()
        helpers.until(10, lambda: not helpers.breakpoints(job.pid), record.what)

    record, without = recording()
    ended(record)
    record, placed = recording("--ops")
    assert without < placed and len(placed) > 1000 + len(without)
    (bench.directory / "go").touch()
    children = Path("/proc/%d/task/%d/children" % (job.pid, job.pid))
    child = int(helpers.until(10, children.read_text, job.what))
    helpers.until(10, lambda: helpers.breakpoints(child) <= without, record.what)
    assert helpers.breakpoints(job.pid) == placed
    ended(record)
    os.kill(child, signal.SIGKILL)


def test_steps(bench):
    """--steps N: from one boundary to another, N times a step's operators, wherever in the step the boundary is."""
    job = bench.job("ops.py", "--model", "mlp", "--batches", 60).until_ready()
    record = bench.record("-p", job.pid, "--ops", "--steps", 20).until_armed()
    job.release()
    assert record.wait() == helpers.OK, record.what()
    truth = job.truth()
    found = helpers.report(record.file, "--ops")
    assert found["window"]["steps"] == 20
    a_step = {name: count / truth["steps"] for name, count in ops_compare.summed(truth["ops"], "count").items()}
    ours = {name: count / 20 for name, count in ops_compare.summed(found["ops"], "count").items()}
    assert ours == a_step


def test_schedule_is_torchs():
    """The table that tests/bpf/test_op_windows.c goes by is what this torch says."""
    table = helpers.ROOT / "tests" / "data" / "torch_schedule"
    said = subprocess.run([PYTHON, table.with_suffix(".py")], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == table.with_suffix(".txt").read_text().splitlines()


def test_no_step(bench):
    """Operators, but nothing that looks like a step: it says so."""
    job = bench.job("ops.py", "--model", "threads").until_ready()
    record = bench.record("-p", job.pid, "--ops", "--steps", 5).until_armed()
    job.release()
    job.truth()
    assert record.wait() == helpers.OK, record.what()
    assert "no step" in helpers.report_text(record.file, "--simple"), record.what()


def test_same_with_and_without_torch_profiler(shared):
    """What torch adds to a job while its profiler is on is nothing that we count."""
    alone, _ = ops_compare.recorded(shared, "--model", "transformer", "--no-profiler")
    _, truth = ops_compare.recorded(shared, "--model", "transformer")
    ops_compare.check_same(alone["ops"], truth["ops"], "count")


def test_lightning(bench):
    """A whole fit under Lightning's PyTorchProfiler: its operators, and its own labels of actions and modules."""
    found, truth = ops_compare.recorded(bench, script="ops_lightning.py")
    labels = [row["name"] for row in truth["ops"] if row["name"].startswith("[pl]")]
    assert "[pl][profile]run_training_batch" in labels and any("[pl][module]" in name for name in labels)
    ops_compare.check_same(found["ops"], truth["ops"], "count")


def test_lightning_schedule(bench):
    """By its own schedule it sees a few steps: ours, which sees all, has at least those."""
    found, truth = ops_compare.recorded(bench, "--scheduled", script="ops_lightning.py")
    ours = ops_compare.summed(found["ops"], "count")
    theirs = ops_compare.summed(truth["ops"], "count")
    assert theirs
    assert [name for name in theirs if ours[name] < theirs[name]] == []


def test_of_a_command(bench):
    """Operators of `record -- CMD`, of which nothing is mapped when the recording begins."""
    out = bench.directory / "truth"
    record = bench.record("--ops", "--", helpers.PYTHON, helpers.JOBS / "plain_loop.py", "--out", out)
    assert record.wait() == helpers.OK, record.what()
    steps = json.loads(out.read_text())["steps"]
    counts = ops_compare.summed(helpers.report(record.file, "--ops")["ops"], "count")
    assert (counts["Optimizer.step#SGD.step"], counts["AddmmBackward0"]) == (steps, 2 * steps)  # two nn.Linear
