# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
What has to add up in any recording, and the same figures in every form: text, JSON, CSV, and what readers that are not ours make of exports.
"""

import collections
import csv
import functools
import gzip
import io
import json
import pstats
import re
from decimal import Decimal

import pytest
import recfile

from . import recordings, test_csv
from .recordings import output, report
from .test_export import ns
from .test_export_samples import profile_class  # noqa: F401
from .test_tracks import decoded

EACH = pytest.mark.parametrize("name", recordings.NAMES)
NO_SAMPLES = "exact"
SAMPLED = pytest.mark.parametrize("name", [name for name in recordings.NAMES if name != NO_SAMPLES])
STEPPED = [name for name in recordings.NAMES if name not in ("io", "exact")]
NS = 1e-9
OWN = ("step", "wait", "cpu_sample", "gc", "dataloader")  # categories of tracks that every recording may have


@functools.lru_cache
def read(name):
    """{type: [record]}"""
    found = collections.defaultdict(list)
    for kind, row in recfile.read_records(recordings.path(name)):
        found[kind].append(row)
    return found


def records(name, kind):
    return read(name)[kind]


# ---- actions ----


def last_sums(name):
    """{name of an action: [calls, total ns, min, max]} by the recording's own records: of each key the last one, over all threads and parents."""
    texts = {row.id: recfile.text_of(row) for row in records(name, "NAME")}
    last = {}
    for row in records(name, "AGG"):
        last[row.pid, row.kind, row.name, row.parent] = row
    sums = {}
    for row in last.values():
        if row.calls:
            of = sums.setdefault((row.kind, texts.get(row.name)), [0, 0, row.min_ns, 0])
            of[:] = [of[0] + row.calls, of[1] + row.total_ns, min(of[2], row.min_ns), max(of[3], row.max_ns)]
    return sums


@pytest.mark.parametrize("name", ["fit", "gan", "plain", "jax", "before", "conv"])
def test_actions_are_the_records(name):
    """Each action that the report lists has the sums of the recording's records."""
    sums = collections.defaultdict(list)
    for (_, text), of in last_sums(name).items():
        sums[text].append(of)
    rows = report(name, "--simple", "--all")["actions"]
    known = [row for row in rows if len(sums[row["name"]]) == 1]
    assert len(known) > 0.7 * len(rows) > 0
    for row in known:
        (of,) = sums[row["name"]]
        assert (row["count"], row["min_s"], row["max_s"]) == (of[0], pytest.approx(of[2] * NS), pytest.approx(of[3] * NS)), row
        assert row["total_s"] == pytest.approx(of[1] * NS, abs=1e-12), row


@EACH
def test_actions_add_up(name):
    found = report(name, "--simple", "--all")
    whole = found["window"]["seconds"]
    for row in found["actions"]:
        assert row["min_s"] - NS <= row["mean_s"] <= row["max_s"] + NS and row["count"] > 0, row
        assert row["mean_s"] * row["count"] == pytest.approx(row["total_s"]) and -NS <= row["self_s"] <= row["total_s"] + NS, row
        assert row["percent"] == pytest.approx(100 * row["total_s"] / whole), row
    leaves = report(name, "--simple", "--all", "--leaf")["actions"]
    assert leaves == [row for row in found["actions"] if row["leaf"]]
    of_threads = len({row["pid"] for row in found["actions"]}) or 1
    assert sum(row["total_s"] for row in leaves) <= (of_threads + 1) * whole


KEYS = {"name": "name", "calls": "count", "mean": "mean_s", "total": "total_s", "min": "min_s", "max": "max_s", "first": "first_s", "self": "self_s", "percent": "percent"}


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("name", ["fit", "plain"])
def test_sorted(name, key):
    rows = report(name, "--simple", "--all", "--sort", key)["actions"]
    values = [row[KEYS[key]] for row in rows]
    assert values == sorted(values, reverse=key not in ("name", "first"))
    assert report(name, "--simple", "--all", "--sort", key, "--limit", "3")["actions"] == rows[:3]
    name_of_first = rows[0]["name"]
    assert report(name, "--simple", "--all", "--action", name_of_first)["actions"] == [row for row in rows if row["name"] == name_of_first]


