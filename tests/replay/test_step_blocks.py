# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Short steps are packed in a recording: it stays small, and reports say what the job itself says."""

import subprocess

import helpers
import pytest
import recfile as rec

FINENESS = 800  # user/recording/step_blocks.h
SECOND = 1000000000
OTHER, DATA, FORWARD, BACKWARD, OPTIMIZER = range(5)


def loop(count):
    """The records of a job with steps of about 0.4 ms, of which each hundredth takes 50 ms."""
    records = [rec.host(), rec.target(7)]
    time_ns = 100 * SECOND
    for i in range(count):
        noise = i * 7919 % 1013  # a step like no other
        phases = [0] * 12 if not i else [noise * 3, noise * 11, 120000 + noise * 29, 160000 + noise * 17, 80000]
        if i and i % 100 == 0:
            phases[DATA] += 50000000 + noise
        time_ns += sum(phases)
        records.append(rec.boundary(7, 7, i + 1, time_ns, phases, rule=2))
    return [*records, rec.window(99 * SECOND, time_ns + 1, count, 2)]


def steps_of(path):
    return helpers.report(path, "--steps")


def test_old_recording_and_merge(tmp_path):
    """A recording of the format before is read as it is; merge packs it, exact for steps that take long and for sums."""
    old, merged = tmp_path / "old.rec", tmp_path / "merged.rec"
    old.write_bytes(rec.recording(loop(5000), version=rec.OLDEST))
    other = tmp_path / "other.rec"
    other.write_bytes(rec.recording([rec.host(), rec.target(9, rank=1), rec.window(99 * SECOND, 120 * SECOND)]))
    subprocess.run([helpers.STEPFLAME, "merge", old, other, "-o", merged], check=True, capture_output=True)
    assert not any(rec.TYPES[number] == "STEPS" for number, _ in rec.read_packed(old))
    assert any(rec.TYPES[number] == "STEPS" for number, _ in rec.read_packed(merged))

    was, now = steps_of(old)["steps"], steps_of(merged)["steps"]
    assert len(was) == len(now) == 4999
    for a, b in zip(was, now):
        assert a["index"] == b["index"]
        assert b["duration_s"] == pytest.approx(a["duration_s"], rel=1 / FINENESS)
        if a["duration_s"] > 0.005:
            assert a == b
    assert sum(s["duration_s"] for s in now) == pytest.approx(sum(s["duration_s"] for s in was), abs=1e-9)
    for phase in ("data", "forward", "backward", "optimizer"):
        total = [sum(s["phases"].get(phase, 0) for s in steps) for steps in (was, now)]
        assert total[0] == pytest.approx(total[1], abs=1e-5)


def test_block_that_is_not_sound(tmp_path):
    """Nothing of it is reported but that it is there."""
    path = tmp_path / "bad.rec"
    block = rec.record("STEPS", b"\xff" * 64, pid=7, tid=7, rule=2, step_cnt=60, parts=3, rest=2, bytes=64)
    path.write_bytes(rec.recording([*loop(10), block]))
    found = steps_of(path)
    assert len(found["steps"]) == 9
    result = subprocess.run([helpers.STEPFLAME, "report", path, "--simple"], capture_output=True, check=True, text=True)
    assert "malformed" in result.stdout + result.stderr
