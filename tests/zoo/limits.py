# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Faults that a machine has and a program does not know of: too little memory for the pages that it reads again and again, and a disk that
others have filled with work. Both by a cgroup that the program is started in, of whichever version the machine has.
"""

import os
import tempfile
import time
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
READ_BYTES_PER_SECOND = 16 << 20
REMOVE_SECONDS = 10
KEPT_SHARE = 0.25  # of the page cache that the program has filled


class Unavailable(Exception):
    """Why there can be no such limit here."""


def disk_of(path):
    """MAJOR:MINOR of the disk, not the partition, that a file is on."""
    device = os.stat(path).st_dev
    entry = Path("/sys/dev/block/%d:%d" % (os.major(device), os.minor(device))).resolve()
    return ((entry.parent if (entry / "partition").exists() else entry) / "dev").read_text().strip()


class Limit:
    """A cgroup of one controller: a program that calls enter() before exec is in it, and its children."""

    def __init__(self, controller):
        old = ROOT / ("blkio" if controller == "io" else controller)
        self.is_old = old.is_dir()
        # the freezer of version 2 is no controller
        if not self.is_old and controller != "freezer" and controller not in (ROOT / "cgroup.controllers").read_text().split():
            raise Unavailable("no cgroup controller %s" % controller)
        try:
            if not self.is_old and controller != "freezer":
                (ROOT / "cgroup.subtree_control").write_text("+" + controller)
            self.folder = Path(tempfile.mkdtemp(prefix="zoo-", dir=old if self.is_old else ROOT))
        except OSError as error:
            raise Unavailable("no cgroup can be made: %s" % error) from error

    def enter(self):
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def write(self, old_name, old_text, name, text):
        try:
            (self.folder / (old_name if self.is_old else name)).write_text(old_text if self.is_old else text)
        except OSError as error:
            raise Unavailable("%s: %s" % (self.folder, error)) from error

    def remove(self):
        """Workers that their program has started end a moment behind it."""
        end = time.monotonic() + REMOVE_SECONDS
        while True:
            try:
                return self.folder.rmdir()
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)


class SlowDisk(Limit):
    def __init__(self):
        super().__init__("io")

    def set(self, path):
        disk = disk_of(path)
        self.write(
            "blkio.throttle.read_bps_device", "%s %d" % (disk, READ_BYTES_PER_SECOND), "io.max", "%s rbps=%d" % (disk, READ_BYTES_PER_SECOND)
        )


class LittleMemory(Limit):
    def __init__(self):
        super().__init__("memory")

    def set(self, path):
        """From now on, so that the program has all that it needs but pages of files."""
        stat = dict(line.split() for line in (self.folder / "memory.stat").read_text().splitlines())
        used = int((self.folder / ("memory.usage_in_bytes" if self.is_old else "memory.current")).read_text())
        cached = int(stat["total_cache" if self.is_old else "file"])
        limit = str(int(used - (1 - KEPT_SHARE) * cached))
        self.write("memory.limit_in_bytes", limit, "memory.max", limit)


class Quota(Limit):
    """Of CPU time. What it has of CPUs, it has before other programs."""

    CPUS = 0.4

    def __init__(self):
        super().__init__("cpu")
        self.write("cpu.shares", "262144", "cpu.weight", "10000")

    def set(self, path):
        self.write("cpu.cfs_quota_us", "%d" % (self.CPUS * 100000), "cpu.max", "%d 100000" % (self.CPUS * 100000))

    def counts(self):
        """By the kernel: periods of the quota in which the program ran, and in how many of them it was used up."""
        rows = dict(line.split() for line in (self.folder / "cpu.stat").read_text().splitlines())
        return int(rows["nr_periods"]), int(rows["nr_throttled"])


class LooseQuota(Quota):
    """More than one thread can use."""

    CPUS = 1.5


LIMITS = {"quota": Quota, "loose_quota": LooseQuota, "disk": SlowDisk, "memory": LittleMemory}
