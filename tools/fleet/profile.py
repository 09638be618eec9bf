# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a step of a training job consists of: the input of generate.py. In: nothing. Out: a Profile."""

import dataclasses

import numpy as np

PHASES = ("other", "data", "forward", "backward", "optimizer", "comm", "checkpoint", "validation", "jit", "compile", "await", "transfer")
CAUSES = ("run_queue", "lock", "gil", "disk_read", "disk_write", "fsync", "page_fault", "sleep", "child_wait", "pipe", "socket", "poll")
CAUSES += ("unknown", "pauses", "data_wait", "collective", "gpu_sync", "xla_wait", "thread_wait", "file_system")
BEFORE = ("data", "forward", "backward")  # what a rank does before its first collective of a step
AFTER = ("optimizer", "other")  # and after its last one
QUANTILES = 4096
LOCAL, GLOBAL = "local", "global"  # the two collectives: of the ranks of a host, then of all


@dataclasses.dataclass
class Wait:
    """A share of a phase in which the thread that makes the steps waits. part: of which of the two collectives, for those."""

    phase: str
    cause: str
    share: float
    place: str
    part: str = ""


@dataclasses.dataclass
class Stack:
    """phase None: another thread. share: of the time of its phase and cause (None: on the CPU); of all time, for another thread."""

    phase: str | None
    cause: str | None
    share: float
    frames: tuple[str, ...]
    part: str = ""


@dataclasses.dataclass
class Action:
    """per_step: calls. phase, share: what part of which phase a call has; part: as Wait's."""

    kind: str
    name: str
    phase: str
    share: float = 1.0
    self_share: float = 1.0
    per_step: float = 1.0
    part: str = ""


@dataclasses.dataclass
class Op:
    kind: str
    name: str
    action: str | None
    phase: str
    share: float
    self_share: float
    per_step: float


@dataclasses.dataclass
class Profile:
    """base: nanoseconds of each phase in an ordinary step, for BEFORE, AFTER, LOCAL, GLOBAL. ratios: how a rank's time differs, by phase:
    QUANTILES factors around 1, any of which a step may get. common: such factors that a step has on all ranks at once."""

    base: dict[str, float]
    ratios: dict[str, np.ndarray]
    common: np.ndarray
    waits: list[Wait]
    stacks: list[Stack]
    actions: list[Action]
    ops: list[Op]
    kernels: list[tuple[str, str, float, float]]  # kind, name, launches of a step, share of the GPU's time
    gpu: str | None = "NVIDIA H100 80GB HBM3"
    mhz: float = 1755.0
    python: str = "3.11.9"
    torch: str = "2.6.0+cu124"


def normal(sigma: float) -> np.ndarray:
    """Quantiles of a log-normal distribution with median 1."""
    sample = np.random.Generator(np.random.PCG64(1)).standard_normal(QUANTILES * 16)
    return np.exp(sigma * np.sort(sample)[8::16]).astype(np.float32)


LOOP = ("train.py:118 main", "train.py:92 fit")
MODEL = LOOP + ("train.py:71 training_step", "module.py:1762 Module._call_impl", "model.py:214 Decoder.forward")
LAYERS = [("model.py:171 Block.forward", 0.18), ("attention.py:88 Attention.forward", 0.34), ("mlp.py:41 MLP.forward", 0.29), ("norm.py:17 RMSNorm.forward", 0.19)]
BACKWARD = LOOP + ("train.py:74 training_step", "_tensor.py:581 Tensor.backward", "graph.py:829 _engine_run_backward")
STEP = LOOP + ("train.py:79 training_step", "optimizer.py:487 Optimizer.profile_hook_step", "adamw.py:220 AdamW.step")
LOCAL_LINE, GLOBAL_LINE = "parallel.py:52 reduce_in_host", "parallel.py:60 reduce_between_hosts"
NEXT = LOOP + ("dataloader.py:701 _BaseDataLoaderIter.__next__", "dataloader.py:1448 _MultiProcessingDataLoaderIter._next_data")
LOADER = ("worker.py:349 _worker_loop", "fetch.py:52 fetch", "data.py:61 Shards.__getitem__")


