# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the steps of a training on a GPU wait for: autograd's own threads, a GPU that is awaited in a loop, a GPU that is busy all the time."""

import helpers
import pytest
import recfile as rec
from .loops import BACKWARD, BARE, FORWARD, HELPER, LOOP, MS, PID, READING, START, STEP, STEPS, preamble

ENGINE, SYNC, KERNEL, LAUNCH = 220, 102, 300, 301
S = 10**9


def recording(of_step, extra=(), file="torch/autograd/graph.py", function="_engine_run_backward"):
    yield from preamble()
    yield rec.name(54, "/site-packages/" + file)
    yield rec.name(1070, function)
    yield rec.code(70, 54, 1070, 800, [(0, 829)])
    yield rec.stack(ENGINE, [(70, 0), (LOOP, 12)])
    yield rec.name(KERNEL, "at::native::add (libtorch_cpu.so)")
    yield rec.name(LAUNCH, "cuLaunchKernel (libcuda.so.1)")
    yield rec.name(SYNC, "cudaStreamSynchronize")
    yield rec.path(SYNC, [(rec.FORWARD, FORWARD), (rec.SYNC, SYNC)])
    yield rec.boundary(PID, PID, 0, START, rule=3)
    for index in range(STEPS):
        start = START + index * STEP
        yield from of_step(start)
        yield rec.boundary(PID, PID, index + 1, start + STEP, [0, 0, 8 * MS, 12 * MS], 3)
    yield from extra


def backward(stack=BARE, awaited=ENGINE, cause="lock", ran=True):
    """Forward runs for 8 ms; then the loop waits for 12 ms for a thread that has a stack, and runs."""

    def of_step(start):
        yield rec.sample(PID, PID, rec.CPU, start + 4 * MS, 8 * MS, 211, FORWARD, native=KERNEL)
        for i in range(3 if ran else 0):
            yield rec.sample(PID, HELPER, rec.CPU, start + (10 + 3 * i) * MS, 4 * MS, stack, native=LAUNCH)
        yield rec.sample(PID, PID, rec.WAIT, start + STEP - MS // 10, 12 * MS - MS // 10, awaited, BACKWARD, cause=cause, waker=(PID, HELPER))

    return of_step


def verdict(tmp_path, *made, **more):
    file = tmp_path / "a.rec"
    file.write_bytes(rec.recording(recording(*made, **more)))
    return helpers.report(file, "--steps")


def waits_of(found, phase):
    return next(row["waits"] for row in found["all"]["phases"] if row["name"] == phase)


@pytest.mark.parametrize("stack", [BARE, READING])
@pytest.mark.parametrize("file, function", [("torch/autograd/graph.py", "_engine_run_backward"), ("torch/autograd/__init__.py", "backward")])
def test_backward_of_a_gpu(tmp_path, stack, file, function):
    """Autograd runs the nodes of a GPU on a thread of its own: that is the backward, no lock and no other thread's work."""
    found = verdict(tmp_path, backward(stack), file=file, function=function)
    assert found["verdict"]["class"] == "CPU-op-bound", found["verdict"]
    assert not waits_of(found, "backward"), found["all"]


def test_lock_in_backward(tmp_path):
    """A hook's own lock in the same phase is one."""
    found = verdict(tmp_path, backward(READING, awaited=202))
    assert found["verdict"]["class"] == "lock-bound", found["verdict"]


def test_backward_that_waits(tmp_path):
    """What autograd's thread waits for, the steps wait for."""

    def of_step(start):
        yield from backward(ran=False)(start)
        yield rec.sample(PID, HELPER, rec.WAIT, start + STEP - MS, 10 * MS, READING, cause="disk_read")

    found = verdict(tmp_path, of_step)
    assert found["verdict"]["cause"] == "disk_read", found["verdict"]
    assert found["verdict"]["share"] == pytest.approx(0.6, abs=0.01)


def spins(awaits):
    def of_step(start):
        yield rec.sample(PID, PID, rec.CPU, start + 4 * MS, 4 * MS, 211, FORWARD, native=KERNEL)
        for i in range(awaits):
            yield rec.sample(PID, PID, rec.CPU, start + 5 * MS + i, 4 * MS, 211, SYNC, native=LAUNCH)
        yield rec.sample(PID, PID, rec.CPU, start + STEP - MS, 12 * MS, 212, BACKWARD, native=KERNEL)

    return of_step


def test_thread_that_spins(tmp_path):
    """CUDA lets a thread spin until a GPU is ready: it is on the CPU, and waits."""
    found = verdict(tmp_path, spins(9))
    assert waits_of(found, "forward")["gpu_sync"] == pytest.approx(0.9 * 8e-3 * STEPS, rel=0.01), found["all"]
    assert (found["verdict"]["class"], found["verdict"]["cause"]) == ("GPU-bound", "gpu_sync"), found["verdict"]
    assert "Net.forward" in found["verdict"]["place"], found["verdict"]
    assert not waits_of(verdict(tmp_path, spins(0)), "forward")


def readings(*busy, first=START - S // 2):
    """Of the process's GPU and another one, which is always busy."""
    for i, percent in enumerate(busy):
        yield rec.gpu_usage(0, first + i * S, 1, 2, (percent, 0, 1, 1, 1))
        yield rec.gpu_usage(1, first + i * S, 1, 2, (100, 0, 1, 1, 1))
    yield rec.record("GPU_USER", pid=PID, device=0)


def test_busy_by_nvml(tmp_path):
    """Without CUPTI it is NVML that says that the GPU of the process is the limit, if its readings are of most of the time."""
    found = verdict(tmp_path, backward(), readings(97, 97, 97, 97, 97, 97))["verdict"]
    assert found["class"] == "GPU-bound" and "97 % of the time of a step, by NVML" in found["why"], found
    assert "record --gpu auto" in found["next"][0], found
    for few in (readings(41, 41, 41, 41, 41, 41), readings(97), readings(97, 97, 97, 97, first=START + 5 * S), ()):
        assert verdict(tmp_path, backward(), few)["verdict"]["class"] == "CPU-op-bound"
    # a kernel of NCCL that waits for another rank keeps the GPU busy
    collective = [rec.name(400, "all_reduce"), rec.path(400, [(rec.COMM, 400)]), rec.sample(PID, PID, rec.CPU, START + MS, MS, 211, 400)]
    found = verdict(tmp_path, backward(), [*readings(97, 97, 97, 97, 97, 97), *collective])["verdict"]
    assert found["class"] == "CPU-op-bound", found
    assert any("GPU busy for 97.0 % of the time (NVML, whoever used it; collectives" in text for text in found["evidence"]), found
    found = verdict(tmp_path, backward(), readings(41, 41, 41, 41, 41, 41))["verdict"]
    assert any("GPU busy for 41.0 % of the time (NVML" in text for text in found["evidence"]), found
