# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Threads that wait all the time, and a process that does: a pool that has nothing to do, a job that hangs.

Its truth: {thread: tid} by the function in which it waits, and the child's pid; of waits_once the seconds that it waits and sleeps, and for how long
it was ready to run and did not.
"""

import os
import queue
import threading
import time
from pathlib import Path

import common


def waits_for_work(work):
    return work.get()


def waits_for_a_lock(lock):
    with lock:
        pass


def waits_once(event):
    event.wait()
    sleeps()


def sleeps():
    while True:
        time.sleep(0.05)


def child(pipe):
    os.read(pipe, 1)


def main():
    args = common.parser(__doc__).parse_args()
    lock, event, tids = threading.Lock(), threading.Event(), {}
    lock.acquire()

    def start(function, *arguments):
        thread = threading.Thread(target=function, args=arguments, daemon=True)
        thread.start()
        tids[function.__name__] = thread.native_id

    source, sink = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(sink)
        child(source)
        os._exit(0)
    start(waits_for_work, queue.Queue())
    start(waits_for_a_lock, lock)
    start(waits_once, event)
    common.wait(args)
    times = [time.monotonic()]
    time.sleep(1.5)
    event.set()
    times.append(time.monotonic())
    time.sleep(1.5)
    times.append(time.monotonic())
    schedstat = Path("/proc/self/task/%d/schedstat" % tids["waits_once"]).read_text()
    os.write(sink, b"x")
    os.waitpid(pid, 0)
    once = {"waits": times[1] - times[0], "sleeps": times[2] - times[1], "delayed": int(schedstat.split()[1]) / 1e9}
    common.write(args, {"tids": tids, "child": pid, "once": once})


if __name__ == "__main__":
    main()
