# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
The advanced report against CPython's own pstats, byte for byte, laid out as Lightning's AdvancedProfiler lays it out. Needs no root and no kernel
support.
"""

import io
import json
import math
import pstats
import re
import subprocess
import textwrap

import helpers
import pytest
import recfile as rec
import sampled
from sampled import PERIOD, PID, START, Function, Job, Sample

KINDS = {rec.ACTION: "action", rec.LABEL: "label", rec.USER: "user", rec.COMM: "comm", rec.SYNC: "sync", rec.GC: "gc"}


def report(path, *args):
    result = subprocess.run([helpers.STEPFLAME, "report", str(path), "--advanced", *map(str, args)], capture_output=True, timeout=60)
    assert result.returncode == 0 and not result.stderr, result.stderr
    return result.stdout.decode()


def report_json(path, *args):
    return json.loads(report(path, "--json", *args))


def actions_of(job, every=False):
    """(kind, name) of the actions that have samples, as the report lists them."""
    spans = [*job.rows, *(span for sample in job.samples for span in sample.spans)]
    for kind, name in dict.fromkeys(spans):
        listed = kind in (rec.ACTION, rec.LABEL, rec.USER) and not name.startswith("Optimizer.step#")
        if (listed or (every and kind in KINDS)) and any((kind, name) in sample.spans for sample in job.samples):
            yield kind, name


def chooser(job, action, every):
    if action is not None:
        return lambda sample: action in sample.spans
    listed = set(actions_of(job, every))
    return lambda sample: not listed.intersection(sample.spans)


def printed(stats, sort, limit):
    out = io.StringIO()
    table = pstats.Stats(sampled.Stats(stats), stream=out).strip_dirs().sort_stats(sort)
    table.print_stats(*([limit] if limit else []))
    return out.getvalue()


def error_ns(samples):
    chance = [s.weight for s in samples if not s.cause or s.waits > 1]
    return 1.96 * math.sqrt(sum(weight**2 for weight in chance))


def head_line(samples):
    cpu, wait = (sum(s.weight for s in samples if bool(s.cause) == waits) for waits in (False, True))
    line = f"         {len(samples)} sample{'s' * (len(samples) != 1)}, "
    if wait:
        line += f"{(cpu + wait) / 1e9:.3f} s of wall time ({cpu / 1e9:.3f} s on CPU, {wait / 1e9:.3f} s waiting)"
    else:
        line += f"{cpu / 1e9:.3f} s on CPU"
    error = error_ns(samples)
    return line + (f", error at most +-{100 * error / (cpu + wait):.3g} % (95 %)" if error else "")


def sampled_table(job, choose, sort="tottime", limit=20, leaf=False, cpu=False, native=False, action=None):
    """pstats' text, in which only the first line and the calls, that are not known, differ."""
    stats = sampled.stats_of_samples(job, choose, leaf, cpu, native=native, action=action)
    text = printed(stats, sort, limit)
    rest = text.split("\n", 1)[1].replace("\n        0 ", "\n        - ")
    return head_line([s for s in job.samples if choose(s) and not (cpu and s.cause)]) + "\n" + rest


def expected(job, every=False, only=None, **options):
    """And what is said of the tables below them."""
    tables, left_out, callers = [], 0, 0
    for action in [*actions_of(job, every), None]:
        name = action[1] if action else "(none)"
        choose = chooser(job, action, every)
        samples = [s for s in job.samples if choose(s) and not (options.get("cpu") and s.cause)]
        if (only is not None and only != name) or not samples:
            continue
        if len(samples) < 20 and not every and only is None:
            left_out += 1
            continue
        callers += action is not None and any(job.inside(s, action) is None for s in samples)
        text = f"Profile stats for: {name}\n" + sampled_table(job, choose, action=action, **options) + "\n"
        tables.append((action is None, -sum(s.weight for s in samples), len(tables), text))
    out = "Profiler Report\n" + "".join(text for *_, text in sorted(tables))
    if left_out:
        out += f"left out: {left_out} table{'s' * (left_out != 1)} of fewer than 20 samples (--all prints them)\n"
    if callers:
        text = f"callers: the recording does not say where {callers} action{'s begin' if callers != 1 else ' begins'}: their tables have the callers, too"
        out += textwrap.fill(text, 80, subsequent_indent="  ") + "\n"
    return out


GIL = re.compile(r"gil: threads waited ([\d.e-]+) s for it, main threads ([\d.e-]+) s of that\n")


