# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Threads that wait all the time, and a process that does: a pool that has nothing to do, a job that hangs.

Its truth: {thread: tid} by the function in which it waits, and the child's pid.
"""

import os
import queue
import threading
import time

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
    time.sleep(1.5)
    event.set()
    time.sleep(1.5)
    os.write(sink, b"x")
    os.waitpid(pid, 0)
    common.write(args, {"tids": tids, "child": pid})


if __name__ == "__main__":
    main()
