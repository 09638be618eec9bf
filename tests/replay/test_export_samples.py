# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
`stepflame export` of samples, read back by what others wrote: CPython's pstats, protobuf, json. Needs no root. What
is expected is computed by tests/e2e/sampled.py.
"""

import gzip
import json
import pstats
import subprocess
import sys
from collections import Counter

import helpers
import pprof
import pytest
import recfile as rec
import sampled
from sampled import PERIOD, PID, Function, Job, Sample

SEEDS = range(6)
FORMATS = ("folded", "pstats", "pprof", "speedscope")


def export(file, *args):
    result = subprocess.run([helpers.STEPFLAME, "export", str(file), *map(str, args)], capture_output=True, timeout=60)
    assert result.returncode == 0 and not result.stderr, result.stderr
    return result.stdout


def line_of(function, offset):
    """By the line table that sampled.Job writes."""
    if offset < 10:
        return function.line
    return function.line + 1 if offset < 30 else 0 if offset < 40 else function.line + 7


SYSCALLS = {0: "read", 202: "futex"}


def frames_of(sample, native=False):
    """(name, file, line) from the process to the leaf."""
    frames = [("pid 4242 (main)", "", 0), (f"thread {sample.tid}", "", 0)]
    frames += [(f.qualname, f.file, line_of(f, offset)) for f, offset in reversed(sample.frames)] or [("{no Python frames}", "", 0)]
    leaf = sample.native_apart(native)
    frames += [(leaf, "", 0)] if leaf else []
    frames += [(f"syscall {SYSCALLS[sample.syscall]}", "", 0)] if sample.syscall >= 0 else []
    frames += [(f"{sample.kernel} (kernel)", "", 0)] if sample.kernel else []
    return tuple(frames + ([(f"{{waiting: {sample.refined}}}", "", 0)] if sample.cause else []))


def choices(job):
    """Options of the command, the samples that they choose, and whether the interpreter's functions are frames."""
    return [
        ([], job.samples, False),
        (["--cpu"], [s for s in job.samples if not s.cause], False),
        (["--action", "action 3"], [s for s in job.samples if "action 3" in [name for _, name in s.spans]], False),
        (["-p", PID, "--native"], job.samples, True),
    ]


def totals(samples, native=False):
    """{frames: [samples, ns on CPU, ns]}"""
    out = {}
    for sample in samples:
        row = out.setdefault(frames_of(sample, native), [0, 0, 0])
        row[0] += 1
        row[1] += 0 if sample.cause else sample.weight
        row[2] += sample.weight
    return out


# ---- folded ----


def test_folded_separators(tmp_path):
    """What parts frames and stacks for those who read it, does so in no name."""
    frames = [(Function("/a;b c.py", 7, "f;g h\n"), 0), (Function("/t.py", 1, "<module>"), 0)]
    job = Job(targets=[rec.target(1)])
    job.samples = [Sample(1, PERIOD, frames, [], pid=1)]
    stack, us = export(job.write(tmp_path / "r.rec"), "-f", "folded").decode().rsplit(" ", 1)
    assert stack.split(";") == ["pid_1_(main)", "thread_1", "t.py:<module>:1", "a_b_c.py:f_g_h_:7"]
    assert int(us) == round(PERIOD / 1000)


# ---- pstats ----


@pytest.mark.parametrize("seed", SEEDS)
def test_pstats(tmp_path, seed):
    """Of the main thread, unless more is asked for."""
    job = sampled.random_job(seed)
    path = job.write(tmp_path / "r.rec")
    for args, samples, _ in [*choices(job)[:3], (["-p", PID], job.samples, False)]:
        for more, chosen in (([], [s for s in samples if s.tid == PID]), (["--all-threads"], samples)):
            out = tmp_path / "out.pstats"
            export(path, "-f", "pstats", "-o", out, *args, *more)
            found = pstats.Stats(str(out))
            check_stats(found.stats, {key: (0, 0, *row[2:]) for key, row in sampled.stats_of_samples(Job(samples=chosen), counts=True).items()})
            assert found.total_calls == 0 and found.total_tt == pytest.approx(sum(s.weight for s in chosen) / 1e9)


