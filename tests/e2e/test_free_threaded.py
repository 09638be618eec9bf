# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Threads of a free-threaded CPython run at the same time, each on its own copy of the bytecode: each has its samples and its lines."""

import json
import math
import os
import subprocess

import dumped_samples
import helpers
import pytest
import pythons

pytestmark = helpers.needs_bpf

CPU_SECONDS = 0.5
PERIOD = 1 / 99
CALLS = {"by_spin": {"spin"}, "by_recursion": {"spin", "down"}, "by_generator": {"spin", "ones"}, "by_lambda": {"spin", "by_lambda.<locals>.<lambda>"}}


def recorded(bench, python, job, seconds, **env):
    """(samples, what the job says of itself at its end)."""
    job = bench.process(python, helpers.JOBS / job, seconds, stdin=subprocess.PIPE, env={**os.environ, **env}).until_ready()
    record = bench.record("-p", job.pid).until_armed()
    job.popen.stdin.write(b"\n")
    job.popen.stdin.flush()
    assert job.wait() == 0, job.what()
    assert record.wait() == helpers.OK, record.what()
    samples = dumped_samples.Samples(record.file)
    dumped_samples.check_frames(samples, helpers.report(record.file)["lost"])
    return samples, json.loads(job.stdout.splitlines()[-1])


@pythons.parametrize(pythons.FREE_THREADED)
def test_parallel(bench, python):
    samples, threads = recorded(bench, python, "parallel_threads.py", CPU_SECONDS)
    assert not samples.of(cause="gil")
    for name, tid, truth, _ in threads:
        on_cpu = samples.of(tid=tid, kind=dumped_samples.CPU)
        seconds = sum(s.seconds for s in on_cpu)
        assert abs(seconds - truth) < 4 * math.sqrt(truth * PERIOD), (name, seconds, truth)
        for sample in on_cpu:
            names = [frame.name for frame in sample.stack]
            if "Event.wait" in names:  # it has not begun
                continue
            inner = set(names[: names.index("work")]) - {name} if "work" in names else set()
            assert inner <= CALLS[name], (name, names)
        assert any({frame.name for frame in s.stack} & CALLS[name] for s in on_cpu)


@pythons.parametrize(pythons.FREE_THREADED)
def test_gil_that_is_turned_on(bench, python):
    """It is waited for as in any other build: of each thread's time, what it does not run is the GIL's, or the CPU's that others have."""
    samples, threads = recorded(bench, python, "parallel_threads.py", CPU_SECONDS, PYTHON_GIL="1")
    for name, tid, truth, elapsed in threads:
        waits = {cause: sum(s.seconds for s in samples.of(tid=tid, cause=cause)) for cause in ("gil", "run_queue")}
        assert waits["gil"] > 0, (name, waits)
        assert sum(waits.values()) == pytest.approx(elapsed - truth, rel=0.1), (name, waits, elapsed, truth)


@pythons.parametrize(pythons.FREE_THREADED)
def test_locks_of_objects(bench, python):
    """Who waits for the lock of a list waits for a lock, where it asks for it."""
    samples, (tid, truth) = recorded(bench, python, "object_locks.py", 2)
    found = {}
    for sample in samples.of(tid=tid):
        if sample.stack and sample.stack[0].name == "append_item":
            found[sample.cause] = found.get(sample.cause, 0) + sample.seconds
    assert found["lock"] > 0.5 * truth, (found, truth)
    assert sum(found.values()) == pytest.approx(truth, rel=0.1), (found, truth)
