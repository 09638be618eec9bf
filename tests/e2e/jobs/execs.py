# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Once stdin ends it computes for a second, then becomes a shell that computes for another and ends with 7."""

import os
import sys
import time


def before():
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        pass


print("ready", flush=True)
sys.stdin.read()
before()
os.execv("/bin/sh", ["sh", "-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; exit 7"])
