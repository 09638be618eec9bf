# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
A torch loop that records itself: FILE MODE[,OPTION=VALUE...]... In FILE, %s is the mode. For each mode it prints what it knows as a line of JSON: the
steps that it made inside the block, what ended the block, what was logged, its signal handlers before and behind it.
"""

import json
import logging
import os
import signal
import sys
import threading
import time

import torch

import stepflame

STEPS = 20
SNAPSHOT_BYTES = 4096
HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR1)


class Logged(logging.Handler):
    def __init__(self):
        super().__init__()
        self.messages = []

    def emit(self, record):
        self.messages.append(record.getMessage())


def train(steps):
    model = torch.nn.Linear(32, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        model(torch.randn(64, 32)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def recorder_of(file):
    """The pid of the stepflame that writes the file, once that has a snapshot."""
    while os.path.getsize(file) < SNAPSHOT_BYTES:
        train(1)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % pid, "rb") as opened:
                words = opened.read().split(b"\0")
        except OSError:
            continue
        if words[0] == b"stepflame" and os.fsencode("--output=" + file) in words:
            return int(pid)
    raise AssertionError("nobody writes " + file)


def run(mode, file, options):
    found = {"mode": mode, "steps": 0, "ended_by": None}

    def train_counted():
        train(STEPS)
        found["steps"] += STEPS

    try:
        with stepflame.record(file, **options) as recording:
            found["inside"] = str(recording.error)
            train_counted()
            if mode == "raises":
                raise KeyError("of the job")
            if mode == "exits":
                sys.exit(3)
            if mode == "waits":
                print("recording", flush=True)
                time.sleep(600)
            if mode == "kills":
                os.kill(recorder_of(file), signal.SIGKILL)
                train_counted()
            if mode == "orphans":
                with open("/proc/%d/stat" % recorder_of(file)) as opened:
                    os.kill(int(opened.read().rpartition(")")[2].split()[1]), signal.SIGKILL)
            if mode == "forks":
                child = os.fork()
                if not child:
                    sys.exit()  # through the block
                os.waitpid(child, 0)
                train_counted()
    except (KeyError, SystemExit, stepflame.StepflameError) as raised:
        if mode == "forks" and not child:
            os._exit(0)
        found["ended_by"] = repr(raised)
    return found


def in_thread(mode, file, options):
    """Of a server, for example: it gets no signals."""
    found = {}

    def target():
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        found.update(run(mode, file, options))

    thread = threading.Thread(target=target)
    thread.start()
    thread.join()
    return found


def has_children():
    try:
        os.waitpid(-1, os.WNOHANG)
        return True
    except ChildProcessError:
        return False


def main():
    file, *modes = sys.argv[1:]
    if modes == ["rank"]:
        torch.distributed.init_process_group("gloo")
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    train(2)
    for mode in modes:
        mode, *words = mode.split(",")
        options = {name: json.loads(value) for name, value in (word.split("=") for word in words)}
        before = [signal.getsignal(number) for number in HANDLED]
        handler = Logged()
        logging.getLogger("stepflame").addHandler(handler)
        name = "-".join([mode, *words]) + (str(torch.distributed.get_rank()) if mode == "rank" else "")
        found = (in_thread if mode == "thread" else run)(mode, file.replace("%s", name), options)
        logging.getLogger("stepflame").removeHandler(handler)
        train(5)
        found.update(name=name, pid=os.getpid(), logged=handler.messages, same_handlers=before == [signal.getsignal(number) for number in HANDLED], children=has_children())
        print(json.dumps(found), flush=True)


main()
