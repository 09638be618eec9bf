# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What holds a job up: each planted fault is found and named, where, when and how much, and no other; in a job without faults there is none."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path

import generated
import pytest
from stepflame.errors import StepflameError
from stepflame.fleet import report
from stepflame.fleet.engine import Scope

OF_PLANT = {"slow-host": "slow-host", "throttled-gpu": "throttled-gpu", "slow-link": "slow-link", "bad-shard": "late-data", "stall": "stall"}
MINUTES = 2  # a minute of a window is in part of the time before


def ask(store: str, **scope: object) -> report.Answer:
    return report.report(generated.duckdb(store, job="train", **scope), "train")


def minute(text: str) -> int:
    return int(text[11:13]) * 60 + int(text[14:16])


def check(found: list[dict[str, object]], planted: list[dict[str, object]]) -> None:
    """Both ways: nothing is missing, and nothing is invented."""
    left = list(found)
    for plant in planted:
        its = [f for f in left if f["kind"] == OF_PLANT[plant["kind"]] and f["hosts"] == plant["hosts"]]
        assert len(its) == 1, (plant, [f["said"] for f in left])
        left.remove(its[0])
        finding = its[0]
        assert finding["ranks"] == plant["ranks"]
        begin, end = plant["begin"], plant["end"]
        assert abs(minute(finding["since"]) - minute(begin)) <= MINUTES, finding["said"]
        if plant["kind"] == "stall":
            assert abs(finding["excess_ns"] / 1e9 - plant["seconds"]) < 1
        elif plant.get("every"):
            assert len(finding["times"]) > 1
        elif end is None:
            assert finding["until"] is None, finding["said"]
        else:
            assert abs(minute(finding["until"]) - minute(end)) <= MINUTES, finding["said"]
    assert not left, [f["said"] for f in left]


def truth(store: str, job: str = "train") -> list[dict[str, object]]:
    return json.loads((Path(store) / "truth.json").read_text())["jobs"][job]["planted"]


def test_nothing_is_invented(made):
    said = ask(made.plain())
    assert said["ranks"] == 104 and said["hosts"] == 13 and said["findings"] == [] and said["twice"] == [] and said["left_out"] == []
    assert "no rank, host, link or GPU" in report.report_text(said)
    assert 0.99 < said["seen_share"] <= 1 and 0.45e9 < said["step_ns"] < 0.55e9


@pytest.mark.long
@pytest.mark.parametrize("kind", generated.PLANTS)
def test_one_fault(made, kind):
    store = made.planted(generated.ELSEWHERE[kind])
    check(ask(store)["findings"], truth(store))


def test_all_faults_at_once(made):
    store = made.all_of(generated.PLANTS)
    said = ask(store)
    check(said["findings"], truth(store))
    because = {finding["kind"]: " ".join(finding["because"]) for finding in said["findings"]}
    assert "its GPU runs at" in because["throttled-gpu"]
    assert "reduce_in_host" in because["slow-link"]
    assert "longer in data" in because["late-data"] and "data_wait" in because["late-data"]
    assert "disk_read in data at data.py:44 Shards.open" in because["stall"]
    assert len(report.report_text(said).splitlines()) < 50


def test_all_faults_elsewhere(made):
    store = made.all_of(generated.ELSEWHERE)
    check(ask(store)["findings"], truth(store))


@pytest.mark.long
@pytest.mark.parametrize("ranks", (104, 1000))
@pytest.mark.parametrize("seed", range(3))
def test_seeds(made, ranks, seed):
    options = [word for plant in generated.PLANTS.values() for word in ("--plant", plant)]
    common = ["--ranks", str(ranks), "--steps", "none", "--seed", str(40 + seed)]
    assert ask(made.store("seed%d_%d" % (ranks, seed), *common))["findings"] == []
    store = made.store("all_seed%d_%d" % (ranks, seed), *common, *options)
    check(ask(store)["findings"], truth(store))


@pytest.mark.parametrize("ranks, plant", ((2, "throttled-gpu:rank=1,begin=4"), (4, "throttled-gpu:rank=2,begin=4"), (16, "slow-host:host=1,begin=4"), (24, "slow-host:host=1,begin=4")))
def test_few_ranks_or_hosts(made, ranks, plant):
    store = made.store("few%d" % ranks, "--ranks", str(ranks), "--hours", "0.25", "--steps", "none", "--plant", plant)
    check(ask(store)["findings"], truth(store))


