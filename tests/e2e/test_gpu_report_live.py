# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""report --gpu of a job on the doubles of CUDA's libraries, against their log of what they really played."""

import json
import os
from collections import Counter
from pathlib import Path

import gpu
import helpers
import pytest

GPU = Path(gpu.DOUBLES)

pytestmark = [helpers.needs_bpf, gpu.needs_doubles, gpu.needs_cupti]

DIRECTIONS = {1: "host to device", 2: "device to host", 8: "device to device"}
ARGS = ["--steps", 60, "--launches", 6, "--nccl", 1, "--streams", 2, "--sleep-us", 2000, "--sync-each", 5]


def union_ns(intervals):
    total, until = 0, 0
    for start, end in sorted(intervals):
        total += max(0, end - max(start, until))
        until = max(until, end)
    return total


def test_against_what_was_played(bench):
    log, go = bench.directory / "log", bench.directory / "go"
    env = dict(os.environ, LD_LIBRARY_PATH=str(GPU), GPU_DOUBLE_LOG=str(log), CUDA_INJECTION64_PATH=str(gpu.INJECT))
    job = bench.process(GPU / "train", *ARGS, "--early", "--wait", go, env=env)
    pid = int(job.until_says(r"^ready (\d+)$", helpers.READY_SECONDS, "stdout")[1])
    record = bench.record("-p", pid, "--gpu", "cupti", "-F", 0, "--no-syscalls").until_armed()
    played = Path("%s.%d" % (log, pid))
    helpers.until(
        helpers.ARMED_SECONDS, lambda: "cuptiActivityFlushPeriod" in played.read_text(), lambda: "CUPTI was not asked"
    )
    go.touch()
    assert job.wait() == 0, job.what()
    assert record.wait() == helpers.OK, record.what()
    found = helpers.report(record.file, "--gpu")

    ops = [line for line in map(json.loads, played.read_text().splitlines()) if line["log"] == "op" and line["recorded"]]
    kernels = [op for op in ops if op["kind"] == "kernel"]
    truth = Counter(op["name"] for op in kernels)
    assert {k["mangled"]: k["count"] for k in found["kernels"]} == truth and len(kernels) > 300
    for row in found["kernels"]:
        total_us = sum(op["end"] - op["start"] for op in kernels if op["name"] == row["mangled"]) / 1000
        # both ends are put on the recording's clock, each to within a microsecond
        assert row["total_us"] == pytest.approx(total_us, rel=1e-3, abs=2 * row["count"])
    copies = [op for op in ops if op["kind"] == "copy"]
    assert {c["direction"]: c["bytes"] for c in found["copies"]} == {
        DIRECTIONS[d]: sum(op["bytes"] for op in copies if op["direction"] == d) for d in {op["direction"] for op in copies}
    }
    (one,) = found["gpus"]
    busy_us = union_ns([(op["start"], op["end"]) for op in ops]) / 1000
    assert one["busy_us"] == pytest.approx(busy_us, rel=1e-3, abs=2 * len(ops))
    span_us = (max(op["end"] for op in ops) - min(op["start"] for op in ops)) / 1000
    assert one["watched_us"] == pytest.approx(span_us, rel=1e-3)

    # what asked for a kernel of NCCL: probes see the end of each collective
    (tier,) = found["tiers"]
    assert (tier["tier"], tier["lost"], tier["unasked"], tier["activities"]) == (2, 0, 0, len(ops))
    collectives = [op for op in kernels if "ncclDevKernel" in op["name"]]
    assert len(collectives) == 60
    assert sum(c["device_us"] or 0 for c in found["collectives"]) == pytest.approx(
        sum(op["end"] - op["start"] for op in collectives) / 1000, rel=1e-3, abs=2 * len(collectives)
    )
