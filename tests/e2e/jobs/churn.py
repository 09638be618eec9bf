# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Threads and processes that begin and end by the hundred, functions that come and go, with no torch, for Pythons from 3.8 on; and then an
end with threads that still run. Its truth: how many there were, and that each did what it had to."""

import os
import subprocess
import sys
import threading
import time

import common
from python_shapes import generated, spin

THREADS, FORKS, EXECS = 400, 60, 10


def threads(done):
    for i in range(THREADS // 20):
        some = [threading.Thread(target=lambda: (spin(0.0005), done.append(1))) for _ in range(20)]
        for thread in some:
            thread.start()
        for thread in some:
            thread.join()


def child(number):
    spin(0.002)
    if number % 3 == 0:
        generated(time.perf_counter() + 0.02)
    os._exit(number % 7)


def forks():
    pids = []
    for number in range(FORKS):
        pid = os.fork()
        if pid == 0:
            child(number)
        pids.append(pid)
    return sum(os.WEXITSTATUS(os.waitpid(pid, 0)[1]) == number % 7 for number, pid in enumerate(pids))


def main():
    args = common.parser(__doc__).parse_args()
    common.wait(args)
    done = []
    forked = forks()
    worker = threading.Thread(target=generated, args=(time.perf_counter() + 1,))
    worker.start()
    threads(done)
    ran = sum(subprocess.call([sys.executable, "-S", "-c", "import sys; sys.exit(%d)" % n]) == n for n in range(EXECS))
    worker.join()
    truth = {"threads": THREADS, "threads_done": len(done), "forks": FORKS, "forks_ok": forked}
    common.write(args, dict(truth, execs=EXECS, execs_ok=ran))
    for _ in range(5):
        threading.Thread(target=spin, args=(100,), daemon=True).start()


if __name__ == "__main__":
    main()
