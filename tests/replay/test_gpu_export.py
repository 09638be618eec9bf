# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
What GPUs did, exported: streams, calls and arrows as Kineto's traces have them, for torch's validator and HTA, and for
Perfetto's classes. The recordings are made by gpu_recorded.py. Needs no root and no GPU.
"""

import gzip
import json
import random
import subprocess
from collections import Counter
from decimal import Decimal

import gpu_recorded
import helpers
import pytest
import recfile as rec
from gpu_recorded import IS_CALL, PID, Job, Span, Work
from .test_export import chrome, export, nests, ns, perfetto_slices, slices

CATEGORIES = {rec.KERNEL: "kernel", rec.COPY: "gpu_memcpy", rec.SET: "gpu_memset"}
REAL = 1_700_000_000_000_000_000
WINDOWS = [(gpu_recorded.START + 10_000, gpu_recorded.START + 400_000), (gpu_recorded.START + 500_001, gpu_recorded.START + 900_000)]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """(job, its recording)"""
    job = gpu_recorded.random_job(random.Random(8), steps=6, rank=3)
    job.extra = [rec.gpu_device(PID, 0, 80 << 30, 132, (9, 0), 'NVIDIA "H100"')]
    job.extra += [rec.gpu_window(PID, i, *window, "steps") for i, window in enumerate(WINDOWS)]
    job.extra += [rec.gpu_window(PID, 2, WINDOWS[1][1], WINDOWS[1][1], "busy"), rec.gpu_window(PID + 1, 0, *WINDOWS[0])]
    # counters, which no reader may take for anything else
    for i in range(3):
        now = gpu_recorded.START + i * 1000_000
        job.extra.append(rec.record("RESOURCES", time_ns=now, pid=PID, known=15, user_ns=i * 500_000, rss_bytes=10**9 + i, read_bytes=i))
        job.extra.append(rec.record("MACHINE", time_ns=now, pid=PID, processors=2, busy_ns=i, idle_ns=i, memory_bytes=10**10, available_bytes=10**9))
        job.extra.append(rec.gpu_usage(0, now, 10**9, 8 * 10**10, (50, 3, 100500, 40, 1500)))
    for i in range(6):
        syncs = [span for span in job.roots if span.name == "cudaStreamSynchronize"]
        begin = syncs[i - 1].end if i else gpu_recorded.START
        job.roots.append(Span(rec.STEP, "", begin, syncs[i].end - begin, sequence=i))
    return job, gpu_recorded.write(tmp_path_factory.mktemp("gpu") / "run.rec", job, timeline=True)


def base(trace):
    """ns of the trace's clock at 0 of the recording's."""
    return REAL - trace["baseTimeNanoseconds"]


def test_streams(recorded):
    """Each kernel, copy and set with what Kineto says of it."""
    job, path = recorded
    trace = chrome(path)
    found = [e for e in slices(trace) if e["cat"] in CATEGORIES.values()]
    expected = sorted((work.start + base(trace), work) for work in job.works())
    assert len(found) == len(expected) > 50
    for event, (start, work) in zip(sorted(found, key=lambda e: ns(e["ts"])), expected):
        assert (event["cat"], event["name"], ns(event["ts"]), ns(event["dur"])) == (CATEGORIES[work.kind], work.text, start, work.duration)
        assert (event["pid"], event["tid"]) == (work.device, work.stream)
        args = event["args"]
        assert [args[k] for k in ("device", "context", "stream", "correlation")] == [0, 1, work.stream, work.correlation]
        if work.kind == rec.KERNEL:
            assert (args["grid"], args["block"]) == (list(work.detail[:3]), list(work.detail[3:6]))
            assert (args["registers per thread"], args["shared memory"]) == (work.detail[6], work.size)
        else:
            assert args["bytes"] == work.size
            assert float(args["memory bandwidth (GB/s)"]) == pytest.approx(work.size / work.duration)
    assert nests(trace)


def test_windows(recorded):
    """Those of CUPTI, on a track of their own of the GPU."""
    trace = chrome(recorded[1])
    found = [e for e in slices(trace) if e["name"] == "CUPTI"]
    assert [(ns(e["ts"]) - base(trace), ns(e["ts"]) + ns(e["dur"]) - base(trace)) for e in found] == WINDOWS
    (track,) = {(e["pid"], e["tid"]) for e in found}
    names = [e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name" and (e["pid"], e["tid"]) == track]
    assert names == ["windows of CUPTI"] and track[0] == 0
    assert {e["cat"] for e in found} == {"cupti_window"}


def test_calls(recorded):
    """Calls of CUDA are on their thread, inside of the operator that makes them, and carry its number."""
    job, path = recorded
    trace = chrome(path)
    by_id = {e["args"]["External id"]: e["name"] for e in slices(trace) if e["cat"] in ("cpu_op", "user_annotation")}
    found = Counter(
        (e["name"], ns(e["ts"]) - base(trace), ns(e["dur"]), e["tid"], e["args"]["correlation"], by_id.get(e["args"].get("External id")))
        for e in slices(trace)
        if e["cat"] == "cuda_runtime"
    )
    expected = Counter()
    ops = {}
    for span, around in job.spans():
        if span.kind == IS_CALL:
            op = next((s.text for s in reversed(around) if s.kind in (rec.SPAN_OP, rec.EVALUATE, rec.NODE)), None)
            expected[span.name, span.start, span.duration, span.tid, span.correlation, op] += 1
            ops[span.correlation] = op
    assert found == expected
    for event in slices(trace):
        if event["cat"] in CATEGORIES.values():
            assert by_id.get(event["args"].get("External id")) == ops[event["args"]["correlation"]]


def test_arrows(recorded):
    """From each call that asked for something to what it asked for."""
    job, path = recorded
    trace = chrome(path)
    ends = {}
    for event in trace["traceEvents"]:
        if event.get("cat") == "ac2g":
            assert event["name"] == "ac2g" and (event["ph"] == "s" or event["bp"] == "e")
            assert event["ph"] not in ends.setdefault(event["id"], {})
            ends[event["id"]][event["ph"]] = (event["pid"], event["tid"], ns(event["ts"]) - base(trace))
    expected = {}
    for span, _ in job.spans():
        for work in span.asks:
            expected[work.correlation] = {"s": (PID, span.tid, span.start), "f": (work.device, work.stream, work.start)}
    assert ends == expected


def test_head(recorded):
    text = export(recorded[1], "-f", "chrome")
    trace = json.loads(text)
    assert trace["deviceProperties"] == [
        {"id": 0, "name": 'NVIDIA "H100"', "totalGlobalMem": 80 << 30, "computeMajor": 9, "computeMinor": 0, "numSms": 132}
    ]
    said = {(e["pid"], e["name"], *e["args"].values()) for e in trace["traceEvents"] if e["ph"] == "M"}
    assert {(0, "process_labels", "GPU 0"), (0, "process_sort_index", 5000000), (0, "thread_name", "stream 7")} <= said
    assert (PID, "process_labels", "CPU") in said


def test_torchs_validator(recorded, tmp_path):
    validator = pytest.importorskip("torch.profiler._trace_validator", reason="torch 2.15 has it")
    path = tmp_path / "a.pt.trace.json.gz"
    export(recorded[1], "-f", "chrome", "-o", path)
    assert validator.validate_trace(str(path)) == (True, [])


def test_validator_sees_what_is_wrong(tmp_path):
    """A kernel that begins before its launch: the check above is one."""
    validator = pytest.importorskip("torch.profiler._trace_validator", reason="torch 2.15 has it")
    op = Span(rec.SPAN_OP, "aten::mm", 2_000_000, 100_000)
    op.inside = [Span(IS_CALL, "cudaLaunchKernel", 2_020_000, 10_000, [], [Work(rec.KERNEL, 2_010_000, 5_000, 1, "k")], 1)]
    path = gpu_recorded.write(tmp_path / "a.rec", Job([op]), timeline=True)
    export(path, "-f", "chrome", "-o", tmp_path / "a.json")
    assert not validator.validate_trace(str(tmp_path / "a.json"))[0]


@pytest.mark.filterwarnings("ignore")
def test_hta(recorded, tmp_path):
    """HTA's breakdown by kernel, and which steps it gives them to."""
    hta = pytest.importorskip("hta.trace_analysis", reason="tools/setup.sh python --readers installs HolisticTraceAnalysis")
    job, path = recorded
    with gzip.open(tmp_path / "a.json.gz", "wt") as file:
        file.write(export(path, "-f", "chrome"))
    analysis = hta.TraceAnalysis(trace_dir=str(tmp_path), include_last_profiler_step=True)
    _, found = analysis.get_gpu_kernel_breakdown(visualize=False, duration_ratio=1.0, num_kernels=1000, include_memory_kernels=True)
    sums = {}
    for work in job.works():
        of = sums.setdefault(work.text, [])
        of.append(work.duration / 1000)
    assert set(found["name"]) == set(sums)
    # it rounds begins up and ends down to whole microseconds
    for _, row in found.iterrows():
        assert row["sum (us)"] == pytest.approx(sum(sums[row["name"]]), abs=2 * len(sums[row["name"]]))
        assert row["max (us)"] == pytest.approx(max(sums[row["name"]]), abs=2)
        assert row["kernel_type"] == ("COMMUNICATION" if "nccl" in row["name"] else "MEMORY" if row["name"][:3] == "Mem" else "COMPUTATION")
    frame = analysis.t.get_trace(3)
    steps = frame[frame["stream"] > 0]["iteration"]
    launched = Counter(i for i, step in enumerate(s for s in job.roots if s.kind == rec.STEP) for span, _ in job.spans() for _ in span.asks if step.start <= span.start < step.end)
    assert Counter(steps) == launched


