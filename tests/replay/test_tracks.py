# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
What exports have of every recording: steps, waits, samples, memory, read back as JSON and by perfetto's own classes; and the folder
for TensorBoard, read by the plugin torch-tb-profiler. Needs no root: the recordings are made here.
"""

import json
import os
import re
import stat
import subprocess
from collections import Counter, defaultdict
from decimal import Decimal

import helpers
import pytest
import recfile as rec
import tb_plugin

PID, TID, RANK = 4711, 4711, 3
MS = 1000000
T0 = 10**12
STEPS = 40
SLOW = 7
HOST = rec.host(monotonic_ns=T0, realtime_ns=T0 + 1790000000 * 10**9, hostname="../no de.1\x01")


def step_ns(i):
    return 30 * MS if i == SLOW else 10 * MS + 7 * i


def starts(base=T0):
    """The boundaries of the steps."""
    times = [base]
    for i in range(1, STEPS + 1):
        times.append(times[-1] + step_ns(i))
    return times


def steps_of(pid, tid, base=T0):
    times = starts(base)
    records = [rec.boundary(pid, tid, 0, times[0])]
    for i in range(1, STEPS + 1):
        data = step_ns(i) // 4
        records.append(rec.boundary(pid, tid, i, times[i], [0, data, step_ns(i) - data]))
    return records


# (kind, end, weight, cause, waits, syscall): step SLOW is from 60 to 90 ms
LONG = (rec.WAIT, T0 + 85 * MS, 20 * MS, "sleep", 1, 35)
SAMPLES = [
    (rec.CPU, T0 + 5 * MS, 10 * MS, None, 0, -1),
    LONG,
    (rec.WAIT, T0 + 120 * MS, 3 * MS, "gil", 1, 202),
    (rec.WAIT, T0 + 130 * MS, MS // 20, "lock", 4, 202),
    (rec.WAIT, T0 + 140 * MS, 2 * MS, "run_queue", 1, 202),
    (rec.WAIT, T0 + 150 * MS, 2 * MS, "run_queue", 1, -1),
    (rec.WAIT, T0 + 150 * MS + 1, 2 * MS, "socket", 1, 0),  # began before the one above had ended: has no place
    (rec.CPU, T0 + 205 * MS, 10 * MS, None, 0, -1),
]


def a_recording(path, more=()):
    """A rank with steps, samples and memory."""
    records = [HOST, rec.target(PID, rank=RANK, command='python "a".py'), rec.name(1, "train.py"), rec.name(2, 'f"\x02'), rec.name(3, "aten::x")]
    records += [rec.name(4, "gc generation 2"), rec.window(T0, T0 + 2 * 10**9)]
    records += [rec.code(1, 1, 2, 12), rec.stack(1, [(1, 0)]), rec.path(1, [(rec.FORWARD, 3)])]
    for kind, time, weight, cause, waits, syscall in SAMPLES:
        records.append(rec.sample(PID, TID, kind, time, weight, 1, 1, cause=cause, waits=waits, syscall=syscall))
    records += steps_of(PID, TID)
    values = {"pid": PID, "tid": TID, "kind": rec.GC, "name": 4}
    records.append(rec.record("INTERVAL", start_ns=T0 + 3 * MS, duration_ns=2 * MS, **values))
    for i in range(4):
        records.append(rec.window(T0, T0 + (i + 1) * 100 * MS))
        records.append(rec.op(PID, rec.SPAN_OP, 3, 1, 1, 1, self_bytes=(1000 * (i + 1), 0)))
        records.append(rec.op(PID, rec.SPAN_OP, 2, 1, 1, 1, self_bytes=(-300 * i, 0)))
    path.write_bytes(rec.recording([*records, *more]))
    return path


def run(*args):
    return subprocess.run([helpers.STEPFLAME, "export", *map(str, args)], capture_output=True, timeout=60)


def chrome(path, *args):
    result = run(path, "-f", "chrome", *args)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout, parse_float=Decimal)


def ns(trace, event, key="ts"):
    """On the recording's clock, for "ts"."""
    value = int(event[key] * 1000)
    return value + trace["baseTimeNanoseconds"] - 1790000000 * 10**9 if key == "ts" else value


