# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Which step of one rank is which of another: against generated jobs, whose steps are known, and a real one, which writes its own step numbers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import generated
import helpers
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from stepflame.fleet import report
from stepflame.fleet.align import align, minutes_off, tracks
from stepflame.fleet.engine import Scope

TRAIN = Scope(job="train")
LATE, SKEW = {5: 3, 17: 6.3}, {"node-00001": 7.25, "node-00003": -2.5}


@pytest.fixture
def store(made):
    late = [f"{rank}={minute}" for rank, minute in LATE.items()]
    options = ("--ranks", "32", "--hours", "0.2", "--step", "0.1", "--late", *late, "--skew", "1=7.25", "3=-2.5", "--rest", "2=0.3", "--gap", "0=4-7")
    return made.store("aligned", *options)


def true_offsets(store: str, reference: int) -> dict[int, int]:
    first = json.loads(Path(store, "truth.json").read_text())["jobs"]["train"]["first_steps"]
    return {int(rank): step - first[str(reference)] for rank, step in first.items()}


def rewritten(store: str, folder: Path, change) -> str:
    """A copy whose steps change(table, host) has changed."""
    shutil.copytree(Path(store, "v1/steps"), folder / "v1/steps")
    for path in folder.rglob("*.parquet"):
        pq.write_table(change(pq.ParquetFile(path).read(), path.name[:10]), path)
    return str(folder)


def put(table: pa.Table, name: str, values: np.ndarray) -> pa.Table:
    at = table.schema.get_field_index(name)
    return table.set_column(at, table.schema.field(at), pa.array(values, table.schema.field(at).type))


def test_finds_offsets_and_clocks(store):
    found = align(store, TRAIN)
    true = true_offsets(store, found.reference[2])
    assert {rank.rank: rank.offset for rank in found.ranks} == true and len(true) == 32
    assert {rank.how for rank in found.ranks} == {"collectives"}
    assert found.disagree == list(SKEW) and not found.left_out
    for host, clock in found.clocks.items():
        assert abs(clock / 1e9 - SKEW.get(host, 0)) < 0.001
    others = [rank for rank in found.ranks if rank.rank != found.reference[2]]
    # how sure it is: half of the steps end within a millisecond of where they should, at any other offset not half as near
    assert all(rank.spread_ns < 1e6 and rank.next_ns > 1.3 * rank.spread_ns and rank.agree > 0.99 for rank in others), others


def test_without_collectives_by_time(store, tmp_path):
    """Where no rank meets another, clocks are all there is: those of hosts that agree give the step, or the one beside it."""
    none = rewritten(store, tmp_path, lambda table, _: put(put(table, "comm_ns", np.zeros(len(table))), "wait_collective_ns", np.zeros(len(table))))
    found = align(none, TRAIN)
    assert {rank.how for rank in found.ranks} == {"time"} and not found.clocks
    true = true_offsets(store, found.reference[2])
    ahead = SKEW.get(found.reference[0], 0)
    for rank in found.ranks:
        if SKEW.get(rank.host, 0) == ahead:
            assert abs(rank.offset - true[rank.rank]) <= 1 and rank.agree > 0.8, rank


def test_lies_are_left_out_and_named(store, tmp_path):
    def lie(table, host):
        step, length = table["step"].to_numpy().copy(), table["duration_ns"].to_numpy().copy()
        if host == "node-00002":
            length[:10], length[10:20], step[20:30] = -1, 2**62, -5
        if host == "node-00003":
            step[table["rank"].to_numpy() == 24] *= 10**12
        return put(put(table, "step", step), "duration_ns", length)

    lying = Path(rewritten(store, tmp_path, lie))
    (lying / "v1/steps/date=2026-11-02/cluster=c1/job=train/node-00009-10.parquet").write_bytes(b"PAR1 no")
    found = align(lying, TRAIN)
    assert any("node-00009" in text for text in found.left_out)
    assert "host node-00002 lies: 30 steps cannot be true" in found.left_out
    assert any(text.startswith("host node-00003 lies: process") for text in found.left_out)
    true = true_offsets(store, found.reference[2])
    assert {rank.rank: rank.offset for rank in found.ranks} == {rank: offset for rank, offset in true.items() if rank != 24}


@pytest.mark.parametrize(
    "name, values, left_out",
    (
        ("start", pa.array([2**62], pa.timestamp("us", "UTC")), "host node-00002 lies: "),
        ("start", pa.array([None], pa.timestamp("us", "UTC")), "host node-00002 lies: "),
        ("step", pa.array([2**63 - 1]), "host node-00002 lies: "),
        ("step", pa.array([None], pa.int64()), "host node-00002 lies: "),
        ("duration_ns", pa.array([None], pa.int64()), "host node-00002 lies: "),
        ("host", pa.array([b"\xff"]).view(pa.utf8()), "Invalid UTF8"),
        ("pid", pa.array(["x"]), "its column pid is string, not int32"),
        ("start", pa.array(["x"]), "its column start is string, not timestamp[us, tz=UTC]"),
        ("rank", pa.array([[1]]), "its column rank is list<element: int64>, not int32"),
        ("comm_ns", None, "it has no column comm_ns"),
    ),
)
def test_hostile_columns_are_left_out(store, tmp_path, name, values, left_out):
    def harm(table, host):
        if host != "node-00002":
            return table
        at = table.schema.get_field_index(name)
        return table.remove_column(at) if values is None else table.set_column(at, name, pa.concat_arrays([values] * len(table)))

    found = align(rewritten(store, tmp_path, harm), TRAIN)
    assert len(found.ranks) == 24 and "node-00002" not in found.clocks
    assert left_out in found.left_out[0]


