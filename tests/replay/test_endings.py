# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the summary says of how processes ended: recordings made by hand, of one cause each."""

import json
import signal

import pytest
import recfile as rec
from helpers import OK, stepflame

CGROUP, MACHINE, SHM = 1, 2, 4
SECOND = 10**9
MIB = 1 << 20
KILLED, EXIT_1 = signal.SIGKILL, 1 << 8


def summary(tmp_path, *records):
    """Its lines as words, and the JSON's `ended`."""
    path = tmp_path / "a.rec"
    path.write_bytes(rec.recording([rec.host(), *records, rec.window(1, 9 * SECOND)]))
    text, data = stepflame("report", path), stepflame("report", path, "--summary", "--json")
    assert text.returncode == data.returncode == OK, (text, data)
    return " ".join(text.stdout.split()), json.loads(data.stdout)["ended"]


def ended(pid, status, second, **more):
    return [rec.target(pid, **more), rec.proc(3, second * 1000, 0, pid, status, comm="pt_data_worker" if more.get("role") == rec.WORKER else "python")]


def shortage(pid, known, **values):
    return rec.record("SHORTAGE", pid=pid, known=known, **values)


@pytest.mark.parametrize(
    "status, says",
    [
        (KILLED, "process 11 was killed by SIGKILL after 4.0 s"),
        (signal.SIGSEGV | 0x80, "process 11 was killed by SIGSEGV after 4.0 s"),  # with a core dump
        (7 << 8, "process 11 ended with exit status 7 after 4.0 s"),
        (60, "process 11 was killed by signal 60 after 4.0 s"),
    ],
)
def test_how(tmp_path, status, says):
    text, found = summary(tmp_path, *ended(11, status, 4))
    assert text.startswith("Ended " + says), text
    assert [(one["pid"], one["role"], one["why"]) for one in found] == [(11, "main", None)]


def test_well(tmp_path):
    text, found = summary(tmp_path, *ended(11, 0, 4))
    assert "Ended" not in text and found == []


@pytest.mark.parametrize(
    "status, known, says",
    [
        (KILLED, CGROUP, "out of memory: the kernel has killed 2 of the processes of its cgroup, whose limit is 512 MiB"),
        (KILLED, CGROUP | MACHINE, "out of memory: the kernel has killed 2 of the processes of its cgroup, whose limit is 512 MiB"),
        (KILLED, MACHINE, "perhaps out of memory: the kernel has killed 3 of the processes of the machine for that meanwhile"),
        (KILLED, SHM, None),
        (signal.SIGBUS, SHM, "/dev/shm was full: 1 of 64 MiB free"),
        (EXIT_1, SHM, "/dev/shm was full: 1 of 64 MiB free"),
        (signal.SIGSEGV, CGROUP | MACHINE | SHM, None),
        (EXIT_1, CGROUP | MACHINE, None),
        (signal.SIGXCPU, 0, "it reached its limit of CPU time (ulimit -t)"),
    ],
)
def test_why(tmp_path, status, known, says):
    """What was short is named only where it fits the way in which the process ended."""
    values = {"cgroup_kills": 2, "machine_kills": 3, "shm_bytes": 64 * MIB, "shm_free_bytes": MIB}
    limits = rec.record("LIMITS", pid=11, memory_bytes=512 * MIB)
    text, (one,) = summary(tmp_path, *ended(11, status, 4), limits, shortage(11, known, **values))
    assert one["why"] == says
    assert ("4.0 s: %s" % says if says else "4.0 s Recorded") in text, text


def test_order_and_number(tmp_path):
    """By time, ranks by their numbers, three of them; workers, but not other children."""
    records = [*ended(11, KILLED, 3, rank=1), *ended(12, EXIT_1, 2, rank=0), *ended(13, KILLED, 4, role=rec.WORKER, parent=12)]
    records += [*ended(14, KILLED, 5, rank=2), *ended(15, KILLED, 1, role=rec.CHILD, parent=12)[:1]]
    text, found = summary(tmp_path, *records)
    assert [one["pid"] for one in found] == [12, 11, 13, 14]
    for says in ("rank 0 (process 12) ended with exit status 1 after 2.0 s", "rank 1 (process 11) was killed", "DataLoader worker 13 was killed", "and 1 more, later"):
        assert says in text, text


def test_worker_that_ends_with_its_trainer(tmp_path):
    records = [*ended(11, KILLED, 3), *ended(12, signal.SIGTERM, 3, role=rec.WORKER, parent=11), *ended(13, signal.SIGSEGV, 3, role=rec.WORKER, parent=11)]
    _, found = summary(tmp_path, *records)
    assert sorted(one["pid"] for one in found) == [11, 13]


def test_child(tmp_path):
    """One that crashed, or was killed, shortly before its parent ended badly may be why: the worker that nobody had sampled. Others are no news."""
    records = [*ended(11, EXIT_1, 4), *ended(12, KILLED, 3, role=rec.CHILD, parent=11), *ended(13, EXIT_1, 3, role=rec.CHILD, parent=11)]
    records += [*ended(14, signal.SIGTERM, 3, role=rec.CHILD, parent=11), *ended(15, KILLED, 5, role=rec.CHILD, parent=11)]
    records += [*ended(21, 0, 4), *ended(22, KILLED, 3, role=rec.CHILD, parent=21)]
    records += [*ended(31, EXIT_1, 18), *ended(32, KILLED, 7, role=rec.CHILD, parent=31)]
    text, found = summary(tmp_path, *records)
    assert [(one["pid"], one["role"]) for one in found] == [(12, "child"), (11, "main"), (31, "main")]
    assert text.startswith("Ended process 12, which process 11 has started, was killed by SIGKILL after 3.0 s process 11 ended with exit status 1 after 4.0 s"), text


def test_pid_used_again(tmp_path):
    """A child that begins with the pid of one that has ended is another; the end is that of the last. One that is told of twice is one."""
    first = [rec.target(12, role=rec.CHILD, parent=11), rec.proc(1, 1000, 11, 12), rec.proc(3, 2000, 0, 12, KILLED)]
    again = [rec.target(12, role=rec.CHILD, parent=11), rec.proc(1, 3000, 11, 12), rec.proc(3, 3500, 0, 12, signal.SIGSEGV)]
    late = [*ended(13, 0, 3, role=rec.CHILD, parent=11), rec.target(13, role=rec.CHILD, parent=11)]
    _, found = summary(tmp_path, *ended(11, EXIT_1, 4), *first, *again, *late)
    assert [(one["pid"], one["signal"]) for one in found] == [(12, signal.SIGSEGV), (11, None)]
    assert "inside: 3 child processes" in stepflame("report", tmp_path / "a.rec", "--simple").stdout
