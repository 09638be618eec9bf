# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""stepflame with too little memory: it ends with a reason or the kernel kills it, and the job goes on as before."""

import signal

import cgroups
import helpers
import pytest

pytestmark = helpers.needs_bpf

LIMITS = range(10, 80, 5) if helpers.LONG else (10, 20, 40)


@pytest.fixture
def memory_group():
    """A function that runs a command with so many MiB of memory for it and its children: in a cgroup of its own."""
    with cgroups.made("memory") as group:

        def limited(mib, *command):
            group.limit_memory(mib)
            return group.command(*command)

        yield limited


def test_killed_for_memory(bench, memory_group, tmp_path):
    """The guardian is not killed for memory, and takes the probes out of the job."""
    job = bench.process(helpers.PYTHON, helpers.JOBS / "busy.py", "loop").until_ready()
    ends = []
    for mib in LIMITS:
        record = bench.process(*memory_group(mib, helpers.STEPFLAME, "record", "-p", job.pid, "-d", "1s", "-o", tmp_path / "memory.rec"))
        ends.append(record.wait())
        helpers.until(helpers.END_SECONDS, lambda: not helpers.guardians(target=job), lambda: helpers.guardians(target=job))
        assert ends[-1] in (helpers.OK, helpers.ERROR, helpers.UNSUPPORTED, -signal.SIGKILL), record.what()
        assert ends[-1] in (helpers.OK, -signal.SIGKILL) or "memory" in record.what(), record.what()
        assert not helpers.breakpoints(job.pid)
        assert job.running(), job.what()
    assert -signal.SIGKILL in ends, ends
