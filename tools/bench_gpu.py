#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What `--gpu` costs a job, on the doubles of CUDA's libraries (tests/gpu): part of `make bench`.

Jobs do what they are told, line by line, so that every figure is paired with others of the same minute. All figures are of the
CPU time of the jobs (of the thread that calls, or of all threads where it says so), which other work on the machine disturbs less than
the clock. What a real GPU's driver does besides is not in them. Nothing here passes or fails.
"""
import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

from paired import Asked, BareProbes, Recording, spread

# Of the GPU alone: samples and system calls are another thing, with a benchmark of their own.
ALONE = ["-F", "0", "--no-syscalls"]

JOB = r'''
import ctypes, json, os, re, sys, time
import torch
torch.set_num_threads(1)
torch.manual_seed(0)
folder = os.environ["GPU_DOUBLES"]
runtime = ctypes.CDLL(os.path.join(folder, "libcudart.so.13"))
driver = ctypes.CDLL(os.path.join(folder, "libcuda.so.1"))
kernels = ctypes.CDLL(os.path.join(folder, "libkernels.so"))
kernels.kernels__register(runtime.__getattr__("__cudaRegisterFunction"))
launch_many = kernels.kernels__launch
launch_many.argtypes = [ctypes.c_void_p, ctypes.c_ulong, ctypes.c_void_p]
launch_kernel = ctypes.cast(runtime.cudaLaunchKernel, ctypes.c_void_p)
stream = ctypes.c_void_p()
runtime.cudaStreamCreateWithFlags(ctypes.byref(stream), 1)
def cpu(): return time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID)
def low(times):
    "What a tenth of them stays below: other work on the machine does not make that shorter."
    return sorted(times)[len(times) // 10]
def launches(n):
    times = []
    for _ in range(n // 1000):
        start = cpu()
        if launch_many(launch_kernel, 1000, stream): sys.exit("a launch failed")
        times.append((cpu() - start) / 1000)
    return low(times)
a, b = torch.randn(64, 64), torch.randn(64, 64)
def mix(steps):
    times = []
    for _ in range(steps):
        start = cpu()
        for _ in range(2000):
            torch.relu(torch.mm(a, b))
            launch_many(launch_kernel, 1, stream)
        times.append(cpu() - start)
    return low(times)
real = None
def fails(n):
    "cudaEventQuery of the real runtime, which fails for want of a driver."
    global real
    if real is None:
        path = re.search(r"/\S*/nvidia/\S*libcudart\S*$", open("/proc/self/maps").read(), re.M)
        real = ctypes.CDLL(path.group()) if path else False
    if not real: return None
    call, times = real.cudaEventQuery, []
    for _ in range(n // 1000):
        start = cpu()
        for _ in range(1000): call(None)
        times.append((cpu() - start) / 1000)
    return low(times)
launches(1000)
mix(1)
print(json.dumps({"torch": os.path.dirname(torch.__file__)}), flush=True)
for line in sys.stdin:
    print(json.dumps(eval(line)), flush=True)
'''


def environment(args, injection: str = "", **more: str) -> dict:
    cupti = os.path.join(args.doubles, "libcupti.so.13")
    env = {"LD_LIBRARY_PATH": args.doubles, "LD_PRELOAD": cupti, "STEPFLAME_CUPTI": cupti, "GPU_DOUBLES": args.doubles, **more}
    if injection:
        env["CUDA_INJECTION64_PATH"] = injection
    return env


def bare_probes(args, pid: int, libraries: list[str]) -> list[BareProbes]:
    """Uprobes that only count, where stepflame has its own."""
    probes = []
    for path in libraries:
        lines = subprocess.check_output([args.sites, path, "", "gpu"], text=True, stderr=subprocess.DEVNULL).splitlines()
        probes.append(BareProbes(path, [int(line.split()[0], 16) for line in lines], pid))
    return probes


def launch_price(args, folder: str) -> None:
    """A hot loop of launches: free, under bare probes, recorded."""
    job = Asked(folder, JOB, environment(args))
    libraries = [os.path.join(args.doubles, name) for name in ("libcudart.so.13", "libcuda.so.1")]
    bare, window, hits = [], [], 0
    for _ in range(args.rounds):
        free = job.ask(f"launches({args.calls})")
        probes = bare_probes(args, job.pid, libraries)
        bare.append((job.ask(f"launches({args.calls})") - free) * 1e9)
        hits = sum(p.stop() for p in probes) / args.calls
        recording = Recording(args.stepflame, folder, job.pid, "--gpu", "uprobe", *ALONE)
        during = job.ask(f"launches({args.calls})")
        recording.stop()
        window.append((during - free) * 1e9)
        report = recording.report("--gpu")
        counted = sum(row["count"] for row in report["apis"] if row["name"] == "cudaLaunchKernel")
        if counted != args.calls:
            print(f"bench: {counted} launches counted of {args.calls}")
    job.stop()
    ratios = [w / b for w, b in zip(window, bare)]
    print(f"a launch, hot loop   {free * 1e9:.0f} ns free, +{spread(window, '.0f')} ns recorded, +{spread(bare, '.0f')} ns under the same {hits:.1f} "
          f"bare probes: ratio {spread(ratios, '.2f')}; {statistics.median(window) / hits:.0f} ns a hit", flush=True)


def real_price(args, folder: str) -> None:
    """A call of the real runtime, which fails for want of a driver: one hit, that of its entry."""
    job = Asked(folder, JOB, environment(args))
    window, bare = [], []
    for _ in range(args.rounds):
        free = job.ask(f"fails({args.calls})")
        if free is None:
            print("the real runtime   torch has none")
            break
        probes = bare_probes(args, job.pid, job.ask("[real._name]"))
        bare.append((job.ask(f"fails({args.calls})") - free) * 1e9)
        hits = sum(p.stop() for p in probes) / args.calls
        recording = Recording(args.stepflame, folder, job.pid, "--gpu", "uprobe", *ALONE)
        window.append((job.ask(f"fails({args.calls})") - free) * 1e9)
        recording.stop()
    job.stop()
    if window:
        print(f"cudaEventQuery of the real runtime, without a driver   {free * 1e9:.0f} ns free, +{spread(window, '.0f')} ns recorded, "
              f"+{spread(bare, '.0f')} ns under the same {hits:.1f} bare probes", flush=True)


def mix_price(args, folder: str) -> None:
    """Steps of 2,000 launches among torch's own work."""
    job = Asked(folder, JOB, environment(args))
    ratios, prices, after = {}, {}, []
    for _ in range(args.rounds):
        for name, options in (("--gpu uprobe", ["--gpu", "uprobe"]), ("without --gpu", [])):
            before = job.ask(f"mix({args.steps})")
            recording = Recording(args.stepflame, folder, job.pid, *options)
            during = job.ask(f"mix({args.steps})")
            recording.stop()
            behind = job.ask(f"mix({args.steps})")
            free = (before + behind) / 2
            after.append(behind / before)
            ratios.setdefault(name, []).append(during / free)
            prices.setdefault(name, []).append((during - free) / 2000 * 1e9)
    job.stop()
    print(f"a step of {free * 1e3:.0f} ms with 2,000 launches   after/before {spread(after, '.3f')}")
    for name, values in ratios.items():
        print(f"    record {name:14} x{spread(values, '.3f')}, {spread(prices[name], '.0f')} ns a launch", flush=True)


