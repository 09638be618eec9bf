# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Fills what a recording has room for, and then goes on as programs do. Its truth: what it did, by name."""

import os
import time

import common


def step(model, optimizer, x):
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()


def labels(args):
    """Labels with a number in each, before the first step; then steps, some of them inside of such labels."""
    import torch
    from torch.profiler import record_function

    common.prepare(args)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    x = torch.ones(4, 8)
    seconds = 0
    for i in range(args.different):
        begin = time.perf_counter()
        with record_function("item %d" % i):
            pass
        seconds += time.perf_counter() - begin
    for _ in range(args.steps):
        step(model, optimizer, x)
        with record_function("my own"):
            pass
    for i in range(args.around):
        with record_function("around %d" % i):
            step(model, optimizer, x)
    return {"labels": args.different, "seconds": seconds, "steps": args.steps + args.around, "around": args.around}


CALLS = [os.getppid, os.getuid, os.getgid, os.geteuid, os.getegid, os.sched_yield, os.times, os.getgroups]
CALLS += [os.getresuid, os.getresgid, lambda: os.getsid(0), lambda: os.getpgid(0), lambda: os.getpriority(os.PRIO_PROCESS, 0)]
CALLS += [lambda: os.sched_getscheduler(0), lambda: os.sched_getparam(0), lambda: os.sched_getaffinity(0), lambda: os.umask(18)]
CALLS += [lambda: os.lseek(0, 0, os.SEEK_CUR), lambda: os.fstat(0), lambda: os.access("/", os.R_OK), lambda: os.stat("/")]


def attempt(call):
    try:
        call()
    except OSError:
        pass


def children(args):
    """Children that each make some different system calls, and end."""
    for _ in range(args.different):
        pid = os.fork()
        if not pid:
            for call in CALLS:
                attempt(call)
            os._exit(0)
        os.waitpid(pid, 0)
    return {"children": args.different}


def files(args):
    """Reads of different files, each of 1 byte, by one process; then of a few by another."""
    for i in range(args.different):
        fd = os.memfd_create("flood")
        os.write(fd, b"x")
        os.pread(fd, 1, 0)
        os.close(fd)
    pid = os.fork()
    if not pid:
        with open(args.out + ".file", "wb+", buffering=0) as f:
            f.write(b"12345")
            for _ in range(100):
                os.pread(f.fileno(), 5, 0)
        os._exit(0)
    os.waitpid(pid, 0)
    return {"child": pid, "path": args.out + ".file", "reads": 100}


def main():
    p = common.parser(__doc__)
    p.add_argument("kind", choices=["labels", "children", "files"])
    p.add_argument("--different", type=int, required=True)
    p.add_argument("--steps", type=int, default=0)
    p.add_argument("--around", type=int, default=0, help="labels with a step in each")
    args = p.parse_args()
    common.wait(args)
    common.write(args, {"labels": labels, "children": children, "files": files}[args.kind](args))


if __name__ == "__main__":
    main()
