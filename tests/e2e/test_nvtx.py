# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
NVTX's ranges, against what a tool of NVTX's own is told of them (tests/gpu/nvtx_log.c), and against what jobs count themselves
where there is none, as in production.
"""

import collections
import json
import math
import os
import subprocess

import gpu
import helpers
import pytest

pytestmark = [helpers.needs_bpf, gpu.needs_doubles]

# Our places lie before NVTX's pointer is called, the tool's clock behind: both ends alike, but for the writing of its log
# and the hits of the ranges inside.
PER_CALL = 40e-6
RELATIVE = 0.02


def tool(directory):
    return {"NVTX_INJECTION64_PATH": os.path.join(gpu.DOUBLES, "libnvtx_log.so"), "NVTX_LOG": str(directory / "nvtx.log")}


def read_log(directory, pid):
    """({name: (count, seconds)} of what was popped, {name: count} of what was not, pops of nothing); a name is None: NULL."""
    done, stacks, none = {}, collections.defaultdict(list), 0
    for line in (directory / ("nvtx.log.%d" % pid)).read_text().split("\n")[:-1]:
        ns, tid, what, domain, name = line.split("\t")
        if what == "push":
            stacks[tid, domain].append((None if name.endswith("\\0") else name, int(ns)))
        elif what == "popped-none":
            none += 1
        else:
            name, start = stacks[tid, domain].pop()
            count, seconds = done.get(name, (0, 0))
            done[name] = (count + 1, seconds + (int(ns) - start) / 1e9)
    left = collections.Counter(name for stack in stacks.values() for name, _ in stack)
    return done, left, none


def rows_of(found):
    return {name: row for name, row in helpers.actions(found).items() if row["kind"] == "label"}


def rows_by_name(found):
    """Of a name that is too long, the report has 512 bytes, "..." and how long it is."""
    return {name[:512]: row for name, row in rows_of(found).items()}


def cut(counts):
    result = collections.Counter()
    for name, count in counts.items():
        result[name[:512]] += count
    return dict(result)


@pytest.mark.alone
@pytest.mark.parametrize("tooled", [False, True], ids=["no tool", "a tool"])
def test_torch(bench, tooled):
    env = tool(bench.directory) if tooled else {}
    record, truth = bench.recorded("nvtx_torch.py", env=env)
    found = helpers.report(record.file)
    rows = rows_by_name(found)
    assert rows.pop("labelled")["count"] == 2 * 60
    expected = cut(truth["popped"])
    helpers.check_counts(rows, expected)
    assert found["lost"] == {"name_cut": 120, "nvtx_not_pushed": truth["pops_of_none"]}
    assert truth["pops_of_none"] == 1
    if tooled:
        log, left, none = read_log(bench.directory, truth["pid"])
        log.pop("first")  # before the recording
        log = {name[:512]: value for name, value in log.items()}
        assert {name: count for name, (count, _) in log.items()} == expected and not left and none == 1
        helpers.check_totals(rows, log, RELATIVE, PER_CALL, truth["delayed"])


def test_left_open(bench):
    """Ranges that are never popped: the others are there all the same."""
    record, truth = bench.recorded("nvtx_torch.py", "--leak", 100)
    found = helpers.report(record.file)
    rows = rows_by_name(found)
    rows.pop("labelled")
    assert {name: row["count"] for name, row in rows.items()} == cut(truth["popped"])
    # one of them is the outermost whenever the others are too many
    assert 100 - 16 <= found["lost"]["nvtx_not_popped"] <= 100


def test_lightning(bench):
    """Ranges that begin in one of Lightning's hooks and end in another take nothing from its actions, nor from the steps."""
    record, truth = bench.recorded("lightning_fit.py", "--nvtx", "--no-callbacks", "--logger", "none")
    found = helpers.report(record.file)
    rows = helpers.actions(found)
    batches = len(truth["actions"]["run_training_batch"])
    counts = {name: len(d) for name, d in truth["actions"].items()}
    helpers.check_counts(rows, {**counts, "batch range": batches, "inner range": batches})
    assert found["lost"] == {}
    assert found["window"]["steps"] == batches
    # from the first hook to the last one of a batch
    around = math.fsum(truth["actions"]["run_training_batch"])
    for name in ("batch range", "inner range"):
        assert rows[name]["total_s"] > around
        assert rows[name]["total_s"] < around + 2e-3 * batches + truth["delayed"]


NAMES = ["round", "ascii", "attributes", "wide \u00e9\u4e2d\U0001f525", "domain", "chain"]


def expected_of_library(rounds):
    expected = {name: rounds for name in NAMES}
    expected["link"] = 2 * rounds
    for i in range(10):
        expected["changing %d" % i] = rounds // 10
    return expected