SORTED = {
    "--ops": ("ops", {"cpu_time_total": "cpu_total_us", "self_cpu_time_total": "self_cpu_us", "cpu_time": "cpu_avg_us", "count": "count"}),
    "--gpu": ("kernels", {"total": "total_us", "count": "count", "avg": "avg_us", "max": "max_us", "name": "name"}),
}
SORTED["--ops"][1].update({"self_cpu_memory_usage": "self_cpu_memory", "cpu_memory_usage": "cpu_memory", "name": "name", "flops": "flops"})
IO_KEYS = {"time": "total_s", "calls": "count", "errors": "errors", "bytes": "bytes", "name": "name"}


@pytest.mark.parametrize("kind, key", [(kind, key) for kind, (_, keys) in SORTED.items() for key in keys])
def test_tables_are_sorted(kind, key):
    table, keys = SORTED[kind]
    options = ("--shapes", "--flops") if key == "flops" else ()
    rows = report("ops" if kind == "--ops" else "gpu_cupti", kind, "--sort", key, *options)[table]
    values = [row[keys[key]] if row[keys[key]] is not None else -1 for row in rows]
    assert values == sorted(values, reverse=key != "name") and len(set(values)) > 1


@pytest.mark.parametrize("key", IO_KEYS)
def test_calls_are_sorted(key):
    for process in report("io", "--io", "--sort", key)["processes"]:
        values = [row[IO_KEYS[key]] for row in process["syscalls"]]
        assert values == sorted(values, reverse=key != "name")


PSTATS_COLUMNS = {"ncalls": 0, "tottime": 1, "cumulative": 3}


@pytest.mark.parametrize("key", PSTATS_COLUMNS)
def test_functions_are_sorted(key):
    """The tables, as a reader of pstats' own reads them, and the functions that are in the JSON."""
    tables = [[]]
    for line in output("report", "exact.rec", "--advanced", "--all", "--limit", "0", "--sort", key).decode().splitlines():
        row = re.match(r" *(\d+)(?:/\d+)? +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+) (.*)$", line)
        if row:
            tables[-1].append([float(value) for value in row.groups()[:5]])
        elif tables[-1]:
            tables.append([])
    tables = [table for table in tables if table]
    actions = [action for action in report("exact", "--advanced", "--all")["actions"] if action["functions"]]
    assert [len(table) for table in tables] == [len(action["functions"]) for action in actions]
    for table, action in zip(tables, actions):
        values = [row[PSTATS_COLUMNS[key]] for row in table]
        assert values == sorted(values, reverse=True)
        assert sum(row[0] for row in table) == sum(row["ncalls"] for row in action["functions"])
        assert sum(row[1] for row in table) == pytest.approx(sum(row["tottime_s"] for row in action["functions"]), abs=0.0006 * len(table))


@EACH
def test_csv_is_the_json(name):
    for kind, key in (("--simple", "actions"), ("--steps", "steps")):
        options = (kind, *(("--all",) if kind == "--simple" else ()))
        rows = report(name, *options)[key]
        if rows:
            test_csv.check(output("report", name + ".rec", "--csv", *options).decode(), rows, sparse=kind == "--steps")
    functions = test_csv.functions(report(name, "--advanced"))
    if functions:
        test_csv.check(output("report", name + ".rec", "--csv", "--advanced").decode(), functions)


@pytest.mark.parametrize("kind, key, name", [("--ops", "ops", n) for n in recordings.having("--ops", "--shapes")] + [("--gpu", "kernels", "gpu_cupti")])
def test_csv_of_tables(kind, key, name):
    test_csv.check(output("report", name + ".rec", "--csv", kind).decode(), report(name, kind)[key])


