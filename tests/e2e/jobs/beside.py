# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
plain_loop.py with what else a job may start that has torch and does not train: torch_shm_manager, which passes the shared memory of workers on; the
workers of torch.compile and their server; and an executor. The arguments are those of plain_loop.py.
"""

import concurrent.futures
import multiprocessing
import runpy
from pathlib import Path

import torch
from torch._inductor.compile_worker.subproc_pool import SubprocPool


def main():
    torch.multiprocessing.set_sharing_strategy("file_system")
    shared = torch.ones(8).share_memory_()
    pool = SubprocPool(2)
    pool.submit(abs, -1).result()
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
        executor.submit(torch.get_num_threads).result()
        runpy.run_path(str(Path(__file__).with_name("plain_loop.py")), run_name="__main__")
    pool.shutdown()
    del shared


if __name__ == "__main__":
    main()
