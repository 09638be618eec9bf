#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Leaves `stepflame watch` on beside many jobs that start, end, crash, fork and lie, and says what it took: CPU, memory, descriptors, disk, and what it left.

    tools/soak.py --stepflame build/stepflame --python PYTHON [--jobs 50] [--minutes 60] [--state DIR] [-- OPTIONS OF watch]

As root. The jobs and `watch` are in a PID namespace of their own: others on this machine are left alone. PYTHON has torch. Jobs sleep most of the time, and are forks of
one process that has imported torch, as 50 imports take 20 GB and minutes. A line for each minute goes to stdout, and at the end one JSON object. Exit status 1: a bound does not hold (MEMORY_MB, HOST_SHARE, GROWTH, or something is left).
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

MEMORY_MB, HOST_SHARE, GROWTH = 256, 0.01, 1.15
SAMPLE_SECONDS = 10
PORT = 19465

# What a job does, and how many of a hundred do so.
KINDS = {"steady": 40, "short": 20, "crash": 10, "fork": 10, "flash": 10, "mapper": 5, "liar": 5}

# Reads "KIND SECONDS ENVIRONMENT" lines, and answers with the PID of a job, which is nobody's child.
NURSERY = r"""
import json, os, random, signal, sys, time
import torch
torch.set_num_threads(1)

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 40
    def __getitem__(self, i):
        time.sleep(0.05)
        return torch.ones(8)

def job(kind, seconds):
    if kind == "flash":
        return
    if kind == "mapper":
        time.sleep(seconds)
        return
    end = time.monotonic() + seconds
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    def step(x):
        optimizer.zero_grad()
        time.sleep(random.uniform(0.27, 0.33))
        model(x).sum().backward()
        optimizer.step()
    while time.monotonic() < end:
        if kind == "fork":
            for x in torch.utils.data.DataLoader(Rows(), batch_size=2, num_workers=1):
                step(x)
        else:
            step(torch.ones(2, 8))
    if kind == "crash":
        os.kill(os.getpid(), random.choice([signal.SIGKILL, signal.SIGABRT]))

for line in sys.stdin:
    kind, seconds, environment = line.split(" ", 2)
    middle = os.fork()
    if middle:
        os.waitpid(middle, 0)
        continue
    pid = os.fork()
    if pid:
        print(pid, flush=True)
        os._exit(0)
    os.setsid()
    os.nice(19)
    os.environ.update(json.loads(environment))
    random.seed()
    job(kind, float(seconds))
    os._exit(0)
"""