def test_what_was_not_seen_is_said(made):
    """Hosts with a budget, one that was not seen for a while, ranks attached later: said, and no reason to blame anybody."""
    store = made.store("rests", "--ranks", "32", "--steps", "none", "--rest", "1=0.3", "2=0.5", "--gap", "3=20-30", "--late", "0=15")
    said = ask(store)
    assert said["findings"] == []
    expected = (8 * (1 + 0.3 + 0.5 + 50 / 60) - 15 / 60) / (32 - 15 / 60)
    assert said["seen_share"] == pytest.approx(expected, abs=0.02)
    assert said["rested_share"] == pytest.approx((8 * 1.2) / 32, abs=0.02) and said["rest_steps"] > 0
    assert said["spent_hours"]["not_seen"] == pytest.approx(8 * (0.7 + 0.5 + 10 / 60), rel=0.05)
    assert "was left alone for a budget" in report.report_text(said)


def test_a_straggler_that_is_seldom_seen(made):
    store = made.store("seldom", "--ranks", "64", "--steps", "none", "--rest", "3=0.2", "--plant", "slow-host:host=3,begin=20,percent=10")
    check(ask(store)["findings"], truth(store))


def test_compare_names_the_phase(made):
    common = ["--ranks", "32", "--hours", "0.3", "--steps", "none", "--plant", "regression:action=optimizer,percent=60"]
    store = made.store("runs_a", *common, "--run", "a")
    generated.generate(Path(store), *common, "--run", "b")
    engine = generated.duckdb(store).engine
    fleets = [report.Fleet(store, engine, Scope(job="train-" + run)) for run in "ab"]
    said = report.compare(*fleets, ("train-a", "train-b"))
    changed = {row["name"]: row for row in said["phases"] if row["changed"]}
    assert set(changed) == {"step", "optimizer"} and changed["optimizer"]["change_ns"] / changed["optimizer"]["a_ns"] == pytest.approx(0.6, abs=0.02)
    assert [row["name"][1] for row in said["actions"]][0].startswith("Optimizer.step") and said["ops"][0]["name"][1].startswith("aten::_foreach")
    assert "optimizer (+60 %)" in report.compare_text(said)
    same = report.compare(fleets[0], fleets[0], ("a", "a"))
    assert not any(row["changed"] for row in same["phases"]) and not same["waits"] + same["actions"] + same["ops"]


def test_hosts_that_are_slow_in_each_job(made):
    """node-00002 is slow in both of its jobs, node-00005 in one of two."""
    store = made.store("jobs", "--ranks", "32", "--hours", "0.2", "--steps", "none", "--plant", "slow-host:host=2,begin=0,percent=9")
    options = ["--ranks", "64", "--hours", "0.2", "--steps", "none", "--job", "other", "--seed", "5"]
    generated.generate(Path(store), *options, "--plant", "slow-host:host=2,begin=0,percent=9", "--plant", "slow-host:host=5,begin=0,percent=12")
    generated.generate(Path(store), "--ranks", "32", "--hours", "0.2", "--steps", "none", "--job", "third", "--first-host", "4")
    said = report.hosts(generated.duckdb(store))
    slow = {row["host"]: (row["slow_in"], row["jobs"]) for row in said["hosts"] if row["slow_in"]}
    assert slow == {"node-00002": (2, 2), "node-00005": (1, 2)}
    assert "node-00002" in report.hosts_text(said).splitlines()[0]


def test_hours_add_up(made):
    store = made.all_of(generated.PLANTS)
    for by in ("job", "host", "user"):
        rows = report.spend(generated.duckdb(store), by)["rows"]
        for row in rows:
            assert sum(row[key] for key in report.SPENT) == pytest.approx(row["hours"], rel=1e-3)
        assert sum(row["hours"] for row in rows) == pytest.approx(104, rel=0.01)
    plain = report.spend(generated.duckdb(made.plain()), "job")["rows"][0]
    planted = report.spend(generated.duckdb(store), "job")["rows"][0]
    assert plain["stragglers"] < 0.01 * plain["hours"] and planted["stragglers"] > 0.15 * planted["hours"]


# --- few ranks, and what cannot be known ---

