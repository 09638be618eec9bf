# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A job that is paused from outside, while it trains: by a stop signal and by the freezers of both versions of cgroups. Truth: this test's clock."""

import contextlib
import os
import signal
import time
from pathlib import Path

import dumped_samples
import helpers
import pytest
import recfile

PAUSES, SECONDS = 6, 0.25
WAIT = recfile.WAIT


def state_of(pid):
    return Path("/proc/%d/stat" % pid).read_text().rpartition(")")[2].split()[0]


class Stop:
    def __init__(self, pid):
        self.pid = pid

    def pause(self):
        os.kill(self.pid, signal.SIGSTOP)

    def is_paused(self):
        return state_of(self.pid) == "T"

    def resume(self):
        os.kill(self.pid, signal.SIGCONT)

    def end(self):
        with contextlib.suppress(ProcessLookupError):
            self.resume()


class Freezer:
    """Of a cgroup that it makes in `root`."""

    def __init__(self, pid, root, control, frozen, thawed, status):
        self.folder, self.control, self.frozen, self.thawed, self.status = root / ("stepflame-%d" % pid), control, frozen, thawed, status
        self.folder.mkdir()
        (self.folder / "cgroup.procs").write_text(str(pid))

    def pause(self):
        (self.folder / self.control).write_text(self.frozen)

    def is_paused(self):
        name, text = self.status
        return text in (self.folder / name).read_text()

    def resume(self):
        (self.folder / self.control).write_text(self.thawed)

    def end(self):
        """Once no process is left in it."""
        self.resume()
        helpers.until(helpers.END_SECONDS, lambda: not (self.folder / "cgroup.procs").read_text(), lambda: str(self.folder))
        self.folder.rmdir()


def freezer_1(pid):
    root = Path("/sys/fs/cgroup/freezer")
    if not (root / "cgroup.procs").exists():
        pytest.skip("no cgroups of version 1 are mounted")
    return Freezer(pid, root, "freezer.state", "FROZEN", "THAWED", ("freezer.state", "FROZEN"))


def freezer_2(pid):
    roots = [root for root in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")) if (root / "cgroup.controllers").exists()]
    if not roots:
        pytest.skip("no cgroups of version 2 are mounted")
    return Freezer(pid, roots[0], "cgroup.freeze", "1", "0", ("cgroup.events", "frozen 1"))


@contextlib.contextmanager
def paused(by):
    """Yields what it is given back: [seconds at least, seconds at most]."""
    took = [0, 0]
    before = time.monotonic()
    by.pause()
    helpers.until(helpers.END_SECONDS, by.is_paused, lambda: "it is not paused")
    certain = time.monotonic()
    yield took
    took[0] = time.monotonic() - certain
    by.resume()
    helpers.until(helpers.END_SECONDS, lambda: not by.is_paused(), lambda: "it is paused")
    took[1] = time.monotonic() - before


@helpers.needs_bpf
@pytest.mark.parametrize("how", [Stop, freezer_1, freezer_2], ids=["SIGSTOP", "cgroup-1", "cgroup-2"])
def test_pauses(bench, how):
    stop = bench.directory / "stop"
    job = bench.job("events.py", "--stop", stop).until_ready()
    record = bench.record("-p", job.pid).until_armed()
    by = how(job.pid)
    try:
        job.release()
        least = most = 0
        for _ in range(PAUSES):
            time.sleep(SECONDS)
            with paused(by) as took:
                time.sleep(SECONDS)
            least, most = least + took[0], most + took[1]
        time.sleep(SECONDS)
        stop.touch()
        job.truth()
    finally:
        by.end()
    assert record.wait() == helpers.OK, record.what()
    waits = dumped_samples.Samples(record.file).of(tid=job.pid, kind=WAIT)
    in_pauses = sum(s.seconds for s in waits if s.cause == "pauses")
    assert least <= in_pauses <= most, (least, in_pauses, most)
    assert sum(s.seconds for s in waits if s.cause == "page_fault") < SECONDS
    found = helpers.report(record.file, "--steps")
    (cause,) = [group for group in found["causes"] if group["cause"] == "pauses"]
    assert cause["count"] == PAUSES and cause["where"] == [] and cause["phase"] is None, cause
    verdict = found["verdict"]
    assert (verdict["class"], verdict["cause"], verdict["place"]) == ("unclear", "pauses", None), verdict
    assert "paused from outside" in helpers.report_text(record.file)