def test_ranks_without_samples_meet_too(store, tmp_path):
    """Their waits are null."""
    nulls = rewritten(store, tmp_path, lambda table, _: table.set_column(table.schema.get_field_index("wait_collective_ns"), "wait_collective_ns", pa.nulls(len(table), pa.int64())))
    assert {rank.how for rank in align(nulls, TRAIN).ranks} == {"collectives"}


def test_only_the_asked_part_is_aligned(store, tmp_path):
    """Of two clusters that have a job of one name, one; and of the asked times and hosts."""
    shutil.copytree(Path(store, "v1/steps"), tmp_path / "v1/steps")
    for folder in list(tmp_path.rglob("cluster=c1")):
        shutil.copytree(folder, folder.with_name("cluster=c2"))
    assert len(align(tmp_path, Scope(job="train", cluster="c2")).ranks) == 32
    first = 29893560  # 2026-11-02 10:00
    part = align(store, Scope(job="train", since=first + 8, until=first + 10, hosts=("node-00000", "node-00001")))
    assert len(part.ranks) == 16 and all(800 < rank.steps < 1300 for rank in part.ranks)
    its = {(rank.host, rank.pid) for rank in part.ranks if rank.rank in (3, 5, 11)}
    assert {(rank.host, rank.pid) for rank in align(store, TRAIN, its).ranks} == its and len(its) == 3


def test_each_second_step_alone(store, tmp_path):
    """At other offsets the two have no step in common."""
    found = align(rewritten(store, tmp_path, lambda table, _: table.filter(pa.array(table["step"].to_numpy() % 2 == 0))), TRAIN)
    true = true_offsets(store, found.reference[2])
    even = [rank for rank in found.ranks if true[rank.rank] % 2 == 0]
    assert len(even) > 8 and all(rank.offset == true[rank.rank] for rank in even)


