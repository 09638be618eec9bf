# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A job that waits for a CPU: is it told whose limit that is? Its quota, the CPUs on which it may run, its own threads, or others. Truth: how it was planted."""

import contextlib
import os
import time
from pathlib import Path

import helpers
import pytest

SECONDS = 6  # resources are looked at once a second
pytestmark = pytest.mark.alone


@contextlib.contextmanager
def quota(cpus):
    """A cgroup with so much CPU time: the words that start a program in it."""
    name = "stepflame-%d" % os.getpid()
    v1, v2 = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
    if (v1 / "cpu.cfs_quota_us").exists() or (v1 / "cgroup.procs").exists():
        folder, files = v1 / name, {"cpu.cfs_period_us": 100000, "cpu.cfs_quota_us": int(cpus * 100000)}
    elif "cpu" in (v2 / "cgroup.subtree_control").read_text().split():
        folder, files = v2 / name, {"cpu.max": "%d 100000" % (cpus * 100000)}
    else:
        pytest.skip("no cgroup can be made that limits the CPU")
    folder.mkdir()
    try:
        for file, value in files.items():
            (folder / file).write_text(str(value))
        yield ["sh", "-c", 'echo $$ > %s/cgroup.procs && exec "$@"' % folder, "sh"]
    finally:
        helpers.until(helpers.END_SECONDS, lambda: not (folder / "cgroup.procs").read_text(), lambda: str(folder))
        folder.rmdir()


def verdict_of(bench, front, *args, beside=()):
    stop = bench.directory / "stop"
    command = [*front, helpers.PYTHON, helpers.JOBS / "steady.py"]
    job = bench.job("steady.py", "--stop", stop, *args, command=command).until_ready()
    record = bench.record("-p", job.pid).until_armed()
    others = [bench.process(*words) for words in beside]
    job.release()
    time.sleep(SECONDS)
    stop.touch()
    job.truth()
    for other in others:
        other.kill()
    assert record.wait() == helpers.OK, record.what()
    verdict = helpers.report(record.file, "--steps")["verdict"]
    assert verdict["class"] == "CPU-starved", verdict
    return verdict["why"], " ".join(verdict["next"])


@helpers.needs_bpf
def test_quota(bench):
    with quota(0.5) as front:
        why, advice = verdict_of(bench, front)
    assert "its cgroup is limited to 0.5 CPUs" in why and "raise the CPU limit of its container" in advice, (why, advice)


@helpers.needs_bpf
def test_affinity(bench):
    """Two threads of OpenMP that may run on one CPU."""
    why, advice = verdict_of(bench, ["taskset", "-c", "0"], "--threads", 2, "--work", 512)
    assert "it may run on 1 of the machine's CPUs" in why and "let it run on more CPUs" in advice, (why, advice)


@helpers.needs_bpf
def test_own_threads(bench):
    """Three times as many threads as the machine has CPUs."""
    why, advice = verdict_of(bench, [], "--threads", 3 * os.cpu_count(), "--work", 512)
    assert "its own threads and processes have them" in why and "OMP_NUM_THREADS" in advice, (why, advice)


@helpers.needs_bpf
def test_others(bench):
    """A program for each CPU and one more take turns with it."""
    burn = ["sh", "-c", "while :; do :; done"]
    why, advice = verdict_of(bench, [], beside=[burn] * (os.cpu_count() + 1))
    assert "others have them" in why and "see what else runs" in advice, (why, advice)
