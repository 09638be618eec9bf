#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What samples cost a job, and stepflame itself: a part of `make bench`.

A job computes all the time and writes how far it came; watchers are attached and detached in turn, and every watched window is
compared with the free windows before and after it, as in bench.py. Then what one run of each sampling program takes, with 20 Python frames, and
what a job with 20 busy threads costs stepflame. Needs no torch; py-spy is measured beside it where it is installed. Nothing here passes or fails.
"""
import argparse
import glob
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from paired import Job, Recording, spread, wait_for

# THREADS threads that are 20 functions deep; half of the work is Python's, and half lets the others run.
JOB = r'''
import array, hashlib, sys, threading, time
threads, out = int(sys.argv[1]), sys.argv[2]
data = bytes(1 << 16)
def work():
    x = 0
    for i in range(2000):
        x = x * 3 + i & 0xFFFF
    hashlib.sha256(data).digest()
def deep(depth, log):
    if depth:
        return deep(depth - 1, log)
    times = array.array("d")
    while True:
        work()
        times.append(time.perf_counter())
        if log and len(times) >= 64:
            log.write(times.tobytes())
        if len(times) >= 64:
            del times[:]
for _ in range(threads - 1):
    threading.Thread(target=deep, args=(17, None), daemon=True).start()
print("ready", flush=True)
deep(17, open(out, "ab", buffering=0))
'''
# Without samples there has to be something else to record.
OPTIONS = {99: ["-F", "99"], 0: ["-F", "0", "--action", "libc.so.6:gnu_get_libc_version"]}
PROGRAMS = ["sample_timer", "sample_switch", "sample_waking"]


class PySpy:
    def __init__(self, folder: str, pid: int):
        said = os.path.join(folder, "spy.out")
        self.process = subprocess.Popen(["py-spy", "record", "-p", str(pid), "-r", "100", "-f", "raw", "-d", "3600",
                                         "-o", os.path.join(folder, "spied")],
                                        stdout=open(said, "w"), stderr=subprocess.STDOUT)
        wait_for(said, "Sampling", self.process)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait()


def paired(job: Job, name: str, attach, rounds: int, seconds: float) -> list[dict]:
    """Work done in the free windows around, over that in the watched one; and the same by the CPU time of the work."""
    ratios, cpu_ratios, said = [], [], []

    def window() -> tuple[float, float]:
        begin, cpu = time.perf_counter(), job.cpu_seconds()
        time.sleep(seconds)
        end, cpu = time.perf_counter(), job.cpu_seconds() - cpu
        time.sleep(0.1)  # the last times are written
        done = max(1, sum(begin < t < end for t in job.times()))
        return done / (end - begin), cpu / done

    for _ in range(rounds):
        before, cpu_before = window()
        watcher = attach()
        inside, cpu_inside = window()
        watcher.stop()
        if isinstance(watcher, Recording):
            said.append(watcher.report())
        after, cpu_after = window()
        ratios.append((before + after) / 2 / inside)
        cpu_ratios.append(cpu_inside / ((cpu_before + cpu_after) / 2))
    print(f"{name:18} watched/free {spread(ratios)}   its CPU time {spread(cpu_ratios)}", flush=True)
    return said


def program_costs(pid: int) -> dict[str, tuple[int, int]]:
    """{program: (runs, ns)} of a process's BPF programs since kernel.bpf_stats_enabled was set."""
    found = {}
    for path in glob.glob(f"/proc/{pid}/fdinfo/*"):
        try:
            text = open(path).read()
        except OSError:
            continue
        info = dict(re.findall(r"^(\w+):\s*(\S+)$", text, re.M))
        if "prog_id" in info and "run_cnt" in info:
            shown = subprocess.run(["bpftool", "-j", "prog", "show", "id", info["prog_id"]], capture_output=True, text=True)
            if shown.returncode == 0:
                found[json.loads(shown.stdout)["name"]] = (int(info["run_cnt"]), int(info["run_time_ns"]))
    return found


def per_program(job: Job, stepflame: str, folder: str, seconds: float) -> None:
    knob = "/proc/sys/kernel/bpf_stats_enabled"
    before = open(knob).read()
    open(knob, "w").write("1")
    try:
        recording = Recording(stepflame, folder, job.pid, "-F", "99")
        time.sleep(seconds)
        costs = program_costs(recording.process.pid)
        recording.stop()
    finally:
        open(knob, "w").write(before)
    for name in PROGRAMS:
        runs, ns = costs.get(name, (0, 0))
        print(f"{name:18} {ns / max(1, runs):8.0f} ns a run, {runs} runs (of all processes of the machine)", flush=True)


def itself(job: Job, stepflame: str, folder: str, seconds: float) -> None:
    recording = Recording(stepflame, folder, job.pid, *OPTIONS[99])
    time.sleep(seconds)
    recording.stop()
    cost = recording.report()["overhead"]
    print(f"stepflame itself   {cost['own_cpu_percent']:.2f} % of a core, {cost['own_rss_bytes'] / 1e6:.0f} MB, "
          f"over {seconds:.0f} s; the recording has {os.path.getsize(recording.file) / 1e6:.2f} MB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stepflame", default="build/stepflame")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--long", type=float, default=60, help="seconds of a recording for stepflame's own CPU time; 0: none")
    args = parser.parse_args()
    os.environ["PATH"] += ":/usr/sbin:/sbin:" + os.path.dirname(sys.executable)
    with tempfile.TemporaryDirectory() as folder:
        for threads in (1, 20):
            print(f"{threads} thread{'s' * (threads > 1)}, 20 Python frames:")
            job = Job(folder, JOB, str(threads))
            time.sleep(1)
            try:
                for hz in OPTIONS:
                    said = paired(job, f"stepflame -F {hz}",
                                  lambda: Recording(args.stepflame, folder, job.pid, *OPTIONS[hz]), args.rounds, args.seconds)
                    cost = [report["overhead"] for report in said]
                    print(f"{'':18} stepflame itself {statistics.median(c['own_cpu_percent'] for c in cost):.2f} % of a core, "
                          f"{max(c['own_rss_bytes'] for c in cost) / 1e6:.0f} MB; lost: {said[-1]['lost'] or 'nothing'}")
                if shutil.which("py-spy"):
                    paired(job, "py-spy -r 100", lambda: PySpy(folder, job.pid), args.rounds, args.seconds)
                else:
                    print("py-spy             not installed")
                per_program(job, args.stepflame, folder, args.seconds)
                if args.long:
                    itself(job, args.stepflame, folder, args.long)
            finally:
                job.stop()


main()
