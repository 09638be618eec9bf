# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Calls of CUDA and NCCL, seen by probes, against what doubles of the libraries count themselves."""

import collections
import json
import re
import struct
import subprocess
import zlib

import helpers
import pytest
import recfile

pytestmark = helpers.needs_bpf

SOURCES = helpers.ROOT / "tests" / "e2e" / "gpu"
# From our clock to that of the double: two probes, and two more where the runtime's double calls the driver's.
PER_CALL = 60e-6

APIS = ["", *re.findall(r"X\((\w+), [A-Z_]+, \d, \d, \d, [A-Z]+\)", (helpers.ROOT / "include" / "gpu.h").read_text())]


@pytest.fixture(scope="module")
def doubles(tmp_path_factory):
    """The directory with the libraries and the programs "calls" and "static", which has the runtime in itself."""
    out = tmp_path_factory.mktemp("doubles")

    def build(name, *args):
        subprocess.run(["gcc", "-O2", "-o", out / name, *args, "-Wl,-rpath," + str(out)], cwd=SOURCES, check=True)

    libraries = [out / "libcuda.so.1", out / "libnccl.so.2"]
    build("libcuda.so.1", "-shared", "-fPIC", "-DDRIVER", "double.c")
    build("libcudart.so.12", "-shared", "-fPIC", "-DRUNTIME", "double.c", out / "libcuda.so.1")
    build("libnccl.so.2", "-shared", "-fPIC", "-DNCCL", "double.c", out / "libcuda.so.1")
    build("libkernels.so", "-shared", "-fPIC", "kernels.c")
    build("calls", "calls.c", out / "libcudart.so.12", *libraries, "-lpthread")
    build("static", "-DRUNTIME", "calls.c", "double.c", *libraries, "-lpthread")
    return out


class Recorded:
    """REC_GPU..., with names for numbers."""

    def __init__(self, file):
        names, rows, self.tiers, self.steps, self.calls = {0: ""}, {}, {}, [], []
        for kind, payload in recfile.read_records(file):
            if kind == recfile.NAME:
                ident, _, _, size, _ = struct.unpack_from("=QBBHI", payload)
                names[ident] = payload[16 : 16 + size].decode("latin-1")
            elif kind == recfile.GPU:
                pid, tier = struct.unpack_from("=II", payload)
                self.tiers[pid] = (tier, payload[32:].rstrip(b"\0").decode())
            elif kind == recfile.GPU_CALLS:
                rows[struct.unpack_from("=IHBBQQQ", payload)] = struct.unpack_from("=4Q", payload, 32)
            elif kind == recfile.GPU_CALL:
                start, duration, pid, api, direction, dtype = struct.unpack_from("=QQIHBB", payload)
                size, path, tid, step = struct.unpack_from("=QQII", payload, 48)
                self.calls.append((APIS[api], direction, start, duration, tid, size))
            elif kind == recfile.GPU_STEP:
                self.steps.append(struct.unpack("=QQII5Q", payload))
        self.rows = []
        for (pid, api, direction, dtype, action, op, thing), values in rows.items():
            thing = names[thing] if "Launch" in APIS[api] else thing
            self.rows.append((pid, APIS[api], direction, dtype, names[action], names[op], thing, *values))

    def sums(self, pid=None):
        """{(function, direction): [calls, bytes, seconds]}, as the doubles count."""
        found = collections.defaultdict(lambda: [0, 0, 0.0])
        for row_pid, api, direction, *_, calls, total_ns, _, size in self.rows:
            if pid in (None, row_pid):
                one = found[api, direction]
                one[:] = one[0] + calls, one[1] + size, one[2] + total_ns / 1e9
        return dict(found)


def truth_of(rows):
    return {(name, direction): (calls, size, ns / 1e9) for name, direction, calls, size, ns in rows}


