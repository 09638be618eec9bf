# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Cgroups of whichever version this machine has, for tests that limit a program."""

import contextlib
import os
from pathlib import Path

import helpers
import pytest

ROOT = Path("/sys/fs/cgroup")
LIMITS = {"memory": {1: "memory.limit_in_bytes", 2: "memory.max"}, "cpu": {1: "cpu.cfs_quota_us", 2: "cpu.max"}}  # by controller and version


class Group:
    """A cgroup of one controller."""

    def __init__(self, controller):
        self.version = 1 if (ROOT / controller / "cgroup.procs").exists() else 2
        self.folder = (ROOT / controller if self.version == 1 else ROOT) / ("stepflame-%d" % os.getpid())
        self.limit = self.folder / LIMITS[controller][self.version]

    def limit_memory(self, mib):
        self.limit.write_text(str(mib << 20))

    def limit_cpus(self, cpus):
        self.limit.write_text(("%d" if self.version == 1 else "%d 100000") % (cpus * 100000))  # of a period of 100,000 us, as it is at first

    def come_first(self):
        """Before what else runs on the machine."""
        (self.folder / ("cpu.shares" if self.version == 1 else "cpu.weight")).write_text("262144" if self.version == 1 else "10000")

    def throttled(self):
        """Periods of its quota, in how many it was used up, and for how many seconds, by the kernel."""
        rows = dict(line.split() for line in (self.limit.parent / "cpu.stat").read_text().splitlines())
        seconds = int(rows["throttled_time"]) / 1e9 if self.version == 1 else int(rows["throttled_usec"]) / 1e6
        return int(rows["nr_periods"]), int(rows["nr_throttled"]), seconds

    def command(self, *words):
        """One that runs in it, with its children."""
        return ["sh", "-c", 'echo $$ > "$0"/cgroup.procs; exec "$@"', str(self.folder), *map(str, words)]

    def processes(self):
        return (self.folder / "cgroup.procs").read_text()


@contextlib.contextmanager
def made(controller):
    """A Group, until its last process has ended."""
    group = Group(controller)
    with contextlib.suppress(OSError):
        group.folder.mkdir()
    if not group.limit.exists():
        with contextlib.suppress(OSError):
            group.folder.rmdir()
        pytest.skip("no cgroup that limits %s can be made" % controller)
    try:
        yield group
    finally:
        helpers.until(helpers.END_SECONDS, lambda: not group.processes(), group.processes)
        group.folder.rmdir()
