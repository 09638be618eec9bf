# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The functions and stacks of a plain loop, for recordings made by tests."""

import recfile as rec

PID, HELPER, CHILD = 4242, 4250, 4300
MS = 10**6
START = 10**9
STEPS = 200
STEP, WAIT = 20 * MS, 14 * MS

LOOP, LOAD, READ, WAITS, QUEUE = 60, 61, 62, 63, 64
FILES = {"/home/me/train.py": 50, "/usr/lib/python3.11/threading.py": 51, "/usr/lib/python3.11/queue.py": 52, "/site-packages/torch/nn/modules/module.py": 53}
CODES = {
    LOOP: ("/home/me/train.py", "main", 10),
    LOAD: ("/home/me/train.py", "load", 20),
    READ: ("/home/me/train.py", "read_rows", 30),
    WAITS: ("/usr/lib/python3.11/threading.py", "Condition.wait", 40),
    QUEUE: ("/usr/lib/python3.11/queue.py", "Queue.get", 50),
    65: ("/site-packages/torch/nn/modules/module.py", "Module._call_impl", 60),
    66: ("/home/me/train.py", "Net.forward", 70),
    67: ("/home/me/train.py", "log", 80),
}
MODULE, NET, LOG = 65, 66, 67

FORWARD, BACKWARD = 100, 101

HANDOVER, LOCK, READING, BARE = 200, 201, 202, 0
STACKS = {
    HANDOVER: [(WAITS, 0), (QUEUE, 0), (LOAD, 0), (LOOP, 4)],
    LOCK: [(LOAD, 0), (LOOP, 4)],
    READING: [(READ, 0)],
    210: [(LOAD, 0), (LOOP, 4)],  # in front of the model
    211: [(NET, 0), (MODULE, 0), (LOOP, 8)],  # the model
    212: [(LOOP, 12)],  # backward
    213: [(LOG, 0), (LOOP, 20)],  # behind the step
    215: [(LOAD, 4), (LOOP, 4)],
    214: [(WAITS, 0), (QUEUE, 0), (LOOP, 4)],  # in front, for what another thread hands over
}


def preamble():
    yield rec.host()
    yield rec.target(PID)
    yield rec.target(CHILD, role=rec.CHILD, parent=PID)
    yield rec.window(START, START + STEPS * STEP, STEPS, 3)
    for number, (file, ident) in enumerate(FILES.items()):
        yield rec.name(ident, file)
    for ident, (file, function, line) in CODES.items():
        yield rec.name(1000 + ident, function)
        yield rec.code(ident, FILES[file], 1000 + ident, line, [(offset, line + offset) for offset in range(0, 24, 4)])
    for ident, frames in STACKS.items():
        yield rec.stack(ident, frames)
    for ident, kind in ((FORWARD, rec.FORWARD), (BACKWARD, rec.BACKWARD)):
        yield rec.name(ident, {FORWARD: "forward", BACKWARD: "backward"}[ident])
        yield rec.path(ident, [(kind, ident)])
