# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Kernels of a torch loop, by the operator that launched them, against the loop's own account and the doubles' log."""

import collections

import gpu
import helpers
import pytest

pytestmark = [helpers.needs_bpf, gpu.needs_doubles, gpu.needs_cupti]

BATCHES = 40


def test_kernels_by_operator(gpu_jobs, bench):
    job = gpu_jobs.python("gpu_loop.py", "--batches", BATCHES, "--nccl", injection=gpu.INJECT).until_ready()
    record = bench.record("-p", job.pid, "--gpu", "cupti", "--ops").until_armed()
    job.release()
    truth = job.truth()
    assert record.wait() == helpers.OK, record.what()
    assert not job.log.errors()

    # each launch of the loop is one call in the log, which has the correlation id of the kernel
    launches = job.log.calls("runtime", ["cudaLaunchKernel"])
    assert len(launches) == len(truth["launches"])
    operators = {call["correlation"]: op for call, (_, _, op, *_) in zip(launches, truth["launches"])}
    counts, busy_us = collections.Counter(), collections.Counter()
    for op in job.log.ops("kernel"):
        key = operators.get(op["correlation"]), op["name"]
        counts[key] += 1
        busy_us[key] += (op["end"] - op["start"]) / 1e3

    found = helpers.report(record.file, "--gpu", "--by-op")
    assert found["tier"] == 2 and found["tiers"][0]["unjoined"] == 0
    rows = {(row["op"], row["mangled"]): row for row in found["kernels"]}
    assert len(rows) == len(found["kernels"])
    assert {key: row["count"] for key, row in rows.items()} == counts
    for key, row in rows.items():
        # the two clocks drift apart by 20 ppm, and CUPTI's times are whole ns
        assert abs(row["total_us"] - busy_us[key]) <= 1e-4 * busy_us[key] + 0.002 * row["count"], key


def test_device_time_by_shapes(gpu_jobs, bench):
    job = gpu_jobs.python("gpu_loop.py", "--batches", BATCHES, "--kernel-us", 150, injection=gpu.INJECT).until_ready()
    record = bench.record("-p", job.pid, "--gpu", "cupti", "--shapes").until_armed()
    job.release()
    truth = job.truth()
    assert record.wait() == helpers.OK, record.what()

    kernels = {op["correlation"]: op for op in job.log.ops("kernel")}
    busy_us, counts = collections.Counter(), collections.Counter()
    for call, (_, _, op, _, shapes) in zip(job.log.calls("runtime", ["cudaLaunchKernel"]), truth["launches"]):
        # what is behind the schema's positional arguments is not passed
        key = op, tuple(map(tuple, shapes[:2]))
        kernel = kernels[call["correlation"]]
        busy_us[key] += (kernel["end"] - kernel["start"]) / 1e3
        counts[key] += 1
    assert len([key for key in counts if key[0] == "aten::add_"]) == 4  # the parameters

    found = collections.Counter()
    for row in helpers.report(record.file, "--ops", "--shapes")["ops"]:
        if row["kind"] == "op" and row["self_device_us"]:
            found[row["name"], tuple(map(tuple, row["input_shapes"][:2]))] += row["self_device_us"]
    assert found == {key: pytest.approx(us, rel=1e-4, abs=0.002 * counts[key]) for key, us in busy_us.items()}


def test_whole_steps(gpu_jobs, bench):
    """--steps: what the GPU did for these steps, not what it did while CUPTI was there."""
    job = gpu_jobs.python("gpu_loop.py", "--batches", 300, "--kernel-us", 100, injection=gpu.INJECT).until_ready()
    record = bench.record("-p", job.pid, "--gpu", "cupti", "--steps", 20).until_armed()
    job.release()
    truth = job.truth()
    assert record.wait() == helpers.OK, record.what()
    a_step = collections.Counter(kernel for step, _, _, kernel, _ in truth["launches"] if step == 5)
    found = helpers.report(record.file, "--gpu")
    assert {row["mangled"]: row["count"] for row in found["kernels"]} == {kernel: 20 * cnt for kernel, cnt in a_step.items()}
    assert {row["direction"]: row["count"] for row in found["copies"]} == {"host to device": 20, "device to host": 20}
    (tier,) = found["tiers"]
    assert (tier["tier"], tier["unjoined"], tier["activities"]) == (2, 0, 20 * (sum(a_step.values()) + 2))
    recorded = [op for op in job.log.ops("kernel") if op["recorded"]]
    assert len(recorded) > 20 * sum(a_step.values())
