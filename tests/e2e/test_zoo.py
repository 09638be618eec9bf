# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A quick part of the zoo (`make zoo`): programs of tests/zoo that need only torch and Lightning; and whether its judge is strict."""

import importlib.util
import os
import subprocess
import sys

import helpers
import pytest

ZOO = helpers.ROOT / "tests" / "zoo"
SECONDS = 6


@helpers.needs_bpf
@pytest.mark.alone
@pytest.mark.parametrize("case", ["manual-sleep20", *(pytest.param(case, marks=pytest.mark.long) for case in ("infer-item20", "lightning_boring-item100"))])
def test_quick_part(case, tmp_path):
    command = [helpers.PYTHON, ZOO / "zoo.py", "-k", case, "--python", helpers.PYTHON, "--out", tmp_path, "--seconds", SECONDS]
    env = dict(os.environ, STEPFLAME=helpers.STEPFLAME)
    result = subprocess.run([str(word) for word in command], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stdout + result.stderr
    assert (tmp_path / "zoo.md").read_text().splitlines()[-1] == "1 right, 0 wrong, 0 abstained", result.stdout


def module(name):
    """By its path, and known by its name alone, as those of the zoo import each other."""
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, ZOO / (name + ".py"))
    out = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(out)
    return out


@pytest.fixture(scope="module")
def judge():
    module("cases")
    return module("judge")


STEP = 0.01
FOUND = {
    "verdict": {"class": "input-bound"},
    "straggler": None,
    "all": {"total_s": 2.0, "phases": [{"name": "data", "waits": {"run_queue": 0.4}}]},
    "window": {"seconds": 2.0},
    "causes": [{"cause": "sleep", "phase": "data", "over_s": 1.0, "rhythm": {"shortest": 10, "longest": 10}, "where": [{"name": "Slow.item"}]}],
}
CASES = [
    ("right", {}),
    ("right", {"slow_every": None}),
    ("wrong", {"class": "lock-bound"}),
    ("abstained", {"class": "unclear"}),
    ("wrong", {"cause": "lock"}),
    ("abstained", {"class": "extra-work"}),
    ("abstained", {"cause": "unknown"}),
    ("abstained", {"cause": "extra_work"}),
    ("wrong", {"name": "Fast.item"}),
    ("right", {"name": "mine.Slow.item"}),
    ("wrong", {"name": "item"}),
    ("right", {"name": "item", "python": "3.10"}),
    ("abstained", {"name": "<module>"}),
    ("abstained", {"over_s": 0.01}),
    ("wrong", {"rhythm": {"shortest": 11, "longest": 12}}),
    ("abstained", {"rhythm": None}),
    ("wrong", {"slow": False}),
    ("wrong", {"missing": 10}),
    ("right", {"clock": 0.7}),
    ("wrong", {"slower": 1.5}),
    ("abstained", {"steps": 0}),
    ("wrong", {"class": "CPU-starved"}),
    ("right", {"class": "CPU-starved", "delayed": 0.2}),
    ("wrong", {"straggler": {"rank": 0, "pid": 1}}),
    ("right", {"place": "slow.py:20 Slow.item", "in": "Slow.item"}),
    ("wrong", {"place": "slow.py:20 Slow.items", "in": "Slow.item"}),
    ("abstained", {"in": "Slow.item"}),
    ("right", {"says": "getting data"}),
    ("wrong", {"says": "its own limit"}),
    ("right", {"never": "its own limit"}),
    ("wrong", {"never": "getting data"}),
    ("right", {"advice": "num_workers"}),
    ("abstained", {"advice": "batches"}),
    ("wrong", {"no_advice": "num_workers"}),
    ("right", {"told": "/data (nfs4)"}),
    ("abstained", {"told": "/home (nfs4)"}),
    ("right", {"quota": [120, 60], "throttled": (100, 49)}),
    ("wrong", {"quota": [120, 60], "throttled": (100, 90)}),
    ("wrong", {"quota": [120, 60], "throttled": (130, 65)}),
    ("abstained", {"quota": [120, 60]}),
    ("wrong", {"throttled": (100, 50)}),
]


@pytest.mark.parametrize("verdict, change", CASES, ids=lambda value: str(value))
def test_judge(judge, verdict, change):
    """Of a report on a program whose every 10th batch is slow, changed in one thing."""
    table = module("cases")
    count = change.get("steps", 200)
    steps = [{"start_s": i * STEP + 0.1, "duration_s": STEP * change.get("slower", 1)} for i in range(count)]
    del steps[50 : 50 + change.get("missing", 0)]
    group = dict(FOUND["causes"][0], **{key: change[key] for key in ("cause", "over_s", "rhythm") if key in change})
    group["where"] = [{"name": change.get("name", "Slow.item")}]
    told = {"class": change.get("class", "input-bound"), "place": change.get("place"), "why": "40 % goes into getting data"}
    told.update(evidence=["/data (nfs4): 1 s to open, look up or list files"], next=["set num_workers in the DataLoader"])
    periods, used_up = change.get("throttled", (0, 0))
    throttled = {"periods": periods, "throttled_periods": used_up} if periods else None
    found = dict(FOUND, resources=[{"limits": None}, {"limits": {"throttled": throttled}}], steps=steps, causes=[group], verdict=told, straggler=change.get("straggler"))
    slow = table.slow("sleep", "Slow.item", change.get("slow_every", 10)) if change.get("slow", True) else None
    place = frozenset({change["in"]}) if "in" in change else None
    words = {key: change[key] for key in ("says", "never", "told", "advice", "no_advice") if key in change}
    case = table.Case("any", table.Expect(frozenset({"input-bound"}), slow, place=place, **words), python=change.get("python", "3.11"))
    # recording began somewhat before it was said to
    ends = [1000 + 0.1 + change.get("clock", 0) + i * STEP for i in range(-500, 700)]
    truth = judge.Truth(ends, 1000.05, change.get("delayed", 0), change.get("quota"))
    judged = judge.judge(found, case, truth, judge.Texts("", {}))
    assert judged[0] == verdict, judged
