# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
A process that has imported what jobs import, and forks them: `nursery.py MODULE...`. Imports take seconds, and most jobs
less than one. A job has this module's frame at the root of its stack, and this process's command and environment.

It reads requests from stdin, lines of JSON: what becomes sys.argv, and the files of stdout and stderr. It answers each
with the job's pid, and tells of its end: [pid, null], [pid, exit code]. When stdin ends it kills those that are left.
"""

import gc
import importlib
import json
import os
import select
import signal
import sys

jobs = set()


def say(*words):
    os.write(1, (json.dumps(words) + "\n").encode())


def become(argv, out, err):
    """In the child: a process as if it had been started so."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for fd, path, flags in ((0, os.devnull, os.O_RDONLY), (1, out, os.O_WRONLY), (2, err, os.O_WRONLY)):
        file = os.open(path, flags)
        os.dup2(file, fd)
        os.close(file)
    sys.argv = argv
    sys.path[0] = os.path.dirname(argv[0])
    return argv[0]


def tell_of_ends():
    while jobs:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        jobs.discard(pid)
        say(pid, os.waitstatus_to_exitcode(status))


def serve():
    """Returns in the children alone, with the script's path."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal: for who has us, who ends our stdin
    signal.set_wakeup_fd(wake)
    text = b""
    while True:
        ready, _, _ = select.select([0, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            tell_of_ends()
        if 0 not in ready:
            continue
        more = os.read(0, 65536)
        if not more:
            for pid in jobs:
                os.kill(pid, signal.SIGKILL)
            os._exit(0)
        *lines, text = (text + more).split(b"\n")
        for line in lines:
            pid = os.fork()
            if not pid:
                os.close(woken)
                os.close(wake)
                return become(*json.loads(line))
            jobs.add(pid)
            say(pid, None)


gc.disable()
for name in sys.argv[1:]:
    importlib.import_module(name)
gc.enable()
gc.freeze()  # a collection in a job would copy all pages of what was imported
__file__ = serve()
del gc, importlib, json, select, jobs, say, become, tell_of_ends, serve, name
with open(__file__, "rb") as script:
    script = compile(script.read(), __file__, "exec")
exec(script)