def check(found, truth, untimed=()):
    """Whoever is put off a processor between the double's clock and ours is so for us alone: `delayed` holds that."""
    delayed = truth.pop(("delayed", 0))[2]
    assert {key: tuple(values[:2]) for key, values in found.items()} == {key: v[:2] for key, v in truth.items()}
    for key, (calls, _, seconds) in truth.items():
        if key[0] in untimed:
            continue
        assert found[key][2] >= seconds, key
        assert found[key][2] < 1.05 * seconds + PER_CALL * calls + delayed, key


def run(bench, doubles, mode, program="calls", options=()):
    """Attaches to the program and lets it make its calls. (its process, record, recorded, truth)"""
    out = bench.directory / (program + mode)
    job = bench.process(doubles / program, mode, out, stdin=subprocess.PIPE)
    job.until_says(r"^ready \d+$", helpers.READY_SECONDS, "stdout")
    record = bench.record("-p", job.pid, "--gpu", "uprobe", *options).until_armed()
    say(job)
    return job, record, out


def say(job):
    job.popen.stdin.write(b"\n")
    job.popen.stdin.flush()


def ended(job, record, out):
    helpers.until(helpers.END_SECONDS, out.exists, job.what)
    helpers.until(helpers.END_SECONDS, lambda: out.read_text().endswith("]\n"), job.what)
    truth = truth_of(json.loads(out.read_text()))
    if len(truth) > 1:  # names are looked for while the process is there
        helpers.until(helpers.END_SECONDS, lambda: has_rows(record.file), record.what)
    say(job)
    assert job.wait() == 0, job.what()
    assert record.wait() == helpers.OK, record.what()
    return Recorded(record.file), truth


def has_rows(file):
    try:
        return Recorded(file).rows
    except (OSError, struct.error, zlib.error):  # it is being written
        return False


@pytest.mark.parametrize("program", ["calls", "static"])
def test_threads(bench, doubles, program):
    """Four threads, some hundred thousand calls a second; the runtime in a library, or in the program itself."""
    job, record, out = run(bench, doubles, "threads", program)
    found, truth = ended(job, record, out)
    assert sum(calls for calls, _, _ in truth.values()) == 4 * 500 * 10 + 4 * 50 * 2
    check(found.sums(), truth)
    names = {(api, name) for _, api, _, _, _, _, name, *_ in found.rows if "Launch" in api}
    # 16 is no function's address
    expected = {("cudaLaunchKernel", name) for name in ("_Z4axpyPfi", "_Z6hiddenPf", "")}
    assert names == expected | {("cuLaunchKernel", "_Z3getv")}
    (comm,) = [row for row in found.rows if row[1] == "ncclAllReduce"]
    assert (comm[3], comm[6]) == (7, 0x1234)
    (tier,) = found.tiers.values()
    assert tier == (1, "--gpu uprobe asks for calls alone")
    assert helpers.report(record.file)["lost"] == {"kernels_unnamed": 1}


def test_never_called(bench, doubles):
    job, record, out = run(bench, doubles, "idle")
    said = helpers.stepflame("doctor", "-p", job.pid).stdout
    (line,) = [line for line in said.splitlines() if re.match(r"OK +CUDA ", line)]
    assert "functions in 3 files" in line
    assert set(line.split(": ")[1].split(", ")) == {"libcuda.so.1", "libcudart.so.12", "libnccl.so.2"}
    found, truth = ended(job, record, out)
    assert list(truth) == [("delayed", 0)] and found.rows == []
    assert [tier for tier, _ in found.tiers.values()] == [1]


def test_fork(bench, doubles):
    """A child that was forked when calls had been made."""
    job, record, out = run(bench, doubles, "fork")
    found, truth = ended(job, record, out)
    (child,) = {row[0] for row in found.rows} - {job.pid}
    check(found.sums(job.pid), truth)
    check(found.sums(child), truth_of(json.loads((out.parent / (out.name + ".child")).read_text())))


def test_left_by_longjmp(bench, doubles):
    """The calls that are left are counted; those behind them are whole."""
    found, truth = ended(*run(bench, doubles, "longjmp"))
    check(found.sums(), truth, untimed=("cudaEventQuery",))
    assert found.sums()["cudaEventQuery", 0][0] == 100


