# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The doubles of CUDA's libraries themselves: their log adds up, and their CUPTI tells what is in it."""

import collections
import json
import os
import signal
import subprocess
import sys

import gpu
import pytest

pytestmark = gpu.needs_doubles

COLLECTOR = os.path.join(gpu.DOUBLES, "libcollector.so")
# CUpti_ActivityKind
COPY, SET, DRIVER, RUNTIME, KERNEL, OVERHEAD, SYNC, PEER, GRAPH = 1, 2, 4, 5, 10, 17, 38, 22, 51
ALL = (COPY, SET, DRIVER, RUNTIME, KERNEL, OVERHEAD, SYNC)
CUPTI_MULTIPLE = 39

STEPS, THREADS, LAUNCHES, COPIES, NODES, COLLECTIVES = 12, 2, 9, 4, 5, 3
ARGS = ["-s", STEPS, "-t", THREADS, "-l", LAUNCHES, "-c", COPIES, "-g", NODES, "-n", COLLECTIVES, "-S", 3, "-d", 2]
PROGRAMS = ["train", "train-static", "train-static-stripped"]


def run(job):
    job.until_ready()
    job.release()
    times = job.truth()["threads"]
    return job.log, times


@pytest.mark.parametrize("program", PROGRAMS)
def test_log_adds_up(gpu_jobs, program):
    log, times = run(gpu_jobs.train(*ARGS, program=program))
    steps = STEPS * THREADS
    counts = collections.Counter(call["name"] for call in log.calls())
    assert counts["cudaLaunchKernel"] == steps * LAUNCHES + THREADS * NODES  # in the capture too
    assert counts["cudaMemcpyAsync"] == steps * COPIES
    assert counts["cudaGraphLaunch"] == counts["ncclGroupEnd"] == steps
    assert counts["ncclAllReduce"] == steps * COLLECTIVES
    assert not log.calls("driver"), "one that the runtime did not make"
    # each launch of the runtime is one of the driver's, and has its correlation id
    inner, outer = log.calls("driver", ["cuLaunchKernel"], outer=False), log.calls("runtime", ["cudaLaunchKernel"])
    assert {call["correlation"] for call in inner} == {call["correlation"] for call in outer}
    assert len(inner) == len(outer)

    kernels = log.ops("kernel")
    assert len(kernels) == steps * (LAUNCHES + NODES + COLLECTIVES)
    assert len(log.ops("graph")) == steps and len(log.ops("copy")) == steps * COPIES
    assert {op["device"] for op in kernels} == {0, 1}
    assert all(error["result"] == 0 for error in log.calls(outer=False))
    # a stream does one thing at a time
    ends = {}
    for op in log.ops("kernel", "copy", "set"):
        assert ends.get(op["stream"], 0) <= op["start"] <= op["end"], op
        ends[op["stream"]] = op["end"]
    assert [len(thread) for thread in times] == [STEPS] * THREADS


def test_waits_are_real(gpu_jobs):
    log, ((step,),) = run(gpu_jobs.train("-s", 1, "-l", 1, "-c", 0, "-m", 0, "-k", 200_000_000))
    (kernel,) = log.ops("kernel")
    (wait,) = log.calls("runtime", ["cudaEventSynchronize"])
    assert kernel["end"] - kernel["start"] == 200_000_000
    assert wait["start"] < kernel["end"] <= wait["end"] <= step[1]


def collected(gpu_jobs, path, *args, kinds=ALL, late_us=0, **environment):
    more = {"GPU_COLLECTOR_OUT": path, "GPU_COLLECTOR_LATE_US": late_us}
    more["GPU_COLLECTOR_KINDS"] = ",".join(map(str, kinds))
    log, _ = run(gpu_jobs.train(*args, injection=COLLECTOR, **more, **environment))
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return log, [r for r in records if r["kind"] >= 0], next(r for r in records if r["kind"] == -2)


