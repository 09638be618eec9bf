# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Starts processes that end soon, as many a second as it is told or the machine can. Each maps a library with torch's name, and is no child of
another one that does: nothing says that it will not train. A fork of one that has torch itself takes some ms.
"""

import argparse
import json
import mmap
import os
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float, default=500)
parser.add_argument("--live", type=float, default=0.1)
parser.add_argument("--library", required=True, help="a file with that name")
parser.add_argument("--stop", required=True)
parser.add_argument("--out", required=True)
args = parser.parse_args()
library = open(args.library, "rb")


def start():
    """Of two forks the first ends, so that the second is a child of init."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    if os.fork():
        os._exit(0)
    mapped = mmap.mmap(library.fileno(), 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC, flags=mmap.MAP_PRIVATE)
    time.sleep(args.live)
    mapped.close()
    os._exit(0)


started, begin = 0, time.monotonic()
while not Path(args.stop).exists():
    start()
    started += 1
    time.sleep(max(0, begin + started / args.rate - time.monotonic()))
Path(args.out).write_text(json.dumps({"started": started, "seconds": time.monotonic() - begin}))
