# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What embedded.c's interpreter runs: work in two threads, each until it has had half a second of a CPU."""

import threading
import time


def work(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(1000))


threading.Thread(target=work, args=(0.5,)).start()
work(0.5)
