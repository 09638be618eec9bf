# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How a job ended is what the summary says first: against what wait(2) says of the job."""

import signal

import cgroups
import helpers
import pytest

LIMIT_MIB = 700


def ended(bench, how, **options):
    """The endings that the summary has, the first line of its text, and the job's own end."""
    job = bench.job("dies.py", "--how", how, "--batches", "100", **options).until_ready()
    record = bench.record("-p", job.pid).until_armed()
    job.release()
    status = job.wait()
    assert record.wait() == helpers.OK, record.what()
    return helpers.report(record.file, "--summary")["ended"], helpers.report_text(record.file), job, status


WAYS = {
    "exit": "ended with exit status 7",
    "raise": "ended with exit status 1",
    "_exit": "ended with exit status 7",
    "SIGKILL": "was killed by SIGKILL",
    "SIGABRT": "was killed by SIGABRT",
    "SIGTERM": "was killed by SIGTERM",
    "SIGSEGV": "was killed by SIGSEGV",
    "SIGXCPU": "was killed by SIGXCPU",
}


@helpers.needs_bpf
@pytest.mark.parametrize("how", WAYS)
def test_process(bench, how):
    found, text, job, status = ended(bench, how, cold=True)
    (one,) = found
    assert (one["pid"], one["role"], one["at_s"] > 0) == (job.pid, "main", True)
    assert (one["signal"], one["exit_status"]) == ((-status, None) if status < 0 else (None, status))
    assert text.startswith("Ended       process %d %s after " % (job.pid, WAYS[how])), text
    assert one["why"] == ("it reached its limit of CPU time (ulimit -t)" if how == "SIGXCPU" else None)


@helpers.needs_bpf
def test_good_end(bench):
    record, _ = bench.recorded("plain_loop.py")
    assert helpers.report(record.file, "--summary")["ended"] == []
    assert helpers.report_text(record.file).startswith("Recorded ")


@helpers.needs_bpf
def test_worker(bench):
    """The worker goes first; what it was for, and that its trainer followed, is said. (Older torches give a worker no name: it is known once it was sampled.)"""
    found, text, job, status = ended(bench, "worker", command=[helpers.PYTHON, helpers.JOBS / "dies.py"])
    assert status == 1
    worker, main = found
    assert (worker["role"], worker["signal"], worker["why"]) == ("worker", signal.SIGKILL, None)
    assert (main["pid"], main["exit_status"]) == (job.pid, 1)
    assert "DataLoader worker %d was killed by SIGKILL" % worker["pid"] in text.splitlines()[0], text


@helpers.needs_bpf
def test_shared_memory(bench):
    mounts = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=32m tmpfs /dev/shm && exec "$@"', "sh"]
    found, text, _, status = ended(bench, "shm", command=[*mounts, helpers.PYTHON, helpers.JOBS / "dies.py"])
    assert status == 1
    assert (found[0]["role"], found[0]["signal"], found[0]["why"]) == ("worker", signal.SIGBUS, "/dev/shm was full: 0 of 32 MiB free"), found
    assert "/dev/shm was full" in text


@helpers.needs_bpf
def test_memory(bench):
    with cgroups.made("memory") as group:
        group.limit_memory(LIMIT_MIB)
        found, text, job, status = ended(bench, "memory", command=group.command(helpers.COLD_PYTHON, helpers.JOBS / "dies.py"))
    assert status == -signal.SIGKILL
    (one,) = found
    why = "out of memory: the kernel has killed 1 of the processes of its cgroup, whose limit is %d MiB" % LIMIT_MIB
    assert (one["pid"], one["signal"], one["why"]) == (job.pid, signal.SIGKILL, why)
    assert text.startswith("Ended       process %d was killed by SIGKILL" % job.pid)
