# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The machine: what Lightning's DeviceStatsMonitor logged in a fit, against what stepflame recorded for the same time."""

import types

import helpers
import psutil
import pytest
import recfile

pytestmark = helpers.needs_bpf

BATCHES = 8
DIGIT = 0.051  # psutil rounds to a tenth of a percent
CUT = 2 * 8 * 0.01  # s: each look cuts each of 8 columns of /proc/stat to a tick, psutil's and ours


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    bench = helpers.Bench(tmp_path_factory.mktemp("machine"))
    record, truth = bench.recorded("device_stats.py", "--batches", BATCHES)
    machine = [row for kind, row in recfile.read_records(record.file) if kind == "MACHINE"]
    yield types.SimpleNamespace(file=record.file, truth=truth, machine=machine, report=helpers.report(record.file, "--steps"))
    bench.close()


def logged(truth):
    """[(hook, begin and end of psutil's look, {figure: value})], of each row that DeviceStatsMonitor logged."""
    found = []
    for row in truth["rows"]:
        values = {key: float(value) for key, value in row.items() if value and key.startswith("DeviceStatsMonitor.")}
        if values:
            (hook,) = {key.split("/")[0] for key in values}
            found.append((hook.partition(".")[2], {key.split("/")[1]: value for key, value in values.items()}))
    assert len(found) == len(truth["looks"]) == 2 * BATCHES, truth
    return [(hook, look, values) for (hook, values), look in zip(found, truth["looks"])]


def busy_range(recorded, seconds):
    """
    Between what sums the busy time of all processors lay: at least that of the look before, and of the next one without what all
    processors can do until then; at most that of the next one, and of the one before with what they can do since. None: no looks.
    """
    processors = recorded.truth["processors"]
    for a, b in zip(recorded.machine, recorded.machine[1:]):
        if a.time_ns / 1e9 <= seconds < b.time_ns / 1e9:
            least = max(a.busy_ns / 1e9, b.busy_ns / 1e9 - processors * (b.time_ns / 1e9 - seconds))
            return least, min(b.busy_ns / 1e9, a.busy_ns / 1e9 + processors * (seconds - a.time_ns / 1e9))
    return None


def test_cpu(recorded):
    """psutil's percentage between two looks, times all processors' time, is within what the sums allow."""
    rows, compared = logged(recorded.truth), 0
    for (_, (begin0, end0), _), (hook, (begin1, end1), values) in zip(rows, rows[1:]):
        ranges = [busy_range(recorded, seconds) for seconds in (begin0, end0, begin1, end1)]
        if hook != "on_train_batch_end" or None in ranges:
            continue
        (low0, _), (_, high0), (low1, _), (_, high1) = ranges
        seconds = (begin1 + end1 - begin0 - end0) / 2
        unsure = (end1 - begin1 + end0 - begin0) / 2
        share, processors = values["cpu_percent"] / 100, recorded.truth["processors"]
        least = (share - DIGIT / 100) * processors * (seconds - unsure) - CUT
        most = (share + DIGIT / 100) * processors * (seconds + unsure) + CUT
        assert low1 - high0 <= most and least <= high1 - low0, (begin0, values, ranges)
        compared += 1
    assert compared >= BATCHES - 1


def test_cpu_of_the_whole(recorded):
    """The same over all batches: the edges are a second of many."""
    rows = [row for row in logged(recorded.truth) if row[1][0] * 1e9 > recorded.machine[0].time_ns]
    processors, (_, (begin, _), _) = recorded.truth["processors"], rows[0]
    busy = sum(values["cpu_percent"] / 100 * processors * (look[0] - before[1][0]) for before, (_, look, values) in zip(rows, rows[1:]))
    first, last = busy_range(recorded, begin), busy_range(recorded, rows[-1][1][0])
    unsure = len(rows) * (DIGIT / 100 * processors * 2 + CUT)
    assert first and last
    assert last[0] - first[1] - unsure <= busy <= last[1] - first[0] + unsure, (busy, first, last)


def test_memory_and_swap(recorded):
    """
    As psutil has it: what is not available, of all. psutil's look lies between two of ours, in which the others may have changed it and
    changed it back: by less than 0.5 % of the memory, or the machine is busy.
    """
    compared = 0
    for _, (begin, end), values in logged(recorded.truth):
        pairs = [pair for pair in zip(recorded.machine, recorded.machine[1:]) if pair[0].time_ns / 1e9 <= end and pair[1].time_ns / 1e9 >= begin]
        around = [row for pair in pairs for row in pair]
        memory = [100 * (1 - row.available_bytes / row.memory_bytes) for row in around]
        swap = [100 * (1 - row.swap_free_bytes / row.swap_bytes) if row.swap_bytes else 0 for row in around]
        for name, used in (("cpu_vm_percent", memory), ("cpu_swap_percent", swap)):
            if used and not min(used) - 0.5 - DIGIT <= values[name] <= max(used) + 0.5 + DIGIT:
                raise helpers.Busy("%s: %s, %s" % (name, values, used))
        compared += bool(around)
    assert compared >= 2 * BATCHES - 2


def test_report(recorded):
    (machine,) = recorded.report["machines"]
    looks, memory = recorded.machine, psutil.virtual_memory().total
    busy, idle = (getattr(looks[-1], key) - getattr(looks[0], key) for key in ("busy_ns", "idle_ns"))
    assert machine["processors"] == recorded.truth["processors"] and machine["samples"] == len(looks) and machine["host"] is None
    assert machine["cpu_percent"] == pytest.approx(100 * busy / (busy + idle)) and machine["memory_bytes"] == memory
    assert machine["memory_percent"] < machine["memory_max_percent"] < 100
    text = " ".join(helpers.report_text(recorded.file, "--steps").split())
    assert "machine: %d processor" % machine["processors"] in text
    assert " %.1f %% busy, memory %.1f %% of %.1f GB" % (machine["cpu_percent"], machine["memory_percent"], memory / 1e9) in text


def test_steps(recorded):
    """The machine in each step: its sums, divided evenly between two looks; its memory by the last look."""
    looks, start = recorded.machine, next(row.start_ns for kind, row in recfile.read_records(recorded.file) if kind == "WINDOW")
    known = [step for step in recorded.report["steps"] if step["resources"]]
    assert len(known) >= BATCHES - 2
    for step in known:
        edges = [start + 1e9 * seconds for seconds in (step["start_s"], step["start_s"] + step["duration_s"])]
        busy, idle = (sum_at(looks, key, edges[1]) - sum_at(looks, key, edges[0]) for key in ("busy_ns", "idle_ns"))
        last = [row for row in looks if row.time_ns <= edges[1] + 1000][-1]
        assert step["resources"]["machine_cpu_percent"] == pytest.approx(100 * busy / (busy + idle), rel=1e-3)
        assert step["resources"]["machine_memory_percent"] == pytest.approx(100 * (1 - last.available_bytes / last.memory_bytes))
        assert step["resources"]["machine_swap_percent"] == pytest.approx(100 * (1 - last.swap_free_bytes / last.swap_bytes) if last.swap_bytes else 0)


def sum_at(looks, key, ns):
    a, b = next((a, b) for a, b in zip(looks, looks[1:]) if a.time_ns <= ns < b.time_ns)
    return getattr(a, key) + (getattr(b, key) - getattr(a, key)) * (ns - a.time_ns) / (b.time_ns - a.time_ns)
