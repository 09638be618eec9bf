# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Reports of recordings of real jobs against what these jobs measured themselves: with Lightning's profiler, torch.profiler, cProfile,
their own clocks and /proc, and the log of the doubles of CUDA's libraries.
"""

import json
import math
import re
from collections import Counter

import helpers
import ops_compare
import pytest
import recfile

from . import recordings
from .recordings import report, truth

PER_CALL = 40e-6  # of a span: what lies between the job's reading of its clock and ours
RELATIVE = 0.02
HELD = 0.06  # planted.py's HELD_SECONDS
STEP_SECONDS = 0.0002  # between two readings of the job's clock and ours


def actions(name, *options):
    return helpers.actions(report(name, "--simple", *options))


def close(found, seconds, calls, delayed):
    """Of a total: the job's own, but for what each call of the clock adds, and what the machine did in between."""
    assert found == pytest.approx(seconds, rel=RELATIVE, abs=PER_CALL * calls + delayed), (found, seconds)


@pytest.mark.parametrize("name", ["fit", "gan"])
def test_lightnings_profiler(name):
    """Each action by its name, in the order of their first calls, as often and as long."""
    said = truth(name)
    rows = actions(name, "--sort", "first")
    assert list(rows) == [action for action, *_ in said["actions"]]
    for action, calls, seconds, shortest, longest in said["actions"]:
        row = rows[action]
        assert row["count"] == calls, action
        close(row["total_s"], seconds, 2 * calls, said["delayed"])
        assert row["mean_s"] == pytest.approx(row["total_s"] / calls)
        close(row["max_s"], longest, 2, said["delayed"])
        close(row["min_s"], shortest, 2, said["delayed"])


@pytest.mark.parametrize("name", ["fit", "gan"])
def test_table_is_lightnings(name, monkeypatch):
    """Lightning's own code prints the same of these figures."""
    simple = pytest.importorskip("lightning.pytorch.profilers.simple")
    found = report(name, "--simple")
    profiler = simple.SimpleProfiler()
    profiler.start_time = 0.0
    monkeypatch.setattr(simple.time, "perf_counter", lambda: found["window"]["seconds"])
    for row in found["actions"]:
        profiler.recorded_durations[row["name"]] = [row["total_s"]] + [0.0] * (row["count"] - 1)

    def table(lines):
        dashes = [i for i, line in enumerate(lines) if re.fullmatch("-+", line)]
        return lines[dashes[0] : dashes[-1] + 1]

    text = recordings.output("report", name + ".rec", "--simple", "--limit", "0").decode()
    assert table(text.splitlines()) == table(profiler.summary().splitlines())


def test_lightnings_steps():
    calls = {action: count for action, count, *_ in truth("fit")["actions"]}
    found = report("fit", "--steps")
    assert found["window"]["step_rule"] == "lightning"
    assert len(found["steps"]) == calls["run_training_batch"] - 1 == truth("fit")["steps"] - 1


PARTS = {
    "data": r"enumerate\(DataLoader\)#.*__next__",
    "backward": "backward",
    "step": r"Optimizer\.step#SGD\.step",
    "zero_grad": r"Optimizer\.zero_grad#SGD\.zero_grad",
    "forward": "forward",
    "label": "my label",
}


@pytest.mark.parametrize("name", ["plain", "workers"])
def test_own_clock(name):
    """A plain loop's parts, by a pair of perf_counter() around each: ours lie within, but for forward, which encloses the pair."""
    said, rows = truth(name), actions(name, "--all")
    assert report(name)["window"]["steps"] == said["steps"]
    for part, of in said["parts"].items():
        (row,) = [row for action, row in rows.items() if re.fullmatch(PARTS[part], action)]
        assert row["count"] == of["count"], part
        assert (row["total_s"] > of["seconds"]) == (part == "forward"), part
        if part != "forward":
            close(row["total_s"], of["seconds"], 2 * of["count"], said["delayed"])
    if name == "plain":
        assert rows["inner λ"]["count"] == rows["outer"]["count"] == said["steps"]
        assert rows["inner λ"]["total_s"] < rows["outer"]["total_s"]
        assert rows["outer"]["self_s"] == pytest.approx(rows["outer"]["total_s"] - rows["inner λ"]["total_s"], abs=1e-9)