def check(text, wanted):
    """Returns what the report says of the GIL, None: nothing."""
    assert text[: len(wanted)] == wanted
    gil = GIL.match(text, len(wanted))
    assert text[gil.end() if gil else len(wanted) :].startswith("window: ")
    return gil


@pytest.mark.parametrize("seed", range(20))
def test_byte_for_byte(tmp_path, seed):
    job = sampled.random_job(seed)
    gil = check(report(job.write(tmp_path / "r.rec")), expected(job))
    waited = [(s.weight / 1e9, s.tid == PID) for s in job.samples if s.refined == "gil"]
    told = (float(gil[1]), float(gil[2])) if gil else (0, 0)
    assert told[0] == pytest.approx(sum(seconds for seconds, _ in waited), rel=0.01)
    assert told[1] == pytest.approx(sum(seconds for seconds, is_main in waited if is_main), rel=0.01)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "args, options",
    [
        (["--all"], {"every": True}),
        (["--leaf"], {"leaf": True}),
        (["--native"], {"native": True}),
        (["--cpu"], {"cpu": True}),
        (["--cpu", "--leaf", "--limit", 0], {"cpu": True, "leaf": True, "limit": 0}),
        (["--limit", 3], {"limit": 3}),
        (["--action", "action 3"], {"only": "action 3"}),
        (["--action", "(none)"], {"only": "(none)"}),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else "",
)
def test_options(tmp_path, seed, args, options):
    job = sampled.random_job(seed + 100)
    job.rows = [(rec.ACTION, "action 3"), *(row for row in job.rows if row[1] != "action 3")]
    for sample in job.samples:
        sample.spans = [(rec.ACTION, name) if name == "action 3" else (kind, name) for kind, name in sample.spans]
    job.arounds = [(rec.ACTION if name == "action 3" else kind, name, *rest) for kind, name, *rest in job.arounds]
    check(report(job.write(tmp_path / "r.rec"), *args), expected(job, **options))


@pytest.mark.parametrize("sort", ["cumulative", "cumtime", "tottime", "time", "name", "file", "filename", "module", "line", "nfl", "stdname"])
def test_sort_keys(tmp_path, sort):
    job = sampled.random_job(7)
    check(report(job.write(tmp_path / "r.rec"), "--sort", sort), expected(job, sort=sort))


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("sort", ["cumulative", "ncalls", "calls", "pcalls", "tottime"])
def test_exact_calls(tmp_path, seed, sort):
    """Nothing differs from pstats."""
    job = sampled.random_calls(seed)
    text = report(job.write(tmp_path / "r.rec"), "--sort", sort)
    assert text.startswith("Profiler Report\n")
    for action in [*actions_of(job), None]:
        listed = set(actions_of(job))
        choose = (lambda spans: action in spans) if action else (lambda spans: not listed.intersection(spans))
        stats = sampled.stats_of_calls(job, choose)
        wanted = f"Profile stats for: {action[1] if action else '(none)'}\n" + printed(stats, sort, 20) + "\n"
        assert not stats or wanted in text


def test_exact_calls_or_samples(tmp_path):
    """Where calls were counted, samples are used with --cpu alone."""
    job = sampled.random_calls(3)
    check(report(job.write(tmp_path / "r.rec"), "--cpu"), expected(job, cpu=True))


