# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`stepflame export` as Perfetto itself understands it: its trace processor reads both formats, and is asked in SQL. Needs no root and no GPU."""

import json
import os
from collections import Counter

import pytest
import recfile as rec
import trace_processor
from gpu_recorded import IS_CALL

from . import test_tracks
from .test_export import export
from .test_export import kineto, recorded as of_kineto  # noqa: F401
from .test_gpu_export import CATEGORIES, REAL, recorded as of_gpu  # noqa: F401

FORMS = pytest.mark.parametrize("form", ["perfetto", "chrome"])
SLICES = """select s.name, s.category, s.ts, s.dur, iif(p.name like 'ProfilerStep%', '', ifnull(p.name, '')) as parent from slice s left join slice p on s.parent_id = p.id"""


@pytest.fixture(scope="module")
def processor(tmp_path_factory):
    if trace_processor.why_none():
        # where tests run by themselves, somebody must see that these did not
        (pytest.fail if os.environ.get("CI") else pytest.skip)(trace_processor.why_none())
    it = trace_processor.TraceProcessor(tmp_path_factory.mktemp("processor"))
    yield it
    it.close()


def complaints(processor):
    return processor.query("select name, value from stats where severity != 'info' and value > 0")


def load(processor, path, form, realtime_ns=0):
    """What to subtract from the processor's times, which has found no fault with the trace. realtime_ns: at 0 of the recording's clock."""
    trace = export(path, "-f", form, text=False)
    processor.load(trace)
    assert not complaints(processor)
    return realtime_ns - json.loads(trace)["baseTimeNanoseconds"] if form == "chrome" else 0


@FORMS
def test_calls_and_work(processor, of_gpu, form):  # noqa: F811
    """Each span of the CPU below the one around it, work on the stream of its GPU, and arrows between them."""
    job, path = of_gpu
    base = load(processor, path, form, REAL)
    found = Counter((name, ts - base, dur, parent) for name, category, ts, dur, parent in processor.query(SLICES) if category in ("cpu_op", "cuda_runtime"))
    kinds = (rec.SPAN_OP, rec.EVALUATE, rec.NODE, IS_CALL)
    expected = Counter((span.text, span.start, span.duration, around[-1].text if around else "") for span, around in job.spans() if span.kind in kinds)
    assert sum(expected.values()) > 300 and found == expected

    track = "t.name" if form == "perfetto" else "'GPU ' || process.pid || ' ' || thread.name"
    sql = f"""select s.name, s.category, s.ts, s.dur, {track} as track from slice s join track t on s.track_id = t.id
        left join thread_track on s.track_id = thread_track.id left join thread using (utid) left join process using (upid)
        where s.category in ('kernel', 'gpu_memcpy', 'gpu_memset')"""
    expected = Counter((work.text, CATEGORIES[work.kind], work.start + base, work.duration, f"GPU 0 stream {work.stream}") for work in job.works())
    assert Counter(processor.query(sql)) == expected

    arrows = processor.query("select a.name as call, a.ts as asked, b.name as work, b.ts as begun from flow join slice a on slice_out = a.id join slice b on slice_in = b.id where b.category != 'cpu_op'")
    assert Counter(arrows) == Counter((span.text, span.start + base, work.text, work.start + base) for span, _ in job.spans() for work in span.asks)


@FORMS
def test_kinetos_operators(processor, of_kineto, form):  # noqa: F811
    """torch.profiler's own trace, read by the same program, has the same operators, around each other and as long, and the same arrows."""
    truth, file, path = of_kineto
    sql = SLICES.replace("s.ts, ", "") + " where s.category = 'cpu_op'"
    arrows = "select a.name as forward, b.name as backward, count(*) as n from flow join slice a on slice_out = a.id join slice b on slice_in = b.id group by 1, 2 order by 1, 2"
    processor.load(file.read_bytes())
    theirs, their_arrows = Counter(processor.query(sql)), processor.query(arrows)
    load(processor, path, form)
    assert len(theirs) > 100 and Counter(processor.query(sql)) == theirs
    assert len(their_arrows) > 3 and processor.query(arrows) == their_arrows


