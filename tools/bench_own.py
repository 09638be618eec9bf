#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What `stepflame record` itself takes while it records one job: CPU time and memory of stepflame, of the process that
reads for it and of its guardian.

    sudo tools/bench_own.py [--job NAME...] [--options="-F 0"] [--stepflame PATH...] [--first]

Several --stepflame are compared in turn, round by round, on the same job. CPU time is by the processes' CPU clocks,
memory the proportional set size (Pss), in which a page that several processes share counts once. With --first the
caches of what was found in torch's libraries are elsewhere and empty, as when stepflame sees them for the first time.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

from bench_programs import HERE, JOBS
from paired import Recording, spread

ROWS = {
    "start": "CPU time until it is armed, ms",
    "attach": "time to attach, as it says, ms",
    "steady": "CPU while it records, % of a core",
    "end": "CPU time to end, ms",
    "all": "CPU of all its processes, start and end included, % of a core",
    "pss": "memory while it records, MB",
    "peak": "most memory of stepflame itself, with mapped files, MB",
}


def processes(pid: int) -> list[int]:
    """stepflame and its children."""
    found = [pid]
    for children in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        found += map(int, children.read_text().split())
    return found


def cpu_seconds(pid: int) -> float:
    return time.clock_gettime(~pid << 3 | 2)  # the CPU clock of that process


def memory_mb(pid: int, file: str, name: str) -> float:
    return int(re.search(rf"^{name}:\s+(\d+)", pathlib.Path(f"/proc/{pid}/{file}").read_text(), re.M)[1]) / 1e6 * 1024


def measure(stepflame: str, folder: str, pid: int, options: list[str], settle: float, seconds: float) -> dict[str, float]:
    recording = Recording(stepflame, folder, pid, *options)
    begun = time.monotonic()
    own = processes(recording.process.pid)
    start = sum(map(cpu_seconds, own))
    time.sleep(settle)
    begin, before = time.monotonic(), sum(map(cpu_seconds, own))
    time.sleep(seconds)
    took, after = time.monotonic() - begin, sum(map(cpu_seconds, own))
    pss = sum(memory_mb(each, "smaps_rollup", "Pss") for each in own)
    peak = memory_mb(own[0], "status", "VmHWM")
    reads = [each for each in own if pathlib.Path(f"/proc/{each}/comm").read_text() == "stepflame-reads\n"]
    unwaited = sum(map(cpu_seconds, reads))  # nobody waits for its end
    now = sum(map(cpu_seconds, own))
    lasted = time.monotonic() - begun
    recording.stop()
    whole = recording.cpu + unwaited
    return {"start": start * 1e3, "attach": recording.report()["overhead"]["attach_ms"], "steady": (after - before) / took * 100,
            "end": (whole - now) * 1e3, "all": whole / lasted * 100, "pss": pss, "peak": peak}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stepflame", nargs="+", default=[str(HERE.parent / "build" / "stepflame")])
    parser.add_argument("--job", nargs="+", choices=JOBS, default=["demo", "plain"])
    parser.add_argument("--options", default="", help="of stepflame record")
    parser.add_argument("--settle", type=float, default=2, help="seconds of a recording before the count")
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--first", action="store_true", help="as if stepflame saw the libraries for the first time")
    args = parser.parse_args()
    for kind in args.job:
        job = subprocess.Popen([sys.executable, *JOBS[kind]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            time.sleep(12)
            rounds = {path: [] for path in args.stepflame}
            for _ in range(args.rounds):
                for path in args.stepflame:
                    with tempfile.TemporaryDirectory() as folder:
                        if args.first:
                            os.environ["XDG_CACHE_HOME"] = folder
                        rounds[path].append(measure(path, folder, job.pid, args.options.split(), args.settle, args.seconds))
        finally:
            job.kill()
            job.wait()
        print(f"\n{kind}\n\n| | {' | '.join(args.stepflame)} |\n|---|{'---|' * len(args.stepflame)}")
        for row, title in ROWS.items():
            print(f"| {title} | {' | '.join(spread([each[row] for each in rounds[path]], '.2f') for path in args.stepflame)} |", flush=True)


if __name__ == "__main__":
    main()