def test_nothing_to_align(tmp_path):
    assert align(tmp_path, TRAIN).ranks == []


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="recording needs root")
def test_real_ranks(tmp_path):
    """Four ranks over gloo, one of them slow, recorded at different times: each says itself which step it was at."""
    if subprocess.run([helpers.PYTHON, "-c", "import torch.distributed"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("%s has no torch: STEPFLAME_PYTHON names another" % helpers.PYTHON)
    log, recordings = tmp_path / "log", [tmp_path / f"{rank}.rec" for rank in range(4)]
    command = [helpers.PYTHON, "-m", "torch.distributed.run", "--nproc-per-node", "4", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", "--rdzv-id", "aligned"]
    command += [generated.ROOT / "tests/fleet/jobs/ddp.py", "--steps-log", log, "--slow-rank", "2", "--seconds", "60"]
    running = [subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})]
    try:
        logs = [Path(f"{log}.{rank}") for rank in range(4)]
        helpers.until(120, lambda: all(path.exists() and path.read_text().count("\n") > 100 for path in logs), lambda: "no steps of the ranks")
        for rank in (3, 0, 2, 1):
            pid = logs[rank].read_text().split("\n")[0]
            running.append(subprocess.Popen([helpers.STEPFLAME, "record", "-p", pid, "-d", "15", "-o", recordings[rank]], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            time.sleep(2)
        assert [process.wait() for process in running[1:]] == [0] * 4
        assert running[0].wait() == 0
    finally:
        for process in running:
            process.kill()
    environment = {**os.environ, "STEPFLAME": helpers.STEPFLAME, "PYTHONPATH": str(generated.ROOT / "user/python")}
    subprocess.run([sys.executable, "-m", "stepflame.fleet", "import", *recordings, "--store", tmp_path / "store"], check=True, env=environment)
    found = align(tmp_path / "store", Scope(job="aligned"))
    assert sorted(rank.rank for rank in found.ranks) == [0, 1, 2, 3] and not found.left_out
    true = {}
    files = sorted((tmp_path / "store").rglob("steps/**/*.parquet"))
    for track in tracks([str(path) for path in files], Scope(), []):
        ended = np.array([int(line.split()[1]) for line in logs[track.rank].read_text().split("\n")[1:-1]])
        said = np.abs(ended[None, :] - track.end_ns[:, None]).argmin(axis=1) - track.step
        assert np.unique(said).size == 1  # each step is one of the job's
        true[track.rank] = int(said[0])
    for rank in found.ranks:
        assert rank.offset == true[rank.rank] - true[found.reference[2]] and rank.how == "collectives", rank


# --- by minutes, where steps have no rows ---


PACES = np.random.default_rng(1).uniform(0, 40, 60)  # milliseconds: no two minutes are alike, as in any job


def late_shard(rank: int, m: int) -> float:
    """Milliseconds: rank 3's data is late in four minutes of twenty."""
    return 400 + PACES[m] + 0.3 * rank + (60 if rank == 3 and 5 <= m % 20 < 9 else 0)


@pytest.mark.parametrize("ahead", (10, -25, 600))
def test_a_clock_that_is_minutes_off_changes_no_answer(tmp_path, ahead):
    """Of the rank that is late itself: no minute in which it is slow would be one in which others wait."""
    said = []
    for name, minutes in (("right", 0), ("wrong", ahead)):
        store = generated.trained(tmp_path / name, 8, late_shard, 45, minute=lambda rank, m, off=minutes: (generated.BEGIN + m + off * (rank == 3)) * 60_000_000)
        said.append(report.report(generated.duckdb(store, job="train"), "train"))
    right, wrong = said
    assert [finding["ranks"] for finding in right["findings"]] == [[3]] and len(right["findings"][0]["times"]) == 2
    assert [wrong[key] for key in ("findings", "begin", "end", "doubts")] == [right[key] for key in ("findings", "begin", "end", "doubts")]
    assert (right["moved_minutes"], wrong["moved_minutes"]) == ({}, {"node-3": ahead}) and wrong["clocks"] == {"node-3": 60.0 * ahead}
    assert "minutes" in report.report_text(wrong) and "Clocks" not in report.report_text(right)


def test_ranks_whose_collectives_are_not_seen(tmp_path):
    """Their steps have rows, whose ends tell nothing then: the lengths do. A finding names the recordings by the times that its minutes count as."""
    ahead = lambda rank: 10 * (rank == 3)  # noqa: E731
    at = lambda rank, m: (generated.BEGIN + m + ahead(rank)) * 60_000_000  # noqa: E731
    key = lambda rank: {"job": "train", "host": "node-%d" % rank, "pid": 100 + rank, "rank": rank}  # noqa: E731
    steps = [{**key(rank), "minute": at(rank, m), "start": at(rank, m), "step": m, "duration_ns": 1024, "forward_ns": 1024} for rank in range(8) for m in range(45)]
    ranks = [{**key(rank), "since": at(rank, 0), "until": at(rank, 10)} for rank in range(8)]
    store = generated.trained(tmp_path, 8, late_shard, 45, minute=at, tables={"steps": steps, "ranks": ranks})
    said = report.report(generated.duckdb(store, job="train"), "train")
    assert said["clocks"] == {"node-3": 600.0} and said["moved_minutes"] == {"node-3": 10}
    (finding,) = said["findings"]
    assert finding["ranks"] == [3] and [row["pid"] for row in finding["recordings"]] == [103]
    assert finding["recordings"][0]["since"].timestamp() == generated.BEGIN * 60


def test_lengths_that_tell_nothing_move_no_minutes(tmp_path):
    """Ranks that do not meet, all minutes alike, two hosts, a few minutes."""
    rng = np.random.default_rng(1)
    apart = [{"host": "h%d" % host, "m": m, "step": float(rng.lognormal())} for host in range(40) for m in range(60)]
    alike = [{"host": "h%d" % host, "m": m + host, "step": 1.0} for host in range(4) for m in range(60)]
    shared = rng.lognormal(size=60).tolist()
    two = [{"host": "h%d" % host, "m": m + host, "step": shared[m]} for host in range(2) for m in range(60)]
    few = [{"host": "h%d" % host, "m": m, "step": shared[m]} for host in range(4) for m in range(10)]
    assert [minutes_off(rows) for rows in (apart, alike, two, few, [])] == [None] * 5
    # one host that trains something else is left as it is
    other = [{"host": "h%d" % host, "m": m, "step": shared[m] if host else float(rng.lognormal())} for host in range(9) for m in range(60)]
    assert minutes_off(other) == {"h0": None}


@pytest.mark.parametrize("off", (3, -3))
@pytest.mark.parametrize("ranks", (2, 4))
def test_a_stall_at_the_edge_of_a_minute(tmp_path, off, ranks):
    """By clocks some seconds apart it is in two minutes: one finding, and who it was."""

    def longest(rank: int, m: int) -> int:
        return (20_000 if m == 12 + (off > 0 and rank % 2) - (off < 0 and rank % 2) else 500) * generated.MS

    def stalled(rank: int, m: int) -> float:
        return 400 + PACES[m] + (195 if longest(rank, m) > 10**10 and rank == 1 else 0)

    store = generated.trained(tmp_path, ranks, stalled, 40, longest_ns=longest)
    found = report.report(generated.duckdb(store, job="train"), "train")["findings"]
    assert [(finding["kind"], finding["ranks"]) for finding in found] == [("stall", [1])]
