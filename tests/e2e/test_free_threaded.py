# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Threads of a free-threaded CPython run at the same time, each on its own copy of the bytecode: each has its samples and its lines."""

import json
import math
import subprocess

import dumped_samples
import helpers
import pythons

pytestmark = helpers.needs_bpf

CPU_SECONDS = 0.5
PERIOD = 1 / 99
CALLS = {"by_spin": {"spin"}, "by_recursion": {"spin", "down"}, "by_generator": {"spin", "ones"}, "by_lambda": {"spin", "by_lambda.<locals>.<lambda>"}}


@pythons.parametrize(pythons.FREE_THREADED)
def test_parallel(bench, python):
    job = bench.process(python, helpers.JOBS / "parallel_threads.py", CPU_SECONDS, stdin=subprocess.PIPE).until_ready()
    record = bench.record("-p", job.pid).until_armed()
    job.popen.stdin.write(b"\n")
    job.popen.stdin.flush()
    assert job.wait() == 0, job.what()
    assert record.wait() == helpers.OK, record.what()
    samples = dumped_samples.Samples(record.file)
    dumped_samples.check_frames(samples, helpers.report(record.file)["lost"])
    assert not samples.of(cause="gil")
    for name, tid, truth in json.loads(job.stdout.splitlines()[-1]):
        on_cpu = samples.of(tid=tid, kind=dumped_samples.CPU)
        seconds = sum(s.seconds for s in on_cpu)
        assert abs(seconds - truth) < 4 * math.sqrt(truth * PERIOD), (name, seconds, truth)
        for sample in on_cpu:
            names = [frame.name for frame in sample.stack]
            inner = set(names[: names.index("work")]) - {name} if "work" in names else set()
            assert inner <= CALLS[name], (name, names)
        assert any({frame.name for frame in s.stack} & CALLS[name] for s in on_cpu)