def test_perfetto(recorded):
    job, path = recorded
    found, tracks = perfetto_slices(export(path, "-f", "perfetto", text=False))
    works = sorted((CATEGORIES[w.kind], w.text, w.start, w.start + w.duration, w.correlation, f"GPU 0 stream {w.stream}") for w in job.works())
    on_gpu = [s for s in found if s[0] in CATEGORIES.values()]
    assert sorted((*s[:4], s[4]["correlation"], tracks[s[6]].name) for s in on_gpu) == works
    kernel = next(s for s in on_gpu if s[0] == "kernel")
    work = next(w for w in job.works() if w.correlation == kernel[4]["correlation"])
    assert kernel[4]["grid"] == str(list(work.detail[:3])) and kernel[4]["registers per thread"] == work.detail[6]
    calls = [s for s in found if s[0] == "cuda_runtime"]
    assert Counter(s[1:4][0] for s in calls) == Counter(s.name for s, _ in job.spans() if s.kind == IS_CALL)
    starts = {flow: s[4]["correlation"] for s in calls for flow in s[5][0]}
    ends = {flow: s[4]["correlation"] for s in on_gpu for flow in s[5][1]}
    assert starts == ends and sorted(ends.values()) == sorted(w.correlation for w in job.works())
    assert {tracks[tracks[s[6]].parent_uuid].process.pid for s in on_gpu} == {PID}


