# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Device times in `report --ops` against torch's own table: the events that torch.profiler would have had of a job are
made into FunctionEvents, and attributed, by torch. Needs no root and no GPU.
"""

import collections
import inspect
import json
import random
import re
import types

import gpu_recorded
import helpers
import pytest
import recfile as rec
from gpu_recorded import IS_CALL, PID, Job, Span, Work

torch = pytest.importorskip("torch")
profiler = pytest.importorskip("torch.autograd.profiler")
if "timeout_s" not in inspect.signature(profiler.profile._parse_kineto_results).parameters:
    pytest.skip("this torch's profiler takes other events", allow_module_level=True)


class Event:
    """A kineto event, as much of it as torch asks for."""

    defaults = {
        "is_async": False,
        "overload_name": "",
        "fwd_thread_id": 0,
        "shapes": [],
        "concrete_inputs": (),
        "kwinputs": {},
        "stack": (),
        "scope": 0,
        "sequence_nr": -1,
        "flops": 0,
        "is_user_annotation": False,
        "is_python_function": False,
        "linked_correlation_id": 0,
        "extra_meta": {},
        "typed_metadata": {},
        "is_hidden_event": False,
        "device_type": profiler.DeviceType.CPU,
        "device_index": 0,
        "device_resource_id": 0,
        "cuda_elapsed_us": -1,
        "privateuse1_elapsed_us": -1,
    }

    def __init__(self, **values):
        self.values = values

    def __getattr__(self, name):
        value = self.values.get(name, self.defaults.get(name))
        return lambda: value


def events_of(job):
    """What Kineto tells: what the GPU did is linked to the innermost operator or label around its call."""
    events, numbers = [], {}
    for span, around in job.spans():
        if span.kind in (rec.LABEL, rec.SPAN_OP, rec.EVALUATE, rec.NODE):
            number = numbers[id(span)] = len(numbers) + 1
            events.append(
                Event(
                    name=span.text,
                    start_ns=span.start,
                    end_ns=span.end,
                    correlation_id=number,
                    external_id=number,
                    start_thread_id=span.tid,
                    end_thread_id=span.tid,
                    scope=1 if span.kind == rec.NODE else 0,
                    fwd_thread_id=span.tid,
                    is_user_annotation=span.kind == rec.LABEL,
                    shapes=[list(dims) for dims in span.shapes],
                )
            )
        linked = next((numbers[id(s)] for s in reversed(around) if id(s) in numbers), 0)
        for work in span.asks:
            events.append(
                Event(
                    name=work.text,
                    start_ns=work.start,
                    end_ns=work.start + work.duration,
                    correlation_id=10**6 + work.correlation,
                    linked_correlation_id=linked,
                    external_id=linked,
                    start_thread_id=work.stream,
                    end_thread_id=work.stream,
                    device_type=profiler.DeviceType.CUDA,
                )
            )
    return events


def averages(job, **options):
    """torch's key_averages(), with times that are whole ns."""
    result = types.SimpleNamespace(events=lambda: events_of(job), trace_start_ns=lambda: gpu_recorded.START)
    events = profiler.EventList(profiler.profile._parse_kineto_results(types.SimpleNamespace(use_device="cuda"), result), use_device="cuda")
    events._build_tree()
    events = events.key_averages(**options)
    for event in events:
        for key in ("cpu_time_total", "self_cpu_time_total", "device_time_total", "self_device_time_total"):
            setattr(event, key, round(getattr(event, key) * 1000) / 1000)
    return events


def table(path, *args):
    return helpers.report_text(path, "--ops", *args)


@pytest.mark.parametrize("seed", range(12))
def test_torchs_table(tmp_path, seed):
    rng = random.Random(seed)
    job = gpu_recorded.random_job(rng)
    path = gpu_recorded.write(tmp_path / "run.rec", job)
    events = averages(job)
    assert sum(event.self_device_time_total for event in events) > 0
    # by count an operator and a kernel may be equal: torch lists first what began first
    for key in ("cuda_time_total", "self_cuda_time_total", "cuda_time", "cpu_time_total", "self_cpu_time_total"):
        limit = rng.choice([0, 5, 20])
        expected = events.table(sort_by=key, row_limit=limit or -1)
        text = table(path, "--sort", key, "--limit", limit)
        assert text[: len(expected)] == expected
    # as Lightning's PyTorchProfiler, which sorts by CUDA where there is some
    expected = events.table(sort_by="cuda_time_total", row_limit=20)
    assert table(path)[: len(expected)] == expected