@pytest.mark.parametrize("seed", range(5))
def test_json(tmp_path, seed):
    job = sampled.random_job(seed + 50)
    data = report_json(job.write(tmp_path / "r.rec"), "--leaf")
    assert data["report"] == "advanced" and data["lost"] == {}
    wanted = [*actions_of(job), None]
    assert [(a["kind"], a["name"]) for a in data["actions"]] == [(KINDS[a[0]], a[1]) if a else (None, "(none)") for a in wanted]
    for action, found in zip(wanted, data["actions"]):
        choose = chooser(job, action, False)
        stats = sampled.stats_of_samples(job, choose, leaf=True, counts=True, action=action)
        samples = [s for s in job.samples if choose(s)]
        assert found["callers"] == sum(action is not None and job.inside(s, action) is None for s in samples)
        assert found["samples"] == len(samples) and found["exact"] is False
        waits = {}
        for s in samples:
            if s.cause:
                waits[s.refined] = waits.get(s.refined, 0) + s.weight / 1e9
        assert found["waits"] == pytest.approx(waits)
        assert found["wait_s"] == pytest.approx(sum(waits.values()))
        assert found["cpu_s"] == pytest.approx(sum(s.weight for s in samples if not s.cause) / 1e9)
        assert found["wall_s"] == pytest.approx(found["cpu_s"] + found["wait_s"])
        assert found["error_s"] == pytest.approx(error_ns(samples) / 1e9)
        rows = {(f["file"], f["line"], f["name"]): f for f in found["functions"]}
        assert rows.keys() == stats.keys() and len(rows) == len(found["functions"])
        for key, (cnt, _, own, total, _) in stats.items():
            row = rows[key]
            assert row["samples"] == cnt and row["ncalls"] is None and row["primitive_calls"] is None
            assert row["tottime_s"] == pytest.approx(own) and row["cumtime_s"] == pytest.approx(total)
            assert row["error_s"] == pytest.approx(error_ns([s for s in samples if key in s.chain(True, False, job.inside(s, action))]) / 1e9)
        # All time is own time of something.
        assert sum(f["tottime_s"] for f in found["functions"]) == pytest.approx(found["wall_s"])
        assert [f["cumtime_s"] for f in found["functions"]] == sorted((f["cumtime_s"] for f in found["functions"]), reverse=True)


def test_json_of_exact_calls(tmp_path):
    function = Function("/a/b.py", 3, "C.f")
    job = Job(calls=[(function, ((rec.ACTION, "a"),), 30, 20, 10**9, 3 * 10**9)])
    (action,) = report_json(job.write(tmp_path / "r.rec"))["actions"]
    assert action["exact"] and action["samples"] is None and action["waits"] is None and action["error_s"] is None
    assert action["functions"] == [
        {
            "file": "/a/b.py",
            "line": 3,
            "name": "f",
            "qualname": "C.f",
            "ncalls": 30,
            "primitive_calls": 20,
            "samples": None,
            "tottime_s": 1.0,
            "cumtime_s": 3.0,
            "error_s": None,
        }
    ]


# ---- Lightning's layout ----


def test_layout_is_lightnings(tmp_path):
    """Its own _stats_to_str around the same tables."""
    profilers = pytest.importorskip("lightning.pytorch.profilers")
    profiler = profilers.AdvancedProfiler()
    profiler.setup(stage="fit", local_rank=3)
    profiler._local_rank, profiler._stage = 3, "fit"
    spans = [(rec.ACTION, "run_training_batch"), (rec.ACTION, "[Strategy]S.training_step")]
    job = Job(targets=[rec.target(PID, rank=3)])
    job.samples = [Sample(PID, PERIOD, [(Function("/t.py", 1, "main"), 0)], spans[:depth]) for depth in (0, 1, 2)]
    job.samples *= 20
    job.arounds = [(*span, job.samples[0].frames, 0) for span in spans]
    tables = {name: sampled_table(job, chooser(job, (kind, name), False), action=(kind, name)) for kind, name in spans}
    tables["(none)"] = sampled_table(job, chooser(job, None, False))
    job.rows = spans
    check(report(job.write(tmp_path / "r.rec")), profiler._stats_to_str(tables) + "\n")


# ---- which processes ----


def two_ranks():
    frames, spans = [(Function("/t.py", 1, "main"), 0)], [(rec.ACTION, "a")]
    job = Job(targets=[rec.target(1, rank=0), rec.target(2, rank=1), rec.target(3, role=rec.WORKER, parent=1)])
    job.samples = [Sample(pid, PERIOD, frames, spans, pid=pid) for pid in (1, 1, 2, 3, 3, 3)]
    return job


def test_ranks_are_added_or_apart(tmp_path):
    path = two_ranks().write(tmp_path / "r.rec")
    text = report(path, "--all")
    assert "Profile stats for: a\n         3 samples, " in text and "times: added over 2 processes" in text
    text = report(path, "--per-rank", "--all")
    assert "pid 1 (main, rank 0)\nProfiler Report\nProfile stats for: a rank: 0\n         2 samples, " in text
    assert "pid 2 (main, rank 1)\nProfiler Report\nProfile stats for: a rank: 1\n         1 sample, " in text
    assert "pid 3 (worker)\nProfiler Report\nProfile stats for: a\n         3 samples, " in text
    data = report_json(path, "--per-rank")
    assert data["actions"][0]["samples"] == 3
    assert [(p["pid"], p["actions"][0]["samples"]) for p in data["processes"]] == [(1, 2), (2, 1), (3, 3)]