def expected(log, no_time=False):
    """What CUPTI said that it would tell, as (kind, correlation, times, what is told besides)."""
    cupti = log.clock()
    kinds = {"kernel": KERNEL, "copy": COPY, "set": SET, "graph": GRAPH}
    rows = collections.Counter()
    for op in log.ops(recorded=True):
        times = (cupti(op["start"]), cupti(op["end"]))
        more = {
            "kernel": (op["name"], *op["grid"], *op["block"], op["shared"], op["graph_node"]),
            "copy": (op["bytes"], op["direction"]),
            "set": (op["bytes"],),
            "graph": (op["graph"],),
        }[op["kind"]]
        rows[kinds[op["kind"]], op["correlation"], *times, op["device"], op["context"], op["stream"], *more] += 1
    for call in log.calls(outer=False):
        if call["recorded"]:
            kind = DRIVER if call["library"] == "driver" else RUNTIME
            times = (cupti(t) for t in call["inner"])
            rows[kind, call["correlation"], *times, call["tid"], call["result"]] += 1
    for sync in log.lines("sync"):
        if sync["recorded"]:
            rows[SYNC, sync["correlation"], cupti(sync["start"]), cupti(sync["end"]), sync["kind"]] += 1
    return rows


FIELDS = {
    KERNEL: ["device", "context", "stream", "name", "grid", "block", "shared", "graph_node"],
    COPY: ["device", "context", "stream", "bytes", "direction"],
    SET: ["device", "context", "stream", "bytes"],
    GRAPH: ["device", "context", "stream", "graph"],
    DRIVER: ["tid", "result"],
    RUNTIME: ["tid", "result"],
    SYNC: ["type"],
}


def told(records):
    rows = collections.Counter()
    for r in records:
        if r["kind"] not in FIELDS:
            continue
        values = [r[name] for name in FIELDS[r["kind"]]]
        flat = [v for value in values for v in (value if isinstance(value, list) else [value])]
        rows[r["kind"], r["correlation"], r["start"], r["end"], *flat] += 1
    return rows


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize(
    "cupti", ["", "buffer_records=7,shuffle=1", "late_ms=20", "offset_ns=-5000000000,drift_ppm=-300"]
)
def test_cupti_equals_log(gpu_jobs, tmp_path, program, cupti):
    log, records, end = collected(gpu_jobs, tmp_path / "records", *ARGS, cupti=cupti, program=program, late_us=50000)
    assert told(records) == expected(log)
    assert end["dropped"] == 0 and not log.errors()
    # all but the calls that were in progress when the client came
    assert 0 <= end["left"] - end["entered"] <= THREADS
    assert end["left"] == len(log.calls("runtime"))


def test_graphs_as_wholes(gpu_jobs, tmp_path):
    log, records, _ = collected(gpu_jobs, tmp_path / "records", *ARGS, kinds=(KERNEL, GRAPH))
    assert told(records) == expected(log)
    assert sum(r["kind"] == GRAPH for r in records) == STEPS * THREADS
    assert not any(r["graph_node"] for r in records if r["kind"] == KERNEL)


def test_drops(gpu_jobs, tmp_path):
    log, records, end = collected(gpu_jobs, tmp_path / "records", *ARGS, cupti="drop=10")
    assert told(records) == expected(log)
    assert end["dropped"] == len(log.lines("dropped")) > 0
    assert not any(line["late"] for line in log.lines("dropped"))


def test_strange_kinds_and_no_times(gpu_jobs, tmp_path):
    log, records, _ = collected(gpu_jobs, tmp_path / "records", *ARGS, cupti="unknown=10,no_time=4")
    assert sum(r["kind"] > 1000 for r in records) >= len(records) // 12
    work = [r for r in records if r["kind"] in (KERNEL, COPY, SET)]
    assert sum(r["start"] == 0 for r in work) == len(log.ops(recorded=True)) // 4


def test_many_streams(gpu_jobs, tmp_path):
    args = ["-s", 4, "-l", 3000, "-c", 0, "-S", 3000, "-k", 1000]
    log, records, end = collected(gpu_jobs, tmp_path / "records", *args, kinds=(KERNEL,))
    assert told(records) == expected(log) and not end["dropped"]
    assert len({r["stream"] for r in records}) == 3000


@pytest.mark.parametrize("cupti, result", [("busy=1", CUPTI_MULTIPLE), ("fail_cuptiSubscribe=35", 35)])
def test_refusals(gpu_jobs, tmp_path, cupti, result):
    log, records, _ = collected(gpu_jobs, tmp_path / "records", *ARGS, cupti=cupti)
    (refused,) = [line for line in log.lines("cupti") if line["name"] == "cuptiSubscribe"]
    assert refused["result"] == result and not records