@pytest.mark.parametrize("name", ["ops", "conv"])
def test_torch_profiler(name):
    """The same operators as often, by shape, and what each allocated; of time that each kind of row has its share."""
    said, found = truth(name), report(name, "--ops")
    ops_compare.check_consistent(found["ops"])
    ops_compare.check_same(found["ops"], said["ops"], "count")
    ops_compare.check_same(report(name, "--ops", "--shapes")["ops"], said["by_shape"], "count", by_shape=True)
    if "--memory" in recordings.said(name)["options"]:
        ops_compare.check_same(found["ops"], said["ops"], "self_cpu_memory")
    whole = sum(row["self_cpu_us"] for row in found["ops"])
    assert whole == pytest.approx(sum(row["self_cpu_us"] for row in said["ops"]), rel=0.6)
    flops = report(name, "--ops", "--shapes", "--flops")["ops"]
    assert sum(row["flops"] or 0 for row in flops) > 0


def test_cprofile():
    """Every call of each function, as often as in a run under cProfile."""
    rows = {}
    for (_, file, line, function), row in recfile.read_calls(recordings.path("exact")).items():
        if file.endswith("exact_calls.py"):
            rows["%d %s" % (line, function.rpartition(".")[2])] = row
    said = truth("exact")["rows"]
    assert {key: tuple(rows[key][:2]) for key in said} == {key: tuple(row[:2]) for key, row in said.items()}
    # and the report has what the recording has
    found = Counter()
    for action in report("exact", "--advanced", "--all", "--limit", "0")["actions"]:
        assert action["exact"]
        for row in action["functions"]:
            if row["file"].endswith("exact_calls.py"):
                found["%d %s" % (row["line"], row["name"])] += row["ncalls"]
    assert {key: found[key] for key in said} == {key: row[0] for key, row in said.items()}
    (busy,) = {row["tottime_s"] for action in report("exact", "--advanced")["actions"] for row in action["functions"] if row["name"] == "busy"}
    assert busy == pytest.approx(truth("exact")["busy"], abs=0.001 + truth("exact")["delayed"])


PHASES = ("data", "forward", "backward", "optimizer")


@pytest.mark.parametrize("name", ["sleep", "lock", "garbage", "late_worker"])
def test_planted_steps(name):
    """When each step ended and what its phases took, by the job's own clock."""
    said, found = truth(name), report(name, "--steps")
    log, steps = said["log"], found["steps"]
    assert [step["index"] for step in steps] == list(range(2, len(log) + 1))
    errors = [step["duration_s"] - (log[step["index"] - 1][0] - log[step["index"] - 2][0]) for step in steps]
    assert len([error for error in errors if abs(error) > STEP_SECONDS]) <= 0.05 * len(errors)
    assert abs(sum(errors)) <= STEP_SECONDS + said["delayed"]
    for i, phase in enumerate(PHASES, 1):
        ours = sum(step["phases"].get(phase, 0) for step in steps)
        assert ours == pytest.approx(sum(row[i] for row in log[1:]), abs=0.0003 * len(log) + said["delayed"]), phase


@pytest.mark.parametrize("name, cause, phase, verdict", [("sleep", "sleep", "data", "input-bound"), ("lock", "lock", None, "lock-bound"), ("garbage", "gc", None, "Python-bound"), ("late_worker", "data_wait", "data", "input-bound")])
def test_planted_cause(name, cause, phase, verdict):
    said, found = truth(name), report(name, "--steps")
    causes = {step["index"]: step["cause"] for step in found["steps"] if step["cause"]}
    assert sorted(causes) == found["slow"]
    assert {step for step, why in causes.items() if why == cause} == set(said["planted"])
    first = found["causes"][0]
    assert (first["cause"], first["count"]) == (cause, len(said["planted"])) and (phase is None or first["phase"] == phase)
    assert {first["rhythm"]["shortest"], first["rhythm"]["longest"]} == {said["planted"][0]}
    assert found["verdict"]["class"] == verdict and report(name, "--summary")["limit"]["class"] == verdict
    assert first["where"][0]["file"].endswith("planted.py")
    if name == "garbage":
        assert first["gc_generation"] == 2 and first["where"][0]["name"].endswith("in_loop")
    elif cause != "data_wait":
        assert sum(step["waits"].get(cause, 0) for step in found["steps"]) == pytest.approx(HELD * len(said["planted"]), rel=0.05)
    if name == "lock":
        assert (first["waker"]["pid"], first["waker"]["tid"]) == (said["pid"], said["holder"])
    if name == "late_worker":
        assert first["waker"]["pid"] == said["worker"] and first["waker"]["share"] > 0.5


def test_extra_work():
    said, found = truth("python"), report("python", "--steps")
    assert {step["index"] for step in found["steps"] if step["cause"] == "extra_work"} == set(said["planted"])
    assert found["causes"][0]["where"][0]["name"] == "stir"
    ends = [row[0] for row in said["log"]]
    for step in found["steps"]:
        assert step["duration_s"] == pytest.approx(ends[step["index"] - 1] - ends[step["index"] - 2], abs=STEP_SECONDS * 5)