# ---- what is around an action ----


def nested_actions():
    """main -> fit -> step, with an action around the call of fit and one around that of step; step is called from two lines."""
    main, fit, step, enter = (Function("/t.py", line, name) for line, name in ((1, "main"), (10, "fit"), (20, "step"), (5, "__exit__")))
    outer, inner = (rec.ACTION, "outer"), (rec.ACTION, "inner")
    job = Job(rows=[outer, inner])
    for at in (30, 34):
        frames = [(step, 8), (fit, at), (main, 4)]
        job.samples += [Sample(PID, PERIOD, frames, [outer, inner]), Sample(PID, PERIOD, frames[1:], [outer, inner])]
    job.samples.append(Sample(PID, PERIOD, [(main, 4)], [outer]))
    job.arounds = [(*outer, [(enter, 2), (main, 9)], 0), (*inner, [(enter, 2), (fit, 38), (main, 4)], 0)]
    return job


def functions_of(path, *args):
    return {action["name"]: {f["name"]: f for f in action["functions"]} for action in report_json(path, *args)["actions"]}


def test_what_is_around_an_action_is_not_in_it(tmp_path):
    functions = functions_of(nested_actions().write(tmp_path / "r.rec"))
    assert functions["outer"].keys() == {"fit", "step", "<directly in the action>"}
    assert functions["inner"].keys() == {"step", "<directly in the action>"}
    assert functions["inner"]["<directly in the action>"]["samples"] == 2


def test_an_action_within_itself(tmp_path):
    """It begins with the outer one, whatever was told of the inner one."""
    job = nested_actions()
    job.arounds = [(rec.ACTION, "outer", job.arounds[0][2], 0), (rec.ACTION, "outer", job.arounds[1][2], 1)]
    job.samples = [Sample(s.tid, s.weight, s.frames, [(kind, "outer") for kind, _ in s.spans]) for s in job.samples]
    functions = functions_of(job.write(tmp_path / "r.rec"))
    assert functions["outer"].keys() == {"fit", "step", "<directly in the action>"}


def test_callers_that_are_not_known_are_listed_and_said(tmp_path):
    job = nested_actions()
    job.arounds = job.arounds[:1]
    path = job.write(tmp_path / "r.rec")
    assert functions_of(path)["inner"].keys() == {"main", "fit", "step"}
    assert [action["callers"] for action in report_json(path)["actions"]] == [0, 4]
    assert "callers: the recording does not say where 1 action begins" in report(path, "--all")


def test_cut_stacks_begin_nowhere(tmp_path):
    """One that lacks its outer frames is compared with none."""
    path = tmp_path / "r.rec"
    records = [rec.target(PID), rec.window(START, START + 10**9), rec.name(1, "f"), rec.name(2, "a"), rec.code(1, 1, 1, 3), rec.code(2, 1, 1, 4)]
    records += [rec.stack(1, [(2, 0), (1, 0)], cut=1), rec.stack(2, [(1, 0)]), rec.path(1, [(rec.ACTION, 2)])]
    records += [rec.around(rec.ACTION, 2, 2), rec.around(rec.ACTION, 2, 9), rec.sample(PID, PID, rec.CPU, START, PERIOD, 1, 1)]
    path.write_bytes(rec.recording(records))
    (action,) = report_json(path)["actions"]
    assert len(action["functions"]) == 2 and action["callers"] == 1


# ---- what is left out ----


def test_tables_of_few_samples_are_left_out(tmp_path):
    frames = [(Function("/t.py", 1, "main"), 0)]
    job = Job(rows=[(rec.ACTION, name) for name in ("few", "short", "long", "many")])
    for name, cnt, weight in (("few", 19, 10**9), ("short", 20, PERIOD), ("long", 20, 3 * PERIOD), ("many", 40, PERIOD)):
        job.samples += [Sample(PID, weight, frames, [(rec.ACTION, name)]) for _ in range(cnt)]
    path = job.write(tmp_path / "r.rec")
    found = re.findall(r"Profile stats for: (\w+)", text := report(path))
    assert found == ["long", "many", "short"] and "left out: 1 table of fewer than 20 samples (--all prints them)" in text
    assert re.findall(r"Profile stats for: (\w+)", text := report(path, "--all")) == ["few", "long", "many", "short"]
    assert "left out" not in text
    assert re.findall(r"Profile stats for: (\w+)", report(path, "--action", "few")) == ["few"]
    assert len(report_json(path)["actions"]) == 4


