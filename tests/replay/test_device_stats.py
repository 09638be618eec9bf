# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The machine: what Lightning's DeviceStatsMonitor logged in a fit, against what stepflame recorded for the same time."""

import helpers
import recfile

pytestmark = helpers.needs_bpf


def test_old_recordings(tmp_path):
    """Nothing is said of a machine that was not recorded."""
    file = tmp_path / "old.rec"
    sample = recfile.record("RESOURCES", time_ns=10**9, pid=7, known=1, rss_bytes=10**9)
    file.write_bytes(recfile.recording([recfile.host(), recfile.target(7), recfile.window(1, 10**9), sample]))
    found = helpers.report(file, "--steps")
    assert found["machines"] == [] and found["resources"][0]["limits"] is None
    assert "machine" not in helpers.report_text(file, "--steps")


def test_hosts(tmp_path):
    """A merged recording has a row for each machine, and a process's steps have that of its own."""
    files = []
    for number, (host, busy) in enumerate((("one", 10), ("one", 20), ("two", 80))):
        looks = [{"pid": 7 + number, "time_ns": second * 10**9} for second in range(1, 31)]
        records = [recfile.host(hostname=host), recfile.target(7 + number), recfile.window(1, 31 * 10**9)]
        for look in looks:
            sums = {"busy_ns": busy * look["time_ns"] // 100, "idle_ns": (100 - busy) * look["time_ns"] // 100}
            records.append(recfile.record("MACHINE", processors=number + 1, memory_bytes=10**10, available_bytes=9 * 10**9, **sums, **look))
            records.append(recfile.record("RESOURCES", known=1, rss_bytes=10**9, **look))
        files.append(tmp_path / ("%d.rec" % number))
        files[-1].write_bytes(recfile.recording(records))
    merged = tmp_path / "merged.rec"
    result = helpers.stepflame("merge", *files, "-o", merged)
    assert result.returncode == helpers.OK, result
    found = [(row["host"], row["processors"], round(row["cpu_percent"])) for row in helpers.report(merged, "--steps")["machines"]]
    assert found == [("one", 1, 10), ("two", 3, 80)]
    text = helpers.report_text(merged, "--steps")
    assert "machine one: 1 processor 10.0 % busy, memory 10.0 % of 10.0 GB (at most" in text and "machine two: 3 processors 80.0 % busy" in text
