# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The summary, which `report` prints by default and `record` at its end: one screen, of recordings whose steps are known, and of a job that knows its own."""

import json
import os
import re
import statistics

import helpers
import pytest
from replay.test_summary import COLUMNS, UTF8, checked, one_line


@helpers.needs_bpf
def test_of_a_job_as_json(bench):
    record, _ = bench.recorded("known.py", "--data-ms", 8, options=["--json"])
    assert json.loads(record.stdout) == json.loads(helpers.report_text(record.file, "--summary", "--json"))


@helpers.needs_bpf
def test_of_a_job(bench):
    """record ends with it. The job sleeps for a known time in the data of every step, and plants nothing else."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LC_ALL", "C.UTF-8")
        record, _ = bench.recorded("known.py", "--data-ms", 8)
    text = checked(record.stdout, COLUMNS)
    assert text == helpers.stepflame("report", record.file, env={**os.environ, **UTF8}).stdout
    said = one_line(text)
    found = helpers.report(record.file, "--steps")
    median = statistics.median_low([step["duration_s"] for step in found["steps"]])
    assert "Steps %d: median %.3g ms" % (len(found["steps"]), 1e3 * median) in said
    assert re.search(r"Limited by sleeping: about \d+ % of the time can be won .* known\.py:33 Rows\.__getitem__", said)
    (phase,) = [phase for phase in found["all"]["phases"] if phase["name"] == "data"]
    assert "█ data %.0f %%" % (100 * phase["total_s"] / found["all"]["total_s"]) in said
    assert "stepflame report %s --steps" % record.file in said or "stepflame report FILE --steps" in said