def asleep_price(args, folder: str) -> None:
    """The injection library loaded and asleep, or not loaded: pairs of jobs, asked in turn."""
    ratios = []
    for pair in range(args.pairs):
        jobs = {injection: Asked(folder, JOB, environment(args, injection)) for injection in ([args.library, ""], ["", args.library])[pair % 2]}
        values: dict = {injection: [] for injection in jobs}
        if os.path.basename(args.library) not in open(f"/proc/{jobs[args.library].pid}/maps").read():
            sys.exit("bench: the injection library is not in the process")
        for _ in range(args.rounds):
            for injection, job in jobs.items():
                values[injection].append(job.ask(f"launches({args.calls})"))
        ratios.append(statistics.median(values[args.library]) / statistics.median(values[""]))
        for job in jobs.values():
            job.stop()
    print(f"the library asleep   x{spread(ratios, '.4f')} of a launch, {args.pairs} pairs of jobs", flush=True)


class Used:
    """CPU time of all threads of a process."""

    def __init__(self, pid: int):
        self.pid, self.start = pid, self._now(pid)

    @staticmethod
    def _now(pid: int) -> float:
        return sum(int(open(f"/proc/{pid}/task/{tid}/schedstat").read().split()[0]) for tid in os.listdir(f"/proc/{pid}/task")) / 1e9

    def seconds(self) -> float:
        return self._now(self.pid) - self.start


