#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""stepflame beside CPython 3.15's own sampling profiler (`python -m profiling.sampling attach`), on one process, in turn.

A job calls three functions that do one, three and six parts of its work, and says what CPU time each 200 rounds took. Of each way: that, beside
the windows without; the CPU time of the profiler with its start; the functions' shares. Nothing here passes or fails.
"""

import argparse
import json
import re
import resource
import statistics
import subprocess
import tempfile
import threading
import time

FUNCTIONS = ("light", "middle", "heavy")
JOB = """
import json, os, time
def light(n):
    s = 0
    for i in range(n): s += i * i
def middle(n):
    s = 0
    for i in range(n): s += i * i
def heavy(n):
    s = 0
    for i in range(n): s += i * i
def step(): light(2000); middle(6000); heavy(12000)
while True:
    begun, used = time.monotonic(), time.thread_time()
    for _ in range(200): step()
    print(json.dumps([begun, time.monotonic(), time.thread_time() - used]), flush=True)
"""


def children_s():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def stepflame(args, pid):
    with tempfile.NamedTemporaryFile(suffix=".rec") as file:
        command = [args.stepflame, "record", "-p", pid, "-d", str(args.seconds), "-o", file.name]
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True)
        taken = children_s()
        text = subprocess.run([args.stepflame, "export", file.name, "-f", "folded", "-o", "-"], capture_output=True, text=True, check=True).stdout
    weights = dict.fromkeys(FUNCTIONS, 0.0)
    total = 0
    for stack, weight in (line.rsplit(" ", 1) for line in text.splitlines()):
        total += float(weight)
        for name in FUNCTIONS:
            weights[name] += float(weight) * (name in stack)
    return taken, {name: 100 * weight / total for name, weight in weights.items()}


def tachyon(args, pid, rate):
    command = [args.python, "-m", "profiling.sampling", "attach", "-d", str(args.seconds), "-r", str(rate), "--pstats", pid]
    text = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True).stdout
    rows = re.findall(r"^\s*\d+/\d+\s+([\d.]+)\s.*\((\w+)\)$", text, re.M)
    return children_s(), {name: float(share) for share, name in rows if name in FUNCTIONS}


def nothing(args, _):
    time.sleep(args.seconds)
    return children_s(), {}


def read(job, lines):
    for line in job.stdout:
        lines.append(json.loads(line))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stepflame", default="build/stepflame")
    parser.add_argument("--python", default="python3.15")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=4)
    args = parser.parse_args()
    job = subprocess.Popen([args.python, "-c", JOB], stdout=subprocess.PIPE, text=True)
    lines = []
    threading.Thread(target=read, args=(job, lines), daemon=True).start()
    ways = {
        "nothing": nothing,
        "stepflame": stepflame,
        "tachyon 1 kHz": lambda args, pid: tachyon(args, pid, 1000),
        "tachyon 99 Hz": lambda args, pid: tachyon(args, pid, 99),
    }
    used, own, shares = ({way: [] for way in ways} for _ in range(3))
    try:
        time.sleep(2)
        for _ in range(args.rounds):
            for way, run in ways.items():
                before, begun = children_s(), time.monotonic()
                taken, found = run(args, str(job.pid))
                inside = [cpu for start, end, cpu in lines if start >= begun and end <= time.monotonic()]
                used[way].append(statistics.median(inside))
                own[way].append(taken - before)
                shares[way].append(found)
    finally:
        job.kill()
    for way in ways:
        ratios = sorted(with_it / without for with_it, without in zip(used[way], used["nothing"]))
        parts = {name: statistics.median(found.get(name, 0) for found in shares[way]) for name in FUNCTIONS}
        text = ", ".join("%s %.1f %%" % pair for pair in parts.items() if pair[1])
        print("%-14s job x%.3f (%.3f to %.3f), own CPU time %.2f s; %s" % (way, statistics.median(ratios), ratios[0], ratios[-1], statistics.median(own[way]), text))


if __name__ == "__main__":
    main()
