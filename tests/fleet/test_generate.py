# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""tools/fleet: its tables are as the program's, its ranks wait for one another, and what it plants is there, and nowhere else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import duckdb
import fleet.recorded
import fleet.schema
import generated
import helpers
import numpy as np
import pyarrow as pa
import pytest
from stepflame.fleet import schema

RECORDINGS = generated.ROOT / "tests/data/recordings"
TOOL = generated.ROOT / "tools/fleet"
PHASES = "+".join(f"{phase}_ns" for phase in schema.PHASES)
OWN = "(step_ns - comm_ns) / steps"


def ask(store: str, query: str) -> list[tuple]:
    """{windows} of a query: the table of that name."""
    with duckdb.connect() as connection:
        found = {t: f"read_parquet('{store}/v1/{t}/*/*/*/*.parquet', hive_partitioning = true)" for t in schema.TABLES}
        return connection.execute("SET TimeZone = 'UTC'; " + query.format(**found, own=OWN)).fetchall()


def truth(store: str, job: str = "train") -> dict:
    return json.loads(Path(store, "truth.json").read_text())["jobs"][job]


def small(made, name: str, *options: str) -> str:
    return made.store("small-" + name, "--ranks", "24", "--hours", "0.25", "--step", "0.25", "--checkpoints", "0", *options)


@pytest.fixture
def plain(made):
    return small(made, "plain")


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("arrow")
    helpers.stepflame("export", RECORDINGS / "gpu_cupti.rec", "-f", "arrow", "-o", folder)
    return folder


@pytest.mark.parametrize("table", schema.EXPORTED)
def test_columns_are_the_programs(exported, table):
    theirs = pa.ipc.open_file(exported / f"{table}.arrow").schema
    ours = fleet.schema.schema(table)

    def plain_type(kind):
        return plain_type(kind.value_type) if pa.types.is_dictionary(kind) else pa.list_(plain_type(kind.value_type)) if pa.types.is_list(kind) else kind

    assert {f.name: (str(plain_type(f.type)), f.nullable) for f in ours} == {f.name: (str(plain_type(f.type)), f.nullable) for f in theirs if f.name != "job"}


def test_sums_agree(plain):
    assert ask(plain, f"SELECT count(*), sum(CAST({PHASES} <> step_ns AS INT)) FROM {{windows}}") == [(24 * 15, 0)]
    differ = """WITH s AS (SELECT host, pid, minute, sum(duration_ns) AS d, count(*) AS n, sum(oncpu_ns) AS c, max(duration_ns) AS l FROM {steps} GROUP BY ALL),
        w AS (SELECT host, pid, minute, sum(ns) AS ns FROM {waits} GROUP BY ALL)
        SELECT count(*) FROM {windows} JOIN s USING (host, pid, minute) JOIN w USING (host, pid, minute)
        WHERE d <> step_ns OR n <> steps OR c <> oncpu_ns OR l <> longest_ns OR w.ns + oncpu_ns <> step_ns"""
    assert ask(plain, differ) == [(0,)]
    assert ask(plain, "SELECT count(*) FROM {samples} ANTI JOIN {stacks} USING (stack)") == [(0,)]
    # as many samples as there is time
    assert 0.97 < ask(plain, "SELECT (SELECT sum(weight_ns) FROM {samples} WHERE main) / (SELECT sum(step_ns) FROM {windows})")[0][0] < 1.03


def test_ranks_wait_for_the_last(plain):
    """Of each step somebody comes last, and all others wait so much longer as they came earlier; all have the same steps."""
    first = truth(plain)["first_steps"]
    rows = ask(plain, "SELECT rank, step, data_ns + forward_ns + backward_ns, comm_ns, epoch_us(start) FROM {steps}")
    steps: dict[int, list[tuple]] = {}
    for rank, step, before, comm, start in rows:
        steps.setdefault(step + first[str(rank)], []).append((start * 1000 + before, comm))
    whole = [np.array(ranks) for ranks in steps.values() if len(ranks) == 24]
    assert len(whole) > 0.95 * len(steps)
    for come, comm in (ranks.T for ranks in whole):
        # it comes, and waits: all leave the collectives at once; of starts there are microseconds
        assert np.ptp(come + comm) < 5000
        assert comm.min() < 0.2 * 0.25e9


def test_same_seed_same_files(tmp_path, made):
    options = ("--ranks", "16", "--hours", "0.05", "--steps", "0-3", "--plant", "slow-host:host=1,begin=1")
    one, other, third = (generated.generate(tmp_path / name, *options, *more) for name, more in (("a", ()), ("b", ("--workers", "2")), ("c", ("--seed", "2"))))
    assert generated.content(one) == generated.content(other) != generated.content(third)