@pytest.mark.parametrize("name", recordings.having("--syscalls"))
def test_csv_of_calls(name):
    found = report(name, "--io")
    test_csv.check(output("report", name + ".rec", "--csv", "--io").decode(), test_csv.of_processes(found, "syscalls"))
    for process in found["processes"]:
        rows = [row for row in records(name, "SYSCALL") if row.pid == process["pid"]]
        last = {(row.pid, row.number): row for row in rows}
        assert {row["number"]: row["count"] for row in process["syscalls"]} == {number: row.calls for (_, number), row in last.items() if row.calls}


@pytest.mark.parametrize("name", recordings.NAMES)
def test_text_is_the_json(name):
    """Of the table that fits a terminal: counts and names."""
    rows = report(name, "--all", "--sort", "total")["actions"]
    lines = output("report", name + ".rec", "--all", "--sort", "total", "--limit", "0").decode().splitlines()
    found = [re.match(r" *([\d.]+) +([\d.]+) +([\d.]+) +(\d+) (.*)$", line) for line in lines[2:]]
    found = [match for match in found if match]
    assert [int(match[4]) for match in found] == [row["count"] for row in rows]
    for match, row in zip(found, rows):
        assert float(match[2]) == pytest.approx(row["total_s"], abs=0.6e-4) and float(match[3]) == pytest.approx(row["mean_s"] * 1e3, abs=0.6e-3)
        assert float(match[1]) == pytest.approx(row["percent"], abs=0.006)


# ---- steps ----


@pytest.mark.parametrize("name", STEPPED)
def test_steps_add_up(name):
    found = report(name, "--steps")
    steps = found["steps"]
    assert steps and len({step["index"] for step in steps}) == len(steps)
    phases, waits = collections.Counter(), collections.Counter()
    for step in steps:
        assert sum(step["phases"].values()) == pytest.approx(step["duration_s"], abs=1e-7)
        assert step["oncpu_s"] + sum(step["waits"].values()) == pytest.approx(step["duration_s"], abs=1e-7)
        phases.update(step["phases"])
        waits.update(step["waits"])
    total = sum(step["duration_s"] for step in steps)
    assert found["all"]["steps"] == len(steps) and found["all"]["total_s"] == pytest.approx(total, abs=1e-6)
    assert {phase["name"]: phase["total_s"] for phase in found["all"]["phases"]} == pytest.approx({k: v for k, v in phases.items() if v}, abs=1e-6)
    of_phases = collections.Counter()
    for phase in found["all"]["phases"]:
        assert phase["oncpu_s"] + sum(phase["waits"].values()) == pytest.approx(phase["total_s"], abs=1e-6)
        of_phases.update(phase["waits"])
    assert of_phases == pytest.approx({k: v for k, v in waits.items() if v}, abs=1e-6)
    for which, chosen in (("all", steps), ("of_slow", [step for step in steps if step["index"] in found["slow"]])):
        assert found[which]["gc_s"] == pytest.approx(sum(step["gc_s"] for step in chosen), abs=1e-9)
    slow = [step for step in steps if step["index"] in found["slow"]]
    assert found["of_slow"]["steps"] == len(slow)
    assert {step["index"] for step in steps if step["cause"]} == set(found["slow"])
    assert sum(group["count"] for group in found["causes"]) == len(slow)
    for group in found["causes"]:
        mine = [step for step in slow if step["cause"] == group["cause"]]
        assert len(mine) >= group["count"]
    assert total <= found["window"]["seconds"] * max(1, len(found["target"]))