RANKS = pytest.mark.parametrize("ranks", (1, 2, 3, 4))


def unsaid(said: report.Answer, *texts: str) -> None:
    """Nothing is found, and not called fine."""
    assert said["findings"] == []
    text = " ".join(report.report_text(said).split())
    assert "none differs" not in text and all(part in text for part in ("it is not known", *texts)), text


def the_same(rank: int, minute: int) -> float:
    return 100


def last_is_slow(ranks: int, by: float = 30):
    return lambda rank, minute: 100 + by * (rank == ranks - 1) + 0.1 * ((7 * rank + minute) % 5)


@RANKS
def test_equal_ranks(tmp_path, ranks):
    said = ask(generated.trained(tmp_path, ranks, the_same))
    assert said["findings"] == said["doubts"] == [] and said["ranks"] == ranks
    if ranks > 1:  # no line of theirs is known that waits
        assert "none differs" in report.nothing_found(said) and "of links it is not known" in report.nothing_found(said)


@RANKS
def test_a_slow_rank_of_few(tmp_path, ranks):
    said = ask(generated.trained(tmp_path, ranks, last_is_slow(ranks)))
    assert [(f["kind"], f["ranks"]) for f in said["findings"]] == ([("slow-rank", [ranks - 1])] if ranks > 1 else [])
    if ranks > 1:
        assert said["findings"][0]["excess_ns"] == pytest.approx(30e6, rel=0.02)
        assert said["findings"][0]["because"][0] in ["waits 20 ms a step in collectives, the others %s ms" % ms for ms in ("49.9", "50", "50.1", "50.2")]
        slow = [row["host"] for row in report.hosts(generated.duckdb(str(tmp_path / "store")))["hosts"] if row["slow_in"]]
        assert slow == ["node-%d" % (ranks - 1)]


@RANKS
def test_ranks_that_do_not_wait_for_each_other(tmp_path, ranks):
    """Processes of a sweep, whose models differ, with ranks or without."""
    for name, more in (("ranks", {}), ("none", {"rank": None})):
        said = ask(generated.trained(tmp_path / name, ranks, last_is_slow(ranks), waits=False, **more))
        assert said["ranks"] == ranks
        if ranks > 1:
            unsaid(said, "the ranks do not wait for each other")
        assert not any(row["slow_in"] for row in report.hosts(generated.duckdb(str(tmp_path / name / "store")))["hosts"])


@RANKS
def test_processes_without_ranks(tmp_path, ranks):
    """Each is one, on whatever host its PID is."""
    said = ask(generated.trained(tmp_path, ranks, last_is_slow(ranks), rank=None, pid=7))
    assert said["ranks"] == said["hosts"] == ranks and (ranks == 1 or said["spent_hours"]["stragglers"] > 0)


@RANKS
def test_a_minute_is_not_enough(tmp_path, ranks):
    store = generated.trained(tmp_path, ranks, last_is_slow(ranks), minutes=1)
    if ranks > 1:
        unsaid(ask(store), "steps of several ranks were seen in 1 minute, and a finding takes 3")


@RANKS
@pytest.mark.parametrize("steps, reason", ((0, "no step that takes time was seen, only counted in rests"), (100, "no step that takes time was seen")))
def test_no_steps_or_none_that_take_time(tmp_path, ranks, steps, reason):
    none = dict.fromkeys(("step_ns", "longest_ns", "forward_ns", "comm_ns"), 0)
    store = generated.trained(tmp_path, ranks, the_same, **none, steps=steps, rest_steps=100 - steps, seen_ns=1, rested_ns=59_000 * generated.MS)
    if ranks > 1:
        unsaid(ask(store), reason)
    fleet = generated.duckdb(store, job="train")
    assert not any(row["slow_in"] for row in report.hosts(generated.duckdb(store))["hosts"])
    with pytest.raises(StepflameError, match="no step of a was seen that took time"):
        report.compare(fleet, fleet, ("a", "b"))


@pytest.mark.parametrize("ranks, hosts, slow", ((3, 3, 2), (4, 4, 2), (32, 4, 16), (8, 1, 4), (9, 9, 8)))
def test_half_or_more_are_slow(tmp_path, ranks, hosts, slow):
    said = ask(generated.trained(tmp_path, ranks, lambda rank, minute: 100 + (20 + rank * 0.01) * (rank < slow), hosts=hosts))
    unsaid(said, "too many are slow, to say which is usual")


