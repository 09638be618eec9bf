#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What counting system calls costs a job: a part of `make bench`.

A job reads 4 KiB of a cached file some 200,000 times a second, and computes in between; watchers are attached and detached in turn, and
every watched window is compared with the free windows before and after it, by the job's CPU time a read, which other work on the
machine disturbs less than the clock. `strace -c -f` is measured beside stepflame where it
is installed. Then the price of a call: of the job's, and of a process of another job. Needs no torch; nothing here passes or fails.
"""
import argparse
import array
import functools
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

# Writes the time, and its CPU time, at each 1,000th read. `work` turns of an empty loop lie between two reads; 0: reads alone.
JOB = r"""
import array, os, sys, time
work, out = int(sys.argv[1]), open(sys.argv[2], "ab", buffering=0)
fd = os.open(sys.argv[3], os.O_RDONLY)
pread, turns = os.pread, range(work)
print("ready", flush=True)
while True:
    for _ in range(1000):
        pread(fd, 4096, 0)
        for _ in turns:
            pass
    out.write(array.array("d", [time.perf_counter(), time.thread_time()]).tobytes())
"""
READS = 1000


def wait_for(path: str, text: str, process: subprocess.Popen, seconds: float = 60) -> None:
    end = time.time() + seconds
    while time.time() < end:
        if text in open(path).read():
            return
        if process.poll() is not None:
            break
        time.sleep(0.02)
    sys.exit(f"bench: no '{text}' in time:\n{open(path).read()}")


class Job:
    def __init__(self, folder: str, work: int):
        self.times, said = os.path.join(folder, f"job{work}.times"), os.path.join(folder, "job.out")
        script, data = os.path.join(folder, "job.py"), os.path.join(folder, "data")
        open(script, "w").write(JOB)
        open(data, "wb").write(os.urandom(8192))
        open(self.times, "w").close()
        self.process = subprocess.Popen([sys.executable, script, str(work), self.times, data],
                                        stdout=open(said, "w"), stderr=subprocess.STDOUT)
        wait_for(said, "ready", self.process)
        time.sleep(0.5)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()

    def seconds_a_read(self, seconds: float) -> float:
        """Of CPU time: the median of those of 1,000 reads each, few of which other work on the machine interrupts."""
        begin = time.perf_counter()
        time.sleep(seconds)
        end = time.perf_counter()
        times = array.array("d")
        raw = open(self.times, "rb").read()
        times.frombytes(raw[:len(raw) // 16 * 16])
        cpu = [c for t, c in zip(times[::2], times[1::2]) if begin < t < end]
        return statistics.median(b - a for a, b in zip(cpu, cpu[1:])) / READS if len(cpu) > 1 else float("nan")


class Watcher:
    """A program that is attached when its stderr says `said`, and ends by SIGINT."""

    def __init__(self, folder: str, said: str, *command: str):
        err = os.path.join(folder, "watcher.err")
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=open(err, "w"))
        wait_for(err, said, self.process)
        time.sleep(0.2)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait()


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.4f} ({min(values):.4f} to {max(values):.4f})"


def told(stepflame: str, file: str) -> str:
    """What stepflame itself says of a call's price in a recording."""
    report = json.loads(subprocess.check_output([stepflame, "report", file, "--json"]))
    return f"; {report['overhead']['call_ns'] or 0:.0f} ns a call by the report" if report["overhead"]["calls"] else ""


def paired(job: Job, name: str, attach, rounds: int, seconds: float, said=lambda: "") -> None:
    ratios, prices, frees = [], [], []
    for _ in range(rounds):
        before = job.seconds_a_read(seconds)
        watcher = attach()
        inside = job.seconds_a_read(seconds)
        watcher.stop()
        after = job.seconds_a_read(seconds)
        frees.append((before + after) / 2)
        ratios.append(inside / frees[-1])
        prices.append(1e9 * (inside - frees[-1]))
    print(f"{name:30} {1 / statistics.median(frees):8.0f} reads/s free; watched/free {spread(ratios)}; "
          f"{statistics.median(prices):6.0f} ns a read ({min(prices):.0f} to {max(prices):.0f}){said()}", flush=True)


def work_for(folder: str, rate: float) -> int:
    """Turns of the loop at which a free job makes so many reads a second."""
    work, times = 0, []
    for turns in (0, 400):
        job = Job(folder, turns)
        times.append(job.seconds_a_read(1))
        job.stop()
    each = (times[1] - times[0]) / 400
    work = int((1 / rate - times[0]) / each) if each > 0 else 0
    return max(work, 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stepflame", default="build/stepflame")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--rate", type=float, default=200000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        def record(pid: int, *options: str):
            return lambda: Watcher(folder, "armed", args.stepflame, "record", "-p", str(pid), "-o",
                                   os.path.join(folder, "bench.rec"), *options)

        for work in (work_for(folder, args.rate), 0):
            job = Job(folder, work)
            bystander = Job(folder, 1)
            os.kill(bystander.process.pid, signal.SIGSTOP)
            try:
                pid = job.process.pid
                print(f"{'reads with work between' if work else 'reads alone'}:")
                said = functools.partial(told, args.stepflame, os.path.join(folder, "bench.rec"))
                paired(job, "stepflame --syscalls", record(pid, "--syscalls"), args.rounds, args.seconds, said)
                paired(job, "stepflame", record(pid), args.rounds, args.seconds)
                paired(job, "--syscalls, of another process", record(bystander.process.pid, "--syscalls"), args.rounds, args.seconds)
                paired(job, "stepflame, of another process", record(bystander.process.pid), args.rounds, args.seconds)
                if shutil.which("strace"):
                    paired(job, "strace -c -f", lambda: Watcher(folder, "attached", "strace", "-c", "-f", "-p", str(pid)),
                           max(1, args.rounds // 2), args.seconds)
                else:
                    print("strace                         not installed")
            finally:
                os.kill(bystander.process.pid, signal.SIGCONT)
                bystander.stop()
                job.stop()


main()
