# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`stepflame flame` of real jobs whose slow steps have a planted cause: it is in these steps' flames, and in no other's."""

import helpers
import pytest
from replay.test_flame import flame, parse

pytestmark = helpers.needs_bpf

HELD_US = 60_000  # planted.py's HELD_SECONDS


def folded(record, *args):
    return parse(flame(record.file, "--folded", *args).stdout.decode())


def total(stacks, *pieces):
    return sum(us for stack, us in stacks.items() if all(piece in stack for piece in pieces))


def test_sleeping_dataset(bench):
    record, truth = bench.recorded("planted.py", "--plant", "sleep")
    log = truth["log"]
    for step in truth["planted"]:
        for near in (step - 1, step, step + 1):
            slept = total(folded(record, "--step", near), "planted.py:Sleep.in_dataset:", "{waiting:_sleep}")
            assert slept == pytest.approx(HELD_US if near == step else 0, rel=0.05), near
    slowest = folded(record, "--slowest", len(truth["planted"]))
    assert total(slowest, "data;", "{waiting:_sleep}") > 0.5 * total(slowest)
    # all steps, by the job's own clock; the timer's samples are as many as there is time on the CPU
    everything = folded(record, "--slowest", len(log))
    assert total(everything) / 1e6 == pytest.approx(log[-1][0] - log[0][0], rel=0.1)


def test_slow_worker(bench):
    """Below the wait for a batch is the worker that brought it."""
    record, truth = bench.recorded("planted.py", "--plant", "worker")
    waits = folded(record, "--slowest", len(truth["planted"]) // 2)
    waited = total(waits, "{waiting:_data_wait}")
    assert total(waits, "{waiting:_data_wait}", f"ended_by_pid_{truth['worker']}_(worker)") > 0.5 * waited
    slept = total(folded(record, "-p", truth["worker"]), "planted.py:Worker.in_dataset:", "{waiting:_sleep}")
    # it prefetches its first batches before it is found
    assert 0.5 * HELD_US * len(truth["planted"]) < slept < 1.05 * HELD_US * len(truth["planted"])
