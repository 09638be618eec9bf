# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Calls of the doubles in --doubles, from labels, operators and a backward. Its truth is what the doubles counted."""

import ctypes
import json

import common
import torch


class Dim3(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]


def main():
    p = common.parser(__doc__, batches=50)
    p.add_argument("--doubles", required=True)
    args = p.parse_args()
    common.prepare(args)
    driver = ctypes.CDLL(args.doubles + "/libcuda.so.1", ctypes.RTLD_GLOBAL)
    runtime = ctypes.CDLL(args.doubles + "/libcudart.so.12")
    kernels = ctypes.CDLL(args.doubles + "/libkernels.so")
    one = Dim3(1, 1, 1)

    def launch(name):
        runtime.cudaLaunchKernel(getattr(kernels, name), one, one, None, ctypes.c_ulong(0), None)

    def forward(x):
        launch("_Z4axpyPfi")
        return x * 2

    library = torch.library.Library("double", "DEF")
    library.define("launch(Tensor x) -> Tensor")
    library.impl("launch", forward, "CPU")

    class Launch(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            launch("_Z4gradPf")
            return grad

    x = torch.ones(4, requires_grad=True)
    common.wait(args)
    for _ in range(args.batches):
        with torch.profiler.record_function("gpu step"):
            with torch.no_grad():
                torch.ops.double.launch(x)
            runtime.cudaMemcpyAsync(None, None, ctypes.c_ulong(1000), 1, None)
            Launch.apply(x).sum().backward()
            runtime.cudaStreamSynchronize(None)
    driver.double_write(args.out.encode() + b".doubles")
    with open(args.out + ".doubles") as f:
        common.write(args, {"calls": json.load(f), "batches": args.batches})


if __name__ == "__main__":
    main()
