# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
A thread copies a long list, which keeps the list's own lock, while another one appends to it. Waits for a line, prints the second one's id, and for how
long it was in append.
"""

import json
import sys
import threading
import time

SECONDS = float(sys.argv[1])


def copy_list(items, end):
    while time.monotonic() < end:
        items.copy()


def append_item(items):
    begin = time.monotonic()
    items.append(None)
    return time.monotonic() - begin


def work(items, end, took):
    total = 0.0
    while time.monotonic() < end:
        total += append_item(items)
        time.sleep(0.001)
    took += [threading.get_native_id(), total]


def main():
    items, took = [None] * 3000000, []
    print("ready", flush=True)
    sys.stdin.readline()
    end = time.monotonic() + SECONDS
    threads = [threading.Thread(target=copy_list, args=(items, end)), threading.Thread(target=work, args=(items, end, took))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps(took), flush=True)


main()
