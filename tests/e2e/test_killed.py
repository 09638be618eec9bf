# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
stepflame is killed, at any moment: its guardian takes all probes out of the job.

A process that is killed while it attaches or detaches leaves breakpoints in the target for good: the kernel cannot change the target's code with
a fatal signal pending.
"""

import random
import subprocess
import time

import helpers
import pytest

pytestmark = helpers.needs_bpf

KILLS = 60 if helpers.LONG else 3
ATTACH_SECONDS = 1.5  # so long `record` loads its programs and attaches
DETACH_SECONDS = 0.35
OPTIONS = {"ops": ["--ops"], **({"exact": ["--exact", "-d", "60s"], "plain": []} if helpers.LONG else {})}


def guardians():
    """Pids of all guardians of this machine."""
    return subprocess.run(["pgrep", "-x", "stepflame-guard"], capture_output=True, text=True).stdout.split()


def children_of(record):
    return set(guardians()) & set(subprocess.run(["pgrep", "-P", str(record.pid)], capture_output=True, text=True).stdout.split())


def kill(record):
    """Kills it, and waits until its guardian has ended."""
    own = children_of(record)
    record.kill()
    helpers.until(helpers.END_SECONDS, lambda: not own & set(guardians()), lambda: "guardians: %s" % own)


@pytest.mark.alone
@pytest.mark.parametrize("moment", ["attaches", "detaches"])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_no_breakpoint_stays(bench, options, moment):
    job = bench.process(helpers.PYTHON, helpers.JOBS / "busy.py", "loop").until_ready()
    at = random.Random(1)
    for _ in range(KILLS):
        record = bench.record("-p", job.pid, *options)
        if moment == "attaches":
            time.sleep(at.uniform(0.2, ATTACH_SECONDS))
        else:
            record.until_armed()
            time.sleep(0.2)
            record.interrupt()
            time.sleep(at.uniform(0, DETACH_SECONDS))
        kill(record)
        left = helpers.breakpoints(job.pid)
        assert not left, "%d breakpoints" % len(left)
        assert job.running(), job.what()
