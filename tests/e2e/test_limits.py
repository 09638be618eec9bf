# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Limits of a job's cgroup, of whichever version this machine has: in the recording, its report, and top."""

import contextlib
import json
import os
from pathlib import Path

import helpers
import pytest
import recfile

pytestmark = helpers.needs_bpf

MEMORY, CPUS = 4 << 30, 1.5
# of version 1, of version 2: {folder: {file: what limits}}
GROUPS = [
    {"/sys/fs/cgroup/memory": {"memory.limit_in_bytes": str(MEMORY)}, "/sys/fs/cgroup/cpu": {"cpu.cfs_quota_us": str(int(CPUS * 1e5))}},
    {"/sys/fs/cgroup": {"memory.max": str(MEMORY), "cpu.max": "%d 100000" % (CPUS * 1e5)}},
]


@pytest.fixture
def limited():
    """A function that puts a process into a cgroup, or into two, with these limits."""
    made = []

    def limit(pid):
        for folders in GROUPS:
            if not all((Path(folder) / "cgroup.procs").exists() for folder in folders):
                continue
            for folder, limits in folders.items():
                group = Path(folder, "stepflame-limits-%d" % os.getpid())
                group.mkdir()
                made.append(group)
                if not all((group / name).exists() for name in limits):
                    break
                for name, value in limits.items():
                    (group / name).write_text(value)
                (group / "cgroup.procs").write_text(str(pid))
            else:
                return
        pytest.skip("no cgroup that limits memory and CPU time can be made")

    yield limit
    for group in made:
        helpers.until(helpers.END_SECONDS, lambda: removed(group), lambda: "it has processes: %s" % group)


def removed(group):
    with contextlib.suppress(OSError):
        group.rmdir()
    return not group.exists()


def test_limits(limited, bench):
    job = bench.job("plain_loop.py", "--epochs", 100000).until_ready()
    limited(job.pid)
    job.release()
    record = bench.record("-p", job.pid, "-d", "3s")
    assert record.wait() == helpers.OK, record.what()
    found = helpers.report(record.file, "--steps")
    (row,) = [row for row in found["resources"] if row["pid"] == job.pid]
    assert row["limits"]["memory_bytes"] == MEMORY and row["limits"]["cpus"] == CPUS and row["limits"]["processors"] <= os.cpu_count()
    assert "limits of the cgroup of process %d (main): 4.29 GB of memory, 1.5 s of CPU time a second" % job.pid in " ".join(
        helpers.report_text(record.file, "--steps").split()
    )
    samples = [row for kind, row in recfile.read_records(record.file) if kind == "RESOURCES" and row.known & 16]
    assert samples and all(row.known & 32 or row.left_bytes < MEMORY for row in samples)  # a machine may have less

    top = helpers.stepflame("top", "-p", job.pid, "--json", "--once", "-i", "500ms", "--view", "processes")
    (process,) = json.loads(top.stdout)["processes"]
    limits = json.loads(top.stdout)["limits"]
    assert limits["memory_bytes"] == MEMORY and limits["cpus"] == CPUS
    assert 0 <= MEMORY - limits["memory_left_bytes"] < process["rss_mb"] * 1e6 + (64 << 20)
    job.kill()
