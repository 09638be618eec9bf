# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What holds a job up: each planted fault is found and named, where, when and how much, and no other; in a job without faults there is none."""

from __future__ import annotations

import json
from pathlib import Path

import generated
import pytest
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
