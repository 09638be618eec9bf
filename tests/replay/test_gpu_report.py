# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""report --gpu of recordings made by hand, against sums of Python's own and against HTA. Needs no root and no GPU."""

import gzip
import json
import random
import re
import struct
import subprocess

import gpu_recorded
import helpers
import pytest
import recfile as r
from intervals import length

US, MS = 1000, 1000000
PID, TID = 10, 10
START = 10**12
FUNCTIONS = {
    "cudaLaunchKernel": "cudaLaunchKernel_v7000",
    "cudaMemcpyAsync": "cudaMemcpyAsync_v3020",
    "cuLaunchKernel": "cuLaunchKernel",
    "cuMemcpyHtoDAsync": "cuMemcpyHtoDAsync_v2",
    "cudaMemsetAsync": "cudaMemsetAsync_ptsz",
}
COMM_KERNEL = "_Z39ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE"


class Names:
    """Ids of texts, in the order of their first use."""

    def __init__(self):
        self.ids = {}

    def __call__(self, text):
        return self.ids.setdefault(text, len(self.ids) + 1)

    def records(self):
        return [r.name(ident, text) for text, ident in self.ids.items()]


@pytest.fixture
def report(tmp_path):
    def made(records, *options):
        path = tmp_path / "made.rec"
        path.write_bytes(r.recording(records))
        made.path = path
        made.text = " ".join(helpers.report_text(path, "--gpu", *options).split())  # as it is before lines are broken
        return helpers.report(path, "--gpu", *options)

    return made


class Job:
    """A thread that asks, streams that work; all times are whole microseconds, which is what HTA reads."""

    def __init__(self, seed, count=400, streams=(7, 20), comm_share=0.1, copy_share=0.15):
        rng = self.rng = random.Random(seed)
        self.work = []  # (kind, name, stream, start, duration, asked at, for, correlation, op)
        now, free = START // US, dict.fromkeys(streams, 0)
        for correlation in range(1, count + 1):
            now += rng.choice([1, 2, 3, 3, 4, 30, 200])
            asked, took = now, rng.randrange(4, 12)
            now += took
            is_comm = rng.random() < comm_share
            is_copy = not is_comm and rng.random() < copy_share
            stream = streams[-1] if is_comm else streams[0]
            start = max(asked + rng.randrange(2, 9), free[stream] + rng.choice([0, 1, 1, 2, 40]))
            duration = rng.randrange(1, 400 if is_comm else 60)
            free[stream] = start + duration
            kind = r.COPY if is_copy else r.KERNEL
            name = "" if is_copy else COMM_KERNEL if is_comm else "kernel_%d" % rng.randrange(9)
            op = "aten::op_%d" % rng.randrange(5)
            self.work.append((kind, name, stream, start, duration, asked, took, correlation, op))

    def records(self, names, clock_ns=0, lost_calls=(), lost_asked=(), unseen_ends=()):
        """clock_ns: by how much CUPTI's clock is wrong; the others: correlations."""
        forward = names("forward")
        for kind, name, stream, start, duration, asked, took, correlation, op in self.work:
            api = "cudaMemcpyAsync" if kind == r.COPY else "cudaLaunchKernel"
            direction = r.HTOD if kind == r.COPY else 0
            if correlation not in lost_calls:
                key = r.gpu_key(PID, api, direction, op=names(op), action=forward)
                seen = 0 if correlation in unseen_ends else took * US + 800
                yield r.gpu_call(key, TID, asked * US - 500, seen)
            if correlation not in lost_asked:
                for driver, function in enumerate((FUNCTIONS[api], "cuLaunchKernel")):
                    inside = 900 * driver
                    at = asked * US + clock_ns + inside
                    yield r.gpu_api_call(PID, TID, at, took * US - 2 * inside, names(function), correlation, driver)
            ident = names(name) if name else 0
            at = start * US + clock_ns
            yield r.gpu_activity(
                PID, kind, at, duration * US, ident, correlation, direction=direction, stream=stream, size=1000
            )


def head(names, tier=2):
    return [r.host(), r.window(START, START + 10**9), r.target(PID), r.gpu(PID, tier, version=26)] + names.records()