@pytest.mark.alone
@pytest.mark.parametrize("tooled", [False, True], ids=["no tool", "a tool"])
@pytest.mark.parametrize("level", [pytest.param("O0", marks=pytest.mark.long), "O2"])
def test_library(bench, level, tooled):
    env = tool(bench.directory) if tooled else {}
    library = os.path.join(gpu.DOUBLES, "libnvtx_ranges-%s.so" % level)
    record, truth = bench.recorded("nvtx_library.py", "--library", library, "--batches", 50, env=env)
    found = helpers.report(record.file)
    rows = rows_of(found)
    assert {name: row["count"] for name, row in rows.items()} == expected_of_library(50)
    # without a tool there are no handles of strings; with one, only it knows what they stand for
    assert found["lost"] == {"nvtx_unnamed": 50}
    if tooled:
        log, left, none = read_log(bench.directory, truth["pid"])
        assert log.pop("registered")[0] == 50 and not left and none == 0
        helpers.check_counts({name: {"count": count} for name, (count, _) in log.items()}, expected_of_library(50))
        helpers.check_totals(rows, log, RELATIVE, PER_CALL, truth["delayed"])


def has_package():
    return subprocess.run([helpers.PYTHON, "-c", "import nvtx"], capture_output=True).returncode == 0


@pytest.mark.skipif(not has_package(), reason="PyPI's package nvtx is not there: tools/setup.sh python --readers")
@pytest.mark.parametrize("tooled", [False, True], ids=["no tool", "a tool"])
def test_package(bench, tooled):
    """
    With a tool its ranges are seen, and have no name: they are counted, and disturb nothing. Without one the package
    pushes none.
    """
    env = tool(bench.directory) if tooled else {}
    record, truth = bench.recorded("nvtx_package.py", env=env)
    found = helpers.report(record.file)
    assert {name: row["count"] for name, row in rows_of(found).items()} == {"around": 50}
    assert found["lost"] == ({"nvtx_unnamed": 200} if tooled else {})
    if tooled:
        log, left, none = read_log(bench.directory, truth["pid"])
        counts = {name: count for name, (count, _) in log.items()}
        assert counts == dict.fromkeys(["context", "decorated", "overlapping", "plain"], 50) and not left and none == 0


def has_torch(file):
    result = helpers.stepflame("report", file, "--json")
    return result.returncode == helpers.OK and [target for target in json.loads(result.stdout)["target"] if target["torch"]]


def test_started(bench):
    """A command's first push, at which NVTX looks for a tool, is one, too."""
    out, go, file = (bench.directory / name for name in ("truth", "go", "r.rec"))
    job = [helpers.PYTHON, helpers.JOBS / "nvtx_torch.py", "--first-later", "--wait", go, "--out", out]
    record = bench.process(helpers.STEPFLAME, "record", "-o", file, "--", *job, env=dict(os.environ, **tool(bench.directory))).until_ready()
    helpers.until(helpers.ARMED_SECONDS, lambda: has_torch(file), record.what)
    go.touch()
    assert record.wait(helpers.READY_SECONDS) == 0, record.what()
    truth = json.loads(out.read_text())
    rows = rows_by_name(helpers.report(file))
    rows.pop("labelled")
    helpers.check_counts(rows, {**cut(truth["popped"]), "first": 1})
    log, _, _ = read_log(bench.directory, truth["pid"])
    helpers.check_counts(rows, cut({name: count for name, (count, _) in log.items()}))


def test_options(bench):
    """What works on labels works on ranges."""
    record, truth = bench.recorded("nvtx_torch.py", options=("--step-at", "step", "--ops", "--timeline"))
    steps = helpers.report(record.file, "--steps")
    assert steps["window"]["step_rule"] == "step_at"
    assert steps["window"]["steps"] == 60  # both threads make as many: they are one's
    only = helpers.actions(helpers.report(record.file, "--action", "in the label"))
    assert only["in the label"]["count"] == 120
    ops = {op["name"]: op for op in helpers.report(record.file, "--ops")["ops"]}
    assert ops["compute"]["count"] == 120
    trace = bench.directory / "trace.json"
    exported = helpers.stepflame("export", record.file, "-f", "chrome", "-o", trace)
    assert exported.returncode == 0, exported.stderr
    names = collections.Counter(e["name"] for e in json.loads(trace.read_text())["traceEvents"] if e.get("ph") == "X")
    assert names["store"] == 120 and names["deep"] == 600


def test_too_many(bench):
    """Thousands a second are too dear: their probes go, and the recording says so."""
    library = os.path.join(gpu.DOUBLES, "libnvtx_ranges-O2.so")
    job = bench.job("nvtx_library.py", "--library", library, "--batches", 400000, "--ns", 0).until_ready()
    record = bench.record("-p", job.pid, "-d", "6s").until_armed()
    job.release()
    assert record.wait() == 0, record.what()
    job.kill()
    text = helpers.report_text(record.file, "--simple")
    assert "pushes and pops NVTX ranges" in " ".join(text.split())
    found = helpers.report(record.file)
    # whoever was inside of them has lost them, and no more
    helpers.check_lost_at_most(found, "nvtx_unnamed", "nvtx_not_popped", "nvtx_not_pushed")


def test_doctor(bench):
    job = bench.job("nvtx_torch.py").until_ready()
    result = helpers.stepflame("doctor", "-p", job.pid, "--json")
    checks = {check["name"]: check for check in json.loads(result.stdout)["checks"]}
    assert checks["NVTX ranges"]["verdict"] == "OK"
    assert "libtorch_python.so" in checks["NVTX ranges"]["found"]
