# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A stripped PJRT plugin, whose functions are known by its table alone, against its caller's counts and clock; and tables that lie."""

import json

import helpers
import pytest

pytestmark = helpers.needs_bpf

NAMES = {"8": "pjrt await", "20": "pjrt compile", "22": "pjrt to device", "55": "pjrt execute", "70": "pjrt to host"}
LIES = ["TOO_LARGE", "ODD_SIZE", "TOO_SMALL", "VERSION_SIZE", "OUTSIDE", "IN_DATA", "MISSING", "ANOTHER"]
PER_CALL = 200e-6  # ctypes around the call, and two probes
RELATIVE = 0.02


def plugin(directory, lie="NONE", name="pjrt_plugin_test.so"):
    flags = ["-O2", "-fPIC", "-shared", "-s", "-fvisibility=hidden", "-DLIE=" + lie]
    return helpers.compiled(directory / name, helpers.JOBS / "pjrt_plugin.c", *flags)


@pytest.mark.alone
@pytest.mark.parametrize("late", ["0", "5"])
def test_stripped_plugin(bench, tmp_path, late):
    """late: it is asked for its table while it is watched."""
    record, truth = bench.recorded("pjrt_calls.py", "--plugin", plugin(tmp_path), "--late", late)
    assert late != "0" or "no torch" not in record.stderr, record.stderr
    rows = helpers.actions(helpers.report(record.file, "--all"))
    rows = {name: row for name, row in rows.items() if name.startswith("pjrt ")}
    calls = {NAMES[place]: tuple(found) for place, found in truth["calls"].items()}
    helpers.check_counts(rows, {name: cnt for name, (cnt, _) in calls.items()})
    helpers.check_totals(rows, calls, RELATIVE, PER_CALL, truth["delayed"])


@pytest.mark.parametrize("lie", LIES)
def test_table_that_lies(bench, tmp_path, lie):
    job = bench.job("pjrt_calls.py", "--plugin", plugin(tmp_path, lie)).until_ready()
    checks = json.loads(helpers.stepflame("doctor", "-p", job.pid, "--json").stdout)["checks"]
    (check,) = [c for c in checks if c["name"] == "PJRT plugin"]
    assert check["verdict"] == "WARN" and "not found" in check["found"], check
    record = bench.record("-p", job.pid, "-d", "1s").until_armed()
    assert record.wait() == helpers.OK, record.what()
    (note,) = [note for note in helpers.report(record.file)["notes"] if "PJRT_Api" in note]
    assert "was not found" in note
    assert not [row for row in helpers.report(record.file, "--all")["actions"] if row["name"].startswith("pjrt ")]


def test_doctor_counts(bench, tmp_path):
    job = bench.job("pjrt_calls.py", "--plugin", plugin(tmp_path)).until_ready()
    checks = json.loads(helpers.stepflame("doctor", "-p", job.pid, "--json").stdout)["checks"]
    (check,) = [c for c in checks if c["name"] == "PJRT plugin"]
    assert check == {"name": "PJRT plugin", "verdict": "OK", "found": "pjrt_plugin_test.so: PJRT 0.114, 5 functions", "fix": None}