@FORMS
def test_what_every_recording_has(processor, tmp_path, form):
    """Steps with their phases, waits, samples, collections and memory, of a recording without a timeline."""
    path = test_tracks.a_recording(tmp_path / "a.rec")
    trace = test_tracks.chrome(path)
    processor.load(test_tracks.run(path, "-f", form).stdout)
    assert not complaints(processor)
    base = 1790000000 * 10**9 - trace["baseTimeNanoseconds"] if form == "chrome" else 0
    found = [(name, category, ts - base, dur) for name, category, ts, dur, _ in processor.query(SLICES)]
    times = test_tracks.starts()
    assert [row for row in sorted(found, key=lambda row: row[2]) if row[1] == "step"] == [(f"step {i + 1}", "step", t, test_tracks.step_ns(i + 1)) for i, t in enumerate(times[:-1])]
    kinds = Counter(category for _, category, *_ in found)
    assert kinds == Counter(e["cat"] for e in trace["traceEvents"] if e["ph"] in "Xi" and "cat" in e)
    assert [row[2:] for row in found if row[1] == "gc"] == [(test_tracks.T0 + 3 * test_tracks.MS, 2 * test_tracks.MS)]
    key = "debug.data ms" if form == "perfetto" else "args.data ms"
    phases = dict(processor.query(f"select name, extract_arg(arg_set_id, '{key}') as ms from slice where category = 'step'"))
    assert phases == {f"step {i}": pytest.approx(test_tracks.step_ns(i) // 4 / test_tracks.MS) for i in range(1, test_tracks.STEPS + 1)}
    values = processor.query("select c.value from counter c join counter_track t on c.track_id = t.id order by c.ts")
    assert [value for (value,) in values] == [1000 * (i + 1) - 300 * i for i in range(4)]


S = 10**9
COUNTERS = """select t.name, p.pid, c.ts, c.value from counter c join counter_track t on c.track_id = t.id
    left join process_counter_track pt on pt.id = t.id left join process p using (upid) order by t.name, p.pid, c.ts"""


def resource_looks(pid, memory, cpu, **sums):
    """A look a second; cpu: of a second, in %; sums: what each second adds."""
    for i in range(8):
        values = {key: more * i for key, more in sums.items()}
        yield rec.record("RESOURCES", time_ns=test_tracks.T0 + i * S, pid=pid, known=15, user_ns=i * cpu * S // 200, system_ns=i * cpu * S // 200, rss_bytes=memory + i, **values)


@FORMS
def test_resources(processor, tmp_path, form):
    """What processes, their machine and its GPUs used; no counter of what is always 0, and the network once for processes that share it."""
    records = [test_tracks.HOST, rec.target(PID := 4711), rec.target(PID + 1, role=rec.WORKER, parent=PID), rec.window(test_tracks.T0, test_tracks.T0 + 9 * S)]
    records += resource_looks(PID, 10**9, 50, read_bytes=1234567, received_bytes=700)
    records += resource_looks(PID + 1, 10**8, 25, written_bytes=3, received_bytes=700)
    for i in range(8):
        now = test_tracks.T0 + i * S
        records.append(rec.record("MACHINE", time_ns=now, pid=PID, processors=2, busy_ns=i * S, idle_ns=3 * i * S, memory_bytes=10**10, available_bytes=(9 - i) * 10**9))
        records.append(rec.gpu_usage(0, now, i * 10**9, 8 * 10**10, (20 + i, 3, 100500 + i, 40 + i, 1500)))
        records.append(rec.gpu_usage(1, now, 0, 0, (rec.GPU_UNKNOWN,) * 5))
    path = tmp_path / "a.rec"
    path.write_bytes(rec.recording(records))
    base = load(processor, path, form, 1790000000 * S)
    found = {}
    for name, pid, ts, value in processor.query(COUNTERS):
        found.setdefault((name.removesuffix(" value"), pid if pid in (PID, PID + 1) else None), []).append((ts - base, value))
    rates, looks = range(7), range(8)
    expected = {
        ("CPU, % of one processor", PID): [50 for _ in rates],
        ("CPU, % of one processor", PID + 1): [25 for _ in rates],
        ("resident memory, bytes", PID): [10**9 + i for i in looks],
        ("resident memory, bytes", PID + 1): [10**8 + i for i in looks],
        ("read from disks, bytes/s", PID): [1234567 for _ in rates],
        ("written to disks, bytes/s", PID + 1): [3 for _ in rates],
        ("received by its network namespace, bytes/s", PID): [700 for _ in rates],
        ("machine: CPU, % of all processors", None): [25 for _ in rates],
        ("machine: memory, %", None): [10 * (i + 1) for i in looks],
        ("GPU 0: busy percent, by NVML", None): [20 + i for i in looks],
        ("GPU 0: bytes used, by NVML", None): [i * 10**9 for i in looks],
        ("GPU 0: power in watts, by NVML", None): [(100500 + i) / 1000 for i in looks],
        ("GPU 0: temperature in degrees Celsius, by NVML", None): [40 + i for i in looks],
    }
    assert found.keys() == expected.keys()
    for key, values in expected.items():
        assert found[key] == [(test_tracks.T0 + i * S, pytest.approx(value)) for i, value in enumerate(values)], key


def test_sees_what_is_wrong(processor):
    """Slices that overlap: the check above is one."""
    events = [{"ph": "X", "name": str(i), "cat": "x", "pid": 1, "tid": 1, "ts": 10 * i, "dur": 15} for i in range(3)]
    processor.load(json.dumps({"traceEvents": events}).encode())
    assert complaints(processor)