def test_pstats_prints_no_calls(tmp_path):
    """As a person reads it."""
    out = tmp_path / "out.pstats"
    export(sampled.random_job(1).write(tmp_path / "r.rec"), "-f", "pstats", "-o", out)
    result = subprocess.run([sys.executable, "-m", "pstats", str(out)], input="sort tottime\nstats 5\ncallers 5\n", capture_output=True, text=True, timeout=60)
    assert result.returncode == 0 and " 0 function calls in " in result.stdout and "Traceback" not in result.stdout + result.stderr


def check_stats(found, wanted):
    assert found.keys() == wanted.keys()
    for key, row in wanted.items():
        assert found[key][:4] == pytest.approx(row[:4])
        assert found[key][4].keys() == row[4].keys()
        for caller, edge in row[4].items():
            assert found[key][4][caller] == pytest.approx((0, 0, *edge[2:]))


@pytest.mark.parametrize("seed", SEEDS)
def test_pstats_of_exact_calls(tmp_path, seed):
    job = sampled.random_calls(seed)
    huge = Function("/huge.py", 2**31 - 20, "f")
    job.calls.append((huge, (), 2**63, 2**31, 10**18, 10**18))
    out = tmp_path / "out.pstats"
    export(job.write(tmp_path / "r.rec"), "-f", "pstats", "-o", out)
    check_stats(pstats.Stats(str(out)).stats, sampled.stats_of_calls(job))


def test_pstats_is_of_main_processes(tmp_path):
    frames = [(Function("/t.py", 1, "f"), 0)]
    job = Job(targets=[rec.target(1), rec.target(2, role=rec.WORKER, parent=1)])
    job.samples = [Sample(tid, PERIOD, frames, [], pid=pid) for pid, tid in ((1, 1), (2, 2), (2, 2), (1, 5), (1, 5), (1, 5))]
    path, out = job.write(tmp_path / "r.rec"), tmp_path / "out"
    for args, cnt in (([], 1), (["-p", 1], 1), (["-p", 2], 2), (["--all-threads"], 4), (["-p", 1, "--all-threads"], 4)):
        export(path, "-f", "pstats", "-o", out, *args)
        assert pstats.Stats(str(out)).stats["/t.py", 1, "f"][2] == pytest.approx(cnt * PERIOD / 1e9)


# ---- folded ----


def folded_name(frame):
    name, file, line = frame
    name = "".join("_" if c in "; \t\n" else c for c in name)
    return f"{file.rpartition('/')[2].replace(' ', '_')}:{name}{f':{line}' if line else ''}" if file else name


@pytest.mark.parametrize("seed", SEEDS)
def test_folded(tmp_path, seed):
    job = sampled.random_job(seed)
    path = job.write(tmp_path / "r.rec")
    for args, samples, native in choices(job):
        found, wanted = Counter(), Counter()
        for line in export(path, "-f", "folded", *args).decode().splitlines():
            stack, us = line.rsplit(" ", 1)
            assert " " not in stack
            found[stack] += int(us)
        for frames, (_, _, ns) in totals(samples, native).items():
            wanted[";".join(map(folded_name, frames))] += ns / 1000
        assert found.keys() <= wanted.keys()
        assert all(abs(found[stack] - us) <= 2 for stack, us in wanted.items())


# ---- speedscope ----


@pytest.mark.parametrize("seed", SEEDS)
def test_speedscope(tmp_path, seed):
    """The shape is that of speedscope's file-format-schema.json."""
    job = sampled.random_job(seed)
    path = job.write(tmp_path / "r.rec")
    for args, samples, native in choices(job):
        data = json.loads(export(path, "-f", "speedscope", *args))
        assert data["$schema"] == "https://www.speedscope.app/file-format-schema.json"
        assert data.keys() <= {"$schema", "shared", "profiles", "name", "activeProfileIndex", "exporter"}
        frames = [(f["name"], f.get("file", ""), f.get("line", 0)) for f in data["shared"]["frames"]]
        threads = list(dict.fromkeys(s.tid for s in job.samples if s in samples))
        assert sorted(p["name"] for p in data["profiles"]) == sorted(f"pid 4242 (main), thread {tid}" for tid in threads)
        for profile in data["profiles"]:
            assert profile["type"] == "sampled" and profile["unit"] == "nanoseconds" and profile["startValue"] == 0
            assert len(profile["samples"]) == len(profile["weights"])
            assert sum(profile["weights"]) == profile["endValue"]
            wanted = []
            for s in (s for s in samples if profile["name"].endswith(f"thread {s.tid}")):
                frames_here = frames_of(s, native)[2:]
                if wanted and wanted[-1][0] == frames_here:
                    wanted[-1][1] += s.weight
                else:
                    wanted.append([frames_here, s.weight])
            found = [[tuple(frames[i] for i in stack), weight] for stack, weight in zip(profile["samples"], profile["weights"])]
            assert found == wanted