class TestSums:
    @pytest.mark.parametrize("seed", [1, 2, 3])
    def test_against_python(self, report, seed):
        job, names = Job(seed), Names()
        made = list(job.records(names))
        job.rng.shuffle(made)  # the order of a recording is not that of time
        found = report(head(names) + made, "--by-op")
        truth = {}
        for kind, name, _, _, duration, *_, op in job.work:
            row = truth.setdefault((kind, name, op), [])
            row.append(duration)
        rows = {(r.KERNEL, k["mangled"], k["op"]): k for k in found["kernels"]}
        rows |= {(r.COPY, "", c["op"]): c for c in found["copies"]}
        assert set(rows) == set(truth)
        for key, durations in truth.items():
            row = rows[key]
            assert (row["count"], row["timed"]) == (len(durations), len(durations))
            assert row["total_us"] == sum(durations)
            assert (row["min_us"], row["max_us"]) == (min(durations), max(durations))
            assert row["avg_us"] == pytest.approx(sum(durations) / len(durations))
        for row in found["copies"]:
            assert (row["direction"], row["bytes"]) == ("host to device", 1000 * row["count"])
            assert row["gb_per_s"] == pytest.approx(row["bytes"] / row["total_us"] / 1000)

    @pytest.mark.parametrize("seed", [4, 5])
    def test_busy_and_overlap(self, report, seed):
        job, names = Job(seed), Names()
        (gpu,) = report([*list(job.records(names)), *head(names)])["gpus"]
        all_work = [(w[3], w[3] + w[4]) for w in job.work]
        comm = [(w[3], w[3] + w[4]) for w in job.work if w[1] == COMM_KERNEL]
        compute = [(w[3], w[3] + w[4]) for w in job.work if w[0] == r.KERNEL and w[1] != COMM_KERNEL]
        assert gpu["busy_us"] == length(all_work)
        assert gpu["watched_us"] == max(e for _, e in all_work) - min(s for s, _ in all_work)
        assert (gpu["comm_us"], gpu["compute_us"]) == (length(comm), length(compute))
        assert gpu["kernel_us"] == length(comm + compute)
        assert gpu["overlap_us"] == length(comm) + length(compute) - length(comm + compute)
        assert sum(gpu["idle_us"].values()) == pytest.approx(gpu["watched_us"] - gpu["busy_us"])
        assert gpu["idle_percent"] == pytest.approx(100 * (1 - gpu["busy_us"] / gpu["watched_us"]))

    def test_steps(self, report):
        job, names = Job(6), Names()
        made = list(job.records(names))
        ends = [START + i * MS for i in range(0, 30)]
        made += [r.boundary(PID, TID, i, end) for i, end in enumerate(ends)]
        made += [r.gpu_step(PID, ends[i - 1], ends[i], 10 * i, i, 100 * i, 1000, 2000) for i in range(1, len(ends))]
        found = report(head(names) + made)
        assert len(found["steps"]) > 10
        for step in found["steps"]:
            start, end = (START + (step["index"] - 1) * MS) // US, (START + step["index"] * MS) // US
            inside = [(max(w[3], start), min(w[3] + w[4], end), w) for w in job.work]
            inside = [(a, b, w) for a, b, w in inside if b > a]
            assert step["busy_us"] == length([(a, b) for a, b, _ in inside])
            assert step["comm_us"] == length([(a, b) for a, b, w in inside if w[1] == COMM_KERNEL])
            assert step["duration_us"] == 1000
            if step is not found["steps"][0] and step is not found["steps"][-1]:  # idle from the first to the last work
                assert sum(step["idle_us"].values()) == pytest.approx(step["watched_us"] - step["busy_us"])
        per_step = found["per_step"]
        assert (per_step["steps"], per_step["launches"], per_step["copied_bytes"]) == (29, 150, 1500)
        assert (per_step["api_s"], per_step["sync_s"]) == (1e-6, 2e-6)


