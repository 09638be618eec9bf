# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Which processes a command takes: by pid, by the name of their job, all of them, or the only job there is. Other jobs run on this host meanwhile:
what looks at all of its processes does so in a PID namespace of its own."""

import json
import os
import re
import subprocess
from pathlib import Path

import helpers
import pytest
from namespace import LOOP, Host, needs_namespace


def listed(*args):
    result = helpers.stepflame("ps", "--json", *args)
    assert result.returncode == helpers.OK, result
    return {process["pid"]: process for process in json.loads(result.stdout)["processes"]}


def recorded_pids(file):
    return {process["pid"] for process in helpers.report(file, "--all", "--per-rank")["target"] if process["role"] == "main"}


@needs_namespace
@helpers.needs_bpf
def test_the_only_job(bench):
    host = Host(bench, "A=1")
    (pid,) = host.pids
    file = bench.directory / "a.rec"
    result = host.run("record", "-d", "300ms", "-o", file)
    assert result.returncode == helpers.OK, result
    assert re.search(r"recording PID %d \(.*\), the only training job" % pid, result.stderr), result
    assert recorded_pids(file) == {pid}
    result = host.run("top", "--once", "-i", "300ms")
    assert result.returncode == helpers.OK and "watching PID %d (" % pid in result.stderr, result
    result = host.run("dump")
    assert result.returncode == helpers.OK and "pid %d" % pid in result.stdout, result
    host.end()


@needs_namespace
@helpers.needs_bpf
def test_programs_that_have_torch(bench):
    """torch_shm_manager, a server of compile workers, these, an executor, a C++ program: none of them trains, and the job is recorded alone."""
    maps = helpers.compiled(bench.directory / "maps", helpers.JOBS / "maps.c")
    find = "import importlib.util; print(*importlib.util.find_spec('torch').submodule_search_locations)"  # without the import
    folder = subprocess.run([helpers.PYTHON, "-c", find], capture_output=True, text=True, check=True).stdout.strip()
    library = Path(folder, "lib", "libtorch_cpu.so")
    host = Host(bench, "A=1", script=helpers.JOBS / "beside.py", python=helpers.PYTHON, beside=[[maps, library]])
    (pid,) = host.pids
    host.process.until_says("^mapped", helpers.READY_SECONDS, "stdout")
    seen = json.loads(host.run("ps", "--json").stdout)
    assert {row["role"]: row["pid"] for row in seen["processes"] if row["role"] != "none"} == {"trainer": pid}, seen
    helpers_of = [row["command"] for row in seen["parts"] if row["role"] == "helper" and row["of"] == pid]
    assert len(helpers_of) == len(seen["parts"]) == 5 and sum("torch_shm_manager" in command for command in helpers_of) == 1, seen
    for options in ([], ["--all"]):
        file = bench.directory / ("%d.rec" % len(options))
        result = host.run("record", *options, "-d", "300ms", "-o", file)
        assert result.returncode == helpers.OK and recorded_pids(file) == {pid}, result
        assert re.search(r"left out: process \d+ \(maps\), which has torch or JAX but runs no Python", result.stderr), result
    host.process.kill()


@helpers.needs_bpf
def test_one_that_cannot_be_recorded(bench):
    """It is told, and the others are recorded."""
    job = bench.job("plain_loop.py").until_ready()
    other = bench.process("sleep", 60)
    for pids in ((job.pid, other.pid), (other.pid, job.pid)):
        record = bench.record("-p", "%d,%d" % pids, "-d", "300ms")
        assert record.wait() == helpers.OK, record.what()
        assert "process %d (sleep) is not a Python program" % other.pid in record.stderr, record.what()
        assert "process %d is left out of the recording" % other.pid in record.stderr, record.what()
        assert recorded_pids(record.file) == {job.pid}


@needs_namespace
@helpers.needs_bpf
def test_several_jobs(bench):
    """They are listed; nothing is recorded; and the ways to choose that the message names work. Ranks of a run are one."""
    host = Host(bench, "TORCHELASTIC_RUN_ID=run-a RANK=0", "TORCHELASTIC_RUN_ID=run-a RANK=1", "SLURM_JOB_ID=4711")
    rows = {row["pid"]: row for row in json.loads(host.run("ps", "--json").stdout)["processes"]}
    ranks = {pid for pid, row in rows.items() if row["job"] == "run-a"}
    (other,) = set(rows) - ranks
    assert set(rows) == set(host.pids) and sorted(rows[pid]["rank"] for pid in ranks) == [0, 1] and rows[other]["slurm"] == "4711"
    for command in ("record", "top", "dump"):
        result = host.run(command)
        helpers.check_message(result, helpers.USAGE)
        assert "2 training jobs" in result.stderr and "--job" in result.stderr and result.stdout == "", result
        assert re.search(r"^  PIDs %d, %d \(.*\), job run-a$" % tuple(sorted(ranks)), result.stderr, re.M), result
        assert re.search(r"^  PID %d \(.*\), job 4711$" % other, result.stderr, re.M), result
    assert not (bench.directory / "stepflame.rec").exists()
    for options, chosen in ((["--job", "run-a"], ranks), (["--job", "4711"], {other}), (["--all"], set(host.pids))):
        file = bench.directory / (options[-1] + ".rec")
        result = host.run("record", *options, "-d", "300ms", "-o", file)
        assert result.returncode == helpers.OK and "given twice" not in result.stderr, result
        assert recorded_pids(file) == chosen, (options, result)
    host.end()


@helpers.needs_bpf
def test_ranks_that_have_just_ended(bench):
    """Those of a job that end between the look for them and the probes are missed, and said; if all do, that is an error."""
    run = "ended-%d" % os.getpid()
    jobs = [bench.job("plain_loop.py", env={"TORCHELASTIC_RUN_ID": run, "RANK": str(rank)}).until_ready() for rank in (0, 1)]
    for stays, code in ((jobs[0], helpers.OK), (None, helpers.TARGET)):
        file = bench.directory / "a.rec"
        record = bench.process(helpers.STEPFLAME, "record", "--job", run, "-d", "300ms", "-o", file)
        helpers.until(helpers.READY_SECONDS, lambda: "recording PID" in record.stderr, record.what)
        ended = [job for job in jobs if job is not stays]
        for job in ended:
            job.kill()
        jobs = [stays]
        assert record.wait() == code, record.what()
        if stays:
            assert "process %d ended before it could be recorded" % ended[0].pid in record.stderr, record.what()
            assert recorded_pids(file) == {stays.pid}


@needs_namespace
@pytest.mark.parametrize("command", ["record", "top", "dump"])
def test_no_job(command, tmp_path):
    namespace = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", helpers.STEPFLAME]
    result = subprocess.run([*namespace, command], capture_output=True, text=True, cwd=tmp_path, timeout=helpers.END_SECONDS)
    helpers.check_message(result, helpers.TARGET)
    assert "nothing to " + command in result.stderr and list(tmp_path.iterdir()) == [], result


@pytest.mark.parametrize("name", ["no-such-run", "99999999999", "/no/such/cgroup", "\x1b[31m", "a" * 5000], ids=repr)
def test_no_such_job(name, tmp_path):
    result = helpers.stepflame("dump", "--job", name, cwd=tmp_path)
    helpers.check_message(result, helpers.TARGET)
    assert "\x1b" not in result.stderr


@pytest.mark.parametrize("args", [["-p", "1", "--all"], ["--job", "a", "--all"], ["-p", "1", "--job", "a"], ["--job", ""], ["--job"]], ids=" ".join)
@pytest.mark.parametrize("command", ["record", "top", "dump"])
def test_one_way_to_choose(command, args, tmp_path):
    result = helpers.stepflame(command, *args, cwd=tmp_path)
    assert result.returncode == helpers.USAGE and "--help" in result.stderr and result.stdout == "", result


def test_ps_json(bench):
    """What a process's line says, and what is only in the JSON; its children have no line."""
    run = "run-%d" % os.getpid()
    job = bench.job("plain_loop.py", env={"TORCHELASTIC_RUN_ID": run, "SLURM_JOB_ID": "12", "RANK": "3"}).until_ready()
    row = listed()[job.pid]
    assert (row["rank"], row["workers"], row["job"], row["torchrun"], row["slurm"], row["launcher"]) == (3, 0, run, run, "12", False)
    assert row["cgroup"].startswith("/") and str(LOOP) in row["command"] and row["torch"] and row["python"].startswith("3.")
    words = next(line.split() for line in helpers.stepflame("ps").stdout.splitlines() if line.split()[:1] == [str(job.pid)])
    assert words[:6] == [str(job.pid), "3", "0", row["python"], row["torch"], run]
    job.kill()


def test_default_run_of_torchrun_is_no_name(bench):
    job = bench.job("plain_loop.py", env={"TORCHELASTIC_RUN_ID": "none", "RANK": "x"}).until_ready()
    row = listed()[job.pid]
    assert row["torchrun"] is None and row["rank"] is None
    job.kill()
