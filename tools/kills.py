#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Kills stepflame, its guardian, or both, at random moments in every mode, and records targets that end, fork, exec or are stopped at random.

After each: the job's results are what they were, its code has no breakpoint (compared with the files), nothing hangs and no guardian is left. At the
end: the job has as many files and mappings as before, and, with --speed, how its speed compares with a job's that nobody recorded. What failed is
told; status 1. A kill takes half a second of CPU time: on a machine with more than two processors start one for each mode.
"""

import argparse
import contextlib
import itertools
import os
import random
import re
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))

import gpu  # noqa: E402
import helpers  # noqa: E402
import pytest  # noqa: E402

MODES = {
    "ops": ["--ops"],
    "exact": ["--exact", "-d", "60s"],
    "plain": [],
    "uprobe": ["--gpu", "uprobe"],
    "inject": ["--gpu", "cupti", "--inject"],
}
VICTIMS = ["stepflame"] * 6 + ["guardian", "both"]
FATES = ["end", "raise", "abort", "fork", "exec", "killed", "stopped"]
MARK = "STEPFLAME_KILLS"  # in the environment of what we start: guardians of others are none of ours
TOGETHER = 8  # targets of a recording
EARLY = 0.3  # how often one of them runs while probes are being attached; where it ends meanwhile, nothing is recorded
PAUSE_SECONDS = 2.5  # that a pair of jobs is measured, in turns
NO_TARGET = "ended while probes were being attached|there is no process|is not a Python program"  # it ended or called exec meanwhile
GPU_STEPS, GPU_LAUNCHES = 400, 8  # of 5 ms: longer than most recordings
REST = 3  # times as long as it works: so that jobs leave stepflame the processors


class Bench(helpers.Bench):
    """Of which what has ended may be forgotten: no name comes twice."""

    def __init__(self, directory):
        super().__init__(directory)
        self.number = itertools.count()

    def _name(self, kind):
        return "%s%d" % (kind, next(self.number))


class Wrong(Exception):
    pass


def guardians():
    """Those of our recordings."""
    found = set()
    for pid in helpers.guardians():
        with contextlib.suppress(OSError):
            if ("%s=%d" % (MARK, os.getpid())).encode() in Path("/proc/%d/environ" % pid).read_bytes().split(b"\0"):
                found.add(pid)
    return found


def wait_until(what, condition, seconds=helpers.END_SECONDS):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise Wrong("after %d s: %s" % (seconds, what))
        time.sleep(0.01)


def until_no_guardian(own=()):
    """own: those that were there, which are cheaper to look at than all processes."""
    wait_until("a guardian is left", lambda: all(helpers.state_of(pid) in ("", "Z") for pid in own))
    wait_until("a guardian is left", lambda: not guardians())


def kill(pid, number=signal.SIGKILL):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def others_record():
    return bool(helpers.guardians() - guardians())


def check_clean(pid, restored):
    """
    No breakpoint is in the process. restored: after `stepflame restore`, since nobody was left who could have taken them out. False: that cannot be
    said, for another stepflame records on this host.
    """
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        left = len(helpers.breakpoints(pid))
        if left and restored:
            found = helpers.stepflame("restore", "-p", pid)
            if found.returncode:
                raise Wrong("restore: %s%s" % (found.stdout, found.stderr))
            left = len(helpers.breakpoints(pid))
        if left and others_record():
            return False
        if left:
            raise Wrong("%d breakpoints stay" % left)
    return True


class Moments:
    """How long a recording takes to begin and to end, as seen so far."""

    def __init__(self):
        self.begin, self.end = 2.0, 0.5

    def seen(self, name, seconds):
        setattr(self, name, 0.8 * getattr(self, name) + 0.2 * seconds)


def kill_at_random(bench, job, options, moments, at):
    """Begins a recording and kills one or two of its processes. (what was done, is `restore` needed)"""
    victim, phase = at.choice(VICTIMS), at.choice(["begins", "records", "ends", "ends"])
    started = time.monotonic()
    record, own = bench.record("-p", job.pid, *options), []
    try:
        if phase == "begins":
            time.sleep(at.uniform(0, 1.2 * moments.begin))
        else:
            record.until_armed()
            moments.seen("begin", time.monotonic() - started)
            time.sleep(at.uniform(0, 0.4))
        if phase == "ends":
            record.interrupt()
            time.sleep(at.uniform(0, 1.2 * moments.end))
        own = helpers.guardians(record)
        if victim != "guardian":
            kill(record.pid)
        if victim != "stepflame":
            for guardian in own:
                kill(guardian)
        if victim == "guardian":
            ended = time.monotonic()
            record.interrupt()
            record.wait()
            moments.seen("end", time.monotonic() - ended)
    finally:
        record.kill()
        Path(record.file).unlink(missing_ok=True)
    until_no_guardian(own)
    return "%s killed as it %s" % (victim, phase), victim != "stepflame"


def files_and_mappings(pid):
    return len(os.listdir("/proc/%d/fd" % pid)), len(Path("/proc/%d/maps" % pid).read_text().splitlines())


def memory_kib(pid):
    return int(re.search(r"^VmRSS:\s+(\d+)", Path("/proc/%d/status" % pid).read_text(), re.M)[1])


def round_seconds(job, seconds):
    """The median CPU time of the job's rounds in the next seconds."""
    before = len(re.findall("^round ", job.stdout, re.M))
    time.sleep(seconds)
    return statistics.median(map(float, re.findall(r"^round (\S+)$", job.stdout, re.M)[before:]))