class TestJoin:
    """Each call has an operator of its own: an activity with another one is joined wrongly."""

    def joined(self, report, job, **lost):
        names = Names()
        job.work = [(*w[:1], "k%d" % w[7] if w[0] == r.KERNEL else "", *w[2:8], "op%d" % w[7]) for w in job.work]
        made = list(job.records(names, **lost))
        found = report(head(names) + made, "--by-op", "--by-action")
        right, unknown = set(), set()
        for row in found["kernels"]:
            number = int(row["name"][1:])
            if row["op"] is None:
                unknown.add(number)
                assert row["action"] is None
            else:
                assert (row["op"], row["action"]) == ("op%d" % number, "forward"), "joined to another call"
                right.add(number)
        return right, unknown, found

    @pytest.mark.parametrize("clock_ns", [0, 3000, -3000, 7000, -9000])
    def test_clocks_differ(self, report, clock_ns):
        right, unknown, found = self.joined(report, Job(11, copy_share=0), clock_ns=clock_ns)
        assert len(right) == 400 and not unknown
        assert (found["tiers"][0]["unjoined"], found["tiers"][0]["unasked"]) == (0, 0)

    @pytest.mark.parametrize("clock_ns", [0, 2000])
    def test_losses(self, report, clock_ns):
        job = Job(12, copy_share=0)
        lost_calls, lost_asked = set(job.rng.sample(range(1, 401), 80)), set(job.rng.sample(range(1, 401), 80))
        right, unknown, found = self.joined(
            report, job, clock_ns=clock_ns, lost_calls=lost_calls, lost_asked=lost_asked
        )
        assert unknown == lost_calls | lost_asked
        assert right == set(range(1, 401)) - unknown
        assert found["tiers"][0]["unjoined"] == len(unknown)
        assert found["tiers"][0]["unasked"] == len(lost_asked)
        assert "operator and action are not known" in report.text

    @pytest.mark.parametrize("every", [1, 2])
    def test_calls_whose_end_was_not_seen(self, report, every):
        right, unknown, _ = self.joined(report, Job(13, copy_share=0), unseen_ends=range(1, 401, every))
        assert len(right) == 400 and not unknown

    def test_probes_on_the_driver_alone(self, report):
        names = Names()
        made = []
        for i in range(1, 50):
            at = START + i * 40 * US
            key = r.gpu_key(PID, "cuLaunchKernel", op=names("op%d" % i))
            made.append(r.gpu_call(key, TID, at + 2 * US, 3 * US))
            made.append(r.gpu_api_call(PID, TID, at, 8 * US, names("cudaLaunchKernel_v7000"), i))
            made.append(r.gpu_activity(PID, r.KERNEL, at + 9 * US, 5 * US, names("k%d" % i), i))
        rows = report(head(names) + made, "--by-op")["kernels"]
        assert {k["name"][1:] for k in rows} == {k["op"][2:] for k in rows} and len(rows) == 49

    def test_a_collective_launches_its_kernels(self, report):
        names = Names()
        comm = r.gpu_key(PID, "ncclAllReduce", dtype=7, op=names("c10d::allreduce_"), target=0xABC0)
        made = [r.gpu_calls(comm, 1, 50 * US, 50 * US, size=4096), r.gpu_call(comm, TID, START, 50 * US, size=4096)]
        for i in (1, 2):
            made.append(r.gpu_api_call(PID, TID, START + i * 10 * US, 5 * US, names("cudaLaunchKernelExC_v11060"), i))
            made.append(r.gpu_activity(PID, r.KERNEL, START + i * 100 * US, 30 * US, names(COMM_KERNEL), i, stream=20))
        found = report(head(names) + made, "--by-op")
        (row,) = found["collectives"]
        assert (row["name"], row["dtype"], row["communicator"]) == ("ncclAllReduce", "float32", "0xabc0")
        assert (row["count"], row["bytes"], row["device_us"], row["op"]) == (1, 4096, 60, "c10d::allreduce_")
        assert [(k["count"], k["op"]) for k in found["kernels"]] == [(2, "c10d::allreduce_")]
        assert found["kernels"][0]["name"].startswith("ncclDevKernel_AllReduce_Sum_f32_RING_LL")
        assert found["gpus"][0]["comm_us"] == 60

    def test_other_threads_and_functions_are_others(self, report):
        names = Names()
        launch, copy = (r.gpu_key(PID, api, op=names("op")) for api in ("cudaLaunchKernel", "cudaMemcpyAsync"))
        made = [
            r.gpu_call(launch, TID + 1, START, 10 * US),
            r.gpu_call(copy, TID, START, 10 * US),
            r.gpu_api_call(PID, TID, START + US, 5 * US, names("cudaLaunchKernel_v7000"), 1),
            r.gpu_activity(PID, r.KERNEL, START + 20 * US, US, names("k"), 1),
            r.gpu_activity(PID, r.KERNEL, START + 30 * US, US, names("k"), 0),
        ]
        found = report(head(names) + made, "--by-op")
        assert [(k["count"], k["op"]) for k in found["kernels"]] == [(2, None)]
        assert (found["tiers"][0]["unjoined"], found["tiers"][0]["unasked"]) == (2, 1)

    def test_the_clock_of_the_gpu_is_behind(self, report):
        """Work seems to begin before its call, by CUPTI's fit of the clocks; not by seconds, which is another call's."""
        names = Names()
        made = []
        for i, early in enumerate((20 * US, 300 * US, 450 * US, 50 * MS)):
            at = START + (i + 1) * 100 * MS
            made.append(r.gpu_call(r.gpu_key(PID, "cudaLaunchKernel", op=names("op%d" % i)), TID, at, 5 * US))
            made.append(r.gpu_api_call(PID, TID, at + US, 3 * US, names("cudaLaunchKernel_v7000"), i + 1))
            made.append(r.gpu_activity(PID, r.KERNEL, at - early, 2 * US, names("k%d" % i), i + 1))
        found = report(head(names) + made, "--by-op")
        assert {(k["name"], k["op"]) for k in found["kernels"]} == {("k0", "op0"), ("k1", "op1"), ("k2", "op2"), ("k3", None)}
        assert found["tiers"][0]["unasked"] == 1

    def test_ids_come_again(self, report):
        names = Names()
        made = []
        for i in range(3):
            at = START + i * MS
            made.append(r.gpu_call(r.gpu_key(PID, "cudaLaunchKernel", op=names("op%d" % i)), TID, at, 5 * US))
            made.append(r.gpu_api_call(PID, TID, at + US, 3 * US, names("cudaLaunchKernel_v7000"), 5))
            made.append(r.gpu_activity(PID, r.KERNEL, at + 9 * US, US, names("k%d" % i), 5))
        rows = report(head(names) + made, "--by-op")["kernels"]
        assert {(k["name"], k["op"]) for k in rows} == {("k%d" % i, "op%d" % i) for i in range(3)}


