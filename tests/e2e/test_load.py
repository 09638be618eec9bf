# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Many threads, many processes, many children, little memory, and a clock that is set: counts are the job's own, nothing hangs, and
stepflame stays small. What it prints of itself (pytest -s) is in docs/safety.md. Beside it: test_attack_growth.py has rings that overflow while
stepflame is stopped, a disk that is full, and a week of steps; test_bad_input.py a disk that is full from the start.
"""

import os
import re
import signal
import time
from pathlib import Path

import helpers
import pytest
import recfile
from helpers import OK, stepflame

pytestmark = helpers.needs_bpf

MB = 1 << 20
TICK = os.sysconf("SC_CLK_TCK")


def status(pid, name):
    """A line of /proc/PID/status, in bytes."""
    return int(re.search(r"^%s:\s*(\d+)" % name, Path("/proc/%d/status" % pid).read_text(), re.M)[1]) * 1024


def files_open(pid):
    return len(os.listdir("/proc/%d/fd" % pid))


def cpu_seconds(pid):
    fields = Path("/proc/%d/stat" % pid).read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


class Size:
    """What a recording takes: looked at while it runs."""

    def __init__(self, record):
        self.record, self.most, self.files, self.cpu, self.start = record, 0, 0, 0, time.monotonic()
        (self.guardian,) = helpers.guardians(record)

    def look(self):
        try:
            pids = (self.record.pid, self.guardian)
            self.most = max(self.most, sum(status(pid, "VmRSS") for pid in pids))
            self.files = max(self.files, *map(files_open, pids))
            self.cpu = sum(map(cpu_seconds, pids))
            self.seconds = time.monotonic() - self.start
        except (OSError, TypeError):
            pass  # it ends

    def until(self, job):
        while job.running():
            self.look()
            time.sleep(0.1)

    def __str__(self):
        return "%.0f MB, %d files, %.2f s of CPU in %.1f s" % (self.most / MB, self.files, self.cpu, self.seconds)


THREADS = 1000
TURNED = "aten::sigmoid"
EXACT_THREADS = 256  # docs/exact.md


@pytest.mark.long
@pytest.mark.parametrize("options", [[], ["--exact=force", "-d", "300s"], ["--ops"]], ids=["plain", "exact", "ops"])
def test_threads(bench, options):
    job = bench.job("many_threads.py", "--others", THREADS).until_ready()
    start = time.monotonic()
    record = bench.record("-p", job.pid, *options).until_armed()
    armed = time.monotonic() - start
    size = Size(record)
    job.release()
    size.until(job)
    truth = job.truth()
    assert record.wait() == OK, record.what()
    found = helpers.report(record.file, "--all")
    print("armed after %.2f s; %s; lost %s; %d turns, steps took %.2f s" % (armed, size, dict(found["lost"]), truth["turns"], truth["seconds"]))
    assert truth["sum"] == truth["right_sum"] and truth["parameter"] == truth["right_parameter"] and min(truth["made"]) > 0
    assert found["window"]["steps"] == truth["steps"]
    assert helpers.actions(found)["Optimizer.step#SGD.step"]["count"] == truth["steps"]
    # samples of so many threads may be lost, but are counted
    helpers.check_lost_at_most(found, "stack_lost", "samples_lost", *(["call_unseen", "no_storage"] if "-d" in options else []))
    if "--ops" in options:
        rows = {row["name"]: row for row in helpers.report(record.file, "--ops")["ops"]}
        assert rows[TURNED]["count"] == truth["turns"]
    if "-d" in options:
        calls = recfile.read_calls(record.file)
        count = sum(row[0] for (_, _, _, name), row in calls.items() if name == "turn")
        # there is room for some threads, each of which is counted as a whole; the main thread is one of all
        assert found["lost"]["no_storage"] == THREADS + 1 - EXACT_THREADS
        made = sorted(truth["made"])
        assert sum(made[: EXACT_THREADS - 1]) <= count <= sum(made[-EXACT_THREADS:])
    assert size.most < 400 * MB


PROCESSES = 10000


def timed(call):
    start = time.monotonic()
    result = call()
    return time.monotonic() - start, result


@pytest.mark.long
@pytest.mark.alone
def test_processes(bench):
    """So many processes on the host: those that are not looked for cost next to nothing."""
    if int(Path("/proc/sys/kernel/pid_max").read_text()) < 3 * PROCESSES:
        pytest.skip("pid_max is too small for %d processes" % PROCESSES)
    sleepers = helpers.compiled(bench.directory / "sleepers", helpers.JOBS / "sleepers.c")
    took = {}
    for crowd in (0, PROCESSES):
        if crowd:
            bench.process(sleepers, crowd).until_ready()
        # started by itself: what a process like it has forked, ps counts as its worker
        job = bench.job("short_steps.py", "--batches", 20000, cold=True).until_ready()
        took["ps", crowd], listed = timed(lambda: stepflame("ps"))
        took["doctor", crowd], checked = timed(lambda: stepflame("doctor", "-p", job.pid))
        took["armed", crowd], record = timed(lambda: bench.record("-p", job.pid).until_armed())
        job.release()
        truth = job.truth()
        assert record.wait() == OK, record.what()
        assert listed.returncode == checked.returncode == OK and re.search(r"^ *%d " % job.pid, listed.stdout, re.M), (listed, checked)
        assert "sleepers" not in listed.stdout
        found = helpers.report(record.file, "--all")
        assert [target["pid"] for target in found["target"]] == [job.pid]
        assert helpers.actions(found)["Optimizer.step#SGD.step"]["count"] == truth["steps"] == found["window"]["steps"]
    print({"%s, %d more" % key: round(seconds, 2) for key, seconds in took.items()})
    assert took["armed", PROCESSES] < took["armed", 0] + 2 and took["ps", PROCESSES] < took["ps", 0] + 10


@pytest.mark.parametrize("seconds", [6, pytest.param(60, marks=pytest.mark.long)])
def test_children(bench, seconds):
    """500 children a second, each long enough to be looked at: memory and files hardly grow, and all are told."""
    children = 500 * seconds
    command = [helpers.PYTHON, helpers.JOBS / "many_children.py"]
    job = bench.job("many_children.py", "--batches", children, "--rate", 500, "--live", 0.02, command=command).until_ready()
    record = bench.record("-p", job.pid).until_armed()
    job.release()
    job.until_says(r"^%d " % (children // 3), helpers.END_SECONDS, "stdout")
    before, files = status(record.pid, "VmRSS"), files_open(record.pid)
    job.until_says(r"^%d " % children, helpers.END_SECONDS * 2, "stdout")
    grown, more = status(record.pid, "VmRSS") - before, files_open(record.pid) - files
    truth = job.truth()
    assert record.wait() == OK, record.what()
    told = "%d child processes" % children
    print("%.0f a second; %d bytes more, %.1f a child; %d files more" % (children / truth["seconds"], grown, grown / (children / 3 * 2), more))
    assert truth["well"] == children
    assert told in helpers.report_text(record.file, "--simple")
    assert grown < MB // 2 + 100 * children and more <= 40


CGROUPS = Path("/sys/fs/cgroup/memory")


@pytest.fixture
def memory_group():
    """A memory cgroup: its folder, and the names of its files for the limit and the processes."""
    first = CGROUPS / "cgroup.procs" if CGROUPS.is_dir() else None
    if not first or not first.exists():
        pytest.skip("no memory cgroup of version 1")
    group = CGROUPS / ("stepflame-test-%d" % os.getpid())
    group.mkdir()
    yield group
    for _ in range(100):
        try:
            group.rmdir()
            return
        except OSError:
            time.sleep(0.05)


# Into the group; with 1000 it is who is killed first.
JOINS = 'echo %d > /proc/self/oom_score_adj && echo $$ > "$0/cgroup.procs" && exec "$@"'
EATS = "held = []\nwhile True: held.append(bytearray(b'x' * 100000))"


@pytest.mark.alone
def test_out_of_memory(memory_group, bench):
    """The kernel kills stepflame for memory: the job goes on, its code is as it was, and what was written can be read."""
    job = bench.process(helpers.PYTHON, helpers.JOBS / "busy.py", "loop").until_ready()
    file = bench.directory / "oom.rec"
    (memory_group / "memory.limit_in_bytes").write_text(str(400 * MB))
    record = bench.process("sh", "-c", JOINS % 1000, memory_group, helpers.STEPFLAME, "record", "-p", job.pid, "--ops", "-o", file)
    record.until_says("armed", helpers.ARMED_SECONDS, "stderr")
    time.sleep(1)
    bench.process("sh", "-c", JOINS % 0, memory_group, helpers.PYTHON, "-c", EATS)
    helpers.until(helpers.END_SECONDS, lambda: not record.running(), record.what)
    assert record.popen.returncode == -signal.SIGKILL, record.what()
    helpers.until(helpers.END_SECONDS, lambda: not helpers.breakpoints(job.pid), lambda: helpers.breakpoints(job.pid))
    assert job.running(), job.what()
    assert stepflame("report", file, "--all").returncode == OK


CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>
static long jump(void) /* a day on, a day back, two days on ... */
{
	static long calls;
	long n = calls++;
	return n % 2 ? n * 86400 : -n * 86400;
}
int clock_gettime(clockid_t clock, struct timespec *ts)
{
	static int (*real)(clockid_t, struct timespec *);
	if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
	int err = real(clock, ts);
	if (!err && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI)) ts->tv_sec += jump();
	return err;
}
int gettimeofday(struct timeval *tv, void *zone)
{
	struct timespec ts;
	clock_gettime(CLOCK_REALTIME, &ts);
	tv->tv_sec = ts.tv_sec, tv->tv_usec = ts.tv_nsec / 1000;
	return 0;
}
time_t time(time_t *out)
{
	struct timespec ts;
	clock_gettime(CLOCK_REALTIME, &ts);
	return out ? *out = ts.tv_sec : ts.tv_sec;
}
"""


