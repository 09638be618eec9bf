# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
supervisor.py JOB COMMAND...: runs stepflame for the process JOB, which started this file as a script, by itself (child.py).

It is no child of the job: what the job forks is recorded as the job's, and a job may wait for any child. Standard input is a socket to the job: a
byte is the number of a signal for stepflame, and at the end stepflame's exit code goes back, or -signal. When the job has gone or closed the socket,
stepflame is ended, so that it is never left behind.
"""

import ctypes
import os
import select
import signal
import sys
import time

PR_SET_PDEATHSIG = 1
# When nobody waits for stepflame any more: it notices by itself when what it records has ended. Then it is told to end, and at last killed.
ABANDONED = ((5, signal.SIGINT), (60, signal.SIGKILL))
IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # meant for stepflame, when all of a job get them


def start(command: "list[str]") -> int:
    child = os.fork()
    if not child:
        try:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGINT)
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, 0)
            os.dup2(null, 1)
            os.execv(command[0], ["stepflame", *command[1:]])
        except OSError as error:
            os.write(2, ("stepflame: error: cannot run %s: %s\n" % (command[0], error.strerror)).encode(errors="replace"))
        finally:
            os._exit(127)
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    return child


def watch(job: int, child: int) -> int:
    """Until the child has ended; its exit code, or -signal."""
    poll, ended = select.poll(), os.pidfd_open(child)
    plan: "list[tuple[float, int]]" = []
    watched = {0, ended}
    try:
        watched.add(os.pidfd_open(job))
    except OSError:
        pass  # it has gone, and its end of the socket with it
    for fd in watched:
        poll.register(fd, select.POLLIN)
    while True:
        left_ms = max(0, plan[0][0] - time.monotonic()) * 1000 if plan else None
        ready = [fd for fd, _ in poll.poll(left_ms)]
        if ended in ready:
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        for fd in ready:
            asked = read(fd) if fd == 0 else b""
            if asked:
                os.kill(child, asked[0])
                continue
            poll.unregister(fd)
            plan = plan or [(time.monotonic() + seconds, number) for seconds, number in ABANDONED]
        while plan and plan[0][0] <= time.monotonic():
            os.kill(child, plan.pop(0)[1])


def read(fd: int) -> bytes:
    try:
        return os.read(fd, 1)
    except OSError:
        return b""


def main() -> None:
    job, command = int(sys.argv[1]), sys.argv[2:]
    starter = os.getpid()
    if os.fork():
        os._exit(0)
    while os.getppid() == starter:
        time.sleep(0.001)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    status = watch(job, start(command))
    try:
        os.write(0, b"%d" % status)
    except OSError:
        pass  # nobody waits for it


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    main()