class TestIdle:
    def launched(self, names, correlation, asked_us, start_us, duration_us, stream=7):
        yield r.gpu_api_call(
            PID, TID, START + asked_us * US, 3 * US, names("cudaLaunchKernel_v7000"), correlation
        )
        yield r.gpu_activity(
            PID, r.KERNEL, START + start_us * US, duration_us * US, names("k"), correlation, stream=stream
        )

    def test_each_kind(self, report):
        names = Names()
        label = names("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")
        made = [
            *self.launched(names, 1, 0, 10, 90),
            *self.launched(names, 2, 20, 105, 95),  # queued, 5 us late: launch
            *self.launched(names, 3, 30, 300, 100),  # queued, 100 us late: other
            *self.launched(names, 4, 900, 910, 90),  # asked for late: 510 us, of these 300 in the DataLoader
            *self.launched(names, 5, 950, 1200, 10, stream=8),  # asked for by another stream: other
            r.gpu_call(r.gpu_key(PID, "cudaMemcpyAsync", r.HTOD), TID, START + 800 * US, 50 * US),  # and 50 in a copy
            r.boundary(PID, TID, 0, START),
            r.path(1, [(r.LABEL, label)]),
            r.sample(PID, TID, r.WAIT, START + 720 * US, 300 * US, path_id=1, cause="poll"),
            r.sample(PID, TID + 1, r.WAIT, START + 900 * US, 300 * US, path_id=1, cause="poll"),  # another thread's
        ]
        (gpu,) = report(head(names) + made)["gpus"]
        assert gpu["idle_us"] == {"host": 160, "data": 350, "launch": 5, "other": 300}
        assert "idle, data: 0.350 ms" in report.text

    def test_between_windows_of_cupti(self, report):
        """Two windows, 1 s apart, and in the first a wait of 4 ms: that is idle time, what lies between them is none."""
        names = Names()
        made = []
        for i, at in enumerate([0, 2000, 6000, 10000, 1010000, 1014000, 1020000], 1):
            made += self.launched(names, i, at, at + 5, 100)
        told = [r.host(), r.window(START, START + 2 * 10**9), r.target(PID), r.gpu(PID, 2, 20 * MS), *names.records(), *made]
        windows = [
            r.gpu_window(PID, 1, START + 1009 * MS, START + 1020 * MS + 35 * US),
            r.gpu_window(PID, 0, START - MS, START + 5 * MS, "open"),
            r.gpu_window(PID, 2, START + 1500 * MS, START + 1500 * MS, "busy"),
            r.gpu_window(PID, 3, START + 1600 * MS, START + 1600 * MS, "failed", 35),
            r.gpu_window(PID, 0, START - MS, START + 11 * MS, "steps"),
            r.gpu_window(PID + 1, 0, 0, 2**64 - 1),
            r.gpu_window(PID, 4, START + 3, START + 2),  # says nothing
        ]
        found = report(told + windows)
        (gpu,) = found["gpus"]
        # from the first kernel to the end of the first window, and from the second to its end, within the last kernel
        assert gpu["watched_us"] == 10995 + 11035
        assert gpu["busy_us"] == 600 + 30
        assert sum(gpu["idle_us"].values()) == gpu["watched_us"] - gpu["busy_us"]
        (stream,) = found["streams"]
        assert stream["busy_us"] == 630 and stream["host_wait_us"] == gpu["watched_us"] - 630
        assert [(w["index"], w["end"], w["error"]) for w in found["windows"] if w["pid"] == PID] == [
            (0, "steps", None), (1, "recording", None), (2, "busy", None), (3, "failed", 35)
        ]  # fmt: skip
        assert found["windows"][1]["start_s"] == pytest.approx(1.009) and found["windows"][1]["duration_s"] == pytest.approx(0.011035)
        assert "1 of 4 windows did not open: another tool used CUPTI" in report.text
        # of a recording without windows: from the first word to the last
        (gpu,) = report(told)["gpus"]
        assert gpu["watched_us"] == 1020100