# ---- what is missing ----


def test_no_samples(tmp_path):
    path = tmp_path / "r.rec"
    path.write_bytes(rec.recording([rec.target(PID), rec.window(START, START + 10**9)]))
    text = report(path)
    assert "no samples" in text and "stepflame record -p PID" in text
    assert report_json(path)["actions"] == []
    for form in ("folded", "pstats", "pprof", "speedscope"):
        result = helpers.stepflame("export", path, "-f", form, "-o", tmp_path / "out")
        helpers.check_message(result, helpers.ERROR)
        assert not (tmp_path / "out").exists()


def test_no_such_action(tmp_path):
    path = sampled.random_job(1).write(tmp_path / "r.rec")
    for options in ((), ("--per-rank",)):
        result = helpers.stepflame("report", path, "--advanced", "--action", "none such", *options)
        assert result.returncode == helpers.ERROR and result.stdout == "", result
        assert 'No sample was taken in an action named "none such"' in result.stderr


def test_what_never_came_says_so(tmp_path):
    """Stacks, functions, names and paths that the recording lost are rows of their own, and take their time."""
    path = tmp_path / "r.rec"
    records = [rec.target(PID), rec.window(START, START + 10**9), rec.name(1, "f"), rec.name(2, "a")]
    records += [rec.code(1, 77, 1, 3), rec.stack(1, [(1, 0), (9, 0), (0, 0)]), rec.path(1, [(rec.ACTION, 2)])]
    for stack_id, path_id in ((1, 1), (5, 1), (1, 5)):
        records.append(rec.sample(PID, PID, rec.CPU, START, PERIOD, stack_id, path_id))
    path.write_bytes(rec.recording(records))
    data = report_json(path)
    assert [a["name"] for a in data["actions"]] == ["a", "(lost)"]
    names = {(f["file"], f["name"]) for f in data["actions"][0]["functions"]}
    lost = "(name lost, id 000000000000004d)"
    assert names == {(lost, "f"), ("~", "<function lost>"), ("~", "<function not readable>"), ("~", "<stack lost>")}
    for form in ("folded", "pstats", "pprof", "speedscope"):
        assert helpers.stepflame("export", path, "-f", form, "-o", tmp_path / form).returncode == 0
    assert "{stack_lost}" in (tmp_path / "folded").read_text()


def test_control_characters_do_not_reach_the_terminal(tmp_path):
    evil = "\x1b]0;title\x07\u202ename\r\n\t\x9b;"
    function = Function(f"/{evil}.py", 1, f"C.{evil}")
    job = Job(samples=[Sample(PID, PERIOD, [(function, 0)], [(rec.ACTION, evil)], native=evil)])
    path = job.write(tmp_path / "r.rec")
    folded = subprocess.run([helpers.STEPFLAME, "export", str(path), "-f", "folded"], capture_output=True, timeout=60).stdout.decode()
    assert "\\x1b]0;title" in report(path, "--leaf", "--all")
    assert folded.count("\n") == 1 and re.fullmatch(r"\S+ 10101\n", folded)
    for text in (report(path, "--leaf", "--all"), folded):
        assert not {c for c in text if (ord(c) < 32 and c != "\n") or 0x7F <= ord(c) < 0xA0 or c == "\u202e"}
    row = report_json(path)["actions"][0]["functions"][0]
    assert (row["file"], row["name"], row["qualname"]) == (function.file, evil, function.qualname)


def test_switches_of_other_reports(tmp_path):
    path = sampled.random_job(1).write(tmp_path / "r.rec")
    for args, words in (
        (["--advanced", "--shapes"], "--shapes is for --ops, not for --advanced"),
        (["--simple", "--cpu"], "--cpu is for --advanced, not for --simple"),
        (["--simple", "--native"], "--native is for --advanced, not for --simple"),
        (["--ops", "--leaf"], "--leaf is for --simple and --advanced, not for --ops"),
        (["--steps", "--action", "forward"], "--action is for --simple, --advanced, --ops and --gpu, not for --steps"),
        (["--io", "--action", "forward"], "not for --io"),
        (["--advanced", "--sort", "percent"], "no sort key 'percent'"),
    ):
        result = helpers.stepflame("report", path, *args)
        assert result.returncode == helpers.USAGE and words in result.stderr