def synthetic(step_ns: float) -> Profile:
    """A transformer on GPUs, sharded over the ranks of a host, with replicas over the hosts."""
    shares = {"data": 0.02, "forward": 0.27, "backward": 0.48, "optimizer": 0.07, "other": 0.05, LOCAL: 0.06, GLOBAL: 0.05}
    # a loader has its batch ready, mostly: then `next` takes some milliseconds
    ratios = {"data": normal(0.25), "other": normal(0.1), LOCAL: normal(0.03)}
    ratios |= dict.fromkeys(("forward", "backward", "optimizer"), normal(0.008))
    waits = [
        Wait("data", "data_wait", 0.8, NEXT[-1]),
        Wait("forward", "gpu_sync", 0.12, "model.py:214 Decoder.forward"),
        Wait("forward", "run_queue", 0.004, "mlp.py:41 MLP.forward"),
        Wait("backward", "gpu_sync", 0.66, BACKWARD[-1]),
        Wait("optimizer", "gpu_sync", 0.4, STEP[-1]),
        Wait("other", "gil", 0.06, "train.py:92 fit"),
        Wait("comm", "collective", 0.97, LOCAL_LINE, LOCAL),
        Wait("comm", "collective", 0.98, GLOBAL_LINE, GLOBAL),
    ]
    stacks = [Stack("forward", None, share, MODEL + (line,)) for line, share in LAYERS]
    stacks += [Stack("forward", "gpu_sync", 1, MODEL), Stack("forward", "run_queue", 1, MODEL + (LAYERS[2][0],))]
    stacks += [Stack("backward", cause, 1, BACKWARD) for cause in (None, "gpu_sync")]
    stacks += [Stack("optimizer", None, 0.7, STEP), Stack("optimizer", None, 0.3, STEP + ("adamw.py:415 _multi_tensor_adamw",)), Stack("optimizer", "gpu_sync", 1, STEP)]
    stacks += [Stack("data", None, 0.4, NEXT), Stack("data", None, 0.6, NEXT + ("pin_memory.py:98 pin_memory",)), Stack("data", "data_wait", 1, NEXT + ("queues.py:113 Queue.get",))]
    stacks += [Stack("data", "disk_read", 1, NEXT + ("data.py:44 Shards.open",))]
    stacks += [Stack("other", None, 0.8, LOOP), Stack("other", None, 0.2, LOOP + ("log.py:33 Meter.update",)), Stack("other", "gil", 1, LOOP)]
    for part, line in ((LOCAL, LOCAL_LINE), (GLOBAL, GLOBAL_LINE)):
        stacks += [Stack("comm", cause, 1, LOOP + ("train.py:77 training_step", line), part) for cause in (None, "collective")]
    stacks += [Stack("checkpoint", None, 1, LOOP + ("checkpoint.py:120 save",))]
    stacks += [Stack(None, None, 0.35, LOADER + ("decode.py:22 decode",)), Stack(None, None, 0.1, LOADER + ("collate.py:155 collate",))]
    actions = [
        Action("label", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "data"),
        Action("forward", "forward", "forward"),
        Action("backward", "backward", "backward"),
        Action("comm", "reduce_scatter_tensor", "comm", part=LOCAL),
        Action("comm", "all_reduce", "comm", part=GLOBAL),
        Action("label", "Optimizer.step#AdamW.step", "optimizer", 0.94),
        Action("label", "Optimizer.zero_grad#AdamW.zero_grad", "optimizer", 0.06),
        Action("checkpoint", "save", "checkpoint", per_step=0),
    ]
    ops = [
        Op("op", "aten::linear", "forward", "forward", 0.5, 0.04, 224),
        Op("op", "aten::mm", "forward", "forward", 0.42, 0.3, 224),
        Op("op", "aten::scaled_dot_product_attention", "forward", "forward", 0.2, 0.12, 32),
        Op("op", "aten::native_layer_norm", "forward", "forward", 0.09, 0.07, 65),
        Op("op", "aten::copy_", "forward", "forward", 0.05, 0.04, 96),
        Op("node", "MmBackward0", "backward", "backward", 0.2, 0.03, 224),
        Op("op", "aten::mm", "backward", "backward", 0.17, 0.12, 448),
        Op("op", "aten::_foreach_addcdiv_", "Optimizer.step#AdamW.step", "optimizer", 0.3, 0.25, 2),
        Op("op", "aten::_foreach_lerp_", "Optimizer.step#AdamW.step", "optimizer", 0.2, 0.16, 2),
    ]
    kernels = [("kernel", "sm90_xmma_gemm_bf16bf16_bf16f32", 672, 0.55), ("kernel", "flash_fwd_kernel", 32, 0.1), ("kernel", "flash_bwd_kernel", 32, 0.16)]
    kernels += [("kernel", "multi_tensor_apply_kernel", 8, 0.08), ("kernel", "vectorized_layer_norm_kernel", 65, 0.04), ("memcpy", "host to device", 2, 0.01)]
    base = {name: step_ns * share for name, share in shares.items()}
    return Profile(base, ratios, normal(0.01), waits, stacks, actions, ops, kernels)