def kineto(job):
    """The same data as Kineto writes it."""
    events = [
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": PID, "tid": TID, "ts": START // US - 1, "dur": 10**6}
    ]
    for kind, name, stream, start, duration, asked, took, correlation, _ in job.work:
        is_copy = kind == r.COPY
        events.append(
            {
                "ph": "X",
                "cat": "cuda_runtime",
                "name": "cudaMemcpyAsync" if is_copy else "cudaLaunchKernel",
                "pid": PID,
                "tid": TID,
                "ts": asked,
                "dur": took,
                "args": {"correlation": correlation, "External id": correlation, "cbid": 211},
            }
        )
        shown = name.split("_Z39")[-1]
        events.append(
            {
                "ph": "X",
                "cat": "gpu_memcpy" if is_copy else "kernel",
                "name": "Memcpy HtoD (Pageable -> Device)" if is_copy else shown,
                "pid": 0,
                "tid": stream,
                "ts": start,
                "dur": duration,
                "args": {"correlation": correlation, "External id": correlation, "device": 0, "context": 1, "stream": stream},
            }
        )
    return {"schemaVersion": 1, "distributedInfo": {"rank": 0, "world_size": 1}, "traceEvents": events}


@pytest.mark.parametrize("seed", [21, 22, 23])
def test_hta(report, tmp_path, seed):
    hta = pytest.importorskip("hta.trace_analysis", reason="tools/setup.sh python --readers installs HolisticTraceAnalysis")
    job, names = Job(seed, count=600), Names()
    made = list(job.records(names))
    found = report(head(names) + made)
    (tmp_path / "kineto").mkdir()
    with gzip.open(tmp_path / "kineto/rank0.json.gz", "wt") as file:
        json.dump(kineto(job), file)
    analysis = hta.TraceAnalysis(trace_dir=str(tmp_path / "kineto"), include_last_profiler_step=True)
    (gpu,) = found["gpus"]

    busy = analysis.get_temporal_breakdown(visualize=False).iloc[0]
    assert gpu["watched_us"] - gpu["busy_us"] == pytest.approx(busy["idle_time(us)"])
    assert gpu["watched_us"] == pytest.approx(busy["kernel_time(us)"])
    assert gpu["compute_us"] == pytest.approx(busy["compute_time(us)"])
    assert gpu["idle_percent"] == pytest.approx(busy["idle_time_pctg"], abs=0.006)

    overlap = analysis.get_comm_comp_overlap(visualize=False).iloc[0]
    assert gpu["overlap_percent"] == pytest.approx(overlap["comp_comm_overlap_pctg"], abs=0.006)

    # HTA's threshold in the unit of the trace's times
    idle, _ = analysis.get_idle_time_breakdown(consecutive_kernel_delay=10, visualize=False)
    theirs = {(row.stream, row.idle_category): row.idle_time for row in idle.itertuples()}
    assert {stream for stream, _ in theirs} == {7, 20}
    for stream in found["streams"]:
        for category in ("host_wait", "kernel_wait", "other"):
            expected = theirs.get((stream["stream"], category), 0)
            assert stream[f"{category}_us"] == pytest.approx(expected), (stream, category)