def test_usual_ranks_differ_little(plain):
    """What is not planted is no fault."""
    ((most, least),) = ask(plain, "WITH m AS (SELECT rank, avg({own}) AS own FROM {windows} GROUP BY rank) SELECT max(own / middle), min(own / middle) FROM m, (SELECT median(own) AS middle FROM m)")
    assert 0.97 < least < most < 1.03


def test_planted(made):
    plants = ["slow-host:host=1,begin=5,percent=8", "stall:rank=3,begin=3,seconds=20", "throttled-gpu:rank=20,begin=10", "bad-shard:rank=17,begin=1,end=2,every=4"]
    store = small(made, "planted", *(word for plant in plants for word in ("--plant", plant)))
    said = truth(store)
    assert [plant["kind"] for plant in said["planted"]] == [plant.partition(":")[0] for plant in plants]
    assert said["planted"][0]["hosts"] == ["node-00001"] and said["planted"][0]["ranks"] == list(range(8, 16)) and said["planted"][0]["begin"] == "2026-11-02T10:05:00+00:00"
    ratio = "SELECT (SELECT median({own}) FROM {windows} WHERE rank BETWEEN 8 AND 15 AND %s) / (SELECT median({own}) FROM {windows} WHERE rank < 8 AND %s)"
    before, after = (ask(store, ratio % (when, when))[0][0] for when in ("minute < '2026-11-02 10:03'", "minute > '2026-11-02 10:05' AND minute < '2026-11-02 10:09'"))
    assert abs(before - 1) < 0.01 and 1.06 < after < 1.08  # of what it does, 8 % longer is what it computes
    assert ask(store, "SELECT DISTINCT rank FROM {steps} WHERE wait_disk_read_ns > 0") == [(3,)]
    longest = ask(store, "SELECT min(longest_ns), max(longest_ns) FROM {windows} WHERE minute = '2026-11-02 10:03'")[0]
    assert 20e9 < longest[0] and longest[1] < 21e9
    assert ask(store, "SELECT DISTINCT rank FROM {windows} WHERE gpu_mhz < 1500 AND minute >= '2026-11-02 10:10'") == [(20,)]
    late = ask(store, "SELECT extract('minute' FROM minute) FROM {windows} WHERE rank = 17 AND data_ns > 0.2 * step_ns ORDER BY 1")
    assert {minute for (minute,) in late} >= {1, 5, 9, 13} and len(late) <= 8


def test_slow_link_is_in_its_collective_alone(made):
    """All ranks of a synchronous job are in collectives for the same time: only in which one they wait tells whose link it is."""
    store = small(made, "link", "--plant", "slow-link:hosts=2,begin=0")
    own, comm = ask(store, "WITH m AS (SELECT host, sum(step_ns - comm_ns) / sum(steps) AS own, sum(comm_ns) / sum(steps) AS comm FROM {windows} GROUP BY host) SELECT max(own) / min(own), max(comm) / min(comm) FROM m")[0]
    assert own < 1.02 and comm < 1.1
    calls = dict(ask(store, "SELECT host, sum(total_ns) / sum(n) / 1e6 FROM {actions} WHERE name = 'reduce_scatter_tensor' GROUP BY host"))
    assert calls["node-00002"] - max(calls["node-00000"], calls["node-00001"]) > 0.15 * 250
    assert ask(store, "SELECT host, mode(place) FROM {waits} WHERE cause = 'collective' GROUP BY host ORDER BY host")[2] == ("node-00002", "parallel.py:52 reduce_in_host")


def test_two_runs(tmp_path):
    for run in "ab":
        generated.generate(tmp_path, "--ranks", "16", "--hours", "0.1", "--steps", "none", "--run", run, "--plant", "regression:action=optimizer,percent=30")
    found = dict(ask(str(tmp_path), "SELECT job, sum(total_ns) / sum(n) FROM {actions} WHERE name = 'Optimizer.step#AdamW.step' GROUP BY job"))
    assert 1.28 < found["train-b"] / found["train-a"] < 1.32
    assert truth(str(tmp_path), "train-a")["planted"] == [] and truth(str(tmp_path), "train-b")["planted"][0]["action"] == "optimizer"