def compare_speed(job, other):
    """How the speeds of two jobs compare, measured in turns: 1.02 where the first one's rounds take 2 % longer."""
    ratios = []
    for _ in range(4):
        times = []
        for runs, rests in ((job, other), (other, job)):
            kill(rests.pid, signal.SIGSTOP)
            times.append(round_seconds(runs, PAUSE_SECONDS / 2))
            kill(rests.pid, signal.SIGCONT)
        ratios.append(times[0] / times[1])
    return statistics.median(ratios)


def gpu_job(bench, number):
    """A short program on the doubles, a new one for each kill."""
    prefix = bench.directory / ("gpu%d" % number)
    env = dict(os.environ, **gpu.environment(prefix))
    job = bench.process(os.path.join(gpu.DOUBLES, "train"), "--early", "-s", GPU_STEPS, "-l", GPU_LAUNCHES, "-u", 5000, env=env)
    job.log = gpu.Log(prefix, job.pid)
    return job.until_ready()


def check_gpu_job(job):
    if job.wait():
        raise Wrong(job.what())
    if job.log.errors():
        raise Wrong("the doubles: %s" % job.log.errors()[:3])
    calls = len(job.log.calls(names=["cudaLaunchKernel"]))
    if calls != GPU_STEPS * GPU_LAUNCHES:
        raise Wrong("%d launches" % calls)
    os.unlink(job.log.path)


def started_job(bench, *args):
    job = bench.job("checked.py", *args).until_ready()
    job.release()
    return job


class Speed:
    """Of a job, compared with one that nobody records."""

    def __init__(self, bench, job):
        self.job, self.other = job, started_job(bench)
        self.ratio = compare_speed(job, self.other)
        kill(self.other.pid, signal.SIGSTOP)

    def since(self):
        kill(self.other.pid, signal.SIGCONT)
        return "speed x%.3f, " % (compare_speed(self.job, self.other) / self.ratio)


def run_kills(bench, mode, numbers, at, failed, with_speed):
    """Kills in a mode that records one job all the time. (how many, how many while others recorded it, what the job lost by it, in words)"""
    moments, done, unknown = Moments(), 0, 0
    job = started_job(bench, *([] if with_speed else ["--rest", REST]))
    job.until_says("(?s)round.*round", helpers.END_SECONDS, "stdout")
    speed = Speed(bench, job) if with_speed else None
    before, kib = files_and_mappings(job.pid), memory_kib(job.pid)
    for done in numbers:
        what = "begins"
        try:
            what, restored = kill_at_random(bench, job, MODES[mode], moments, at)
            unknown += not check_clean(job.pid, restored)
            if not job.running():
                raise Wrong(job.what())
        except (Exception, pytest.fail.Exception) as error:
            fail(failed, "%s, %s: %s" % (mode, what, error))
            if not job.running():
                return done, unknown, "the job is gone"
        forget_ended(bench)
    after, more = files_and_mappings(job.pid), memory_kib(job.pid) - kib
    if after[0] != before[0]:
        fail(failed, "%s: %d files, and %d before" % (mode, after[0], before[0]))
    lost = "%+d files, %+d mappings, %+d KiB" % (after[0] - before[0], after[1] - before[1], more)
    return done, unknown, (speed.since() if speed else "") + lost


def run_gpu_kills(bench, mode, numbers, at, failed):
    """Kills in a mode that records programs on the GPU, each another one. As run_kills."""
    moments, done, unknown, jobs = Moments(), 0, 0, []
    for done in numbers:
        job, what = gpu_job(bench, done), "begins"
        jobs.append(job)
        try:
            what, restored = kill_at_random(bench, job, MODES[mode], moments, at)
            unknown += not check_clean(job.pid, restored)
        except (Exception, pytest.fail.Exception) as error:
            if not re.search(NO_TARGET, str(error)):
                fail(failed, "%s, %s: %s" % (mode, what, error))
        jobs = check_ended_jobs(jobs, failed, mode)
        forget_ended(bench, but=jobs)
    while jobs:
        jobs[0].wait()
        jobs = check_ended_jobs(jobs, failed, mode)
    return done, unknown, "a job for each"


def check_ended_jobs(jobs, failed, mode):
    """Returns those that have not ended."""
    running = [job for job in jobs if job.running()]
    for job in jobs:
        if job not in running:
            try:
                check_gpu_job(job)
            except (Exception, pytest.fail.Exception) as error:
                fail(failed, "%s: %s" % (mode, error))
    return running


def fail(failed, what):
    failed.append(what)
    print("FAILED", what, flush=True)