def test_detached_in_the_middle(bench, doubles):
    """Attached and detached again and again while calls are made."""
    out = bench.directory / "forever"
    job = bench.process(doubles / "calls", "forever", out, stdin=subprocess.PIPE)
    job.until_says(r"^ready \d+$", helpers.READY_SECONDS, "stdout")
    say(job)
    seen = collections.Counter()
    for _ in range(4):
        record = bench.record("-p", job.pid, "--gpu", "uprobe", "-d", "500ms")
        assert record.wait() == helpers.OK, record.what()
        found = Recorded(record.file).sums()
        seen.update({key: values[0] for key, values in found.items()})
        # Each round makes one of these, two of those.
        assert abs(found["cudaMemcpyAsync", 1][0] - 2 * found["cuMemsetD32Async", 0][0]) <= 2
        assert abs(found["cudaLaunchKernel", 0][0] - 3 * found["ncclAllReduce", 0][0]) <= 3
    say(job)
    assert job.wait() == 0, job.what()
    truth = truth_of(json.loads(out.read_text()))
    del truth["delayed", 0]
    assert all(0 < seen[key] < calls for key, (calls, _, _) in truth.items())


def test_actions_operators_steps(bench, doubles):
    job = bench.job("gpu_calls.py", "--doubles", doubles).until_ready()
    record = bench.record("-p", job.pid, "--gpu", "auto", "--ops", "--timeline", "--step-at", "gpu step")
    record.until_armed()
    job.release()
    truth = job.truth()
    assert record.wait() == helpers.OK, record.what()
    found, batches = Recorded(record.file), truth["batches"]
    counted = truth_of(truth["calls"])
    counted["delayed", 0] = (0, 0, truth["delayed"])
    check(found.sums(job.pid), counted)
    where = {(api, action, op, name): calls for _, api, _, _, action, op, name, calls, *_ in found.rows}
    assert where.pop(("cudaLaunchKernel", "", "double::launch", "_Z4axpyPfi")) == batches
    assert where.pop(("cudaLaunchKernel", "backward", "LaunchBackward", "_Z4gradPf")) == batches
    assert set(where.values()) == {batches} and {key[1:3] for key in where} == {("", "")}
    # each by itself, and in sum
    assert len(found.calls) == 4 * batches
    assert [api for api, *_ in found.calls].count("cudaLaunchKernel") == 2 * batches
    assert {tid for _, _, _, _, tid, _ in found.calls} == {job.pid}
    # each step
    assert len(found.steps) == batches - 1
    for _, _, pid, _, launches, copies, size, api_ns, sync_ns in found.steps:
        assert (pid, launches, copies, size) == (job.pid, 2, 1, 1000)
        assert api_ns > 0 and sync_ns >= 50000
    # waits are spans as well
    rows = helpers.actions(helpers.report(record.file, "--all"))
    assert rows["cudaStreamSynchronize"]["count"] == batches and rows["cudaStreamSynchronize"]["kind"] == "sync"


def test_real_runtime(bench):
    """That which torch brings; or none at all."""
    job = bench.job("gpu_waits.py").until_ready()
    record = bench.record("-p", job.pid, "--gpu", "uprobe").until_armed()
    job.release()
    truth = job.truth()
    assert record.wait() == helpers.OK, record.what()
    found = Recorded(record.file)
    if not truth["calls"]:
        assert found.tiers == {} and found.rows == []
        assert "had no functions of CUDA mapped" in helpers.report_text(record.file)
        return
    # the real runtime, which fails for want of a driver: calls all the same
    counts = {api: values[0] for (api, _), values in found.sums().items()}
    assert counts == {name: call["count"] for name, call in truth["calls"].items()}


def test_options():
    result = helpers.stepflame("record", "-p", 1, "--gpu", "all")
    assert result.returncode == helpers.USAGE and "--gpu is off, auto, uprobe or cupti" in result.stderr