@pytest.mark.parametrize("name", STEPPED)
def test_steps_are_sorted(name):
    for key, field in (("duration", "duration_s"), ("index", "index")):
        text = output("report", name + ".rec", "--steps", "--sort", key, "--limit", "0").decode()
        assert text
    steps = report(name, "--steps")["steps"]
    durations = sorted(step["duration_s"] for step in steps)
    assert durations[(len(steps) - 1) // 2] == pytest.approx(report(name, "--steps")["median_s"], abs=1e-9)
    assert report(name, "--steps")["p99_s"] == pytest.approx(durations[-(-99 * len(steps) // 100) - 1], abs=1e-9)  # the nearest rank
    summary = report(name, "--summary")
    assert (summary["steps"]["count"], summary["steps"]["median_s"]) == (len(steps), report(name, "--steps")["median_s"])
    assert summary["steps"]["per_second"] == pytest.approx(len(steps) / sum(durations))


def test_time_of_a_gpu_adds_up():
    """What it did, and what it waited for, is all the time for which it was watched."""
    found = report("gpu_cupti", "--gpu")
    (gpu,) = found["gpus"]
    assert gpu["busy_us"] + sum(gpu["idle_us"].values()) == pytest.approx(gpu["watched_us"], abs=0.01)
    assert found["idle_percent"] == pytest.approx(100 * sum(gpu["idle_us"].values()) / gpu["watched_us"])
    assert gpu["kernel_us"] == pytest.approx(gpu["compute_us"] + gpu["comm_us"] - gpu["overlap_us"], abs=0.01)
    assert sum(row["total_us"] for row in found["kernels"]) == pytest.approx(gpu["kernel_us"], abs=0.01)  # one stream
    assert sum(row["total_us"] for row in found["kernels"] + found["copies"]) == pytest.approx(gpu["busy_us"], abs=0.01)
    (stream,) = found["streams"]
    waits = stream["host_wait_us"] + stream["kernel_wait_us"] + stream["other_us"]
    assert (stream["busy_us"], waits) == (pytest.approx(gpu["busy_us"]), pytest.approx(gpu["watched_us"] - gpu["busy_us"], abs=0.01))
    # what the host waits for lies in no wait of the kernels
    assert stream["host_wait_us"] == pytest.approx(gpu["idle_us"]["host"] + gpu["idle_us"]["data"], abs=0.01)
    # by step, as in --steps
    steps = {step["index"]: step for step in report("gpu_cupti", "--steps")["steps"]}
    for row in found["steps"]:
        assert row["duration_us"] == pytest.approx(steps[row["index"]]["duration_s"] * 1e6, abs=0.01)
        assert row["busy_us"] + sum(row["idle_us"].values()) == pytest.approx(row["watched_us"], abs=0.01)


def test_loaders_add_up():
    for name in ("loaders", "workers", "late_worker"):
        for loader in report(name, "--io")["workers"]:
            assert loader["waited"] == sum(worker["waits"] for worker in loader["workers"])
            assert loader["wait_s"] == pytest.approx(sum(worker["wait_s"] for worker in loader["workers"]), abs=1e-9)


# ---- samples, in every form ----


def folded(name, *options):
    found = {}
    for line in output("export", name + ".rec", "-f", "folded", *options).decode().splitlines():
        stack, _, count = line.rpartition(" ")
        assert stack not in found
        found[stack] = int(count)
    return found


def weight(name, cpu=False):
    return sum(row.weight_ns for row in records(name, "SAMPLE") if row.kind == recfile.CPU or not cpu)


@SAMPLED
def test_weights_of_samples(name, profile_class, tmp_path):  # noqa: F811
    """All samples of the recording are in each export, with their whole weight."""
    for options, cpu in (((), False), (("--cpu",), True)):
        ns = weight(name, cpu)
        stacks = folded(name, *options)
        assert sum(stacks.values()) == pytest.approx(ns / 1e3, abs=len(stacks))
        profile = profile_class.FromString(gzip.decompress(output("export", name + ".rec", "-f", "pprof", *options)))
        assert sum(sample.value[2] for sample in profile.sample) == ns
        assert sum(sample.value[1] for sample in profile.sample) == weight(name, True)
        speedscope = json.loads(output("export", name + ".rec", "-f", "speedscope", *options))
        scale = {"nanoseconds": 1, "microseconds": 1e3, "milliseconds": 1e6, "seconds": 1e9}
        assert sum(sum(p["weights"]) * scale[p["unit"]] for p in speedscope["profiles"]) == pytest.approx(ns, rel=1e-6)
        frames = [(frame["name"], frame.get("line", 0)) for frame in speedscope["shared"]["frames"]]
        leaves = collections.Counter()
        for of_thread in speedscope["profiles"]:
            for stack, weight_of in zip(of_thread["samples"], of_thread["weights"]):
                leaves[frames[stack[-1]]] += weight_of
        functions, texts = {f.id: f for f in profile.function}, profile.string_table
        lines = {at.id: (texts[functions[at.line[0].function_id].name], at.line[0].line) for at in profile.location}
        of_pprof = collections.Counter()
        for sample in profile.sample:
            of_pprof[lines[sample.location_id[0]]] += sample.value[2]
        assert leaves == of_pprof
        for of_thread in speedscope["profiles"]:
            assert len(of_thread["samples"]) == len(of_thread["weights"])
            assert all(0 <= frame < len(speedscope["shared"]["frames"]) for stack in of_thread["samples"] for frame in stack)
        out = tmp_path / "out.pstats"
        output("export", name + ".rec", "-f", "pstats", "--all-threads", "-o", out, *options)
        mains = {row.pid for row in records(name, "TARGET") if row.role == recfile.MAIN}
        of_main = sum(row.weight_ns for row in records(name, "SAMPLE") if row.pid in mains and (row.kind == recfile.CPU or not cpu))
        assert pstats.Stats(str(out)).total_tt == pytest.approx(of_main / 1e9, rel=1e-6)


def flamed(name, *options):
    """us of all of its stacks."""
    return [int(line.rpartition(" ")[2]) for line in output("flame", name + ".rec", "--folded", *options).decode().splitlines()]


@SAMPLED
def test_flame_is_the_samples(name):
    """Folded stacks have the weight of all threads' samples, or of those of the thread that makes the steps."""
    all_threads = flamed(name, "--all-threads")
    assert sum(all_threads) == pytest.approx(weight(name) / 1e3, abs=len(all_threads))
    if name in STEPPED and len(records(name, "TARGET")) == 1:
        pid = records(name, "TARGET")[0].pid
        of_main = flamed(name)
        assert sum(of_main) == pytest.approx(sum(row.weight_ns for row in records(name, "SAMPLE") if row.tid == pid) / 1e3, abs=len(of_main))


@SAMPLED
def test_advanced_adds_up(name):
    for action in report(name, "--advanced", "--all", "--limit", "0")["actions"]:
        assert action["cpu_s"] + action["wait_s"] == pytest.approx(action["wall_s"], abs=1e-6)
        assert sum(action["waits"].values()) == pytest.approx(action["wait_s"], abs=1e-6)
        own = sum(row["tottime_s"] for row in action["functions"])
        assert own == pytest.approx(action["wall_s"], abs=1e-6 + 0.02 * action["wall_s"])
        for row in action["functions"]:
            assert row["tottime_s"] <= row["cumtime_s"] + NS <= action["wall_s"] + 2 * NS, row


# ---- what happened when ----


def chrome(name, **how):
    trace = json.loads(output("export", name + ".rec", "-f", "chrome"), **how)
    return [event for event in trace["traceEvents"] if event["ph"] != "M"], trace


@EACH
def test_trace_has_what_the_recording_has(name):
    events, trace = chrome(name)
    by = collections.Counter((event["ph"], event.get("cat")) for event in events)
    steps = report(name, "--steps")["steps"]
    assert by["X", "step"] == len(steps)
    names = {(event["pid"], event["name"]): event for event in events if event.get("cat") == "step"}
    for step in steps:
        event = next(event for (_, text), event in names.items() if text == "step %d" % step["index"] and event["dur"] == pytest.approx(step["duration_s"] * 1e6, abs=0.01))
        assert sum(value for key, value in event["args"].items() if key.removesuffix(" ms") in step["phases"]) == pytest.approx(event["dur"] / 1e3, abs=1e-3)
        assert event["args"].get("slow because of") == step["cause"]
    samples = records(name, "SAMPLE")
    assert by["i", "cpu_sample"] == len([row for row in samples if row.kind == recfile.CPU])
    assert by["X", "wait"] + by["i", "wait"] == len([row for row in samples if row.kind == recfile.WAIT])
    waited = sum(event["dur"] for event in events if event.get("cat") == "wait" and event["ph"] == "X") * 1e3
    stands = sum(event["args"]["stands for ms"] for event in events if event["ph"] == "i") * 1e6
    assert waited + stands == pytest.approx(weight(name), rel=1e-3, abs=1e5)
    frames = trace.get("stackFrames", {})
    assert all(str(event["sf"]) in frames for event in events if "sf" in event)
    assert all(frame["parent"] in frames for frame in frames.values() if "parent" in frame)


def test_spans_are_the_operators():
    """Each operator that --ops counts is a slice, in both formats."""
    events, _ = chrome("ops")
    counted = collections.Counter()
    for row in report("ops", "--ops")["ops"]:
        counted[row["name"]] += row["count"]
    drawn = collections.Counter(event["name"] for event in events if event.get("cat") in ("cpu_op", "user_annotation") and event["ph"] == "X")
    assert {key: drawn[key] for key in counted if key != "[memory]"} == {key: count for key, count in counted.items() if key != "[memory]"}
    # they have begins and ends, others are written otherwise
    with gzip.open(io.BytesIO(gzip.compress(output("export", "ops.rec", "-f", "perfetto")))) as file:
        protos = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2", reason="tools/setup.sh python --readers installs perfetto")
        trace = protos.Trace.FromString(file.read())
    begins = sum(packet.track_event.type == protos.TrackEvent.TYPE_SLICE_BEGIN for packet in trace.packet if packet.HasField("track_event"))
    assert begins == sum(event["ph"] == "X" for event in events)


BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4  # of perfetto


@EACH
def test_perfetto_is_chrome(name):
    """The same slices, instants and counters, as long, at the same times and with the same arguments, read by perfetto's own classes."""
    events, trace = chrome(name, parse_float=Decimal)
    (host,) = records(name, "HOST")
    base = trace["baseTimeNanoseconds"] - host.realtime_ns + host.monotonic_ns
    found = collections.defaultdict(list)
    for track in decoded(output("export", name + ".rec", "-f", "perfetto")).values():
        open_at = None
        for kind, text, time, args, value in track:
            if kind == END:
                found["X"].append((*open_at[:2], time - open_at[1], *open_at[2:]))
            elif kind == COUNTER:
                found["C"].append(value)
            else:
                args = {key: value if isinstance(value, str) else "%.6g" % value for key, value in args.items() if key != "stack"}
                open_at = (text, time, args)
                if kind == INSTANT:
                    found["i"].append((text, time, 0, args))
    own = [event for event in events if event.get("cat") in OWN]
    for kind in "Xi":
        wanted = []
        for event in own:
            if event["ph"] == kind:
                args = {key: value if isinstance(value, str) else "%.6g" % value for key, value in event["args"].items()}
                wanted.append((event["name"], base + ns(event["ts"]), ns(event["dur"]) if kind == "X" else 0, args))
        assert sorted(found[kind], key=str) == sorted(wanted, key=str), kind
    assert len(found["C"]) == sum(event["ph"] == "C" for event in events)


@EACH
def test_tensorboard_is_chrome(name, tmp_path):
    """A file for each main process that is the trace of it."""
    output("export", name + ".rec", "-f", "tensorboard", "-o", tmp_path / "out")
    files = list((tmp_path / "out").glob("*.pt.trace.json*"))
    mains = {row.pid for row in records(name, "TARGET") if row.role == recfile.MAIN}
    assert len(files) == len(mains)
    whole, _ = chrome(name)
    waits = 0
    for file in files:
        data = file.read_bytes()
        trace = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
        waits += sum(event.get("cat") == "gc" for event in trace["traceEvents"])
    assert waits <= sum(event.get("cat") == "gc" for event in whole) or not whole


# ---- the recording itself ----


@EACH
def test_recdump_prints_each_record(name):
    """As often as Python's own reader finds each type, with its fields' values."""
    lines = output("recdump", name + ".rec").decode().splitlines()
    counted = collections.Counter(line.split(" ", 1)[0] for line in lines if not line.startswith(" "))
    assert counted == collections.Counter(recfile.TYPES[number] for number, _ in recfile.read_raw(recordings.path(name)))
    (host,) = [line for line in lines if line.startswith("HOST ")]
    (row,) = records(name, "HOST")
    assert "monotonic_ns=%d " % row.monotonic_ns in host and 'hostname="%s"' % row.hostname in host


@EACH
def test_heads(name):
    """Window, target and what was lost are the same in every report, and the recording's."""
    (host,) = records(name, "HOST")
    found = [report(name, kind) for kind in ("--simple", "--steps", "--advanced", "--summary")]
    assert all(one["window"] == found[0]["window"] and one["target"] == found[0]["target"] and one["lost"] == found[0]["lost"] for one in found)
    assert found[0]["stepflame"] == host.version
    last = records(name, "WINDOW")[-1]
    assert found[0]["window"]["seconds"] == pytest.approx((last.end_ns - last.start_ns) * NS, abs=1e-12)
    assert found[0]["window"]["steps"] == last.steps
    targets = {row.pid: row for row in records(name, "TARGET")}
    assert {row["pid"]: (row["python"], row["torch"] or "") for row in found[0]["target"]} == {pid: (row.python, row.torch) for pid, row in targets.items()}


def test_merge_keeps_all(tmp_path):
    """Both ranks side by side: each has in the merged recording what it has alone."""
    merged = tmp_path / "merged.rec"
    output("merge", "rank0.rec", "rank1.rec", "-o", merged)

    def found(*options):
        return json.loads(output("report", merged, "--json", *options))

    for kind in ("SAMPLE", "STACK", "CODE", "INTERVAL", "RESOURCES"):
        alone = len(records("rank0", kind)) + len(records("rank1", kind))
        together = [row for type_name, row in recfile.read_records(merged) if type_name == kind]
        assert kind in ("STACK", "CODE") or len(together) == alone, kind
    by_rank = {row["rank"]: row for row in found("--steps", "--per-rank")["processes"]}
    assert set(by_rank) == {0, 1}
    for rank, row in by_rank.items():
        alone = report("rank%d" % rank, "--steps")
        assert [step["index"] for step in row["steps"]] == [step["index"] for step in alone["steps"]]
        assert [step["duration_s"] for step in row["steps"]] == pytest.approx([step["duration_s"] for step in alone["steps"]], rel=0.003)
        assert [step["cause"] for step in row["steps"]] == [step["cause"] for step in alone["steps"]]
    actions = {row["name"]: row for row in found("--simple", "--all")["actions"]}
    for name, row in actions.items():
        alone = [of for rank in range(2) for of in report("rank%d" % rank, "--simple", "--all")["actions"] if of["name"] == name]
        assert row["count"] == sum(of["count"] for of in alone) and row["total_s"] == pytest.approx(sum(of["total_s"] for of in alone))


def test_diff_of_one_with_itself():
    for name in ("before", "fit", "jax"):
        found = json.loads(output("diff", name + ".rec", name + ".rec", "--json", "--all", "--limit", "0"))
        rows = [row for section in ("step", "phases", "waits", "functions", "actions") for row in found[section]]
        assert rows and all(row["change_s"] == 0 and not row["changed"] for row in rows)


def test_diff_csv_is_the_json():
    found = json.loads(output("diff", "before.rec", "after.rec", "--json", "--all", "--limit", "0"))
    rows = list(csv.DictReader(io.StringIO(output("diff", "before.rec", "after.rec", "--csv", "--all", "--limit", "0").decode(), newline="")))
    sections = ("step", "phases", "waits", "functions", "actions", "ops", "gpu", "gpu_work")
    expected = [(row["name"], row["change_s"]) for section in sections for row in found[section]]
    assert [(row["name"], float(row["change_s"])) for row in rows] == expected