def forget_ended(bench, but=()):
    for process in [process for process in bench.started if process not in but and not process.running()]:
        bench.started.remove(process)
        process.out_path.unlink(missing_ok=True)
        process.err_path.unlink(missing_ok=True)


class Target:
    """A job with a fate."""

    def __init__(self, bench, at):
        self.fate = at.choice(FATES)
        told = self.fate if self.fate in ("raise", "abort", "fork", "exec") else "end"
        rounds = at.randint(1, 6 if told == "fork" else 30)  # each of those has two children
        self.job = bench.job("checked.py", "--rounds", rounds, "--fate", told)
        self.stops, self.at = 0, at

    def tend(self):
        """One of those things happens to it that the tool itself does."""
        if self.fate == "killed" and self.at.random() < 0.02:
            kill(self.job.pid)
        elif self.fate == "stopped" and self.at.random() < 0.1:
            kill(self.job.pid, signal.SIGCONT if self.stops % 2 else signal.SIGSTOP)
            self.stops += 1

    def end(self):
        kill(self.job.pid, signal.SIGCONT)
        code = self.job.wait()
        wanted = {"raise": [1], "abort": [-signal.SIGABRT], "killed": [0, -signal.SIGKILL]}.get(self.fate, [0])
        if code not in wanted or "another result" in self.job.stderr or "a child failed" in self.job.stderr:
            raise Wrong("%s: exit %s: %s" % (self.fate, code, self.job.stderr[-500:]))
        if self.fate == "exec" and "executed" not in self.job.stdout:
            raise Wrong("exec: %s" % self.job.what())


def record_targets(bench, targets, mode, at):
    """Records targets from before their first steps, or but for one, until all have met their fates. False: that one ended before all were attached to."""
    early = [at.choice(targets)] if at.random() < EARLY else []
    for target in early:
        target.job.release()
    record = bench.record("-p", ",".join(str(target.job.pid) for target in targets), *MODES[mode])
    helpers.until(helpers.ARMED_SECONDS, lambda: "armed" in record.stderr or not record.running(), record.what, record.delayed)
    armed = "armed" in record.stderr
    for target in targets:
        if target not in early:
            target.job.release()
    wait = time.monotonic() + helpers.END_SECONDS
    while record.running() and time.monotonic() < wait:
        for target in targets:
            target.tend()
        time.sleep(0.02)
        if all(not target.job.running() or target.stops % 2 for target in targets):
            break
    for target in targets:
        target.end()
    code = record.wait()
    if code and not (early and not armed and re.search(NO_TARGET, record.stderr)):
        raise Wrong("record: exit %d: %s" % (code, record.stderr[-500:]))
    until_no_guardian()
    Path(record.file).unlink(missing_ok=True)
    return armed


def run_targets(bench, numbers, at, failed):
    """Returns how many targets were recorded, and how many ended before."""
    recorded = ended = 0
    for _ in numbers:
        targets = [Target(bench, at) for _ in range(TOGETHER)]
        mode = at.choice(["ops", "exact", "plain"])
        try:
            for target in targets:
                target.job.until_ready()
            if record_targets(bench, targets, mode, at):
                recorded += TOGETHER
            else:
                ended += TOGETHER
        except (Exception, pytest.fail.Exception) as error:
            fail(failed, "targets (%s), %s: %s" % (", ".join(target.fate for target in targets), mode, error))
            for process in bench.started:
                process.kill()
        forget_ended(bench)
    return recorded, ended


def numbers(most, seconds):
    """1, 2, ..., most; fewer where so many seconds have passed."""
    end = time.monotonic() + seconds
    return itertools.takewhile(lambda _: time.monotonic() < end, range(1, most + 1))


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--kills", type=int, default=200, help="of each mode")
    p.add_argument("--modes", default=",".join(MODES))
    p.add_argument("--targets", type=int, default=1000)
    p.add_argument("--seconds", type=float, default=float("inf"), help="begin no other one later, of each mode and of the targets")
    p.add_argument("--speed", action="store_true", help="compare the job's speed, on a machine that does nothing else")
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    at, failed = random.Random(args.seed), []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # and end what was started
    os.environ[MARK] = str(os.getpid())
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        try:
            for mode in args.modes.split(",") if args.kills else []:
                before, todo = len(failed), numbers(args.kills, args.seconds)
                if mode in ("uprobe", "inject"):
                    done, unknown, lost = run_gpu_kills(bench, mode, todo, at, failed)
                else:
                    done, unknown, lost = run_kills(bench, mode, todo, at, failed, args.speed)
                bench.close()
                known = "%d kills, %d failed, %d while others recorded it too" % (done, len(failed) - before, unknown)
                print("%-8s %s; %s" % (mode, known, lost), flush=True)
            if args.targets:
                before = len(failed)
                done = run_targets(bench, numbers((args.targets + TOGETHER - 1) // TOGETHER, args.seconds), at, failed)
                print("targets  %d recorded, %d of recordings before which one ended; %d recordings failed" % (*done, len(failed) - before))
        finally:
            bench.close()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