@pytest.mark.parametrize("when", ["before", "after"])
def test_forks(gpu_jobs, when):
    """A child can use CUDA if its parent had not begun to."""
    job = gpu_jobs.train("-s", 3, "-f", when)
    log, _ = run(job)
    assert len(log.calls("runtime", ["cudaLaunchKernel"])) == 3 * 8
    children = [name for name in os.listdir(job.go.parent) if name.startswith(os.path.basename(log.path)[:8])]
    assert len(children) == 2, children


def test_default_stream_per_thread(gpu_jobs):
    log, _ = run(gpu_jobs.train("-s", 2, "-S", 0, "-p", "-t", 2))
    names = {call["name"] for call in log.calls("runtime")}
    assert {"cudaLaunchKernel_ptsz", "cudaMemcpyAsync_ptsz", "cudaMemsetAsync_ptsz"} <= names
    assert {"cuLaunchKernel_ptsz", "cuMemsetD8Async_ptsz"} <= {call["name"] for call in log.calls(outer=False)}


def test_log_of_a_killed_job(gpu_jobs):
    job = gpu_jobs.train("-s", 100000, "-u", 1000)
    job.until_ready()
    job.release()
    job.log.until(lambda line: line["log"] == "op")
    job.popen.send_signal(signal.SIGKILL)
    job.wait()
    assert job.log.so_far("op")


def test_torch_loop(gpu_jobs, tmp_path, python):
    """What the loop says that it launched is what the doubles saw, also where torch has CUDA libraries of its own."""
    environment = {"GPU_COLLECTOR_OUT": tmp_path / "records", "GPU_COLLECTOR_KINDS": KERNEL}
    job = gpu_jobs.python("gpu_loop.py", "--batches", 6, "--nccl", python=python, injection=COLLECTOR, **environment)
    job.until_ready()
    job.release()
    truth = job.truth()
    launches = job.log.calls("runtime", ["cudaLaunchKernel"])
    assert [call["text"] for call in launches] == [kernel for _, _, _, kernel, _ in truth["launches"]]
    assert {part for _, part, *_ in truth["launches"]} == {"forward", "backward", "optimizer"}
    for call, (step, *_) in zip(launches, truth["launches"]):
        start, end = truth["steps"][step]
        assert start <= call["start"] <= call["end"] <= end
    counts = collections.Counter(call["name"] for call in job.log.calls())
    assert counts["cudaMemcpyAsync"] == 2 * truth["uploads"]
    assert counts["ncclAllReduce"] == counts["cudaStreamSynchronize"] == truth["uploads"]
    records = [json.loads(line) for line in (tmp_path / "records").read_text().splitlines()]
    assert told(records) == expected(job.log)
    assert sum(r["kind"] == KERNEL for r in records) == len(launches) + truth["uploads"]


def nvml(tmp_path, values, *calls):
    """What each call of NVML gives, in a process of its own: the double counts what it has begun."""
    (tmp_path / "nvml").write_text(values)
    code = """
import ctypes, sys
nvml = ctypes.CDLL("libnvidia-ml.so.1")
device = ctypes.c_void_p()
print(nvml.nvmlDeviceGetHandleByIndex_v2(1, ctypes.byref(device)), nvml.nvmlInit_v2())
print(nvml.nvmlDeviceGetHandleByIndex_v2(1, ctypes.byref(device)))
for name in sys.argv[1:]:
    values = (ctypes.c_uint * 2)()
    print(getattr(nvml, name)(device, values), *values)
"""
    env = dict(os.environ, LD_LIBRARY_PATH=gpu.DOUBLES, GPU_DOUBLE_NVML=str(tmp_path / "nvml"))
    command = [sys.executable, "-c", code, *calls]
    found = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    return [[int(word) for word in line.split()] for line in found.stdout.splitlines()]


def test_nvml(tmp_path):
    values = "0 busy 1\n1 busy 37\n1 memory_busy 5\n1 power_mw fail=3\n"
    before, handle, usage, power = nvml(tmp_path, values, "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetPowerUsage")
    assert before[0] == 1 and before[1] == 0 and handle == [0]  # NVML_ERROR_UNINITIALIZED
    assert usage == [0, 37, 5] and power[0] == 3
    assert (tmp_path / "nvml.calls").read_text().split().count("nvmlDeviceGetPowerUsage") == 1