def test_calls_of_probes(tmp_path):
    """Where CUPTI is not, calls are those that the probes saw, and nothing is on a GPU."""
    job = gpu_recorded.random_job(random.Random(2), tier=1)
    path = gpu_recorded.write(tmp_path / "a.rec", job, timeline=True)
    path.write_bytes(rec.recording([rec.raw(kind, payload) for kind, payload in rec.read_raw(path) if kind != rec.NUMBERS["GPU_ACTIVITY"]]))
    trace = chrome(path)
    found = Counter((e["name"], ns(e["ts"]) - base(trace), ns(e["dur"])) for e in slices(trace) if e["cat"] == "cuda_runtime")
    assert found == Counter((s.name, s.start, s.duration) for s, _ in job.spans() if s.kind == IS_CALL)
    assert {e["pid"] for e in trace["traceEvents"]} == {PID}
    perfetto = [s for s in perfetto_slices(export(path, "-f", "perfetto", text=False))[0] if s[0] == "cuda_runtime"]
    assert len(perfetto) == sum(found.values())


def test_two_processes(tmp_path):
    """Both call their GPU number 0: their tracks stay apart."""
    jobs = [gpu_recorded.random_job(random.Random(i), pid=PID + i, rank=i) for i in range(2)]
    path = gpu_recorded.write(tmp_path / "a.rec", *jobs)
    trace = chrome(path)
    on_gpu = [e for e in slices(trace) if e["cat"] == "kernel"]
    of = {pid: sum(work.kind == rec.KERNEL for work in job.works()) for pid, job in zip(sorted({e["pid"] for e in on_gpu}), jobs)}
    assert Counter(e["pid"] for e in on_gpu) == of and len(of) == 2 and nests(trace)
    labels = {e["args"]["labels"] for e in trace["traceEvents"] if e["name"] == "process_labels"}
    assert labels == {"CPU", "GPU 0", f"GPU 0 of process {PID + 1}"}
    one = chrome(path, "-p", PID + 1)
    assert {e["pid"] for e in slices(one)} == {PID + 1, 0}


def test_streams_that_overlap(tmp_path):
    """What runs at once on one stream gets tracks of its own; drivers' calls are inside of the runtime's."""
    works = [Work(rec.KERNEL, 10_000 + 400 * i, 1000, 1, "k") for i in range(10)]
    launch = Span(IS_CALL, "cudaLaunchKernel", 1000, 5000, [Span(IS_CALL, "cuLaunchKernel", 2000, 3000, correlation=1)], works, 1)
    path = gpu_recorded.write(tmp_path / "a.rec", Job([launch]))
    trace = chrome(path)
    assert nests(trace) and sum(e["cat"] == "kernel" for e in slices(trace)) == 10
    assert [e["cat"] for e in slices(trace) if e["name"] == "cuLaunchKernel"] == ["cuda_driver"]
    assert all(isinstance(e["ts"], Decimal) for e in slices(trace))


def test_absurd_activities(tmp_path):
    rng = random.Random(1)
    numbers = [0, 1, 253, 254, 255, 2**31, 2**32 - 1]
    big = [0, 1, 2**63 - 1, 2**63, 2**64 - 1]
    records = [rec.target(PID), rec.gpu(PID, 2)]
    for _ in range(500):
        values = {k: rng.choice(numbers) for k in ("correlation", "tid", "device", "context", "stream")}
        detail = tuple(rng.choice(numbers) for _ in range(8))
        pid, kind = rng.choice([PID, 0, 2**31 - 1]), rng.randrange(0, 12)
        records.append(rec.gpu_activity(pid, kind, rng.choice(big), rng.choice(big), rng.choice(big), size=rng.choice(big), direction=rng.randrange(9), detail=detail, **values))
    path = tmp_path / "a.rec"
    path.write_bytes(rec.recording(records))
    for form in "chrome", "perfetto":
        result = subprocess.run([helpers.STEPFLAME, "export", str(path), "-f", form], capture_output=True, timeout=60)
        assert result.returncode == 0 and b"Sanitizer" not in result.stderr
        if form == "chrome":
            assert nests(json.loads(result.stdout, parse_float=Decimal))
        else:
            perfetto_slices(result.stdout)