def test_what_was_not_seen(made):
    store = small(made, "unseen", "--late", "5=7", "--skew", "1=30", "--rest", "2=0.25", "--gap", "0=10-12")
    first = dict(ask(store, "SELECT rank, min(minute) - TIMESTAMPTZ '2026-11-02 10:00Z' FROM {windows} GROUP BY rank"))
    assert [first[rank].total_seconds() for rank in (0, 5, 8, 16)] == [0, 420, 0, 0]
    assert ask(store, "SELECT count(*) FROM {windows} WHERE host = 'node-00000' AND minute BETWEEN '2026-11-02 10:10' AND '2026-11-02 10:11'") == [(0,)]
    seen, rested, steps, rests = ask(store, "SELECT sum(seen_ns) / 9e11, sum(rested_ns) / 9e11, sum(steps), sum(rest_steps) FROM {windows} WHERE rank = 16")[0]
    assert 0.2 < seen < 0.3 and 0.98 < seen + rested < 1.0001
    others = ask(store, "SELECT sum(steps) FROM {windows} WHERE rank = 8")[0][0]
    assert abs(steps + rests - others) < 20 and 0.2 < steps / others < 0.28
    # the same second has another name there
    assert ask(store, "SELECT max(minute) - TIMESTAMPTZ '2026-11-02 10:00Z' FROM {windows} WHERE host = 'node-00001'")[0][0].total_seconds() == 900


def test_hours_go_on(tmp_path):
    generated.generate(tmp_path, "--ranks", "8", "--hours", "1.2", "--begin", "2026-11-02T22:30:00", "--steps", "none", "--step", "1")
    files = sorted(path.relative_to(tmp_path / "v1/windows").as_posix() for path in (tmp_path / "v1/windows").rglob("*.parquet"))
    assert files == [f"date=2026-11-02/cluster=c1/job=train/node-00000-{hour}.parquet" for hour in (22, 23)]
    rows = ask(str(tmp_path), "SELECT until, n FROM {actions} WHERE name = 'forward' AND rank = 3 ORDER BY until")
    assert len(rows) == 2 and 2 < rows[1][1] / rows[0][1] < 3  # since it was attached
    assert ask(str(tmp_path), "SELECT sum(steps) FROM {windows} WHERE rank = 3")[0][0] == rows[1][1]


@pytest.mark.parametrize("name", ["before", "gpu_cupti"])
def test_from_a_recording(tmp_path, monkeypatch, name):
    """Actions, waits, stacks, kernels and the shares of phases are those of the recorded job."""
    recording = RECORDINGS / f"{name}.rec"
    monkeypatch.setattr(fleet.recorded, "PROGRAM", helpers.STEPFLAME)
    generated.generate(tmp_path, "--ranks", "16", "--hours", "0.1", "--steps", "none", "--checkpoints", "0", "--from", str(recording))
    real = fleet.recorded.tables(recording)
    store = str(tmp_path)

    def column(table, *names):
        return set(zip(*(real[table][one].to_pylist() for one in names))) if real[table].num_rows else set()

    assert {row for row in column("actions", "kind", "name") if row[0] in ("forward", "backward")} <= set(ask(store, "SELECT DISTINCT kind, name FROM {actions}"))
    assert set(ask(store, "SELECT DISTINCT place FROM {waits} WHERE phase <> 'comm'")) <= column("waits", "place") | {("data.py:44 Shards.open",)}
    if real["gpu"].num_rows:
        assert {row for row in column("gpu", "kind", "name")} <= set(ask(store, "SELECT DISTINCT kind, name FROM {gpu}"))
    frames = {tuple(row) for row in real["stacks"]["frames"].to_pylist()}
    assert sum(tuple(row[0]) in frames for row in ask(store, "SELECT DISTINCT frames FROM {stacks}")) > 4
    median = {phase: float(np.median(real["steps"][f"{phase}_ns"].to_numpy())) for phase in ("forward", "backward")}
    made = ask(store, "SELECT sum(forward_ns) / sum(backward_ns) FROM {windows}")[0][0]
    assert abs(made / (median["forward"] / median["backward"]) - 1) < 0.35


@pytest.mark.parametrize(
    "options, why",
    [
        (["--plant", "gremlin"], "no such plant"),
        (["--plant", "stall:rank=64,begin=1"], "64 ranks on 8 hosts"),
        (["--plant", "slow-host:begin=1"], "does not say where"),
        (["--plant", "stall:rank=one"], "no number"),
        (["--run", "b", "--plant", "regression:action=sleep"], "no phase 'sleep'"),
        (["--late", "x=1"], "no number"),
        (["--from", "/nonexistent.rec"], "--from"),
    ],
)
def test_says_what_is_wrong(tmp_path, options, why):
    ran = subprocess.run([sys.executable, TOOL, tmp_path / "store", *options], capture_output=True, text=True)
    assert ran.returncode == 2 and why in ran.stderr and "\n  fix: " in ran.stderr and "Traceback" not in ran.stderr