# ---- pprof ----

@pytest.fixture(scope="module")
def profile_class():
    return pprof.profile_class()


@pytest.mark.parametrize("seed", SEEDS)
def test_pprof(tmp_path, seed, profile_class):
    job = sampled.random_job(seed)
    path = job.write(tmp_path / "r.rec")
    for args, samples, native in choices(job):
        data = export(path, "-f", "pprof", *args)
        profile = profile_class.FromString(gzip.decompress(data))
        strings = profile.string_table
        assert strings[0] == "" and len(set(strings)) == len(strings)
        assert [(strings[t.type], strings[t.unit]) for t in profile.sample_type] == [
            ("samples", "count"),
            ("cpu", "nanoseconds"),
            ("wall", "nanoseconds"),
        ]
        assert strings[profile.default_sample_type] == "wall" and profile.period == PERIOD
        assert profile.time_nanos == sampled.START - 1 + 2 and profile.duration_nanos == 10**10
        functions = {f.id: f for f in profile.function}
        locations = {l.id: l for l in profile.location}
        assert len(functions) == len(profile.function) and len(locations) == len(profile.location)
        assert 0 not in functions and 0 not in locations
        keys = Counter((f.name, f.filename, f.start_line) for f in profile.function)
        assert max(keys.values()) == 1

        def frame(ident):
            (line,) = locations[ident].line
            function = functions[line.function_id]
            return strings[function.name], strings[function.filename], line.line

        found = {tuple(map(frame, reversed(s.location_id))): list(s.value) for s in profile.sample}
        assert len(found) == len(profile.sample)
        assert found == totals(samples, native)


def test_pprof_is_compressed_once(tmp_path):
    path = sampled.random_job(1).write(tmp_path / "r.rec")
    plain = gzip.decompress(export(path, "-f", "pprof"))
    for name in ("out.pb", "out.pb.gz"):
        export(path, "-f", "pprof", "-o", tmp_path / name)
        assert gzip.decompress((tmp_path / name).read_bytes()) == plain
    export(path, "-f", "folded", "-o", tmp_path / "out.gz")
    assert gzip.decompress((tmp_path / "out.gz").read_bytes()) == export(path, "-f", "folded")


# ---- messages ----


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("args", [["--action", "none such"], ["-p", "7"]], ids=" ".join)
def test_nothing_chosen(tmp_path, form, args):
    path = sampled.random_job(1).write(tmp_path / "r.rec")
    out = tmp_path / "out"
    helpers.check_message(helpers.stepflame("export", path, "-f", form, "-o", out, *args), helpers.ERROR)
    assert not out.exists()


@pytest.mark.parametrize("switch", [["--cpu"], ["--action", "a"]], ids=" ".join)
def test_switches_are_for_samples(tmp_path, switch):
    path = sampled.random_job(1).write(tmp_path / "r.rec")
    result = helpers.stepflame("export", path, "-f", "chrome", *switch)
    assert result.returncode == helpers.USAGE and f"{switch[0]} is for formats of samples" in result.stderr


@pytest.mark.parametrize("form, switch", [("folded", "--all-threads"), ("pstats", "--native"), ("chrome", "--native")])
def test_switches_are_for_some_formats(tmp_path, form, switch):
    path = sampled.random_job(1).write(tmp_path / "r.rec")
    result = helpers.stepflame("export", path, "-f", form, switch, "-o", tmp_path / "out")
    assert result.returncode == helpers.USAGE and f"{switch} is for " in result.stderr


def test_full_disk(tmp_path):
    path = sampled.random_job(1).write(tmp_path / "r.rec")
    for form in FORMATS:
        result = helpers.stepflame("export", path, "-f", form, "-o", "/dev/full")
        assert result.returncode == helpers.ERROR and "No space left" in result.stderr