def test_clock_is_set(bench):
    """The clock of the day jumps by days whenever stepflame reads it: steps, times and the window are those of the job."""
    (bench.directory / "clock.c").write_text(CLOCK)
    library = helpers.compiled(bench.directory / "clock.so", bench.directory / "clock.c", "-shared", "-fPIC", "-ldl")
    job = bench.job("short_steps.py", "--batches", 4000).until_ready()
    file = bench.directory / "clock.rec"
    command = [helpers.STEPFLAME, "record", "-p", job.pid, "-o", file]
    record = bench.process(*command, env=dict(os.environ, LD_PRELOAD=str(library)))
    record.until_says("armed", helpers.ARMED_SECONDS, "stderr")
    assert str(library) in Path("/proc/%d/maps" % record.pid).read_text()
    start = time.monotonic()
    job.release()
    truth = job.truth()
    assert record.wait() == OK, record.what()
    seconds = time.monotonic() - start
    found = helpers.report(file, "--all")
    assert helpers.actions(found)["Optimizer.step#SGD.step"]["count"] == truth["steps"] == found["window"]["steps"]
    assert 0 < found["window"]["seconds"] < seconds + 5
    steps = helpers.report(file, "--steps")["steps"]
    assert len(steps) == truth["steps"] - 1 and sum(step["duration_s"] for step in steps) < seconds
    assert found["lost"] == {}


RANKS = 64


@pytest.mark.long
def test_ranks(bench):
    """One recording of so many processes of torch: each has its own number of steps."""
    jobs = [bench.job("short_steps.py", "--batches", 1000 + 10 * rank, "--work", 5, cold=False) for rank in range(RANKS)]
    for job in jobs:
        job.until_ready()
    start = time.monotonic()
    record = bench.record("-p", ",".join(str(job.pid) for job in jobs))
    record.until_says("armed", 2 * helpers.ARMED_SECONDS, "stderr")
    armed = time.monotonic() - start
    size = Size(record)
    for job in jobs:
        job.release()
    for job in jobs:
        size.until(job)
    truths = {job.pid: job.truth()["steps"] for job in jobs}
    assert record.wait() == OK, record.what()
    found = helpers.report(record.file, "--all", "--per-rank")
    print("armed after %.1f s; %s; lost %s" % (armed, size, dict(found["lost"])))
    counts = {p["pid"]: helpers.actions(p)["Optimizer.step#SGD.step"]["count"] for p in found["processes"]}
    assert counts == truths
    helpers.check_lost_at_most(found, "ring_full", "stack_lost", "samples_lost")  # 64 jobs on a few CPUs leave it little time
    assert size.most < 1000 * MB