def of(trace, category):
    return [e for e in trace["traceEvents"] if e.get("cat") == category]


def test_steps_are_slices(tmp_path):
    path = a_recording(tmp_path / "a.rec")
    trace = chrome(path)
    found = {e["name"]: e for e in of(trace, "step")}
    times = starts()
    assert [(ns(trace, e), ns(trace, e, "dur")) for e in found.values()] == [(t, step_ns(i + 1)) for i, t in enumerate(times[:-1])]
    assert list(found) == ["step %d" % i for i in range(1, STEPS + 1)]
    for i in range(1, STEPS + 1):
        args = found["step %d" % i]["args"]
        assert abs(float(args["data ms"]) - step_ns(i) // 4 / MS) < 1e-6 and ("slow because of" in args) == (i == SLOW)
        assert not any(key.startswith("backward") for key in args)
    report = json.loads(helpers.stepflame("report", path, "--steps", "--json").stdout)
    (slow,) = [s for s in report["steps"] if s["cause"]]
    assert found["step %d" % SLOW]["args"]["slow because of"] == slow["cause"] == "sleep"


def test_waits_and_samples_have_their_times(tmp_path):
    result = run(a_recording(tmp_path / "a.rec"), "-f", "chrome")
    assert b"1 events" in result.stderr and result.returncode == 0
    trace = json.loads(result.stdout, parse_float=Decimal)
    waits = [(e["ph"], e["name"], ns(trace, e), ns(trace, e, "dur") if e["ph"] == "X" else 0) for e in of(trace, "wait")]
    expected = [
        ("X", "sleep", LONG[1] - LONG[2], LONG[2]),
        ("i", "gil", T0 + 120 * MS, 0),
        ("i", "lock", T0 + 130 * MS, 0),
        ("i", "run_queue", T0 + 140 * MS, 0),
        ("X", "run_queue", T0 + 148 * MS, 2 * MS),
    ]
    assert waits[:5] == expected
    samples = of(trace, "cpu_sample")
    assert [(e["ph"], ns(trace, e)) for e in samples] == [("i", T0 + 5 * MS), ("i", T0 + 205 * MS)]
    names = []
    frame = str(samples[0]["sf"])
    while frame:
        names.append(trace["stackFrames"][frame]["name"])
        frame = trace["stackFrames"][frame].get("parent")
    assert names == ['f"\x02', "thread %d" % TID, "pid %d (main, rank %d)" % (PID, RANK)] or names[0] == 'f"\x02'
    (pause,) = of(trace, "gc")
    assert (pause["name"], ns(trace, pause), ns(trace, pause, "dur")) == ("gc generation 2", T0 + 3 * MS, 2 * MS)


def test_memory_is_a_counter(tmp_path):
    trace = chrome(a_recording(tmp_path / "a.rec"))
    points = [(ns(trace, e), int(e["args"]["value"])) for e in of(trace, "memory")]
    assert points == [(T0 + (i + 1) * 100 * MS, 1000 * (i + 1) - 300 * i) for i in range(4)]
    assert all(e["ph"] == "C" for e in of(trace, "memory"))


SPANS_CLOCK = 64


def decoded(data):
    """{track's name: [(type, name, time, {argument: value}, counter)]}, by perfetto's own classes; but for spans (test_export.py)."""
    protos = pytest.importorskip(
        "perfetto.protos.perfetto.trace.perfetto_trace_pb2", reason="tools/setup.sh python --readers installs perfetto"
    )
    trace = protos.Trace()
    assert trace.ParseFromString(data) == len(data)
    trace.DiscardUnknownFields()
    assert trace.ByteSize() == len(data)
    names, parents, of_sequence, texts, found = {}, {}, {}, {}, defaultdict(list)
    for packet in trace.packet:
        sequence = packet.trusted_packet_sequence_id
        if packet.HasField("track_descriptor"):
            names[packet.track_descriptor.uuid] = packet.track_descriptor.name
            parents[packet.track_descriptor.uuid] = packet.track_descriptor.parent_uuid
        if packet.HasField("trace_packet_defaults"):
            if packet.trace_packet_defaults.timestamp_clock_id == SPANS_CLOCK:
                continue
            assert packet.trace_packet_defaults.timestamp_clock_id == 3
            of_sequence[sequence] = packet.trace_packet_defaults.track_event_defaults.track_uuid
        for item in packet.interned_data.debug_annotation_string_values:
            texts[sequence, item.iid] = item.str.decode()
        if packet.HasField("track_event") and sequence in of_sequence:
            event, args = packet.track_event, {}
            for note in event.debug_annotations:
                which = note.WhichOneof("value")
                value = texts[sequence, note.string_value_iid] if which == "string_value_iid" else getattr(note, which)
                args[note.name or "stack"] = value
            track = of_sequence[sequence]
            assert not parents[track] or parents[track] in names  # of the machine: none
            found[names[track]].append((event.type, event.name, packet.timestamp, args, event.counter_value))
    return found


def test_perfetto_has_the_same(tmp_path):
    path = a_recording(tmp_path / "a.rec")
    trace = chrome(path)
    found = decoded(run(path, "-f", "perfetto").stdout)
    begin, end, instant, counter = 1, 2, 3, 4
    titles = {
        "step": "steps of thread %d" % TID,
        "wait": "waits of thread %d" % TID,
        "cpu_sample": "samples of thread %d" % TID,
        "gc": "garbage collections",
    }
    for category, title in titles.items():
        slices = []
        for kind, name, time, args, _ in found.pop(title):
            if kind == end:
                slices[-1][2] = time - slices[-1][1]
            else:
                assert kind in (begin, instant)
                stack = args.pop("stack", None)
                assert (stack is not None) == (category in ("wait", "cpu_sample"))
                assert not stack or 'f"\x02 (train.py' in stack
                slices.append([name, time, 0, {k: v if isinstance(v, str) else "%.6g" % v for k, v in args.items()}])
        expected = []
        for event in of(trace, category):
            args = {k: v if isinstance(v, str) else "%.6g" % v for k, v in event["args"].items()}
            expected.append([event["name"], ns(trace, event), ns(trace, event, "dur") if event["ph"] == "X" else 0, args])
        assert slices == expected and expected
    ((_, points),) = found.items()
    assert [(p[0], p[2], p[4]) for p in points] == [(counter, ns(trace, e), e["args"]["value"]) for e in of(trace, "memory")]


def test_absurd_times(tmp_path):
    """The rest is as without them."""
    bad = [rec.sample(PID, TID, rec.WAIT, time, weight, 1, cause="sleep") for time, weight in ((2**64 - 1, MS), (0, 0), (2**63, 1))]
    bad.append(rec.sample(PID, TID, rec.WAIT, 5, 2**64 - 1, 1, cause="sleep"))
    values = {"pid": PID, "tid": TID, "kind": rec.GC, "name": 4}
    bad.append(rec.record("INTERVAL", start_ns=T0, duration_ns=2**64 - 1, **values))
    bad += [rec.window(2**64 - 1, 2**64 - 1), rec.op(PID, rec.SPAN_OP, 3, 1, 1, 1, self_bytes=(2**63 - 1, -(2**63)))]
    for form in ("chrome", "perfetto", "tensorboard"):
        out = tmp_path / form
        result = run(a_recording(tmp_path / "a.rec", bad), "-f", form, "-o", out)
        assert result.returncode == 0 and b"impossible times" in result.stderr
    trace = json.loads((tmp_path / "chrome").read_text())
    assert len(of(trace, "step")) == STEPS and len(of(trace, "gc")) == 1


# ---- TensorBoard ----

NAMES = ['aten::"\\', "aten::a\nb\x01\x1b", "aten::add.Tensor", "ProfilerStep#x", "ProfilerStep#7"]


def ranks_recording(path, ranks=2):
    """Ranks with steps, and in each step some operators and labels; and a worker without steps."""
    records = [HOST, rec.window(T0, T0 + 2 * 10**9)] + [rec.name(i + 1, name) for i, name in enumerate(NAMES)]
    counts = Counter()
    for rank in range(ranks):
        pid = PID + rank
        records += [rec.target(pid, rank=rank), *steps_of(pid, pid, T0 + rank * MS)]
        records += [rec.record("RESOURCES", time_ns=T0 - MS + i * 10**8, pid=pid, known=15, user_ns=i * MS, rss_bytes=10**9) for i in range(6)]
        rows = []
        for i, start in enumerate(starts(T0 + rank * MS)[:-1]):
            for k, name in enumerate(NAMES):
                kind = rec.SPAN_OP if name.startswith("aten") else rec.LABEL
                rows.append(rec.span(kind, k + 1, start + k * MS, MS // 2))
                counts[name] += rank == 0
            rows.append(rec.span(rec.STEP, 0, start, 9 * MS, sequence=1000 + i))  # the reports' steps replace these
        records.append(rec.spans(pid, pid, rows))
    records += [rec.target(9, role=rec.WORKER, parent=PID), rec.spans(9, 9, [rec.span(rec.SPAN_OP, 1, T0, 5)])]
    path.write_bytes(rec.recording(records))
    return path, counts


def test_tensorboard_plugin_reads_each_rank(tmp_path):
    path, counts = ranks_recording(tmp_path / "a.rec")
    logs = tmp_path / "new" / "logs"
    for _ in range(2):  # the second one replaces the files
        assert run(path, "-f", "tensorboard", "-o", logs).returncode == 0
    end = T0 + 2 * 10**9 + 1790000000 * 10**9
    assert sorted(os.listdir(logs)) == ["___no_de_1__%d.%d.pt.trace.json.gz" % (PID + rank, end) for rank in range(2)]
    report = json.loads(helpers.stepflame("report", path, "--steps", "--json").stdout)
    expected = {str(s["index"]): s["duration_s"] * 1e6 for s in report["steps"]}
    for rank in range(2):
        run_ = tb_plugin.read(logs, "___no_de_1__%d" % (PID + rank))
        assert run_.rank == rank and not run_.complaints
        assert run_.steps.keys() == expected.keys()
        assert all(abs(run_.steps[i] - expected[i]) < 0.01 for i in expected)
        # the plugin skips annotations, but for steps; labels that are named like these are not taken for some
        assert run_.operators == {name.split(".")[0]: count for name, count in counts.items() if name.startswith("aten")}


def test_tensorboard_without_steps_or_samples(tmp_path):
    path = tmp_path / "a.rec"
    path.write_bytes(rec.recording([HOST, rec.target(1), rec.name(1, "aten::a"), rec.spans(1, 1, [rec.span(rec.SPAN_OP, 1, T0, 5000)])]))
    assert run(path, "-f", "tensorboard", "-o", tmp_path / "logs").returncode == 0
    read = tb_plugin.read(tmp_path / "logs", "___no_de_1__1")
    assert read.operators == {"aten::a": 1} and list(read.steps) == ["0"]
    path.write_bytes(rec.recording([HOST, rec.target(1)]))
    result = run(path, "-f", "tensorboard", "-o", tmp_path / "none")
    assert result.returncode == 1 and b"fix: " in result.stderr and not (tmp_path / "none").exists()


def test_tensorboard_folder_is_safe(tmp_path):
    path, _ = ranks_recording(tmp_path / "a.rec", 1)
    logs, elsewhere = tmp_path / "logs", tmp_path / "elsewhere"
    assert run(path, "-f", "tensorboard", "-o", str(logs) + "/").returncode == 0
    (file,) = logs.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and re.fullmatch(r".*\.\d+\.pt\.trace\.json\.gz", file.name)
    elsewhere.write_text("untouched")
    file.unlink()
    file.symlink_to(elsewhere)
    result = run(path, "-f", "tensorboard", "-o", logs)
    assert result.returncode == 3 and b"symbolic link" in result.stderr
    assert elsewhere.read_text() == "untouched" and [f.name for f in logs.iterdir()] == [file.name]
    for args, said in (([], b"name it with -o"), (["-o", "-"], b"name it with -o")):
        result = run(path, "-f", "tensorboard", *args)
        assert result.returncode == 2 and said in result.stderr
    result = run(path, "-f", "tensorboard", "-o", elsewhere)
    assert result.returncode == 1 and b"cannot write" in result.stderr
    result = run(path, "-f", "tensorboard", "-o", tmp_path / "p", "-p", PID + 1)
    assert result.returncode == 1 and b"of process" in result.stderr
