# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A torch training loop on the CPU whose operators launch kernels too, of the doubles of CUDA's libraries (tests/gpu).

A dispatch mode launches them from inside of the operators, where torch does it for tensors of a GPU: in forward, in
backward, in the optimizer. Batches are copied to the device and losses back by the loop itself, which waits for them.

Its truth: each launch in order, as [step, part of the loop, operator, kernel, shapes of its arguments]; the copies and waits of a step; when
each step began and ended on CLOCK_MONOTONIC. The log of the doubles has the same calls in the same order.
"""

import contextlib
import ctypes
import os
import time

import common
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, TensorDataset

INPUTS, BATCH = 32, 64
HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2
FLOAT32, SUM = 7, 0  # of NCCL

KERNELS = {
    "aten::addmm": "_Z9gemm_tileILi64EEvmPf",
    "aten::relu": "_Z4relumPKfPf",
    "aten::mse_loss": "_Z9layernormmPf",
    "aten::mm": "_Z13backward_gemmmPf",
    "aten::threshold_backward": "_Z4relumPKfPf",
    "aten::add_": "_Z9adam_stepmPfS_",
}


class Dim3(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]


class Gpu:
    """The runtime and the kernels. Loaded by their paths: torch may have a runtime of its own, that has no GPU."""

    def __init__(self, kernel_us, bytes_, nccl):
        directory = os.environ["GPU_DOUBLES"]
        self.runtime = ctypes.CDLL(os.path.join(directory, "libcudart.so.13"))
        self.kernels = ctypes.CDLL(os.path.join(directory, "libkernels.so"))
        self.kernels.kernels__register(self.runtime.__getattr__("__cudaRegisterFunction"))
        self.runtime.cudaLaunchKernel.argtypes = [
            ctypes.c_void_p,
            Dim3,
            Dim3,
            ctypes.c_void_p,
            ctypes.c_size_t,
            ctypes.c_void_p,
        ]
        copy = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        self.runtime.cudaMemcpyAsync.argtypes = [*copy, ctypes.c_void_p]
        self.host = ctypes.create_string_buffer(bytes_)
        self.device = ctypes.c_void_p()
        self.bytes = bytes_
        self.stream = ctypes.c_void_p()
        self.ns = ctypes.c_uint64(kernel_us * 1000)
        self.args = (ctypes.c_void_p * 3)(ctypes.addressof(self.ns), 0, 0)
        self.nccl = ctypes.CDLL(os.path.join(directory, "libnccl.so.2")) if nccl else None
        self.comm = ctypes.c_void_p()

    def begin(self):
        """Here CUDA is initialized, and what it is told to inject is loaded."""
        self.check(self.runtime.cudaStreamCreateWithFlags(ctypes.byref(self.stream), 1))
        self.check(self.runtime.cudaMalloc(ctypes.byref(self.device), ctypes.c_size_t(self.bytes)))
        if self.nccl:
            self.check(self.nccl.ncclCommInitRank(ctypes.byref(self.comm), 1, *[0] * 16, 0))

    def check(self, error):
        if error:
            raise RuntimeError("error %d" % error)

    def launch(self, kernel):
        host = ctypes.cast(getattr(self.kernels, kernel), ctypes.c_void_p)
        self.check(
            self.runtime.cudaLaunchKernel(host, Dim3(4, 2, 1), Dim3(256, 1, 1), self.args, 2048, self.stream)
        )

    def upload(self):
        self.check(
            self.runtime.cudaMemcpyAsync(self.device, self.host, self.bytes, HOST_TO_DEVICE, self.stream)
        )

    def download(self):
        self.check(self.runtime.cudaMemcpyAsync(self.host, self.device, 4, DEVICE_TO_HOST, self.stream))
        self.check(self.runtime.cudaStreamSynchronize(self.stream))

    def all_reduce(self):
        count = ctypes.c_size_t(self.bytes // 4)
        device = self.device
        self.check(self.nccl.ncclAllReduce(device, device, count, FLOAT32, SUM, self.comm, self.stream))


class Launches(TorchDispatchMode):
    """Launches a kernel at the beginning of each operator that has one."""

    def __init__(self, gpu):
        super().__init__()
        self.gpu = gpu
        self.made = []
        self.step = self.part = None

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name
        kernel = KERNELS.get(name)
        if kernel and self.part:
            self.gpu.launch(kernel)
            shapes = [list(a.shape) if isinstance(a, torch.Tensor) else [] for a in args]
            self.made.append((self.step, self.part, name, kernel, shapes))
        return func(*args, **(kwargs or {}))

    @contextlib.contextmanager
    def during(self, part):
        self.part = part
        try:
            yield
        finally:
            self.part = None


def train(args, gpu, loader, model, optimizer, launches):
    steps = []
    for launches.step, (x, y) in enumerate(loader):
        start = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        gpu.upload()
        optimizer.zero_grad(set_to_none=False)
        with launches.during("forward"):
            loss = torch.nn.functional.mse_loss(model(x), y)
        with launches.during("backward"):
            loss.backward()
        if gpu.nccl:
            gpu.all_reduce()
        with launches.during("optimizer"):
            optimizer.step()
        with torch.profiler.record_function("loss to host"):
            gpu.download()
        steps.append((start, time.clock_gettime_ns(time.CLOCK_MONOTONIC)))
    return steps


def main():
    p = common.parser(__doc__, batches=30)
    p.add_argument("--kernel-us", type=int, default=200, help="how long a kernel runs")
    p.add_argument("--bytes", type=int, default=1 << 20, help="of a batch that is copied to the device")
    p.add_argument("--nccl", action="store_true", help="an all-reduce behind backward")
    p.add_argument("--late", action="store_true", help="initialize CUDA behind the wait")
    args = p.parse_args()
    common.prepare(args)

    gpu = Gpu(args.kernel_us, args.bytes, args.nccl)
    model = torch.nn.Sequential(torch.nn.Linear(INPUTS, args.work), torch.nn.ReLU(), torch.nn.Linear(args.work, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=False)
    rows = BATCH * args.batches
    loader = DataLoader(TensorDataset(torch.randn(rows, INPUTS), torch.randn(rows, 1)), batch_size=BATCH)
    if not args.late:
        gpu.begin()
    common.wait(args)
    if args.late:
        gpu.begin()

    launches = Launches(gpu)
    with launches:
        steps = train(args, gpu, loader, model, optimizer, launches)
    truth = {"launches": launches.made, "steps": steps, "uploads": len(steps), "bytes": args.bytes}
    common.write(args, truth)


if __name__ == "__main__":
    main()