def test_json(tmp_path):
    job = gpu_recorded.random_job(random.Random(3))
    found = helpers.report(gpu_recorded.write(tmp_path / "run.rec", job), "--ops")["ops"]
    sums = {}
    for row in found:
        kind = "gpu" if row["kind"] in ("kernel", "copy", "set") else "cpu"
        total = sums.setdefault((kind, row["name"]), [0, 0, 0])
        total[:] = total[0] + row["count"], total[1] + row["self_device_us"], total[2] + row["device_total_us"]
    cuda = profiler.DeviceType.CUDA
    expected = {
        ("gpu" if event.device_type == cuda else "cpu", event.key): [event.count, event.self_device_time_total, event.device_time_total] for event in averages(job)
    }
    assert sums.keys() == expected.keys()
    for key, values in expected.items():
        assert sums[key] == [pytest.approx(value) for value in values], key


def test_by_action(tmp_path):
    job = gpu_recorded.random_job(random.Random(4))
    path = gpu_recorded.write(tmp_path / "run.rec", job)
    by_action = {}
    for span, around in job.spans():
        action = gpu_recorded.action_of(around) or "(none)"
        by_action[action] = by_action.get(action, 0) + sum(work.duration for work in span.asks)
    text = table(path, "--by-action", "--limit", 0)
    found = dict(re.findall(r"^Profile stats for: (.*)\n(?:.+\n)*Self CUDA time total: (.*)$", text, re.M))
    util = pytest.importorskip("torch.autograd.profiler_util")
    assert found == {action: util._format_time(ns / 1000) for action, ns in by_action.items()}


def small(tmp_path, windows=(), **options):
    """One operator in a label, with a kernel of 5 us each."""
    label = Span(rec.LABEL, "user", 100_000, 100_000)
    label.inside = [Span(rec.SPAN_OP, "aten::mm", 110_000, 80_000)]
    label.inside[0].inside = [Span(IS_CALL, "cudaLaunchKernel", 120_000, 10_000, [], [Work(rec.KERNEL, 150_000, 5_000, 1, "k")], 1)]
    job = Job([label])
    job.extra = list(windows)
    return gpu_recorded.write(tmp_path / "run.rec", job, **options)


def rows_of(path, *args):
    return {row["name"]: (row["self_device_us"], row["device_total_us"]) for row in helpers.report(path, "--ops", *args)["ops"]}


def test_without_device_times(tmp_path):
    """Nothing of the GPU is in the table; what its calls took is the CPU's."""
    recording = [rec.host(), rec.target(PID), rec.window(1, 10, 1, 1), rec.name(1, "aten::mm"), rec.op(PID, rec.SPAN_OP, 1, 1, 5, 5)]
    path = tmp_path / "run.rec"
    path.write_bytes(rec.recording(recording + [rec.gpu(PID, 1)]))
    assert rows_of(path) == {"aten::mm": (None, None)}
    assert "CUDA" not in table(path)


def test_without_paths(tmp_path):
    """Without samples nobody knows what is around an operator, and the table says so."""
    path = small(tmp_path, paths=False)
    assert rows_of(path) == {"user": (0, 0), "aten::mm": (5, 5), "k": (5, 5)}
    assert "CUDA total has only the innermost operators" in " ".join(table(path).split())
    assert rows_of(small(tmp_path)) == {"user": (0, 5), "aten::mm": (5, 5), "k": (5, 5)}


def test_no_operators(tmp_path):
    """Kernels alone are no table of operators; report --gpu has them."""
    path = small(tmp_path, ops=False)
    assert rows_of(path) == {} and table(path).startswith("This recording has no operators")


def test_names_of_kernels(tmp_path):
    """Those of C++ are told for people, and what is not understood as it came."""
    names = {
        "_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIfNS0_14func_wrapper_tIfZNS0_11sum_functorIfffEclERNS_14TensorIteratorEEUlffE_EEjfLi4EEEEEvT1_": "at::native::reduce_kernel<ReduceOp func_wrapper_t sum_functor ...>",
        "_Zbroken": "_Zbroken",
        "ampere_sgemm_128x64_tn": "ampere_sgemm_128x64_tn",
    }
    job = gpu_recorded.random_job(random.Random(1))
    works = [work for work in job.works() if work.kind == rec.KERNEL]
    for i, work in enumerate(works):
        work.name = list(names)[i % 3]
    found = helpers.report(gpu_recorded.write(tmp_path / "run.rec", job), "--ops")["ops"]
    assert {row["name"] for row in found if row["kind"] == "kernel"} == set(names.values())


