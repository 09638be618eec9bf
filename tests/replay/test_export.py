# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
`stepflame export` against Kineto: a trace that torch.profiler wrote becomes a recording, and its export has to be
that trace again. Needs no root. The readers from PyPI (HolisticTraceAnalysis, perfetto) are used where they are
installed: tools/setup.sh python --readers.
"""

import gzip
import json
import os
import random
import subprocess
from decimal import Decimal

import helpers
import pytest
import recfile as rec

PID = 4242
RANK = 3
EVALUATE_PREFIX = "autograd::engine::evaluate_function: "
SCALAR_TYPES = {"float": 6, "double": 7, "long int": 4, "bool": 11, "c10::BFloat16": 15}


def export(file, *args, text=True):
    result = subprocess.run([helpers.STEPFLAME, "export", str(file), *map(str, args)], capture_output=True, timeout=60)
    assert result.returncode == 0, result.stderr
    assert not result.stderr, result.stderr
    return result.stdout.decode() if text else result.stdout


def ns(value):
    """Microseconds with decimals, as they stand in the file, in nanoseconds."""
    return int(Decimal(value) * 1000)


def chrome(file, *args):
    return json.loads(export(file, "-f", "chrome", *args), parse_float=Decimal)


def slices(trace):
    return [e for e in trace["traceEvents"] if e["ph"] == "X" and e["cat"] != "Trace"]


# ---- Kineto's trace as a recording ----


def train(torch, model, optimizer):
    optimizer.zero_grad()
    x = torch.randn(32, 64)
    with torch.profiler.record_function('my "label" \\ é 訓'):
        y = model(x)
    loss = torch.nn.functional.cross_entropy(y, torch.randint(0, 10, (32,)))
    torch.cat([y, y.detach()]).to(torch.bfloat16).sum()
    loss.backward()
    optimizer.step()


@pytest.fixture(scope="module")
def kineto(tmp_path_factory):
    """A Chrome trace by torch.profiler."""
    torch = pytest.importorskip("torch")
    if not hasattr(torch.profiler, "_trace_validator") and not hasattr(torch, "uint16"):
        pytest.skip("this torch's traces have another form")
    path = tmp_path_factory.mktemp("kineto") / "kineto.json"
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.BatchNorm1d(64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters())
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=4, repeat=1)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, record_shapes=True, schedule=schedule) as profiler:
        for _ in range(6):
            train(torch, model, optimizer)
            profiler.step()
    profiler.export_chrome_trace(str(path))
    return path


class Names(dict):
    """Numbers things as they come, from 1."""

    def __missing__(self, key):
        self[key] = len(self) + 1
        return self[key]


def words(types, dims):
    out = b""
    for kind, shape in zip(types, dims):
        if kind == "TensorList":
            out += rec.word(rec.WORD_TENSOR_LIST, count=len(shape))
            out += b"".join(rec.word(rec.WORD_TENSOR, one, SCALAR_TYPES["float"]) for one in shape)
        elif kind == "ScalarList":
            out += rec.word(rec.WORD_INTS, [1, 2])
        elif kind == "Scalar":
            out += rec.word(rec.WORD_INT, [7])
        elif kind:
            out += rec.word(rec.WORD_TENSOR, shape, SCALAR_TYPES[kind])
        else:
            out += rec.word(rec.WORD_NONE)
    return out


def classify(event):
    """Its kind, and its name as the kernel side tells it."""
    name, args = event["name"], event["args"]
    if name.startswith("ProfilerStep#"):
        return rec.STEP, ""
    if event["cat"] == "user_annotation":
        return rec.LABEL, name
    if name.startswith(EVALUATE_PREFIX):
        return rec.EVALUATE, name[len(EVALUATE_PREFIX) :]
    if args.get("Fwd thread id", 0) > 0:
        return rec.NODE, name
    return rec.SPAN_OP, name + ".Tensor_out"


def recording_of(trace, batch=1000):
    """The records that would have told of the slices of a trace, in batches of one thread."""
    names, groups = Names(), Names()
    rows = {}
    for event in slices(trace):
        args = event["args"]
        kind, name = classify(event)
        key = (tuple(args["Input type"]), json.dumps(args["Input Dims"])) if "Input Dims" in args else None
        start, duration = ns(event["ts"]), ns(event["dur"])
        sequence = int(event["name"].split("#")[1]) if kind == rec.STEP else args.get("Sequence number", -1)
        row = rec.span(kind, names[name], start, duration, 0, sequence, groups[key] if key else 0)
        rows.setdefault(event["tid"], []).append(row)
    # The recording's clock began when Kineto's trace did.
    host = rec.host(monotonic_ns=0, realtime_ns=trace["baseTimeNanoseconds"])
    records = [host, rec.target(PID, rank=RANK)]
    records += [rec.name(ident, name) for name, ident in names.items()]
    records += [rec.op_group(ident, words(key[0], json.loads(key[1]))) for key, ident in groups.items()]
    for tid, thread in rows.items():
        thread.sort(key=lambda row: (row[2] + row[3], -row[2]))
        records += [rec.spans(PID, tid, thread[i : i + batch]) for i in range(0, len(thread), batch)]
    return records


@pytest.fixture(scope="module")
def recorded(kineto, tmp_path_factory):
    """(Kineto's trace, its file, a recording of the same)"""
    trace = json.loads(kineto.read_text(), parse_float=Decimal)
    path = tmp_path_factory.mktemp("recording") / "run.rec"
    path.write_bytes(rec.recording(recording_of(trace)))
    return trace, kineto, path


# ---- Chrome ----


def comparable(event):
    """What has to be the same; steps have a track of their own, and the number of a forward thread is Kineto's own."""
    args = event["args"]
    step = event["name"].startswith("ProfilerStep#")
    return {
        "what": (event["cat"], event["name"], ns(event["ts"]), ns(event["dur"]), step or event["tid"]),
        "sequence": (args.get("Sequence number"), args.get("Fwd thread id", 0) > 0),
        "shapes": (args.get("Input type"), args.get("Input Dims")),
    }


def in_order(events):
    return sorted(map(comparable, events), key=lambda e: json.dumps(e))


def flows(trace):
    """{where the arrow ends: where it begins}"""
    by_id = {}
    for event in trace["traceEvents"]:
        if event["ph"] in "sf":
            assert event["cat"] == event["name"] == "fwdbwd" and (event["ph"] == "s" or event["bp"] == "e")
            assert event["ph"] not in by_id.setdefault(event["id"], {})
            by_id[event["id"]][event["ph"]] = (event["tid"], ns(event["ts"]))
    return {arrow["f"]: arrow["s"] for arrow in by_id.values()}


def test_kinetos_trace_comes_back(recorded):
    truth, _, path = recorded
    trace = chrome(path)
    assert trace["baseTimeNanoseconds"] == truth["baseTimeNanoseconds"]
    assert in_order(slices(trace)) == in_order(slices(truth))
    assert len(flows(truth)) > 20 and flows(trace) == flows(truth)


def test_form_is_kinetos(recorded):
    truth, _, path = recorded
    trace = chrome(path)
    not_ours = {"trace_id", "record_shapes", "with_stack", "with_modules", "with_flops", "profile_memory"}
    assert set(truth) - not_ours == set(trace) - {"distributedInfo", "stepflame"}
    unseen = {"Concrete Inputs", "Input Strides"}

    def forms(trace):
        seen = {}
        for event in trace["traceEvents"]:
            if event["ph"] in "XsfM" and event.get("cat") != "Trace":
                kind = (event["ph"], event.get("cat"), event["name"] if event["ph"] == "M" else "")
                seen.setdefault(kind, set()).add((frozenset(event), frozenset(set(event.get("args", {})) - unseen)))
        return seen

    assert forms(trace) == forms(truth)
    assert len({(e["pid"], e["tid"]) for e in slices(trace)}) == 2  # the thread, and its steps


def test_lines_that_readers_look_for(recorded):
    text = export(recorded[2], "-f", "chrome")
    assert text.index('\n"distributedInfo": {"rank": 3},\n') < text.index('"traceEvents"')
    assert text.isascii()
    assert "rank" not in export_without_rank(recorded[2])


def export_without_rank(path):
    other = path.with_name("norank.rec")
    other.write_bytes(rec.recording([rec.target(1), rec.name(1, "aten::add"), rec.spans(1, 1, [rec.span(rec.SPAN_OP, 1, 5, 6)])]))
    return export(other, "-f", "chrome")


def test_torchs_validator(recorded, tmp_path):
    validator = pytest.importorskip("torch.profiler._trace_validator", reason="torch 2.15 has it")
    path = tmp_path / "a.pt.trace.json.gz"
    export(recorded[2], "-f", "chrome", "-o", path)
    assert validator.validate_trace(str(path)) == (True, [])


def hta_table(hta, path, text):
    """What HTA makes of a trace: {name: (calls, microseconds)} for each iteration that it finds."""
    path.mkdir()
    with gzip.open(path / "a.json.gz", "wt") as file:
        file.write(text)
    trace = hta.TraceAnalysis(trace_dir=str(path)).t
    assert list(trace.traces) == [RANK]
    table = trace.get_trace(RANK)
    names = table["name"].map(dict(enumerate(trace.symbol_table.get_sym_table())))
    return table.groupby([names, "iteration"])["dur"].agg(["count", "sum"]).to_dict("index")


def test_hta(recorded, tmp_path):
    hta = pytest.importorskip("hta.trace_analysis", reason="tools/setup.sh python --readers installs HolisticTraceAnalysis")
    truth, file, path = recorded
    rank = '"distributedInfo": {"rank": %d},\n' % RANK
    theirs = hta_table(hta, tmp_path / "kineto", file.read_text().replace('"displayTimeUnit"', rank + '"displayTimeUnit"', 1))
    ours = hta_table(hta, tmp_path / "stepflame", export(path, "-f", "chrome"))
    assert len(ours) > 100 and ours == theirs


def nests(trace):
    """Whether on each track each slice lies within or apart from each other."""
    tracks = {}
    for event in slices(trace):
        start = ns(event["ts"])
        tracks.setdefault((event["pid"], event["tid"]), []).append((start, start + ns(event["dur"])))
    for track in tracks.values():
        open_until = []
        for start, end in sorted(track, key=lambda s: (s[0], -s[1])):
            while open_until and open_until[-1] <= start and open_until[-1] < end:
                open_until.pop()
            if open_until and open_until[-1] < end:
                return False
            open_until.append(end)
    return True


def test_overlaps_get_tracks_of_their_own(tmp_path):
    rng = random.Random(5)
    rows = [
        rec.span(rng.choice([rec.ACTION, rec.LABEL, rec.FORWARD, rec.SPAN_OP]), 1, rng.randrange(10**6), rng.choice([0, 1, 10**4]))
        for _ in range(300)
    ]
    path = tmp_path / "a.rec"
    path.write_bytes(rec.recording([rec.target(1), rec.name(1, "x"), rec.spans(1, 7, rows)]))
    trace = chrome(path)
    assert nests(trace) and len(slices(trace)) == 300


def test_texts_are_escaped(tmp_path):
    names = ['"', "\\", "a\nb\tc\x01\x7f\x85", "\u202e\u2028", "é訓🔥", "</script>", b"\xff\xfe bad", "ProfilerStep#7"]
    rows = [rec.span(rec.LABEL, i + 1, 100 * i, 50) for i in range(len(names) + 1)]
    records = [rec.target(1, command='python "a".py \x02'), rec.spans(1, 1, rows)]
    path = tmp_path / "a.rec"
    path.write_bytes(rec.recording(records + [rec.name(i + 1, name) for i, name in enumerate(names)]))
    text = export(path, "-f", "chrome")
    assert all(c == "\n" or c >= " " for c in text) and text.isascii()
    said = [e["name"] for e in slices(json.loads(text))]
    assert said[:6] == names[:6] and said[6] == "\ufffd\ufffd bad" and said[7] == names[7]
    assert said[8] == "(name lost, id %016x)" % 9


# ---- Perfetto ----


class Sequence:
    """What a reader remembers of a packet sequence."""

    def __init__(self):
        self.names, self.categories, self.keys, self.texts, self.open = {}, {}, {}, {}, []
        self.now = None

    def learn(self, data):
        for known, items in (
            (self.names, data.event_names),
            (self.categories, data.event_categories),
            (self.keys, data.debug_annotation_names),
        ):
            for item in items:
                assert item.iid and item.iid not in known
                known[item.iid] = item.name
        for item in data.debug_annotation_string_values:
            assert item.iid and item.iid not in self.texts
            self.texts[item.iid] = item.str.decode()

    def begin(self, event):
        notes = {}
        for note in event.debug_annotations:
            which = note.WhichOneof("value")
            value = self.texts[note.string_value_iid] if which == "string_value_iid" else getattr(note, which)
            notes[self.keys[note.name_iid]] = value
        name = event.name or self.names[event.name_iid]
        ends = (list(event.flow_ids), list(event.terminating_flow_ids))
        track = event.track_uuid or self.track
        self.open.append([self.categories[event.category_iids[0]], name, self.now, None, notes, ends, track])


def perfetto_slices(data):
    """
    [[category, name, start, end, annotations, (flows out, flows in), track]] and {track: descriptor}, by perfetto's own
    classes.
    """
    protos = pytest.importorskip(
        "perfetto.protos.perfetto.trace.perfetto_trace_pb2", reason="tools/setup.sh python --readers installs perfetto"
    )
    trace = protos.Trace()
    assert trace.ParseFromString(data) == len(data)
    trace.DiscardUnknownFields()
    assert trace.ByteSize() == len(data)
    sequences, done, tracks = {}, [], {}
    for packet in trace.packet:
        seq = sequences.setdefault(packet.trusted_packet_sequence_id, Sequence())
        if packet.sequence_flags & protos.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED:
            seq = sequences[packet.trusted_packet_sequence_id] = Sequence()
            seq.track = packet.trace_packet_defaults.track_event_defaults.track_uuid
            # 3: counters, and what else every recording has (test_tracks.py)
            assert packet.trace_packet_defaults.timestamp_clock_id in (3, 64)
        for clock in packet.clock_snapshot.clocks:
            if clock.clock_id == 64:
                assert clock.is_incremental
                seq.now = clock.timestamp
        seq.learn(packet.interned_data)
        which = packet.WhichOneof("data")
        if which == "track_descriptor":
            tracks[packet.track_descriptor.uuid] = packet.track_descriptor
        elif which == "track_event":
            if packet.track_event.type == protos.TrackEvent.TYPE_COUNTER:
                continue
            seq.now += packet.timestamp
            if packet.track_event.type == protos.TrackEvent.TYPE_SLICE_BEGIN:
                seq.begin(packet.track_event)
            else:
                assert packet.track_event.type == protos.TrackEvent.TYPE_SLICE_END
                slice_ = seq.open.pop()
                slice_[3] = seq.now
                done.append(slice_)
    assert not any(seq.open for seq in sequences.values())
    return done, tracks


def test_perfetto_decodes_to_the_same(recorded):
    truth, _, path = recorded
    data = export(path, "-f", "perfetto", text=False)
    found, tracks = perfetto_slices(data)
    said = [(category, name, start, end - start) for category, name, start, end, *_ in found]
    expected = [(e["cat"], e["name"], ns(e["ts"]), ns(e["dur"])) for e in slices(truth)]
    assert sorted(said) == sorted(expected)
    starts = {flow: s[2] for s in found for flow in s[5][0]}
    ends = {flow: s[2] for s in found for flow in s[5][1]}
    assert {ends[f]: starts[f] for f in starts} == {e[1]: s[1] for e, s in flows(truth).items()}
    sequences = sorted(s[4]["Sequence number"] for s in found if "Sequence number" in s[4])
    assert sequences == sorted(e["args"]["Sequence number"] for e in slices(truth) if "Sequence number" in e["args"])
    assert {str(e["args"]["Input Dims"]) for e in slices(truth) if e["name"] == "aten::addmm"} == {
        s[4]["Input Dims"] for s in found if s[1] == "aten::addmm"
    }
    used = {tracks[s[6]].parent_uuid for s in found}
    assert len(used) == 1 and tracks[used.pop()].process.pid == PID
    print("%d slices, %.1f bytes each" % (len(found), len(data) / len(found)))


def test_perfetto_keeps_texts_and_overlaps(tmp_path):
    names = ["a\nb", "é訓🔥", "x" * 5000]
    rows = [rec.span(rec.ACTION, 1 + i % 3, 10 * i, 25 * (i % 7)) for i in range(100)] + [rec.span(rec.STEP, 0, 5, 600, sequence=12)]
    path = tmp_path / "a.rec"
    path.write_bytes(rec.recording([rec.spans(9, 9, rows)] + [rec.name(i + 1, name) for i, name in enumerate(names)]))
    found, _ = perfetto_slices(export(path, "-f", "perfetto", text=False))
    expected = [("user_annotation", names[row[1] - 1] if row[1] else "ProfilerStep#12", row[2], row[2] + row[3]) for row in rows]
    assert sorted(tuple(s[:4]) for s in found) == sorted(expected)


# ---- the command ----


def small(path, pids=(1, 2)):
    records = [rec.name(1, "aten::add.Tensor")]
    for pid in pids:
        records += [rec.target(pid, rank=pid), rec.spans(pid, pid, [rec.span(rec.SPAN_OP, 1, 10 * i, 5) for i in range(20)])]
    path.write_bytes(rec.recording(records))
    return path


def test_processes_together_or_apart(tmp_path):
    path = small(tmp_path / "a.rec")
    assert {e["pid"] for e in slices(chrome(path))} == {1, 2}
    two = chrome(path, "-p", 2)
    assert {e["pid"] for e in two["traceEvents"]} == {2} and two["distributedInfo"] == {"rank": 2}


def test_output_files(tmp_path):
    path = small(tmp_path / "stepflame.rec")
    plain = export(path, "-f", "chrome", "-p", 1).replace('"traceName": "stdout"', '"traceName": "OUT"')
    for out in ("plain/a.json", "packed/a.json.gz"):
        (tmp_path / out).parent.mkdir()
        assert export(path, "-f", "chrome", "-p", 1, "-o", tmp_path / out) == ""
        data = (tmp_path / out).read_bytes()
        text = (gzip.decompress(data) if out.endswith("gz") else data).decode()
        assert text.replace(json.dumps(str(tmp_path / out)), '"OUT"') == plain
    result = subprocess.run([helpers.STEPFLAME, "export", "-f", "chrome", "-p", "1"], capture_output=True, cwd=tmp_path)
    assert result.returncode == 0 and result.stdout.decode().replace('"stdout"', '"OUT"') == plain


def failing(*args, stdout=subprocess.PIPE):
    result = subprocess.run([helpers.STEPFLAME, "export", *map(str, args)], stdout=stdout, stderr=subprocess.PIPE, timeout=60)
    return result.returncode, result.stderr.decode()


def test_errors_say_what_and_how_to_mend(tmp_path):
    path = small(tmp_path / "a.rec")
    empty = tmp_path / "empty.rec"
    empty.write_bytes(rec.recording([rec.target(1)]))
    for args, code, said in (
        ((path,), 2, "which format"),
        ((path, "-f", "svg"), 2, "no format is named 'svg'"),
        ((path, "-f", "chrome", "-p", "x"), 2, "not 'x'"),
        ((path, "-f", "chrome", "-p", "3"), 1, "no timeline of process 3"),
        ((empty, "-f", "chrome"), 1, "with --timeline also"),
        ((tmp_path / "none.rec", "-f", "chrome"), 1, "no recording"),
        ((path, "-f", "chrome", "-o", "/nonexistent/a.json"), 1, "cannot write /nonexistent/a.json"),
        ((path, "-f", "chrome", "-o", "/dev/full"), 1, "No space left"),
    ):
        got, stderr = failing(*args)
        assert (got, said in stderr) == (code, True), (args, got, stderr)
    with open("/dev/full", "w") as full:
        code, stderr = failing(path, "-f", "perfetto", stdout=full)
    assert code == 1 and "No space left" in stderr


def test_what_was_not_kept_is_said(tmp_path):
    path = tmp_path / "a.rec"
    rows = [rec.span(rec.SPAN_OP, 1, 0, 5)]
    windows = [rec.op_window(1, 0, 0, 5, 0, 10, cut=3), rec.op_window(2, 0, 0, 5, 0, 10, cut=4)]
    path.write_bytes(rec.recording([rec.spans(1, 1, rows), *windows]))
    code, stderr = failing(path, "-f", "chrome")
    assert code == 0 and "lacks 7 spans" in stderr and stderr.count("fix: ") == 1


def test_closed_pipe_is_quiet(tmp_path):
    read, write = os.pipe()
    os.close(read)
    assert failing(small(tmp_path / "a.rec"), "-f", "chrome", stdout=write) == (0, "")
    os.close(write)


@pytest.mark.long
def test_damage_never_crashes(recorded, tmp_path):
    rng = random.Random(7)
    trace = dict(recorded[0], traceEvents=recorded[0]["traceEvents"][:300])
    body = b"".join(recording_of(trace))
    path = tmp_path / "bad.rec"
    for _ in range(150):
        bad = bytearray(body)
        for _ in range(rng.randrange(1, 30)):
            bad[rng.randrange(len(bad))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        path.write_bytes(rec.header() + rec.chunk(bytes(bad)))
        for form in ("chrome", "perfetto"):
            result = subprocess.run([helpers.STEPFLAME, "export", str(path), "-f", form], capture_output=True)
            assert result.returncode in (0, 1), result.stderr
            if form == "chrome" and result.returncode == 0:
                assert nests(json.loads(result.stdout, parse_float=Decimal))


def test_absurd_times(tmp_path):
    top = 2**63 - 1
    rows = [(0, 0), (0, top), (top, 0), (5, 2**64 - 3), (2**64 - 1, 2), (2**64 - 1, 2**64 - 1), (1, 1)]
    rows = [rec.span(rec.SPAN_OP, 1, start, duration, 0, sequence) for (start, duration), sequence in zip(rows, [-(2**63), top] * 4)]
    path = tmp_path / "a.rec"
    path.write_bytes(rec.recording([rec.host(monotonic_ns=2**64 - 1, realtime_ns=2**64 - 1), rec.spans(2**32 - 1, 2**32 - 1, rows)]))
    result = subprocess.run([helpers.STEPFLAME, "export", str(path), "-f", "chrome"], capture_output=True)
    assert result.returncode == 0 and b"3 spans of " in result.stderr
    trace = json.loads(result.stdout, parse_float=Decimal)
    assert len(slices(trace)) == 4 and nests(trace)