class TestTiers:
    def test_probes_alone(self, report):
        names = Names()
        launch = r.gpu_key(PID, "cudaLaunchKernel", op=names("aten::mm"), action=names("forward"), target=names("_Z4gemmPf"))
        unknown = r.gpu_key(PID, "cuLaunchKernel", op=names("aten::mm"))
        copy = r.gpu_key(PID, "cudaMemcpyAsync", r.DTOH, action=names("forward"))
        records = [
            r.gpu_calls(launch, 1, 1, 1),
            r.gpu_calls(launch, 70, 700 * US, 20 * US),  # cumulative: the last holds
            r.gpu_calls(unknown, 30, 300 * US, 11 * US),
            r.gpu_calls(copy, 5, 50 * US, 10 * US, 5000),
            r.gpu_calls(r.gpu_key(PID, "cudaMalloc"), 2, 9 * MS, 5 * MS, 1 << 21),
            r.gpu_calls(r.gpu_key(PID, "cudaGraphLaunch"), 3, US, US),
            r.gpu_calls(r.gpu_key(PID, "cudaEventRecord"), 4),  # whose ends were not seen
        ]
        tier = r.gpu(PID, 1, why="libcupti cannot be opened")
        found = report([*head(names)[:-len(names.ids) - 1], tier, *names.records(), *records])
        assert (found["tier"], found["tiers"][0]["why"]) == (1, "libcupti cannot be opened")
        assert [(k["name"], k["count"], k["total_us"]) for k in found["kernels"]] == [
            ("gemm", 70, None),
            ("(kernel not known)", 30, None),
            ("(CUDA graph)", 3, None),
        ]
        assert [(c["direction"], c["count"], c["bytes"], c["total_us"]) for c in found["copies"]] == [
            ("device to host", 5, 5000, None)
        ]
        assert {a["name"]: (a["count"], a["total_s"], a["max_s"]) for a in found["apis"]} == {
            "cudaMalloc": (2, 9e-3, 5e-3),
            "cudaLaunchKernel": (70, 7e-4, 2e-5),
            "cuLaunchKernel": (30, 3e-4, 1.1e-5),
            "cudaMemcpyAsync": (5, 5e-5, 1e-5),
            "cudaGraphLaunch": (3, 1e-6, 1e-6),
            "cudaEventRecord": (4, None, None),
        }
        assert [(m["name"], m["bytes"]) for m in found["memory"]] == [("cudaMalloc", 1 << 21)]
        assert found["idle_percent"] is None and found["gpus"] == []
        text = report.text
        assert "tier 1" in text and "libcupti cannot be opened" in text and "not known: when kernels ran" in text
        assert text.index("tier 1") < text.index("Kernels")

        of_action = helpers.report(report.path, "--gpu", "--action", "forward")
        assert [(k["name"], k["count"]) for k in of_action["kernels"]] == [("gemm", 70)]
        by = helpers.report(report.path, "--gpu", "--by-op", "--by-action", "--sort", "count", "--limit", "1")
        assert [(a["name"], a["op"], a["action"]) for a in by["apis"]] == [("cudaLaunchKernel", "aten::mm", "forward")]
        assert "cudaLaunchKernel < aten::mm < forward" in helpers.report_text(
            report.path, "--gpu", "--by-op", "--by-action"
        )

    def test_ranks(self, report):
        names = Names()
        records = [r.host(), r.target(PID, rank=0), r.target(11, rank=1), r.target(12, role=r.WORKER, parent=PID)]
        made = [r.gpu(PID, 2, 3 * MS, lost=4), r.gpu(11, 1, why="another tool has CUPTI")]
        made += [r.gpu_activity(PID, r.KERNEL, START + i * US, 500, names("k"), 0) for i in range(3)]
        made += [r.gpu_calls(r.gpu_key(pid, "cudaLaunchKernel", target=names("k")), 10, US, US) for pid in (PID, 11)]
        found = report([*records, *made, *names.records()], "--per-rank")
        (row,) = found["kernels"]
        assert (row["count"], row["timed"], row["total_us"]) == (13, 3, 1.5)  # 3 that ran, 10 launches
        assert [(p["pid"], p["tier"]) for p in found["tiers"]] == [(PID, 2), (11, 1)]
        assert found["tiers"][0]["lost"] == 4
        assert [(p["rank"], p["tier"], p["kernels"][0]["count"]) for p in found["processes"]] == [(0, 2, 3), (1, 1, 10)]
        assert "4 pieces of work or calls were lost" in report.text

    def test_nothing(self, report):
        found = report([r.host(), r.target(PID)])
        assert (found["tier"], found["kernels"], found["usage"]) == (0, [], [])
        assert "no figures of GPUs" in report.text

    def test_devices_and_usage(self, report):
        usage = [
            r.gpu_usage(1, START + i, 10**9 * (i + 1), 8 * 10**10, (20 * i, r.GPU_UNKNOWN, 200000 + 1000 * i, 40, 1500))
            for i in range(3)
        ]
        found = report([r.host(), r.target(PID), r.gpu(PID, 1), r.gpu_device(PID, 0), *usage])
        assert [(d["name"], d["compute_capability"], d["multiprocessors"]) for d in found["devices"]] == [
            ("NVIDIA H100", "9.0", 132)
        ]
        (row,) = found["usage"]
        assert (row["samples"], row["busy_percent"], row["memory_busy_percent"]) == (3, 20, None)
        assert (row["memory_used_bytes"], row["power_w"], row["sm_mhz"]) == (3 * 10**9, 201, 1500)
        assert "by NVML" in report.text