def test_not_joined(tmp_path):
    """Work whose call no probe saw is listed, and nobody's."""
    assert rows_of(small(tmp_path, calls=False)) == {"user": (0, 0), "aten::mm": (0, 0), "k": (5, 5)}


@pytest.mark.parametrize("seed", range(4))
def test_outside_of_the_time_observed(tmp_path, seed):
    """CUPTI tells of more than a window of steps: what was asked for before and behind it is in no table."""
    rng = random.Random(200 + seed)
    job = gpu_recorded.random_job(rng, steps=6)
    calls = [span for span, _ in job.spans() if span.kind == IS_CALL]
    starts = sorted(span.start for span in calls)
    window = starts[len(starts) // 4], starts[len(starts) * 3 // 4]
    path = gpu_recorded.write(tmp_path / "run.rec", job, window=window, calls=False)
    inside = [work for span in calls if window[0] <= span.start <= window[1] for work in span.asks]
    found = helpers.report(path, "--gpu")
    names = collections.Counter(work.name for work in inside if work.kind == rec.KERNEL)
    assert {row["mangled"]: row["count"] for row in found["kernels"]} == names
    assert sum(row["bytes"] for row in found["copies"]) == sum(work.size for work in inside if work.kind == rec.COPY)
    (tier,) = found["tiers"]
    assert (tier["activities"], tier["unasked"]) == (len(inside), 0)


def test_windows(tmp_path):
    """Averages are of the calls counted: what was asked for at other times is left out."""
    assert "k" not in rows_of(small(tmp_path, [rec.op_window(PID, 0, 0, 1, 200_000, 300_000)]))
    assert "k" in rows_of(small(tmp_path, [rec.op_window(PID, 0, 0, 1, 200_000, 300_000), rec.op_window(PID, 1, 0, 1, 100_000, 125_000)]))


@pytest.mark.parametrize("seed", range(6))
def test_torchs_table_by_shapes(tmp_path, seed):
    """As group_by_input_shape has it: what was done for the calls of these shapes."""
    rng = random.Random(100 + seed)
    job = gpu_recorded.random_job(rng)
    for span, _ in job.spans():
        if span.kind == rec.SPAN_OP or (span.kind == rec.NODE and rng.random() < 0.5):
            span.shapes = rng.choice([((2, 3),), ((4, 4), (4,)), ((), (5,)), ()])
    path = gpu_recorded.write(tmp_path / "run.rec", job)
    events = averages(job, group_by_input_shapes=True)
    assert len(events) > len(averages(job)) and sum(event.self_device_time_total for event in events) > 0
    for key in ("cuda_time_total", "self_cuda_time_total", "cpu_time_total"):
        expected = events.table(sort_by=key, row_limit=-1)
        assert table(path, "--shapes", "--sort", key, "--limit", 0)[: len(expected)] == expected
    expected = averages(job).table(sort_by="cuda_time_total", row_limit=-1)
    assert table(path, "--limit", 0)[: len(expected)] == expected


def test_shapes_not_told(tmp_path):
    """Calls without a path do not tell the shapes of their operator."""
    records = [rec.raw(kind, payload) for kind, payload in rec.read_raw(small(tmp_path, ops=False))]
    mm = next(rec_name for rec_name in range(PID * 1000, PID * 1000 + 50) if rec.name(rec_name, "aten::mm") in records)
    for i in 1, 2:
        records += [rec.op_group(i, rec.word(rec.WORD_TENSOR, [i], 6)), rec.op(PID, rec.SPAN_OP, mm, 1, 10, 10, group=i)]
    path = tmp_path / "shapes.rec"
    path.write_bytes(rec.recording(records))
    assert rows_of(path) == {"aten::mm": (5, 5), "k": (5, 5)}
    rows = helpers.report(path, "--ops", "--shapes")["ops"]
    assert [(row["name"], row["self_device_us"]) for row in rows] == [("k", 5), ("aten::mm", None), ("aten::mm", None)]
    text = table(path, "--shapes")
    assert re.search(r"aten::mm .* -- +-- +-- +-- +1 +\[\[1\]\]", text) and "it is not known which of these rows' calls launched the work" in " ".join(text.split())
    assert json.dumps(rows)
