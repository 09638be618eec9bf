# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
What GPUs did below the waits for them in `stepflame flame`: against a sum over instants made here. Needs no root and no
GPU.
"""

import random
from collections import Counter
from dataclasses import replace

import pytest
import recfile as rec
import stepped
from stepped import PID, START, Job, Row
from .test_flame import close, flame, parse

STEP = 10_000_000
WAIT = stepped.spot("backward", [("/home/me/train.py", "step", 7)], ops=("aten::item", "cudaStreamSynchronize"), native="ioctl (libc.so.6)", cause="gpu_sync")
SPIN = replace(WAIT, native="spin (libcuda.so.1)", cause=None)
OTHER = stepped.spot("forward", [("/home/me/train.py", "step", 5)], ops=("aten::mm",))
SLEEP = replace(WAIT, ops=("aten::item",), cause="sleep")
KERNELS = ["gemm_kernel", "softmax_kernel"]
TEXTS = {(rec.KERNEL, 0): "gemm_kernel", (rec.KERNEL, 1): "softmax_kernel", (rec.COPY, 0): "Memcpy DtoH", (rec.SET, 0): "Memset (Device)"}


def activities(works, pid=PID):
    """works: (start, end, (kind, number), device, stream) in ns from START."""
    records = [rec.name(900 + i, name) for i, name in enumerate(KERNELS)]
    for start, end, (kind, number), device, stream in works:
        values = {"direction": rec.DTOH if kind == rec.COPY else 0, "device": device, "stream": stream}
        records.append(rec.gpu_activity(pid, kind, START + start, end - start, 900 + number if kind == rec.KERNEL else 0, 1, **values))
    return records


def at_work(works, time):
    """Of those under way at an instant the first to begin."""
    under_way = [work for work in works if work[0] <= time < work[1]]
    return TEXTS[min(under_way)[2]] if under_way else None


def expected(job, works, steps=None):
    """{stack: ns}, by instants of 250 ns."""
    out = Counter()
    for row in job.rows:
        share = 1 if steps is None else sum(job.overlap(row, i) for i in steps)
        if not share:
            continue
        if row.spot == SPIN:
            at = at_work(works, row.time)
            out[row.stack + (((f"{at} (GPU)", "", 0),) if at else ())] += row.weight
        elif row.spot == WAIT and row.waits <= 1:
            near = [work for work in works if work[0] < row.time and work[1] > row.time - row.weight]
            for time in range(row.time - row.weight, row.time, 250):
                at = at_work(near, time)
                out[row.stack + (((f"{at} (GPU)", "", 0),) if at else ())] += 250 * share
        else:
            out[row.stack] += row.weight * share
    return out


def random_job(seed):
    rng = random.Random(seed)
    job = Job(steps=[(i * STEP, (i + 1) * STEP, {"backward": STEP}) for i in range(20)])
    for i in range(20):
        begin = i * STEP + rng.randrange(1000) * 1000
        end = begin + rng.randrange(100, 5000) * 1000
        job.rows.append(Row(PID, end, end - begin, WAIT, waits=rng.choice([1, 1, 1, 5])))
        job.rows.append(Row(PID, end + 10_000, 1_000_000, OTHER))
        job.rows += [Row(PID, end + 20_000 + k * 300_000, stepped.PERIOD, SPIN) for k in range(rng.randrange(4))]
        job.rows.append(Row(PID, (i + 1) * STEP - 1000, 500_000, SLEEP))
    works = []
    for offset, device, stream in (0, 0, 7), (250, 0, 8), (500, 1, 7):
        at = offset - STEP
        while at < 21 * STEP:
            at += rng.choice([0, rng.randrange(2000) * 1000])
            duration = rng.choice([1, 30, 400]) * 1000
            works.append((max(at, 1 - START), at + duration, rng.choice(list(TEXTS)), device, stream))
            at += duration
    works.sort()
    job.extra = [rec.gpu(PID, 2), *activities(works), *activities([(0, 21 * STEP, (rec.KERNEL, 0), 0, 7)], PID + 77)]
    return job, works


@pytest.mark.parametrize("seed", range(4))
def test_waits_are_divided(tmp_path, seed):
    job, works = random_job(seed)
    path = job.write(tmp_path / "r.rec")
    found = parse(flame(path, "--folded").stdout.decode())
    close(found, expected(job, works))
    assert sum(found.values()) == pytest.approx(sum(row.weight for row in job.rows) / 1000, abs=len(found))
    for step in 0, 13:
        close(parse(flame(path, "--folded", "--step", step + 1).stdout.decode()), expected(job, works, [step]))
    flame(path, "-o", tmp_path / "page.html")


def test_without_a_gpu(tmp_path):
    job, _ = random_job(1)
    job.extra = []
    close(parse(flame(job.write(tmp_path / "r.rec"), "--folded").stdout.decode()), job.folded())


def test_absurd_activities(tmp_path):
    """Times that lie make no time."""
    job, works = random_job(2)
    numbers = [1, START, START + STEP, 2**63, 2**64 - 1]
    lies = [rec.gpu_activity(PID, kind, start, duration, ident, direction=7) for kind in range(6) for start in numbers for duration in numbers for ident in (0, 900)]
    job.extra += lies
    found = parse(flame(job.write(tmp_path / "r.rec"), "--folded").stdout.decode())
    assert sum(found.values()) == pytest.approx(sum(row.weight for row in job.rows) / 1000, abs=len(found))