def window_of(job: Asked, recording, calls: int) -> float:
    """CPU time of all threads from the first of the launches until the window has ended."""
    used = Used(job.pid)
    job.ask(f"launches({calls})")
    time.sleep(0.5)  # whatever delivers activities has done so
    if recording:
        recording.stop()
    return used.seconds()


def awake_price(args, folder: str) -> None:
    """The library at work: each launch is a kernel and the two calls that asked for it. The double's own work is that of a client of CUPTI that drops what it is told."""
    collector = {"GPU_COLLECTOR_OUT": "/dev/null", "GPU_COLLECTOR_SILENT": "1", "GPU_COLLECTOR_KINDS": "10,4,5"}
    ours = Asked(folder, JOB, environment(args, args.library))
    double = Asked(folder, JOB, environment(args, os.path.join(args.doubles, "libcollector.so"), **collector))
    plain = Asked(folder, JOB, environment(args))
    all_in, library, sizes, lost = [], [], [], {}
    for _ in range(args.rounds):
        recording = Recording(args.stepflame, folder, ours.pid, "--gpu", "uprobe", *ALONE)
        probes, small = window_of(ours, recording, args.calls), recording.bytes
        recording = Recording(args.stepflame, folder, ours.pid, "--gpu", "cupti", *ALONE)
        cupti = window_of(ours, recording, args.calls)
        report = recording.report("--gpu")
        tier, lost = report["tiers"][0], {name: value for name, value in report["lost"].items() if value}
        if tier["activities"] != args.calls:
            print(f"bench: {tier['activities']} kernels were told of {args.calls} {tier['why']}")
        collected, free = window_of(double, None, args.calls), window_of(plain, None, args.calls)
        all_in.append((cupti - probes) / args.calls * 1e9)
        library.append(all_in[-1] - (collected - free) / args.calls * 1e9)
        sizes.append((recording.bytes - small) / args.calls)
    for job in (ours, double, plain):
        job.stop()
    print(f"the library awake   {spread(all_in, '.0f')} ns of CPU time of all threads a launch, {spread(library, '.0f')} ns without the double's own; "
          f"{spread(sizes, '.1f')} bytes in the recording, lost {lost or 'nothing'}", flush=True)


def attach_time(args, folder: str) -> None:
    """For a process with torch and the CUDA libraries that it brings, if it does: with nothing known of them, and known."""
    job = Asked(folder, JOB, environment(args))
    cache = os.path.join(folder, "cache")
    for kind in ("cold", "warm", "warm without --gpu"):
        attach, cpu = [], []
        for _ in range(1 if kind == "cold" else args.rounds):
            os.environ["XDG_CACHE_HOME"] = cache
            options = [] if "without" in kind else ["--gpu", "uprobe"]
            recording = Recording(args.stepflame, folder, job.pid, *options, *ALONE)
            recording.stop()
            attach.append(recording.report("--simple")["overhead"]["attach_ms"])
            cpu.append(recording.cpu)
        print(f"attach, {kind:19} {spread(attach, '.0f')} ms, stepflame's CPU {spread(cpu, '.2f')} s", flush=True)
    files = [os.path.join(cache, "stepflame", name) for name in os.listdir(os.path.join(cache, "stepflame"))]
    print(f"    kept: {len(files)} files, {sum(map(os.path.getsize, files))} bytes", flush=True)
    del os.environ["XDG_CACHE_HOME"]
    job.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stepflame", default="build/stepflame")
    parser.add_argument("--sites", default="build/tools/sites")
    parser.add_argument("--doubles", default="build/tests/gpu")
    parser.add_argument("--library", default="build/libstepflame-inject.so")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=100000, help="launches a round")
    parser.add_argument("--steps", type=int, default=20, help="a round")
    parser.add_argument("--pairs", type=int, default=6, help="of jobs with and without the library")
    parts = {"launch": launch_price, "real": real_price, "mix": mix_price, "asleep": asleep_price, "awake": awake_price, "attach": attach_time}
    parser.add_argument("--only", choices=parts)
    args = parser.parse_args()
    args.doubles, args.library = os.path.abspath(args.doubles), os.path.abspath(args.library)
    if not os.path.exists(os.path.join(args.doubles, "train")):
        sys.exit("bench: the doubles of CUDA's libraries are not built: run make doubles")
    with tempfile.TemporaryDirectory() as folder:
        for name, part in parts.items():
            if args.only in (None, name):
                part(args, folder)


main()
