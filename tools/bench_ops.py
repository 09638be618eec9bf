#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What recording operators costs a job, beside torch.profiler on the same steps: part of `make bench`.

One job does what it is told, line by line, so that every figure is paired with others of the same minute: calls of one operator
(free, under two bare counting uprobes on that operator's own function, in a window of stepflame, under torch.profiler), and
steps of a small model (free, in a window, under torch.profiler, free again). Printed are medians with their spread; nothing
here passes or fails.
"""
import argparse
import os
import subprocess
import sys
import tempfile

from paired import Asked, BareProbes, Recording, spread

# Of operators alone, as torch.profiler's is: samples and system calls are another thing, with a benchmark of their own.
OPS = ["--ops", "-F", "0", "--no-syscalls"]

JOB = r'''
import json, os, sys, time
import torch
from torch.profiler import ProfilerActivity, profile
torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=False)
data, target = torch.randn(16, 64), torch.randint(0, 10, (16,))
def calls(n, x=torch.ones(1)):
    neg_ = x.neg_
    start = time.perf_counter()
    for _ in range(n):
        neg_()
    return (time.perf_counter() - start) / n
def steps(n):
    start = time.perf_counter()
    for _ in range(n):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(data), target).backward()
        optimizer.step()
    return (time.perf_counter() - start) / n
def profiled(what, n, trace=None):
    with profile(activities=[ProfilerActivity.CPU]) as p:
        seconds = what(n)
        end = time.perf_counter()
    stopped = time.perf_counter()
    rows = p.key_averages()
    averaged = time.perf_counter()
    events = len(p.events())
    if trace:
        p.export_chrome_trace(trace)
    return {"seconds": seconds, "stop": stopped - end, "averages": averaged - stopped, "events": events,
            "trace_bytes": os.path.getsize(trace) if trace else None}
profiled(steps, 10)
steps(200)
calls(1000)
print(json.dumps({"torch": os.path.dirname(torch.__file__)}), flush=True)
for line in sys.stdin:
    print(json.dumps(eval(line)), flush=True)
'''

OP = "_ZN2at4_ops4neg_4callERNS_6TensorE"


def library_of(job: Asked) -> str:
    return os.path.join(job.said["torch"], "lib", "libtorch_cpu.so")


def sites(tool: str, library: str, symbol: str) -> list[int]:
    """File offsets of the entry and of the exits that stepflame would probe."""
    line = subprocess.check_output([tool, library, f"^{symbol}$"], text=True, stderr=subprocess.DEVNULL).splitlines()[0]
    return [int(word, 16) for word in line.split()[:-1]]


def call_price(args, folder: str, job: Asked) -> None:
    places = sites(args.sites, library_of(job), OP)
    bare, window, torch_profiler = [], [], []
    for _ in range(args.rounds):
        free = job.ask(f"calls({args.calls})")
        probes = BareProbes(library_of(job), places, job.pid)
        bare.append((job.ask(f"calls({args.calls})") - free) * 1e9)
        hits = probes.stop()
        if hits != len(places) * args.calls:
            sys.exit(f"bench: {hits} hits of bare probes in {args.calls} calls")
        recording = Recording(args.stepflame, folder, job.pid, *OPS)
        window.append((job.ask(f"calls({args.calls})") - free) * 1e9)
        recording.stop()
        count = sum(row["count"] for row in recording.report("--ops")["ops"])
        if count != args.calls:
            print(f"bench: {count} calls counted of {args.calls}")
        torch_profiler.append((job.ask(f"profiled(calls, {args.calls})")["seconds"] - free) * 1e9)
    ratios = [w / b for w, b in zip(window, bare)]
    print(f"a call of aten::neg_   +{spread(window, '.0f')} ns in a window, +{spread(bare, '.0f')} ns under two bare probes: "
          f"ratio {spread(ratios, '.2f')}; torch.profiler +{spread(torch_profiler, '.0f')} ns")


def step_price(args, folder: str, job: Asked) -> None:
    n, rows = args.steps, {}

    def add(**values):
        for name, value in values.items():
            rows.setdefault(name, []).append(value)

    for _ in range(args.rounds):
        before = job.ask(f"steps({n})")
        recording = Recording(args.stepflame, folder, job.pid, *OPS)
        during = job.ask(f"steps({n})")
        recording.stop()
        after = job.ask(f"steps({n})")
        found = recording.report("--ops")
        sampled = Recording(args.stepflame, folder, job.pid, "--ops")
        job.ask(f"steps({n})")
        sampled.stop()
        profiled = job.ask(f"profiled(steps, {n})")
        free = (before + after) / 2
        ops = sum(row["count"] for row in found["ops"])
        add(during=during / free, after=after / before, profiled=profiled["seconds"] / free)
        add(attach=found["overhead"]["attach_ms"], detach=found["overhead"]["detach_ms"])
        add(job=(during - free) * n / ops * 1e6, own=recording.cpu / ops * 1e6, report=recording.report_cpu / ops * 1e6)
        add(own_sampled=sampled.cpu / ops * 1e6)
        add(torch_job=(profiled["seconds"] - free) * n / profiled["events"] * 1e6,
            stop=profiled["stop"] / profiled["events"] * 1e6, averages=profiled["averages"] / profiled["events"] * 1e6)
    print(f"a step of {free * 1e6:.0f} us, {ops / n:.0f} operator calls   in a window x{spread(rows['during'], '.2f')}, torch.profiler "
          f"x{spread(rows['profiled'], '.2f')}; after/before {spread(rows['after'], '.3f')}")
    print(f"attach {spread(rows['attach'], '.0f')} ms, detach {spread(rows['detach'], '.0f')} ms")
    # stepflame's own CPU time is mostly that of its start: the longer the window, the less of it falls to a call
    print(f"all in, us an operator call, {ops} of them   the job {spread(rows['job'], '.2f')}, stepflame's CPU {spread(rows['own'], '.2f')} "
          f"(with 99 samples a second {spread(rows['own_sampled'], '.2f')}), "
          f"the report {spread(rows['report'], '.2f')}")
    print(f"    torch.profiler   the job {spread(rows['torch_job'], '.2f')}, its stop {spread(rows['stop'], '.2f')}, "
          f"key_averages {spread(rows['averages'], '.2f')}")


def timeline_size(args, folder: str, job: Asked) -> None:
    n = args.steps
    plain = Recording(args.stepflame, folder, job.pid, *OPS)
    job.ask(f"steps({n})")
    plain.stop()
    spans = sum(row["count"] for row in plain.report("--ops")["ops"])
    timeline = Recording(args.stepflame, folder, job.pid, *OPS, "--timeline")
    job.ask(f"steps({n})")
    timeline.stop()
    trace = os.path.join(folder, "trace.json")
    profiled = job.ask(f"profiled(steps, {n}, {trace!r})")
    lost = {name: value for name, value in timeline.report("--ops")["lost"].items() if value}
    print(f"timeline   {(timeline.bytes - plain.bytes) / spans:.1f} bytes an operator call; torch.profiler's Chrome trace "
          f"{profiled['trace_bytes'] / profiled['events']:.0f} an event; lost {lost or 'nothing'}")


def memory(args, folder: str, job: Asked) -> None:
    """Resident memory under a schedule that repeats; the first tenth warms up."""
    recording = Recording(args.stepflame, folder, job.pid, *OPS, "--schedule", "wait=40,warmup=5,active=5,repeat=0")
    seen = []
    for _ in range(10):
        job.ask(f"steps({args.long // 10})")
        seen.append(recording.memory())
    recording.stop()
    print(f"memory over {args.long} steps, 5 of each 50 recorded   {seen[0] / 1e6:.1f} MB after a tenth, {seen[-1] / 1e6:.1f} MB at the end; "
          f"file {recording.bytes / 1e6:.2f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stepflame", default="build/stepflame")
    parser.add_argument("--sites", default="build/tools/sites")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=20000, help="of one operator, a round")
    parser.add_argument("--steps", type=int, default=200, help="a round")
    parser.add_argument("--long", type=int, default=10000, help="steps under a repeating schedule")
    parser.add_argument("--only", choices=["calls", "steps", "timeline", "memory"])
    args = parser.parse_args()
    parts = {"calls": call_price, "steps": step_price, "timeline": timeline_size, "memory": memory}
    with tempfile.TemporaryDirectory() as folder:
        job = Asked(folder, JOB)
        try:
            for name, part in parts.items():
                if args.only in (None, name):
                    part(args, folder, job)
                    sys.stdout.flush()
        finally:
            job.stop()


main()