@pytest.mark.parametrize("ranks", (2, 8))
def test_a_fault_in_every_fourth_minute(tmp_path, ranks):
    said = ask(generated.trained(tmp_path, ranks, lambda rank, minute: 100 + 40 * (rank == 1 and minute % 4 == 0), minutes=60))
    unsaid(said, "rank 1 (host node-1) is slow in some minutes, which stand alone", "ranks wait for stragglers")


def test_a_few_slow_minutes_of_an_hour_are_usual(tmp_path):
    """Such as those of checkpoints, which rank 0 writes alone."""
    said = ask(generated.trained(tmp_path, 4, lambda rank, minute: 100 + 10 * (rank == 0 and minute % 15 == 0), minutes=60))
    assert said["findings"] == said["doubts"] == []


@pytest.mark.parametrize("ranks", (2, 4, 16))
@pytest.mark.parametrize("late", (False, True))
def test_of_two_hosts_the_faster_one_is_usual(tmp_path, ranks, late):
    """In all figures: own time, data, waits."""
    slow = lambda rank: rank >= ranks // 2  # noqa: E731
    more = {"data_ns": lambda rank, minute: 100 * (1 + 20 * slow(rank)) * generated.MS} if late else {}
    store = generated.trained(tmp_path, ranks, lambda rank, minute: 100 + 20 * slow(rank), hosts=2, **more)
    (finding,) = ask(store)["findings"]
    assert finding["kind"] == ("late-data" if late else "slow-host" if ranks > 2 else "slow-rank") and finding["ranks"] == list(range(ranks // 2, ranks))
    assert finding["excess_ns"] == pytest.approx(20e6) and "waits 20 ms a step in collectives, the others 40 ms" in finding["because"]
    of_host = {row["host"]: row["excess"] for row in report.hosts(generated.duckdb(store))["hosts"]}
    assert of_host == {"node-0": 0, "node-1": pytest.approx(20 / 140)}


@pytest.mark.parametrize("ranks", (2, 3, 4))
def test_a_stall_of_few_ranks(tmp_path, ranks):
    long = lambda rank, minute, of: 30_000 * generated.MS * (minute == 10) * (of is None or (rank == 1) == of)  # noqa: E731
    more = {"step_ns": lambda r, m: 12_000 * generated.MS + long(r, m, None), "longest_ns": lambda r, m: 120 * generated.MS + long(r, m, None)}
    more |= {"data_ns": lambda r, m: long(r, m, True), "forward_ns": lambda r, m: 10_000 * generated.MS + long(r, m, True), "comm_ns": lambda r, m: 2000 * generated.MS + long(r, m, False)}
    (finding,) = ask(generated.trained(tmp_path, ranks, the_same, **more))["findings"]
    assert (finding["kind"], finding["ranks"]) == ("stall", [1]) and "rank 1 (host node-1) was in data" in finding["said"]


def test_a_stall_of_one_of_two_that_do_not_wait(tmp_path):
    longest = {"longest_ns": lambda rank, minute: (5000 if (rank, minute) == (1, 10) else 100) * generated.MS}
    assert ask(generated.trained(tmp_path, 2, the_same, waits=False, **longest))["findings"] == []


def test_one_rank_is_not_all(tmp_path):
    """The others have ended; it is at work on one step for another minute."""
    own = lambda rank, m: 100 if m < 20 else 400 if rank == 0 else 0  # noqa: E731
    there = lambda rank, m: m < 20 or rank == 0  # noqa: E731
    more = {"steps": lambda r, m: 100 * there(r, m), "comm_ns": lambda r, m: 2000 * generated.MS * there(r, m), "step_ns": lambda r, m: (100 * own(r, m) + 2000 * there(r, m)) * generated.MS}
    more |= {"longest_ns": lambda r, m: (30_000 if m == 20 else 120) * there(r, m) * generated.MS}
    fleet = generated.duckdb(generated.trained(tmp_path, 4, own, minutes=21, **more), job="train")
    assert report.report(fleet, "train")["findings"] == [] and fleet.count_odd("windows") == []


# --- slow links, and what looks like one ---


def samples_of(ranks: int, minutes: int, per_host: int, ns: Callable[[int, int], dict[str, float]]) -> dict[str, list[dict[str, object]]]:
    """Samples of collectives, ns(rank, minute) by place."""
    names = sorted({place for rank in range(ranks) for place in ns(rank, 0)})
    rows = [
        {"job": "train", "host": "node-%d" % (rank // per_host), "pid": 100 + rank, "rank": rank, "minute": (generated.BEGIN + m) * 60_000_000, "phase": "comm", "main": True, "stack": names.index(place), "n": 1, "weight_ns": round(its)}
        for rank in range(ranks) for m in range(minutes) for place, its in ns(rank, m).items() if its
    ]  # fmt: skip
    return {"samples": rows, "stacks": [{"stack": number, "frames": ["train.py:1 main", name]} for number, name in enumerate(names)]}


@pytest.mark.parametrize("paces", ("alike", "apart"))
@pytest.mark.parametrize("ahead", (1.5, -1.5, 10))
def test_a_clock_that_is_wrong_is_no_slow_link(tmp_path, paces, ahead):
    """Rank 3's data is late in four minutes of twenty: by its clock, node-1 waits for it at other times than the rest."""
    minutes = 60
    own = lambda rank, m: 400 + (10 * ((7 * m) % 5) if paces == "apart" else 0) + 0.3 * rank + (60 if rank == 3 and 5 <= m % 20 < 9 else 0)  # noqa: E731

    def of(rank: int, m: int, what: Callable[[int], float]) -> float:
        """By the clock of the rank's host: half a minute each of two."""
        return (what(math.floor(m - ahead)) + what(math.ceil(m - ahead))) / 2 if rank == 1 else what(m)

    mine = lambda rank, m: of(rank, m, lambda at: own(rank, at))  # noqa: E731
    comm = lambda rank, m: 100 * round((of(rank, m, lambda at: max(own(r, at) for r in range(5))) - mine(rank, m) + 20) * generated.MS)  # noqa: E731
    step = lambda rank, m: 100 * round(mine(rank, m) * generated.MS) + comm(rank, m)  # noqa: E731
    tables = samples_of(5, minutes, 1, lambda rank, m: {"train.py:9 reduce": comm(rank, m)})
    more = {"comm_ns": comm, "step_ns": step, "longest_ns": lambda rank, m: step(rank, m) // 100, "oncpu_ns": 0}
    said = ask(generated.trained(tmp_path, 5, mine, minutes, tables=tables, **more))
    assert [(finding["kind"], finding["ranks"]) for finding in said["findings"]] == [("slow-rank", [3])]


def test_a_slow_link(tmp_path):
    """Between hosts all wait for node-2, whose ranks wait longer in their own collective before."""
    inner = lambda rank, m: (31 if rank // 4 == 2 and m >= 10 else 1) * 100 * generated.MS  # noqa: E731
    comm = lambda rank, m: (20 + 30 * (m >= 10)) * 100 * generated.MS  # noqa: E731
    tables = samples_of(12, 20, 4, lambda rank, m: {"train.py:8 inside": inner(rank, m), "train.py:9 between": comm(rank, m) - inner(rank, m)})
    step = lambda rank, m: 10_000 * generated.MS + comm(rank, m)  # noqa: E731
    (finding,) = ask(generated.trained(tmp_path, 12, the_same, hosts=3, tables=tables, comm_ns=comm, step_ns=step, oncpu_ns=0))["findings"]
    assert (finding["kind"], finding["hosts"], finding["excess_ns"]) == ("slow-link", ["node-2"], pytest.approx(30e6))


def test_a_straggler_without_samples_in_a_collective_is_no_slow_link(tmp_path):
    """Rank 0 waits for nobody, so that it has none there; the other ranks of its host wait for it first."""
    own = lambda rank, m: 130 if rank == 0 else 100  # noqa: E731
    inner = lambda rank, m: (0 if rank == 0 else 30 if rank < 4 else 1) * 100 * generated.MS  # noqa: E731
    comm = lambda rank: (20 if rank == 0 else 50) * 100 * generated.MS  # noqa: E731
    tables = samples_of(12, 20, 4, lambda rank, m: {"train.py:8 inside": inner(rank, m), "train.py:9 between": comm(rank) - inner(rank, m)})
    found = ask(generated.trained(tmp_path, 12, own, hosts=3, tables=tables, oncpu_ns=0))["findings"]
    assert [(finding["kind"], finding["ranks"]) for finding in found] == [("slow-rank", [0])]


# --- clocks of GPUs ---


def gpus(ranks: int, name: Callable[[int], str]) -> list[dict[str, object]]:
    at = {"job": "train", "since": generated.BEGIN * 60_000_000, "until": (generated.BEGIN + 20) * 60_000_000}
    return [{**at, "host": "node-%d" % rank, "pid": 100 + rank, "rank": rank, "gpu": name(rank)} for rank in range(ranks)]


@pytest.mark.parametrize("ranks", (5, 6))
def test_another_gpu_is_not_throttled(tmp_path, ranks):
    """Rank 0 has an older one, which is slower, and has a lower clock; so has rank 1 in one of the two."""
    old = lambda rank: rank < ranks - 4  # noqa: E731
    tables = {"ranks": gpus(ranks, lambda rank: "A100" if old(rank) else "H100")}
    mhz = {"gpu_mhz": lambda rank, m: 1410.0 if old(rank) else 1980.0, "gpu_busy": 0.9}
    said = ask(generated.trained(tmp_path, ranks, lambda rank, m: 130 if rank == 0 else 100, tables=tables, **mhz))
    assert [(finding["kind"], finding["ranks"]) for finding in said["findings"]] == [("slow-rank", [0])]


@pytest.mark.parametrize("busy, kinds", ((0.9, ["throttled-gpu"]), (0.1, [])))
def test_a_gpu_that_idles_is_not_throttled(tmp_path, busy, kinds):
    tables = {"ranks": gpus(5, lambda rank: "H100")}
    mhz = {"gpu_mhz": lambda rank, m: 345.0 if rank == 1 else 1980.0, "gpu_busy": lambda rank, m: busy if rank == 1 else 0.9}
    assert [finding["kind"] for finding in ask(generated.trained(tmp_path, 5, the_same, tables=tables, **mhz))["findings"]] == kinds


def test_a_slow_host_whose_ranks_get_other_numbers(tmp_path):
    """The job begins anew, and its hosts come in another order."""
    of = lambda rank, m: (rank // 4 + (m >= 15)) % 3  # noqa: E731
    host, pid = lambda rank, m: "node-%d" % of(rank, m), lambda rank, m: 100 + rank + 100 * (m >= 15)
    store = generated.trained(tmp_path, 12, lambda rank, m: 120 if of(rank, m) == 1 else 100, minutes=30, hosts=3, host=host, pid=pid)
    (finding,) = ask(store)["findings"]
    assert (finding["kind"], finding["hosts"], finding["ranks"]) == ("slow-host", ["node-1"], list(range(8)))


def test_a_job_that_begins_anew_often_is_one(tmp_path):
    """Each time in a minute that both of its processes have."""
    for number in range(6):
        minute = lambda rank, m, number=number: (generated.BEGIN + 4 * number + m) * 60_000_000  # noqa: E731
        store = generated.trained(tmp_path, 3, last_is_slow(3), minutes=5, minute=minute, pid=lambda rank, m, number=number: 100 + 10 * number + rank)
    said = ask(store)
    assert said["twice"] == [] and len(said["restarts"]) == 15 and [(f["kind"], f["ranks"]) for f in said["findings"]] == [("slow-rank", [2])]
    assert report.hosts(generated.duckdb(store))["jobs_of_one_name"] == []


# --- compare ---


@pytest.mark.parametrize("minutes", (1, 2, 3))
def test_few_minutes_may_be_chance(tmp_path, minutes):
    for job, own in (("a", 100), ("b", 105)):
        store = generated.trained(tmp_path, 3, lambda rank, minute: own, minutes=minutes, job=job)
    engine = generated.duckdb(store).engine
    said = report.compare(*(report.Fleet(store, engine, Scope(job=job)) for job in "ab"), ("a", "b"))
    assert any(row["changed"] for row in said["phases"]) == (minutes > 2)
    assert ("it is not known" in report.compare_text(said)) == (minutes < 3)


def action(job: str, since: int, until: int, steps: int, name: str = "Optimizer.step") -> dict[str, object]:
    times = {"since": (generated.BEGIN + since) * 60_000_000, "until": (generated.BEGIN + until) * 60_000_000}
    return {"job": job, "host": "node-0", "pid": 100, "rank": 0, **times, "kind": "label", "name": name, "n": steps, "total_ns": 10 * steps * generated.MS, "self_ns": 10 * steps * generated.MS}


def test_actions_are_of_the_steps_of_their_recording(tmp_path):
    """Two jobs do the same. Of one there are two recordings, of the same time in part."""
    generated.trained(tmp_path, 1, the_same, job="a", tables={"actions": [action("a", 0, 20, 2000)]})
    generated.trained(tmp_path, 1, the_same, job="b", tables={"actions": [action("b", 0, 20, 2000), action("b", 4, 12, 800)]})
    # a recording that began long before what is in the store
    store = generated.trained(tmp_path, 1, the_same, job="c", tables={"actions": [action("c", -3000, 20, 302_000)]})
    engine = generated.duckdb(store).engine
    a, b, c = (report.Fleet(store, engine, Scope(job=job)) for job in "abc")
    assert [row["self"] / row["steps"] for row in report.totals(a, "actions")] == [10e6]
    assert report.compare(a, b, ("a", "b"))["actions"] == []
    said = report.compare(a, c, ("a", "c"))
    assert said["actions"] == [] and "not compared: actions" in report.compare_text(said)


def test_compare_refuses_what_report_refuses(tmp_path):
    for cluster in ("one", "two"):
        store = generated.trained(tmp_path, 2, the_same, cluster=cluster)
    generated.trained(tmp_path, 1, the_same, job="twins")
    generated.trained(tmp_path, 1, the_same, job="twins", pid=7)
    engine = generated.duckdb(store).engine
    for job, why in (("train", "2 clusters"), ("twins", "several jobs")):
        fleet = report.Fleet(store, engine, Scope(job=job))
        with pytest.raises(StepflameError, match=why):
            report.compare(fleet, fleet, (job, job))


def test_hours_of_a_user_whose_pid_another_one_had(tmp_path):
    for number, job in enumerate(("old", "new")):
        rank = {"job": job, "host": "node-0", "pid": 100, "rank": 0, "uid": 1000 + number, "launcher": "none", "since": generated.BEGIN * 60_000_000 + number, "until": (generated.BEGIN + 20) * 60_000_000}
        store = generated.trained(tmp_path, 1, the_same, job=job, tables={"ranks": [rank]})
    assert {row["name"] for row in report.spend(generated.duckdb(store), "user")["rows"]} == {1000, 1001}


def test_twins_that_nothing_tells_apart(tmp_path):
    for pid in (7, 8):
        store = generated.trained(tmp_path, 1, the_same, pid=pid)
    said = ask(store)
    assert len(said["twice"]) == 1
    text = " ".join(report.report_text(said).split())
    assert "give each job a name of its own" in text and "--host" not in text


def test_a_finding_names_its_recordings_and_the_gpus_are_told(tmp_path):
    at = {"job": "train", "since": generated.BEGIN * 60_000_000, "until": (generated.BEGIN + 20) * 60_000_000}
    ranks = [{**at, "host": "node-%d" % rank, "pid": 100 + rank, "rank": rank} for rank in range(4)]
    gpu = [{**ranks[2], "kind": "time", "name": name, "ns": ns} for name, ns in (("compute", 6), ("idle_host", 3), ("copy", 1), ("idle_data", 0))]
    tables = {"ranks": ranks, "gpu": [*gpu, {**ranks[2], "kind": "kernel", "name": "gemm", "n": 1, "ns": 6}]}
    path = generated.trained(tmp_path, 4, lambda rank, m: 130 if rank == 2 else 100, tables=tables)
    fleet = generated.duckdb(path, job="train")
    said = report.report(fleet, "train")
    file = next(tmp_path.glob("*.rec"))
    assert [(row["path"], row["pid"], row["machine"]) for row in said["findings"][0]["recordings"]] == [(str(file), 102, os.uname().nodename)]
    text = " ".join(report.report_text(said).split())
    assert "recorded in %s on %s (process 102)" % (file, os.uname().nodename) in text
    assert "GPUs in the windows of CUPTI: compute 60 %, idle since the CPU asked late 30 %, copies 10 %" in text
