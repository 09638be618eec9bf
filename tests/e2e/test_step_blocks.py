# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Short steps are packed in a recording: it stays small, and reports say what the job itself says."""

import helpers
import pytest
import recfile as rec


@helpers.needs_bpf
def test_as_the_job_counted(bench):
    record, truth = bench.recorded("short_steps.py", "--batches", 30000)
    report = helpers.report(record.file, "--all")
    assert report["window"]["steps"] == truth["steps"] == helpers.actions(report)["Optimizer.step#SGD.step"]["count"]
    found = helpers.report(record.file, "--steps")
    lost = report["lost"].get("ring_full", 0)
    assert truth["steps"] - 1 - 2 * lost <= len(found["steps"]) <= truth["steps"] - 1  # the first boundary ends no whole step
    if not lost:
        seconds = sum(step["duration_s"] for step in found["steps"])
        assert seconds == pytest.approx(truth["seconds"], abs=0.005)

    read = sorted((row for kind, row in rec.read_records(record.file) if kind == "STEP"), key=lambda row: row.serial)
    assert read[-1].index == truth["steps"] and (lost or len(read) == truth["steps"])
    for before, after in zip(read, read[1:]):
        assert after.serial != before.serial + 1 or sum(after.phase_ns) == after.time_ns - before.time_ns
    sizes = [8 + len(payload) for number, payload in rec.read_packed(record.file) if rec.TYPES[number] in ("STEP", "STEPS")]
    assert sum(sizes) < 4 * len(read), "some 2 bytes a step"
