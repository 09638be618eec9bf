# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
stepflame is killed, at any moment: its guardian takes all probes out of the job.

A process that is killed while it attaches or detaches leaves breakpoints in the target for good: the kernel cannot change the target's code with
a fatal signal pending.
"""

import os
import random
import signal
import time

import helpers
import pytest

pytestmark = helpers.needs_bpf

KILLS = 60 if helpers.LONG else 1 if helpers.GATE else 3
ATTACH_SECONDS = 1.5  # so long `record` loads its programs and attaches
DETACH_SECONDS = 0.35
OPTIONS = {"ops": ["--ops"], **({"exact": ["--exact", "-d", "60s"], "plain": []} if helpers.LONG else {})}


def kill(record, job):
    """Kills it, and waits until its guardian has ended, which may have started just now."""
    record.kill()
    helpers.until(helpers.END_SECONDS, lambda: not helpers.guardians(target=job), lambda: helpers.guardians(target=job))


@pytest.mark.parametrize("moment", ["attaches", "detaches"])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_no_breakpoint_stays(bench, options, moment):
    job = bench.process(helpers.PYTHON, helpers.JOBS / "busy.py", "loop").until_ready()
    at = random.Random(1)
    for _ in range(KILLS):
        record = bench.record("-p", job.pid, *options)
        if moment == "attaches":
            time.sleep(at.uniform(0.2, ATTACH_SECONDS))  # clock: any moment will do
        else:
            record.until_armed()
            job.until_ran(0.1)
            record.interrupt()
            time.sleep(at.uniform(0, DETACH_SECONDS))  # clock: any moment will do
        kill(record, job)
        left = helpers.breakpoints(job.pid)
        assert not left, "%d breakpoints" % len(left)
        assert job.running(), job.what()


def test_guardian_killed(bench):
    """The probes are gone with it: the user is told at once, and the report says since when."""
    job = bench.process(helpers.PYTHON, helpers.JOBS / "busy.py", "loop").until_ready()
    record = bench.record("-p", job.pid).until_armed()
    (guardian,) = helpers.guardians(record)
    os.kill(guardian, signal.SIGKILL)
    record.until_says("stepflame-guard was killed", helpers.ARMED_SECONDS, "stderr")
    record.interrupt()
    assert record.wait() == helpers.OK, record.what()
    assert not helpers.breakpoints(job.pid)
    assert "stepflame-guard was killed" in helpers.report_text(record.file, "--simple")
