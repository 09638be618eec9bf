# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""report --gpu of a job on the doubles of CUDA's libraries, against their log of what they really played."""

from collections import Counter

import helpers
import pytest
from gpu_train import NEEDS_CUPTI, started
from intervals import length

pytestmark = NEEDS_CUPTI

DIRECTIONS = {1: "host to device", 2: "device to host", 8: "device to device"}
ARGS = ["--steps", 60, "--launches", 6, "--nccl", 1, "--streams", 2, "--sleep-us", 2000, "--sync-each", 5]


def test_against_what_was_played(bench):
    train, record = started(bench, *ARGS)
    train.release()
    train.end()
    assert record.wait() == helpers.OK, record.what()
    found = helpers.report(record.file, "--gpu")

    ops = [op for op in train.log("op") if op["recorded"]]
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
    busy_us = length([(op["start"], op["end"]) for op in ops]) / 1000
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