@pytest.mark.parametrize("name", ["before", "after"])
def test_known_sleeps(name):
    said, found = truth(name), report(name, "--steps")
    parts = said["parts"]
    assert len(found["steps"]) == said["steps"] - 1
    # a sleep is no shorter than was asked for; the job's clock has in it what it waited for a CPU afterwards
    asked = (3 + (7 if name == "after" else 4) + 2) / 1e3
    assert asked * len(found["steps"]) <= sum(step["waits"]["sleep"] for step in found["steps"]) <= sum(parts["sleep"][1:])
    for phase, part in (("data", "data"), ("forward", "forward"), ("optimizer", "step")):
        ours = sum(step["phases"][phase] for step in found["steps"])
        assert ours == pytest.approx(sum(parts[part][1:]), abs=0.0003 * said["steps"] + said["delayed"]), phase


def test_diff_is_what_changed():
    """The forward of the second sleeps for 3 ms more."""
    found = json.loads(recordings.output("diff", "before.rec", "after.rec", "--json", "--all", "--limit", "0"))
    means = {name: {part: sum(values[1:]) / (len(values) - 1) for part, values in truth(name)["parts"].items()} for name in ("before", "after")}
    rows = {section: {row["name"]: row for row in found[section]} for section in ("phases", "waits", "functions", "actions")}
    for section, row, part in (("phases", "forward", "forward"), ("phases", "data", "data"), ("phases", "optimizer", "step")):
        change = rows[section][row]
        assert change["change_s"] == pytest.approx(change["b_s"] - change["a_s"], abs=1e-12)
        assert change["change_s"] == pytest.approx(means["after"][part] - means["before"][part], abs=2 * change["error_s"] + 1e-4), row
        assert change["changed"] == (abs(change["change_s"]) > 2 * change["error_s"]), row
    assert rows["phases"]["forward"]["changed"] and rows["waits"]["sleep"]["changed"]
    assert rows["phases"]["forward"]["change_s"] == pytest.approx(0.003, abs=0.0005)
    assert rows["waits"]["sleep"]["change_s"] == pytest.approx(0.003, abs=0.0001)
    for name, side in (("before", "a"), ("after", "b")):
        assert found[side]["steps"] == len(report(name, "--steps")["steps"]) and found[side]["median_s"] == report(name, "--steps")["median_s"]


def test_jax():
    said, rows = truth("jax"), actions("jax", "--all")
    parts = said["parts"]
    for part, row in (("train_step", "jit train_step"), ("eval_step", "jit eval_step"), ("label", "mein Étikett")):
        assert rows[row]["count"] == parts[part][0], part
    assert rows["train"]["count"] == said["steps"] == report("jax", "--steps")["window"]["steps"]
    assert rows["jit train_step"]["total_s"] == pytest.approx(parts["train_step"][1], abs=said["steps"] * PER_CALL + said["delayed"])
    assert rows["xla to device"]["count"] == parts["put"][0] + 2 * parts["eval_step"][0]
    (target,) = report("jax")["target"]
    assert target["torch"] is None and target["jax"]


def test_transformers():
    said, found = truth("trainer"), report("trainer", "--steps")
    ends, steps = said["ends"], found["steps"]
    assert len(steps) == said["steps"] - 1
    # the callback comes behind the optimizer's step, and the evaluation behind the callback
    assert sum(step["duration_s"] for step in steps) == pytest.approx(ends[-1] - ends[0], abs=0.005 + said["delayed"])


def processes(found):
    return {row["pid"]: {call["name"]: call for call in row["syscalls"]} for row in found["processes"]}


def test_files_and_calls():
    """Each file with the calls and bytes that the job made, and the child by its /proc/self/io."""
    said, found = truth("io"), report("io", "--io")
    files = {}
    for row in next(process for process in found["processes"] if process["pid"] == said["pid"])["files"]:
        files[row["path"]] = [row["reads"], row["read_bytes"], row["writes"], row["written_bytes"]]
    for path, calls in said["files"].items():
        assert files[path] == calls, path
    child = processes(found)[said["child"]["pid"]]
    of_child, more = said["child"]["io"], said["child"]["said_bytes"]
    reads = [child[name] for name in ("read", "pread64", "preadv2")]
    writes = [child[name] for name in ("write", "pwrite64", "writev")]
    assert sum(row["bytes"] for row in reads) == of_child["rchar"] + more and sum(row["count"] for row in reads) == of_child["syscr"] + 1
    assert sum(row["bytes"] for row in writes) == of_child["wchar"] + more and sum(row["count"] for row in writes) == of_child["syscw"] + 1
    calls = processes(found)[said["pid"]]
    assert calls["read"]["errors"] == 7 and calls["openat"]["errors"] >= 7
    cold = [row for row in found["processes"][0]["files"] if row["path"] in (said["path"] + "cold", said["path"] + "mapped")]
    assert {row["path"]: row["disk_bytes"] for row in cold} == {said["path"] + "cold": said["disk"]["read"], said["path"] + "mapped": said["disk"]["mapped"]}