class TestHostile:
    def test_names(self, report):
        evil = "k\x1b[31m\n‮<script>"
        made = [r.gpu_activity(PID, r.KERNEL, START, US, 1, 1), r.gpu_activity(PID, r.KERNEL, START, US, 77, 2)]
        why = "\x1b]0;title\x07" + "x" * 90
        device = r.gpu_device(PID, 0, device_name="\x1b[2J" + "y" * 59)
        found = report([r.host(), r.target(PID), r.gpu(PID, 1, why=why), device, r.name(1, evil), *made, r.gpu_usage(0, 1, 1, 1, device_name="\x1b[H")])
        assert "\x1b" not in report.text and "‮" not in report.text and "\\x1b[31m" in report.text
        assert {k["mangled"] for k in found["kernels"]} == {evil, next(k["mangled"] for k in found["kernels"] if k["mangled"] != evil)}

    def test_figures(self, report):
        top = 2**64 - 1
        names = Names()
        launch = r.gpu_key(PID, "cudaLaunchKernel")
        made = [
            *[r.gpu_activity(PID, r.KERNEL, 5, top - 5, names("k"), 1, size=top, stream=i) for i in range(3)],
            r.gpu_activity(PID, r.KERNEL, 6, top - 5, names("k"), 1),  # ends beyond time
            r.gpu_activity(PID, 99, 5, 5),
            r.gpu_activity(PID, r.COPY, 5, 5, direction=200),
            r.gpu_activity(0, r.COPY, 5, 5),
            r.gpu_activity(PID, r.COPY, 0, 5, size=9, direction=r.HTOD),  # no time
            *[r.gpu_api_call(PID, TID, 0, top, names("cudaLaunchKernel_v7000"), 1, i % 3) for i in range(9)],
            *[r.gpu_call(launch, TID, 0, top, top) for _ in range(50)],
            r.gpu_call(launch, TID, 1, top),
            r.gpu_calls(r.gpu_key(PID, 60000), 1),
            r.gpu_calls(r.gpu_key(PID, "cudaLaunchKernel", direction=77), 1),
            r.gpu_calls(launch, top, top, top, top),
            r.gpu_calls(r.gpu_key(PID, "cudaMalloc", op=5), top, top, top, top),
            r.gpu(PID, 77),
            r.gpu_step(PID, 1, top, top, top, top, top, top),
            r.gpu_step(PID, 2, 0, top, top, top, top, top),
            r.gpu_usage(0, 1, top, 0),
        ]
        found = report([*head(names), *made], "--by-op")
        assert found["lost"]["malformed_records"] == 8
        (row,) = found["kernels"]
        assert (row["count"], row["total_us"]) == (3, pytest.approx(top / 1e3))
        assert found["copies"][0]["total_us"] is None and found["copies"][0]["count"] == 1
        assert found["apis"][0]["count"] == 2**63 - 1  # of JSON the most

    def test_many_that_overlap(self, report):
        """Calls of one thread that all lie over each other: no long search, and none is joined twice."""
        names, count = Names(), 20000
        made = []
        for i in range(count):
            made.append(r.gpu_call(r.gpu_key(PID, "cudaLaunchKernel"), TID, START + i, 10 * MS))
            made.append(r.gpu_api_call(PID, TID, START + i, 9 * MS, names("cudaLaunchKernel"), 1))
            made.append(r.gpu_activity(PID, r.KERNEL, START + i, 10 * MS, names("k"), 1))
        found = report(head(names) + made)
        assert found["kernels"][0]["count"] == count

    @pytest.mark.parametrize("seed", range(20))
    def test_any_bytes(self, tmp_path, seed):
        rng = random.Random(seed)
        names = Names()
        whole = head(names) + list(Job(seed, count=60).records(names)) + names.records()
        whole += [r.gpu_device(PID, 0), r.gpu_usage(0, 1, 2, 3), r.gpu_step(PID, 1, 5), r.gpu_calls(r.gpu_key(PID, 1), 1)]
        records = []
        for one in whole:
            one = bytearray(one)
            for _ in range(rng.choice([0, 0, 1, 3])):
                one[rng.randrange(8, len(one))] = rng.choice([0, 1, 0x7F, 0xFF, rng.randrange(256)])
            if rng.random() < 0.1:  # shorter than its struct
                del one[8 + rng.randrange(len(one) // 8) * 8 :]
                struct.pack_into("=I", one, 4, len(one))
            records.append(bytes(one))
        path = tmp_path / "torn.rec"
        path.write_bytes(r.recording(records))
        for options in (["--json", "--by-op", "--by-action"], ["--per-rank"]):
            result = helpers.stepflame("report", path, "--gpu", *options)
            assert result.returncode == helpers.OK, result.stderr


def test_usage_of_switches(tmp_path):
    for args in (["--ops", "--by-op"], ["--gpu", "--sort", "beauty"], ["--gpu", "--flops"]):
        assert helpers.stepflame("report", *args, tmp_path / "a.rec").returncode == helpers.USAGE
    assert "--gpu" in subprocess.run([helpers.STEPFLAME, "report", "--help"], stdout=subprocess.PIPE, text=True).stdout


def covered(works):
    return length((work.start, work.start + work.duration) for work in works)


def test_several_gpus(tmp_path):
    """Several ranks are rows of one table, each with its own GPU."""
    jobs = [gpu_recorded.random_job(random.Random(seed), pid=PID + seed, rank=seed) for seed in range(3)]
    for job in jobs:
        job.extra = [r.gpu(job.pid, 2, cupti_ns=10**12)]
    text = helpers.report_text(gpu_recorded.write(tmp_path / "ranks.rec", *jobs, paths=False), "--gpu")
    for job in jobs:
        works = list(job.works())
        kernels = [work for work in works if work.kind == r.KERNEL]
        comm = [work for work in kernels if work.name.startswith("nccl")]
        span = max(work.start + work.duration for work in works) - min(work.start for work in works)
        (line,) = [line.split() for line in text.splitlines() if re.match(r" +%d +%d +0 " % (job.rank, job.pid), line)]
        expected = [span / 1e6, 100 * covered(works) / span, covered(kernels) / 1e6, covered(comm) / 1e6]
        assert [float(value) for value in line[3:7]] == [pytest.approx(value, abs=0.006) for value in expected]
        # busy and idle are all
        assert float(line[4]) + sum(map(float, line[8:12])) == pytest.approx(100, abs=0.03)
    alone = helpers.report_text(tmp_path / "ranks.rec", "--gpu", "--per-rank")
    assert len(re.findall(r"^GPU 0 of pid \d+: busy ", alone, re.M)) == 3