def environment(kind, number):
    if kind == "liar":
        return dict(RANK="99999999999999999999", WORLD_SIZE="-1", LOCAL_RANK='"}\n', TORCHELASTIC_RUN_ID='a"\\\n{' * 200, SLURM_JOB_ID="\x1b[31m", MASTER_ADDR="x" * 5000)
    if kind in ("steady", "short"):
        return dict(TORCHELASTIC_RUN_ID="run-%d" % (number // 4), RANK=str(number % 4), WORLD_SIZE="4")
    return {}


class Jobs:
    def __init__(self, python, count, end):
        self.end = end
        self.nursery = subprocess.Popen([python, "-c", NURSERY], env=dict(os.environ, OMP_NUM_THREADS="1"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.running = []
        self.started = dict.fromkeys(KINDS, 0)
        self.kinds = [kind for kind, share in KINDS.items() for _ in range(max(1, count * share // 100))][:count]
        for number in range(len(self.kinds)):
            self.start(number)

    def start(self, number):
        kind = self.kinds[number]
        left = self.end - time.monotonic()
        seconds = left + 60 if kind == "steady" else random.uniform(120, 400)
        print(kind, seconds, json.dumps(environment(kind, number)), file=self.nursery.stdin, flush=True)
        self.started[kind] += 1
        self.running.append((number, int(self.nursery.stdout.readline())))

    def renew(self):
        for one in [one for one in self.running if os.waitpid(one[1], os.WNOHANG)[0]]:  # the first process of a namespace is the parent of all that have none
            self.running.remove(one)
            self.start(one[0])


def tree(pid):
    """The process and its descendants."""
    found = [pid]
    for one in found:
        try:
            for task in os.scandir("/proc/%d/task" % one):
                found += [int(child) for child in Path(task.path, "children").read_text().split()]
        except OSError:
            pass  # it has ended
    return found


def cpu_seconds(pid):
    fields = Path("/proc/%d/stat" % pid).read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")  # of children that were waited for, too


def memory_mb(pid):
    return int(re.search(r"^Pss_Anon:\s+(\d+)", Path("/proc/%d/smaps_rollup" % pid).read_text(), re.M)[1]) / 1024


def measure(pid, state):
    one = {"cpu_s": 0, "mb": 0, "files": 0, "largest": {}}
    for process in tree(pid):
        try:
            one["cpu_s"] += cpu_seconds(process)
            mb = memory_mb(process)
            one["mb"] += mb
            one["largest"]["%s %d" % (Path("/proc/%d/comm" % process).read_text().strip(), process)] = round(mb)
            one["files"] += len(os.listdir("/proc/%d/fd" % process))
        except OSError:
            pass
    one["rss_mb"] = int(re.search(r"VmRSS:\s+(\d+)", Path("/proc/%d/status" % pid).read_text())[1]) / 1024
    one["disk_mb"] = sum(file.stat().st_size for file in state.rglob("*") if file.is_file()) / 1e6
    try:
        text = urllib.request.urlopen("http://127.0.0.1:%d/metrics" % PORT, timeout=SAMPLE_SECONDS).read().decode()
        one["series"] = sum(line[:1] not in ("#", "") for line in text.splitlines())
        one.update({name: float(re.search("^stepflame_%s (.*)$" % name, text, re.M)[1]) for name in ("jobs", "processes", "lost_total", "ring_bytes")})
    except OSError:
        one["series"] = None
    return one


def soak(args, state):
    end = time.monotonic() + 60 * args.minutes
    watch = subprocess.Popen([args.stepflame, "watch", "--state", state, "--listen", "127.0.0.1:%d" % PORT, *args.options], stdin=subprocess.DEVNULL, stderr=open(state.parent / "watch.log", "w"))
    jobs = Jobs(args.python, args.jobs, end)
    rows, begin = [], time.monotonic()
    while time.monotonic() < end and watch.poll() is None:
        time.sleep(SAMPLE_SECONDS)
        jobs.renew()
        rows.append({"s": round(time.monotonic() - begin), **measure(watch.pid, state)})
        if len(rows) % (60 // SAMPLE_SECONDS) == 0:
            print(" ".join("%s=%s" % (key, round(value, 1) if isinstance(value, float) else value) for key, value in rows[-1].items() if key != "largest"), flush=True)
    ended = watch.poll()
    asked = time.monotonic()
    watch.send_signal(signal.SIGTERM)
    status = watch.wait()
    stopped_s = time.monotonic() - asked
    left = json.loads(subprocess.run([args.stepflame, "restore", "-n", "--json"], stdin=subprocess.DEVNULL, capture_output=True, text=True).stdout or "{}")
    for _, pid in jobs.running:
        os.kill(pid, signal.SIGKILL)
    jobs.nursery.kill()
    return rows, jobs, {"ended_early": ended, "status": status, "stopped_s": round(stopped_s, 2), "breakpoints_left": sum(file["found"] for file in left.get("files", []))}


def judge(rows, jobs, end, log):
    third = len(rows) // 3
    middle, last = rows[third : 2 * third], rows[2 * third :]
    mean = {name: [sum(row[name] for row in part) / len(part) for part in (middle, last)] for name in ("mb", "files")}
    busy = (rows[-1]["cpu_s"] - rows[third]["cpu_s"]) / (rows[-1]["s"] - rows[third]["s"])
    text = log.read_text(errors="replace")
    found = {
        "minutes": round(rows[-1]["s"] / 60, 1),
        "jobs_started": jobs.started,
        "events": len(re.findall("Kept as", text)),
        "mb_max": round(max(row["mb"] for row in rows)),
        "largest": max(rows, key=lambda row: row["mb"])["largest"],
        "rss_mb_max": round(max(row["rss_mb"] for row in rows)),
        "mb_of_thirds": [round(value, 1) for value in mean["mb"]],
        "files_of_thirds": [round(value) for value in mean["files"]],
        "cores": round(busy, 4),
        "host_share": round(busy / os.cpu_count(), 4),
        "disk_mb_max": round(max(row["disk_mb"] for row in rows)),
        "series_max": max(row["series"] or 0 for row in rows),
        "scrapes_failed": sum(row["series"] is None for row in rows),
        "lost": max(row.get("lost_total", 0) for row in rows),
        **end,
    }
    wrong = [
        name
        for name, holds in (
            ("it ended, or ended badly", end["ended_early"] is None and end["status"] == 0),
            ("memory", found["mb_max"] < MEMORY_MB),
            ("memory grows", mean["mb"][1] < GROWTH * mean["mb"][0]),
            ("descriptors grow", mean["files"][1] < GROWTH * mean["files"][0]),
            ("CPU", found["host_share"] < HOST_SHARE),
            ("breakpoints are left", not end["breakpoints_left"]),
        )
        if not holds
    ]
    print(json.dumps({**found, "wrong": wrong}))
    return bool(wrong)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stepflame", required=True, type=Path)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--jobs", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--state", type=Path, help="keep the ring, the events and the log there")
    parser.add_argument("options", nargs="*", help="of watch")
    args = parser.parse_args()
    args.stepflame = args.stepflame.resolve()
    if os.getpid() != 1:  # come again as the first process of a namespace
        done = subprocess.run(["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, *sys.argv])
        sys.exit(done.returncode)
    folder = args.state or Path(tempfile.mkdtemp(prefix="soak-"))
    state = folder / "state"
    state.mkdir(parents=True)
    try:
        sys.exit(judge(*soak(args, state), folder / "watch.log"))
    finally:
        if not args.state:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