def test_loaders():
    """Two loaders, with their workers, and how long the loop waited for a batch that was not there."""
    said, found = truth("loaders"), report("loaders", "--io")["workers"]
    made = {name: {row["pid"] for row in said[name]} for name in ("train", "val")}
    batches = {name: len(said[name]) for name in made}
    for loader in found:
        ours = {worker["pid"] for worker in loader["workers"]}
        (name,) = [name for name, pids in made.items() if pids <= ours]
        assert loader["batches"] == batches[name] and ours == made[name]
        waited = sum(row["waited"] for row in said[name])
        assert sum(worker["wait_s"] for worker in loader["workers"]) + loader["unknown_wait_s"] <= waited + 0.001
        assert sum(wait["wait_s"] for wait in loader["waits"]) <= waited + 0.001


@pytest.mark.parametrize("name", ["gpu_cupti", "gpu_uprobe"])
def test_calls_of_cuda(name):
    """As often as the doubles were called; those before the recording are not in it."""
    said, found = truth(name), report(name, "--gpu")
    before = {"cudaMalloc", "cudaStreamCreateWithFlags"}
    apis = {row["name"]: row["count"] for row in found["apis"]}
    assert apis == {call: count for call, count in {**said["calls"]["runtime"], **said["calls"]["nccl"]}.items() if call not in before}
    assert {row["name"]: row["count"] for row in found["collectives"]} == said["calls"]["nccl"]
    assert sum(row["bytes"] for row in found["collectives"]) == said["uploads"] * said["bytes"]


DIRECTIONS = {"1": "host to device", "2": "device to host"}  # enum CUpti_ActivityMemcpyKind


def test_work_of_the_gpu():
    said, found = truth("gpu_cupti")["work"], report("gpu_cupti", "--gpu")
    kernels = {row["mangled"]: row for row in found["kernels"]}
    assert {name: row["count"] for name, row in kernels.items()} == {name: count for name, (count, *_) in said["kernel"].items()}
    for name, (count, ns, _) in said["kernel"].items():
        assert kernels[name]["total_us"] == pytest.approx(ns / 1e3, rel=1e-4, abs=0.002 * count)
        assert kernels[name]["avg_us"] == pytest.approx(kernels[name]["total_us"] / count)
        assert kernels[name]["min_us"] <= kernels[name]["avg_us"] <= kernels[name]["max_us"]
    copies = {row["direction"]: (row["count"], row["bytes"]) for row in found["copies"]}
    assert copies == {DIRECTIONS[kind]: (count, size) for kind, (count, _, size) in said["copy"].items()}
    by_op = Counter()
    for row in report("gpu_cupti", "--gpu", "--by-op")["kernels"]:
        by_op[row["mangled"]] += row["count"]
    assert by_op == {name: row["count"] for name, row in kernels.items()}
    (gpu,) = found["gpus"]
    whole = math.fsum(ns for kind in said.values() for _, ns, _ in kind.values()) / 1e3
    assert gpu["busy_us"] == pytest.approx(whole, rel=1e-3)
    assert gpu["comm_us"] == pytest.approx(next(ns for name, (_, ns, _) in said["kernel"].items() if "nccl" in name) / 1e3, rel=1e-3)


def test_ranks():
    for rank in range(2):
        name, said = "rank%d" % rank, truth("rank%d" % rank)
        rows = actions(name, "--all")
        found = report(name, "--steps")
        assert len(found["steps"]) in (said["steps"] - 1, said["steps"])
        assert rows["backward"]["count"] == said["steps"]
        comm = [row for row in rows.values() if row["kind"] == "comm" and "all" in row["name"].lower()]
        assert sum(row["count"] for row in comm) >= said["ops"]["c10d::allreduce_"]
    # rank 1 comes late, and rank 0 waits for it
    waits = [sum(sum(step["waits"].values()) for step in report("rank%d" % rank, "--steps")["steps"]) for rank in range(2)]
    assert waits[0] > 0.01 * 28
