# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A job that waits for a CPU: is it told whose limit that is? Its quota, the CPUs on which it may run, its own threads, or others. Truth: how it was planted."""

import os
import time

import cgroups
import helpers
import pytest

JOB = [helpers.PYTHON, helpers.JOBS / "events.py"]
SECONDS = 6  # resources are looked at once a second
pytestmark = pytest.mark.alone


def verdict_of(bench, command, *args, beside=(), before=None):
    stop = bench.directory / "stop"
    job = bench.job("events.py", "--stop", stop, *args, command=command).until_ready()
    record = bench.record("-p", job.pid).until_armed()
    others = [bench.process(*words) for words in beside]
    if before:
        before()
    job.release()
    time.sleep(SECONDS)
    stop.touch()
    job.truth()
    for other in others:
        other.kill()
    assert record.wait() == helpers.OK, record.what()
    found = helpers.report(record.file, "--steps")
    bench.main = next(row for row in found["resources"] if row["role"] == "main")
    verdict = found["verdict"]
    assert verdict["class"] == "CPU-starved", verdict
    return verdict["why"], " ".join(verdict["next"])


def check_throttled(bench, why, first, last):
    """What the report says that the kernel counted is no more than what it counted from before the job's first step to its end, and most of it."""
    periods, throttled, seconds = (b - a for a, b in zip(first, last))
    row = bench.main["limits"]["throttled"]
    assert row["cpus"] == 0.5 and row["levels_above"] == 0
    assert periods / 2 < row["periods"] <= periods and throttled / 2 < row["throttled_periods"] <= throttled, (row, periods, throttled)
    assert row["throttled_share"] * bench.main["seconds"] <= 1.01 * seconds, (row, bench.main, seconds)
    said = "its own limit of 0.5 CPUs: throttled in %d of %d periods" % (row["throttled_periods"], row["periods"])
    assert said in why and "%.0f %% of the time" % (100 * row["throttled_share"]) in why, why


@helpers.needs_bpf
def test_quota(bench):
    first = []
    with cgroups.made("cpu") as group:
        group.limit_cpus(0.5)
        group.come_first()
        why, advice = verdict_of(bench, group.command(*JOB), before=lambda: first.extend(group.throttled()))
        check_throttled(bench, why, first, group.throttled())
    assert "raise the CPU limit of its container" in advice, (why, advice)


@helpers.needs_bpf
def test_quota_that_is_not_used_up(bench):
    """Others have the CPUs of a job whose quota is more than it gets."""
    burn = ["sh", "-c", "while :; do :; done"]
    with cgroups.made("cpu") as group:
        group.limit_cpus(0.9)
        why, advice = verdict_of(bench, group.command(*JOB), beside=[burn] * (3 * os.cpu_count()))
    assert "others have them" in why and "see what else runs" in advice, (why, advice)


@helpers.needs_bpf
def test_affinity(bench):
    """Two threads of OpenMP that may run on one CPU."""
    why, advice = verdict_of(bench, ["taskset", "-c", "0", *JOB], "--threads", 2, "--work", 512)
    assert "it may run on 1 of the machine's CPUs" in why and "let it run on more CPUs" in advice, (why, advice)


@helpers.needs_bpf
def test_own_threads(bench):
    """Three times as many threads as the machine has CPUs."""
    why, advice = verdict_of(bench, JOB, "--threads", 3 * os.cpu_count(), "--work", 512)
    assert "its own threads and processes have them" in why and "its own threads ran" in why and "OMP_NUM_THREADS" in advice, (why, advice)


@helpers.needs_bpf
def test_others(bench):
    """A program for each CPU and one more take turns with it."""
    burn = ["sh", "-c", "while :; do :; done"]
    why, advice = verdict_of(bench, JOB, beside=[burn] * (os.cpu_count() + 1))
    assert "others have them" in why and "other programs" in why and "see what else runs" in advice, (why, advice)


@helpers.needs_bpf
def test_others_on_its_cpu(bench):
    """The job may run on one CPU, which four other programs want, too: it is not its own threads that it waits for."""
    burn = ["sh", "-c", "while :; do :; done"]
    cpus = sorted(os.sched_getaffinity(0))
    command = ["taskset", "-c", str(cpus[0]), *JOB]
    beside = [["taskset", "-c", str(cpus[0]), *burn] for _ in range(4)]
    why, advice = verdict_of(bench, command, "--threads", 2, "--work", 512, beside=beside)
    assert "other programs" in why and "see what else runs" in advice, (why, advice)
