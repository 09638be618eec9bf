# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Threads that run functions in interpreters of their own, which the main thread made. Prints {thread: name}, and goes on until it is killed."""

import json
import sys
import threading
import time

try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters

# Up to 3.12 a thread of another interpreter is not asked to give up the GIL that they share: so each sleeps now and then.
WORK = """
import threading, time
def work_%(name)s():
    sum(range(%(busy)d))
    time.sleep(0.002)
def run_%(name)s():
    while True: work_%(name)s()
"""
HERE = "run_%(name)s()\n"
IN_A_THREAD = "threading.Thread(target=run_%(name)s, daemon=False).start()\nwhile True: time.sleep(1)\n"


def create(own_gil):
    if sys.version_info >= (3, 13):
        return interpreters.create("isolated" if own_gil else "legacy")
    return interpreters.create(isolated=own_gil) if sys.version_info >= (3, 9) else interpreters.create()


def host(interp, code):
    (interpreters.exec if sys.version_info >= (3, 13) else interpreters.run_string)(interp, code)


def main():
    names = {"spin": (100000, HERE, False), "wait": (1, HERE, False), "inner": (100000, IN_A_THREAD, False)}
    if sys.version_info >= (3, 12):
        names.update(own_spin=(100000, HERE, True), own_wait=(1, HERE, True))
    threads = []
    for name, (busy, start, own_gil) in names.items():
        code = (WORK + start) % {"name": name, "busy": busy}
        threads.append(threading.Thread(target=host, args=(create(own_gil), code), name=name))
    scope = {}
    exec(compile(WORK % {"name": "main", "busy": 100000}, __file__, "exec"), scope)
    threads.append(threading.Thread(target=scope["run_main"], name="main"))
    for thread in threads:
        thread.start()
    print(json.dumps({thread.native_id: thread.name for thread in threads}), flush=True)
    threads[0].join()


main()
