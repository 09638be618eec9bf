# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
The simple report against Lightning's own SimpleProfiler.summary(), byte for byte. Needs no root and no kernel support.
"""

import json
import math
import os
import pathlib
import random
import re
import subprocess
import types

import pytest
import recfile as rec

ROOT = pathlib.Path(__file__).resolve().parents[2]
STEPFLAME = str(ROOT / os.environ.get("STEPFLAME", "build/stepflame"))
PID = 4242
START = 1_000_000_000


def report(path, *args):
    """Of all rows, unless args say how many."""
    return subprocess.run([STEPFLAME, "report", str(path), "--simple", "--limit", "0", *args], capture_output=True, timeout=60)


class Durations(list):
    """What Lightning keeps of an action: a list whose length and exact sum are given."""

    def __init__(self, calls, total_s):
        super().__init__([total_s])
        self.calls = calls

    def __len__(self):
        return self.calls


def lightning_summary(rows, window_ns, stage, monkeypatch):
    simple = pytest.importorskip("lightning.pytorch.profilers.simple")
    monkeypatch.setattr(simple, "time", types.SimpleNamespace(perf_counter=lambda: window_ns / 1e9))
    profiler = simple.SimpleProfiler()
    profiler.start_time = 0.0
    profiler._stage = stage
    for name, calls, total_ns in rows:
        profiler.recorded_durations[name] = Durations(calls, total_ns / 1e9)
    return profiler.summary()


def write_recording(path, rows, window_ns):
    records = [rec.host(), rec.target(PID), rec.window(START, START + window_ns, 10, 1)]
    for i, (name, calls, total_ns) in enumerate(rows):
        records.append(rec.narrowest_name(i + 1, name))
        records.append(rec.agg(PID, rec.ACTION, i + 1, calls, total_ns, first_ns=START + i))
    path.write_bytes(rec.recording(records))


def magnitude(rng, top):
    return max(0, min(int(10 ** rng.uniform(0, math.log10(top))), top))


def random_name(rng, taken):
    alphabets = ["abcxyz_.[]()'", "äöüß é", "訓練ステップ", "🔥🚀a", "a\u0301e\u0308", 'q"\\{}<>&%s%n']
    while True:
        kind = rng.random()
        if kind < 0.5:
            name = f"[{rng.choice(['Strategy', 'LightningModule', 'Callback'])}]{rng.choice('ABC')}{rng.randrange(10**6)}.step"
        elif kind < 0.6:
            # A ModelCheckpoint's state_key.
            name = "[Callback]ModelCheckpoint" + str({f"key{i}": rng.choice([None, True, "x" * i]) for i in range(8)})
        else:
            name = "".join(rng.choice(rng.choice(alphabets)) for _ in range(rng.randrange(1, 120)))
        if name not in taken:
            taken.add(name)
            return name


STAGE_ROWS = {
    "fit": "run_training_epoch",
    "validate": "[_EvaluationLoop].val_next",
    "test": "[_EvaluationLoop].test_next",
    "predict": "[_PredictionLoop].predict_next",
    None: "teardown",
}


@pytest.mark.parametrize("seed", range(40))
def test_byte_for_byte(tmp_path, monkeypatch, seed):
    rng = random.Random(seed)
    stage = rng.choice(list(STAGE_ROWS))
    taken = {STAGE_ROWS[stage]}
    names = [STAGE_ROWS[stage]] + [random_name(rng, taken) for _ in range(rng.randrange(0, 60))]
    rows = [(name, magnitude(rng, 10**9) + 1, magnitude(rng, 10**15)) for name in names]
    rows += [(random_name(rng, taken), 3, rows[0][2]) for _ in range(2)]  # equal shares keep their order
    window_ns = magnitude(rng, 10**15) + 1
    path = tmp_path / "run.rec"
    write_recording(path, rows, window_ns)

    expected = lightning_summary(rows, window_ns, stage, monkeypatch).encode()
    result = report(path)
    assert result.returncode == 0 and not result.stderr
    assert result.stdout[: len(expected)] == expected
    assert result.stdout[len(expected) :].startswith(b"window: ")


def test_narrow_names_and_round_numbers(tmp_path, monkeypatch):
    rows = [("a", 1, 100 * 10**9), ("b", 4, 2 * 10**9), ("c", 1, 0), ("d", 2, 12345678 * 10**6)]
    path = tmp_path / "run.rec"
    write_recording(path, rows, 100 * 10**9)
    assert report(path).stdout.startswith(lightning_summary(rows, 100 * 10**9, None, monkeypatch).encode())


def test_no_rows_start_as_lightning(tmp_path, monkeypatch):
    path = tmp_path / "run.rec"
    write_recording(path, [], 10**9)
    result = report(path)
    assert result.returncode == 0
    assert result.stdout.startswith(lightning_summary([], 10**9, None, monkeypatch).encode() + b"No action was seen")


def test_control_characters_do_not_reach_the_terminal(tmp_path):
    path = tmp_path / "run.rec"
    evil = "\x1b]0;title\x07\x9b2J\u202ename\r\n\t\x7f"
    path.write_bytes(
        rec.recording(
            [
                rec.target(PID, python="\x1b[31m", torch="\x9b2J"),
                rec.window(START, START + 10**9),
                rec.narrowest_name(1, evil),
                rec.agg(PID, rec.ACTION, 1, 1, 5, first_ns=START),
                rec.counter("\x1bname", 3),
                rec.note(evil),
            ]
        )
    )
    text = report(path).stdout.decode()
    assert "\\x1b]0;title\\x07\\x9b2J\\u202ename\\x0d\\x0a\\x09\\x7f" in text
    assert not {c for c in text if (ord(c) < 32 and c not in "\n\t") or 0x7F <= ord(c) < 0xA0 or c == "\u202e"}
    output = report(path, "--json").stdout
    assert json.loads(output)["actions"][0]["name"] == evil
    assert all(c == 10 or 32 <= c < 128 for c in output)


def test_json_agrees_with_text(tmp_path):
    rng = random.Random(7)
    rows = [(f"action {i}", rng.randrange(1, 50), rng.randrange(10**9)) for i in range(20)]
    path = tmp_path / "run.rec"
    write_recording(path, rows, 3 * 10**9)
    data = json.loads(report(path, "--json").stdout)
    assert data["report"] == "simple"
    assert data["target"] == [{"pid": PID, "role": "main", "rank": None, "python": "3.11.2", "torch": "2.6.0+cpu"}]
    assert data["window"] == {"seconds": 3.0, "steps": 10, "step_rule": "lightning"}
    assert data["lost"] == {}
    assert data["overhead"]["budget_percent"] is None and data["overhead"]["percent"] is None
    assert [a["name"] for a in data["actions"]] == [name for name, _, _ in rows]
    for (_, calls, total_ns), action in zip(rows, data["actions"]):
        assert action["count"] == calls
        assert action["total_s"] == pytest.approx(total_ns / 1e9)
        assert action["mean_s"] == pytest.approx(total_ns / 1e9 / calls)
        assert action["percent"] == pytest.approx(100 * total_ns / 3e9)
        assert action["pid"] == PID and action["kind"] == "action"


def test_json_of_nothing(tmp_path):
    path = tmp_path / "empty.rec"
    path.write_bytes(rec.recording([rec.host()]))
    data = json.loads(report(path, "--json", "--per-rank").stdout)
    assert data["actions"] == data["target"] == data["processes"] == data["notes"] == []
    assert data["window"] == {"seconds": None, "steps": None, "step_rule": None}
    assert set(data["overhead"].values()) == {None}


# ---- which rows ----

LIGHTNING_JOB = [
    rec.target(1, rank=0),
    rec.target(2, rank=1),
    rec.target(3, role=rec.WORKER, parent=1),
    rec.window(START, START + 10 * 10**9, 5, 1),
    rec.name(10, "run_training_batch"),
    rec.name(11, "[Strategy]S.training_step"),
    rec.name(12, "Optimizer.step#SGD.step"),
    rec.name(13, "my label"),
    rec.name(14, "forward"),
    rec.name(15, "[pl][profile]run_training_batch"),
    rec.name(16, "worker label"),
    *(
        rec.agg(pid, kind, ident, 5, total * 10**9, parent, first_ns=START + ident + pid)
        for pid in (1, 2)
        for kind, ident, total, parent in (
            (rec.ACTION, 10, 8, 0),
            (rec.LABEL, 15, 8, 0),
            (rec.LABEL, 12, 7, 10),
            (rec.ACTION, 11, 3, 12),
            (rec.LABEL, 13, 1, 11),
            (rec.FORWARD, 14, 2, 10),
        )
    ),
    rec.agg(3, rec.LABEL, 16, 2, 10**9, first_ns=START),
]


def names_of(path, *args):
    return [a["name"] for a in json.loads(report(path, "--json", *args).stdout)["actions"]]


@pytest.fixture
def lightning_job(tmp_path):
    path = tmp_path / "job.rec"
    path.write_bytes(rec.recording(LIGHTNING_JOB))
    return path


def test_torch_labels_only_with_all(lightning_job):
    assert names_of(lightning_job) == ["run_training_batch", "[Strategy]S.training_step", "my label"]
    assert len(names_of(lightning_job, "--all")) == 6


def test_leaf_looks_through_what_is_not_listed(lightning_job):
    assert names_of(lightning_job, "--leaf") == ["my label"]
    assert names_of(lightning_job, "--leaf", "--all") == ["my label", "forward", "[pl][profile]run_training_batch"]


def test_plain_job_lists_everything(tmp_path):
    path = tmp_path / "plain.rec"
    records = [rec.target(1), rec.window(START, START + 10**9), rec.name(1, "Optimizer.step#SGD.step")]
    records += [rec.name(2, "backward"), rec.agg(1, rec.LABEL, 1, 1, 5), rec.agg(1, rec.BACKWARD, 2, 1, 5)]
    path.write_bytes(rec.recording(records))
    assert sorted(names_of(path)) == ["Optimizer.step#SGD.step", "backward"]
    assert report(path).stdout.startswith(b"Profiler Report\n")


def test_ranks_are_added_or_apart(lightning_job):
    data = json.loads(report(lightning_job, "--json", "--per-rank").stdout)
    assert data["actions"][0]["count"] == 10 and data["actions"][0]["pid"] is None
    assert [(p["pid"], p["role"], p["rank"], len(p["actions"])) for p in data["processes"]] == [
        (1, "main", 0, 3),
        (2, "main", 1, 3),
        (3, "worker", None, 1),
    ]
    text = report(lightning_job, "--per-rank").stdout.decode()
    assert text.count("FIT Profiler Report\n") == 3
    assert "pid 2 (main, rank 1)\n" in text and "pid 3 (worker)\n" in text
    assert "rows: added over 2 processes" in report(lightning_job).stdout.decode()


@pytest.mark.parametrize(
    "key, first",
    [("name", "[Strategy]S.training_step"), ("total", "run_training_batch"), ("first", "run_training_batch")],
)
def test_sort(lightning_job, key, first):
    assert names_of(lightning_job, "--sort", key)[0] == first


def test_limit_and_action(lightning_job):
    assert names_of(lightning_job, "--sort", "percent", "--limit", "1") == ["run_training_batch"]
    assert "\n2 more rows (--limit 1)\n" in report(lightning_job, "--limit", "1").stdout.decode()
    assert names_of(lightning_job, "--action", "my label") == ["my label"]
    assert names_of(lightning_job, "--action", "Optimizer.step#SGD.step") == ["Optimizer.step#SGD.step"]


@pytest.mark.parametrize("options", [(), ("--json",), ("--csv",), ("--per-rank",)], ids=str)
def test_no_such_action(lightning_job, options):
    """As with export."""
    result = report(lightning_job, "--action", "none", *options)
    assert result.returncode == 1 and result.stdout == b""
    assert b'No action is named "none"' in result.stderr


def test_lost_and_cost(tmp_path):
    path = tmp_path / "run.rec"
    records = [rec.target(1), rec.window(START, START + 10 * 10**9, 1000, 3), rec.cost(9000, 5000, 2000, 10**8, 24 * 10**6, 64000, 300)]
    records += [rec.counter("unwound", 3), rec.counter("open_at_end", 0), rec.counter("from_the_future", 1)]
    path.write_bytes(rec.recording(records))
    text = report(path).stdout.decode()
    assert "window: 10 s, 1000 steps ended (Optimizer.step)\n" in text
    whole = "cost: 5000 hits x 2000 ns + 64000 system calls x 300 ns = about 0.29 % of the busiest process;"
    assert whole in re.sub(r"\s+", " ", text)
    assert "lost: unwound=3 (native spans closed by an exception or a longjmp, not timed)," in text
    assert all(len(line) <= 80 for line in text.splitlines())
    data = json.loads(report(path, "--json").stdout)
    assert data["lost"] == {"unwound": 3, "from_the_future": 1}
    assert data["overhead"] == {
        "percent": pytest.approx(0.292),
        "calls": 64000,
        "call_ns": 300,
        "hits": 9000,
        "hit_ns": 2000,
        "budget_percent": None,
        "own_cpu_percent": pytest.approx(1),
        "own_rss_bytes": 24 * 10**6,
        "attach_ms": 0,
        "detach_ms": 0,
    }


def test_cost_of_samples(tmp_path):
    """What the job pays is for hits, traced system calls, and samples."""
    path = tmp_path / "run.rec"
    cost = rec.cost(9000, 5000, 2000, 10**8, 24 * 10**6, 64000, 300, sampler_ns=10**8)
    path.write_bytes(rec.recording([rec.target(1), rec.window(START, START + 10 * 10**9, 1000, 3), cost]))
    assert json.loads(report(path, "--json").stdout)["overhead"]["percent"] == pytest.approx(100 * (5000 * 2000 + 64000 * 300 + 10**8) / 10**10)
    assert "about 1.3 % of the busiest process" in re.sub(r"\s+", " ", report(path).stdout.decode())


# ---- the command ----


def test_errors_say_what_and_how_to_mend(tmp_path, lightning_job):
    missing = report(tmp_path / "none.rec")
    assert missing.returncode == 1 and b"no recording" in missing.stderr and b"fix: " in missing.stderr
    other = tmp_path / "other"
    other.write_bytes(b"not one\n" * 100)
    assert report(other).returncode == 1 and b"is not a stepflame recording" in report(other).stderr
    other.write_bytes(rec.recording(LIGHTNING_JOB, version=7))
    newer = report(other)
    assert newer.returncode == 1 and b"format 7" in newer.stderr and b"reads formats %d to %d" % (rec.OLDEST, rec.VERSION) in newer.stderr
    assert b"use the stepflame that wrote it" in newer.stderr
    assert report(lightning_job, "--nonsense").returncode == 2
    assert report(lightning_job, "--sort", "nonsense").returncode == 2
    assert report(lightning_job, "--limit", "-1").returncode == 2
    assert report(tmp_path).returncode == 1
    usage = subprocess.run([STEPFLAME, "nonsense"], capture_output=True)
    assert usage.returncode == 2 and not usage.stdout and b"report" in usage.stderr


def test_cut_recording_is_reported_with_a_warning(tmp_path, lightning_job):
    path = tmp_path / "cut.rec"
    path.write_bytes(lightning_job.read_bytes() + rec.chunk(rec.note("late"))[:-1])
    result = report(path)
    assert result.returncode == 0 and b"is cut off after" in result.stderr
    assert result.stdout == report(lightning_job).stdout


def test_damage_never_crashes(tmp_path, lightning_job):
    rng = random.Random(3)
    path = tmp_path / "bad.rec"
    body = b"".join(LIGHTNING_JOB)
    for _ in range(150):
        bad = bytearray(body)
        for _ in range(rng.randrange(1, 30)):
            bad[rng.randrange(len(bad))] = rng.choice([0, 1, 5, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        path.write_bytes(rec.header() + rec.chunk(bytes(bad)))
        for args in (["--json", "--per-rank"], ["--all"]):
            result = report(path, *args)
            useless = result.returncode == 1 and b"nothing in it can be reported" in result.stderr
            assert useless or result.returncode == 0, (result.stderr, bytes(bad))
            if args[0] == "--json" and not useless:
                json.loads(result.stdout)


def test_closed_pipe_is_quiet(lightning_job):
    for restore in (True, False):  # False: SIGPIPE stays ignored, as Python has it
        read, write = os.pipe()
        os.close(read)
        result = subprocess.run(
            [STEPFLAME, "report", str(lightning_job)],
            stdout=write,
            stderr=subprocess.PIPE,
            restore_signals=restore,
        )
        os.close(write)
        assert result.returncode == 0 and not result.stderr


def test_full_disk_is_an_error(lightning_job):
    with open("/dev/full", "w") as full:
        result = subprocess.run([STEPFLAME, "report", str(lightning_job)], stdout=full, stderr=subprocess.PIPE)
    assert result.returncode == 1 and b"No space left" in result.stderr


def test_default_file_and_version(tmp_path, lightning_job):
    (tmp_path / "stepflame.rec").write_bytes(lightning_job.read_bytes())
    result = subprocess.run([STEPFLAME, "report", "--simple"], capture_output=True, cwd=tmp_path)
    assert result.stdout == report(lightning_job).stdout
    version = subprocess.run([STEPFLAME, "--version"], capture_output=True).stdout
    assert version.startswith(b"stepflame ")
