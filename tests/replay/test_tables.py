# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
`stepflame export -f arrow`: pyarrow reads and validates each table, pandas and polars read the files, and what is in them is what the reports say
of the same recording, and what its records hold.
"""

import json
import re
from collections import Counter
from pathlib import Path

import helpers
import pytest
import recfile as rec
import stepped

from replay import recordings

ipc = pytest.importorskip("pyarrow.ipc", reason="pyarrow is not installed")

TABLES = ["ranks", "windows", "steps", "waits", "samples", "stacks", "actions", "ops", "gpu"]
DOCS = Path(__file__).resolve().parents[2] / "docs" / "tables.md"
PHASES = ["other", "data", "forward", "backward", "optimizer", "comm", "checkpoint", "validation", "jit", "compile", "await", "transfer"]
MINUTE_NS = 60 * 10**9
GPU_WORK = ["kernel", "copy", "set", "graph"]  # rows of the operators report that are in another table


def tables_of(recording, folder, *options):
    result = recordings.run("export", recording, "-f", "arrow", "-o", folder, *options)
    assert result.returncode == helpers.OK and not result.stderr, result.stderr
    tables = {}
    for name in TABLES:
        with ipc.open_file(folder / (name + ".arrow")) as file:
            tables[name] = file.read_all()
        tables[name].validate(full=True)
    assert sorted(path.name for path in folder.iterdir()) == sorted(name + ".arrow" for name in TABLES)
    return tables


def rows(table):
    return table.to_pylist()


def ns(seconds):
    return round(seconds * 1e9)


def report(recording, *options):
    return json.loads(recordings.output("report", recording, "--json", "--per-rank", *options))


@pytest.mark.parametrize("name", recordings.NAMES)
def test_tables(name, tmp_path):
    path = recordings.path(name)
    tables = tables_of(path, tmp_path / "out")
    mains = {target["pid"]: target for target in report(path, "--steps")["target"] if target["role"] == "main"}
    assert {row["pid"]: row["rank"] for row in rows(tables["ranks"])} == {pid: target["rank"] for pid, target in mains.items()}
    check_steps(path, tables)
    check_sums(path, tables)
    check_samples(path, tables, mains)


def check_steps(path, tables):
    steps, windows, waits = Counter(), Counter(), Counter()
    for row in rows(tables["steps"]):
        assert sum(row[phase + "_ns"] for phase in PHASES) == row["duration_ns"]
        spent = [value for column, value in row.items() if column == "oncpu_ns" or column.startswith("wait_")]
        assert None in spent or sum(spent) == row["duration_ns"]
        steps[row["pid"], "steps"] += 1
        for column in ["duration_ns", "gc_ns", "oncpu_ns", *(phase + "_ns" for phase in PHASES)]:
            steps[row["pid"], column] += row[column] or 0
        for column, value in row.items():
            if column.startswith("wait_"):
                waits[row["pid"], column[len("wait_") : -len("_ns")]] += value or 0
    for row in rows(tables["windows"]):
        assert 0 <= row["seen_ns"] <= MINUTE_NS and row["minute"].second == 0 and row["longest_ns"] <= max(row["step_ns"], 0)
        for column in ["gc_ns", "oncpu_ns", "steps", *(phase + "_ns" for phase in PHASES)]:
            windows[row["pid"], column] += row[column] or 0
        windows[row["pid"], "duration_ns"] += row["step_ns"]
    assert +windows == +steps
    by_wait = Counter()
    for row in rows(tables["waits"]):
        by_wait[row["pid"], row["cause"]] += row["ns"]
    assert by_wait == +waits
    said, said_waits = Counter(), Counter()
    for process in report(path, "--steps").get("processes", []):
        pid = process["pid"]
        said[pid, "steps"] += len(process["steps"])
        for step in process["steps"]:
            said[pid, "duration_ns"] += ns(step["duration_s"])
            said[pid, "gc_ns"] += ns(step["gc_s"])
            said[pid, "oncpu_ns"] += ns(step["oncpu_s"] or 0)
            for phase, seconds in step["phases"].items():
                said[pid, phase + "_ns"] += ns(seconds)
            for cause, seconds in (step["waits"] or {}).items():
                said_waits[pid, cause] += ns(seconds)
        slow = [step["index"] for step in process["steps"] if step["cause"]]
        assert [row["step"] for row in rows(tables["steps"]) if row["pid"] == pid and row["cause"]] == slow == process["slow"]
    assert +said == +steps and said_waits == +waits


def check_sums(path, tables):
    pids = set(tables["ranks"].column("pid").to_pylist())
    said = Counter()
    for process in report(path, "--simple", "--all")["processes"]:
        for action in process["actions"]:
            said[process["pid"], action["kind"], action["name"]] = (action["count"], ns(action["total_s"]), ns(action["self_s"]))
    assert {(row["pid"], row["kind"], row["name"]): (row["n"], row["total_ns"], row["self_ns"]) for row in rows(tables["actions"])} == {
        key: value for key, value in said.items() if key[0] in pids
    }
    calls, times = Counter(), Counter()
    for process in report(path, "--ops")["processes"]:
        for op in process["ops"]:
            if process["pid"] in pids and op["kind"] not in GPU_WORK:
                key = process["pid"], op["kind"], op["name"], op["action"]
                calls[key] += op["count"]
                times[key] += ns(op["cpu_total_us"] / 1e6)
    ours = {(row["pid"], row["kind"], row["name"], row["action"]): row for row in rows(tables["ops"])}
    assert {key: row["n"] for key, row in ours.items()} == calls
    assert all(abs(row["total_ns"] - times[key]) <= 1 for key, row in ours.items())


def check_samples(path, tables, mains):
    raw, ours = Counter(), Counter()
    for line in recordings.output("recdump", path).decode(errors="replace").splitlines():
        if line.startswith("SAMPLE "):
            fields = dict(re.findall(r"(\w+)=(\S+)", line))
            if int(fields["pid"]) in mains:
                raw[int(fields["pid"]), "n"] += int(fields["waits"]) or 1
                raw[int(fields["pid"]), "ns"] += int(fields["weight_ns"])
    for row in rows(tables["samples"]):
        ours[row["pid"], "n"] += row["n"]
        ours[row["pid"], "ns"] += row["weight_ns"]
        assert row["main"] == (row["phase"] is not None)
    assert ours == raw
    stacks = {row["stack"]: row["frames"] for row in rows(tables["stacks"])}
    assert len(stacks) == len(tables["stacks"]) == len({tuple(frames) for frames in stacks.values()})
    assert set(stacks) == set(tables["samples"].column("stack").to_pylist()) and all(stacks.values())


def test_gpu_work(tmp_path):
    """What a GPU did, as the report adds it up."""
    path = recordings.path("gpu_cupti")
    said = Counter()
    for process in report(path, "--gpu")["processes"]:
        for kernel in process["kernels"]:
            said[kernel["name"]] += kernel["count"]
    ours = Counter()
    for row in rows(tables_of(path, tmp_path / "out")["gpu"]):
        if row["kind"] == "kernel":
            ours[row["name"]] += row["n"]
    assert ours == said and ours


def test_readers(tmp_path):
    """The files are what others read without us."""
    pandas = pytest.importorskip("pandas")
    polars = pytest.importorskip("polars")
    tables = tables_of(recordings.path("plain"), tmp_path / "out")
    frame = pandas.read_feather(tmp_path / "out" / "steps.arrow")
    assert len(frame) == len(tables["steps"]) and frame["duration_ns"].sum() == sum(tables["steps"].column("duration_ns").to_pylist())
    frame = polars.read_ipc(tmp_path / "out" / "windows.arrow")
    assert frame["steps"].sum() == len(tables["steps"])


IDLE = {"idle_" + why: why for why in ("host", "data", "launch", "other")}


def test_gpu_time(tmp_path):
    """What a GPU was busy with and idle for, as the report says it of the whole recording."""
    path = recordings.path("gpu_cupti")
    times = Counter()
    for row in rows(tables_of(path, tmp_path / "out")["gpu"]):
        if row["kind"] == "time":
            times[row["pid"], row["device"], row["name"]] += row["ns"]
    said = Counter()
    for gpu in (gpu for process in report(path, "--gpu")["processes"] for gpu in process["gpus"]):
        key = gpu["pid"], gpu["device"]
        said[*key, "compute"] = ns(gpu["compute_us"] / 1e6)
        said[*key, "communication"] = ns((gpu["comm_us"] - gpu["overlap_us"]) / 1e6)
        said[*key, "copy"] = ns((gpu["busy_us"] - gpu["kernel_us"]) / 1e6)
        said.update({(*key, name): ns(gpu["idle_us"][why] / 1e6) for name, why in IDLE.items()})
        assert sum(value for (pid, device, _), value in times.items() if (pid, device) == key) == pytest.approx(1000 * gpu["watched_us"], abs=10)
    assert set(times) == set(+said) and all(abs(times[key] - value) <= 2 for key, value in said.items())


@pytest.mark.parametrize("gpus, users, mhz", [(1, {}, {7: 1000, 8: 1000}), (2, {7: [0], 8: [1]}, {7: 1000, 8: 1100}), (2, {7: [0, 1]}, {7: 1050, 8: None}), (2, {}, {7: None, 8: None})])
def test_readings_are_of_the_gpus_that_a_process_uses(tmp_path, gpus, users, mhz):
    path, second = tmp_path / "gpus.rec", 10**9
    records = [rec.host(), rec.window(1, 20 * second), *(rec.target(pid, rank=pid - 7) for pid in (7, 8))]
    records += [rec.gpu_usage(gpu, t * second, 0, 0, (50, 0, 1, 1, 1000 + 100 * gpu)) for t in range(1, 19) for gpu in range(gpus)]
    records += [rec.record("GPU_USER", pid=pid, device=gpu) for pid, its in users.items() for gpu in its]
    path.write_bytes(rec.recording(records))
    found = {row["pid"]: row["gpu_mhz"] for row in rows(tables_of(path, tmp_path / "out")["windows"])}
    assert found == mhz


def test_minutes(tmp_path):
    """Steps of three minutes, in more than one batch, each in the minute of the clock in which it ended."""
    path = tmp_path / "long.rec"
    stepped.training(steps=18000, step_ns=10_000_000).write(path)
    tables = tables_of(path, tmp_path / "out")
    steps = rows(tables["steps"])
    assert len(steps) == sum(row["steps"] for row in rows(tables["windows"])) > 17000
    counted = Counter()
    for row in steps:
        end_us = row["start"].timestamp() * 1e6 + row["duration_ns"] / 1000
        counted[row["minute"]] += 1
        assert -1.5 <= end_us - row["minute"].timestamp() * 1e6 < MINUTE_NS / 1000 + 1.5
    assert counted == {row["minute"]: row["steps"] for row in rows(tables["windows"]) if row["steps"]}
    assert len(counted) >= 3
    seen = sum(row["seen_ns"] for row in rows(tables["windows"]))
    assert seen == ns(report(path, "--steps")["window"]["seconds"])


def test_documented(tmp_path):
    """docs/tables.md names each column, and no other."""
    text, tables = DOCS.read_text(), tables_of(recordings.path("plain"), tmp_path / "out")
    for name in TABLES:
        section = re.search(rf"^## `{name}`\n(.*?)(?=^## |\Z)", text, re.M | re.S)[1]
        documented = [column for cell in re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", section, re.M) for column in re.findall(r"`(\w+)`", cell)]
        table = tables[name]
        key = [] if name == "stacks" else ["job", "host", "pid", "rank"]
        assert key + documented == table.column_names, name
    assert set(re.findall(r"^## `(\w+)`", text, re.M)) == {*TABLES, "recordings"}


CONTAINER = "0123456789ab"


@pytest.mark.parametrize(
    "said, job",
    [
        ([dict(name="run-a", launcher=1, id="run-a", world_size=2, meets="10.0.0.1 29500")] * 2, "run-a"),
        ([dict(world_size=2, meets="10.0.0.1 29500")] * 2, "10.0.0.1-29500"),
        ([dict(world_size=2, meets="127.0.0.1 29500")] * 2, "host-29500"),
        ([dict(name=CONTAINER, launcher=4, world_size=2, meets="master-0 29500"), dict(name="ba9876543210", launcher=4, world_size=2, meets="master-0 29500")], "master-0-29500"),
        ([dict(name=CONTAINER, launcher=4, world_size=2, meets="localhost 29500")] * 2, CONTAINER),
        ([dict(world_size=-1)] * 2, "host-pid-3"),
    ],
)
def test_job(tmp_path, said, job):
    """The name that all ranks of a job have, and no other job."""
    path = tmp_path / "jobs.rec"
    records = [rec.host(), rec.window(1, 10**9)]
    for pid, words in zip((7, 8), said):
        records += [rec.target(pid, rank=pid - 7, parent=3), rec.record("JOB", pid=pid, uid=5, since_ns=1, local_rank=-1, restarts=-1, **words)]
    path.write_bytes(rec.recording(records))
    assert [(row["job"], row["rank"], row["uid"]) for row in rows(tables_of(path, tmp_path / "out")["ranks"])] == [(job, 0, 5), (job, 1, 5)]


YEAR_NS = 366 * 24 * 3600 * 10**9


@pytest.mark.parametrize("window, targets", [((1, 2**63), 1), ((2**64 - 10**9, 2**64 - 1), 1), ((2**63 - 10**9, 2**63 - 1), 1), ((1, YEAR_NS), 20)])
def test_impossible_times(tmp_path, window, targets):
    path = tmp_path / "bad.rec"
    path.write_bytes(rec.recording([rec.host(), *(rec.target(7 + i) for i in range(targets)), rec.window(*window)]))
    result = recordings.run("export", path, "-f", "arrow", "-o", tmp_path / "out")
    assert result.returncode == helpers.ERROR and b"impossible times" in result.stderr and b"fix:" in result.stderr
    assert not list((tmp_path / "out").glob("*"))


def test_one_process(tmp_path):
    path = recordings.path("ddp0")
    pid = rows(tables_of(path, tmp_path / "all")["ranks"])[0]["pid"]
    assert {row["pid"] for row in rows(tables_of(path, tmp_path / "one", "-p", pid)["windows"])} == {pid}
    done = helpers.stepflame("export", path, "-f", "arrow", "-o", tmp_path / "none", "-p", "1")
    assert done.returncode == helpers.ERROR and "has no process 1 that trains" in done.stderr and not (tmp_path / "none").exists()
