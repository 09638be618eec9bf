# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A job whose every text is meant to steer the terminal of whoever watches it: labels, ranges, threads, its own name, functions."""

import ctypes
import threading
import time

import common
import torch

# As bytes: a C1 control as itself, overlong and cut UTF-8.
NAMES = [b"\x1b[31m\xc2\x9b31m\x9b7m\n", b"\x7f\xe2\x80\xae\r\t\x1b]0;t\x07"]
TEXTS = [
    "=1+1,\x1b]0;title\x07\x1b[2J\n\r\tforged line",
    "+\x9b31m\x7f\x85\xff</script><script>alert(1)</script><!--&amp;\"'",
    "-a;b c\u2028\u2029\u202e\u2066\u200f\u061c\u65e5\u672c\u8a9e e\u0301",
    "@label",
]


def rename(name):
    ctypes.CDLL(None).prctl(15, name, 0, 0, 0)  # PR_SET_NAME


def spin(until):
    while time.monotonic() < until:
        pass


class Loop:
    """One thread's steps, in a function whose name is hostile, too."""

    def __init__(self):
        self.model = torch.nn.Linear(8, 8)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)

    def step(self):
        for text in TEXTS:
            with torch.profiler.record_function(text):
                loss = self.model(torch.ones(1, 8)).sum()
                spin(time.monotonic() + 0.004)
            try:
                torch.cuda.nvtx.range_push(text)
                torch.cuda.nvtx.range_pop()
            except RuntimeError:
                pass  # a torch without NVTX
        loss.backward()
        self.optimizer.step()


def sleep(ended):
    rename(NAMES[1])
    ended.wait()


def main():
    args = common.parser(__doc__, batches=12).parse_args()
    common.prepare(args)
    loop, ended = Loop(), threading.Event()
    function = compile("def f(step):\n    step()\n    return 1\n", "/tmp/\x1b[31m\n\u202e.py", "exec")
    space = {}
    exec(function, space)
    named = space["f"]
    named.__code__ = named.__code__.replace(co_name="f\x1b[31m\n;\u202e")
    rename(NAMES[0])
    thread = threading.Thread(target=sleep, args=(ended,), daemon=True)
    thread.start()
    named(loop.step)
    common.wait(args)
    for _ in range(args.batches):
        named(loop.step)
    ended.set()
    thread.join()
    common.write(args, {"steps": args.batches})


main()
