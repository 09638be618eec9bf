# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A plain loop that uses resources at known rates, and has a thread in which psutil looks at the process each second, as DeviceStatsMonitor does.

Each step allocates and touches memory that it keeps (--grow bytes a second), writes a file to the disk and reads one from it (--write,
--read bytes a step), and computes. A child sleeps, which --kill ends in the middle, another one ends by itself.
"""

import mmap
import os
import resource
import signal
import threading
import time

import common
import psutil
import torch

PAUSE = 0.02


class Watch(threading.Thread):
    """What psutil says, each second."""

    def __init__(self):
        super().__init__(daemon=True)
        self.process = psutil.Process()
        self.rows = []
        self.done = threading.Event()

    def look(self):
        begin = time.monotonic()
        memory, times, disk = self.process.memory_info(), self.process.cpu_times(), self.process.io_counters()
        net, faults = psutil.net_io_counters(), resource.getrusage(resource.RUSAGE_SELF)
        self.rows.append(
            {
                "begin": begin,
                "end": time.monotonic(),
                "rss": memory.rss,
                "shared": memory.shared,
                "user": times.user,
                "system": times.system,
                "read": disk.read_bytes,
                "written": disk.write_bytes,
                "received": net.bytes_recv,
                "sent": net.bytes_sent,
                "minor": faults.ru_minflt,
                "major": faults.ru_majflt,
            }
        )

    def run(self):
        while not self.done.is_set():
            self.look()
            self.done.wait(1)

    def end(self):
        self.done.set()
        self.join()
        self.look()
        return self.rows


def sleeper(seconds):
    pid = os.fork()
    if not pid:
        time.sleep(seconds)
        os._exit(0)
    return pid


def main():
    p = common.parser(__doc__)
    p.add_argument("--seconds", type=float, default=16)
    p.add_argument("--grow", type=int, default=0, help="bytes a second")
    p.add_argument("--write", type=int, default=0, help="bytes a step")
    p.add_argument("--read", type=int, default=0, help="bytes a step")
    p.add_argument("--directory", default=".")
    p.add_argument("--kill", action="store_true")
    args = p.parse_args()
    common.prepare(args)
    path = os.path.join(args.directory, "data")
    model = torch.nn.Linear(32, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    if args.read:
        with open(path, "wb") as f:
            f.write(os.urandom(args.read))
            os.fsync(f.fileno())
    common.wait(args)

    watch, kept, steps, children = Watch(), [], 0, []
    watch.start()
    pids = children = [sleeper(4), sleeper(1000)]
    begin = time.monotonic()
    while time.monotonic() - begin < args.seconds:
        optimizer.zero_grad()
        model(torch.ones(8, 32)).sum().backward()
        optimizer.step()
        want = int(args.grow * (time.monotonic() - begin)) - sum(map(len, kept))
        if want >= mmap.PAGESIZE:
            piece = mmap.mmap(-1, want // mmap.PAGESIZE * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            for at in range(0, len(piece), mmap.PAGESIZE):
                piece[at] = 1
            kept.append(piece)
        if args.write:
            with open(path + ".out", "wb") as f:
                f.write(bytes(args.write))
                os.fsync(f.fileno())
        if args.read:
            with open(path, "rb") as f:
                os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                f.read()
        if args.kill and children and time.monotonic() - begin > args.seconds / 2:
            os.kill(children[1], signal.SIGKILL)
            for child in children:
                os.waitpid(child, 0)
            children = []
        steps += 1
        time.sleep(PAUSE)
    rows = watch.end()
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    common.write(args, {"steps": steps, "rows": rows, "children": pids, "grown": sum(map(len, kept)), "seconds": time.monotonic() - begin})


if __name__ == "__main__":
    main()
