# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What embedded.c's interpreter runs: half a second of work in two threads."""

import threading
import time


def work(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1000))


threading.Thread(target=work, args=(0.5,)).start()
work(0.5)
