#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
The zoo: training programs that were written by others, each run as it is and with a fault planted around it, recorded by stepflame, and what
`report --steps` says of it held against what cases.py says is right.

Prints a table in Markdown, and keeps it with all recordings in the folder --out. README.md says how to run it.
"""

import argparse
import ctypes
import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import cases
import judge
import limits
import pauses
import sources

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "programs"
sys.path.insert(0, str(PROGRAMS))
import clock  # noqa: E402

STEPFLAME = os.environ.get("STEPFLAME", str(HERE.parents[1] / "build" / "stepflame"))
READY_SECONDS = 240
READY_STEPS, READY_LEAST, READY_AFTER_SECONDS = 60, 4, 3
PLANTED_LEAST = 4  # times in the window
RECORD_SECONDS = 60  # beyond the window
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "WANDB_MODE": "disabled",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONUNBUFFERED": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "OMP_NUM_THREADS": "1",  # threads that spin for each other make steps of all lengths, where others take their cores
}
HOG = "while True: pass"
LIBC, PR_SET_PDEATHSIG = ctypes.CDLL(None), 1


class Skip(Exception):
    """Why a program cannot run here."""


class Failed(Exception):
    """What of ours, or of the program, went wrong."""


def put_first(pid):
    """A session, which the scheduler weighs as one, before what else runs on the machine."""
    try:
        Path("/proc/%s/autogroup" % pid).write_text("-20")
    except OSError:
        pass  # a kernel without, or it has ended


def come_first():
    """For what is started here, which a session of its own would let live on when this one is killed."""
    os.setsid()
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    put_first("self")


def end_when_told():
    """What would end this program at once lets it end what it has started first, and thaw what it has frozen."""

    def leave(number, frame):
        for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(each, signal.SIG_IGN)
        sys.exit(128 + number)

    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(each, leave)


def make_limit(fault):
    make = limits.LIMITS.get(fault.partition(":")[0])
    try:
        return make() if make else None
    except limits.Unavailable as why:
        raise Skip(str(why)) from why


def has_modules(python, needs):
    code = "import importlib.util, sys; sys.exit(any(importlib.util.find_spec(name) is None for name in sys.argv[1:]))"
    return subprocess.run([python, "-c", code, *needs]).returncode == 0


def descendants(pid):
    """It, its children and theirs: torchrun's ranks are in sessions of their own."""
    out = [pid]
    for task in Path("/proc/%d/task" % pid).glob("*/children"):
        for child in task.read_text().split():
            out += descendants(int(child))
    return out


def end_group(process):
    """Ends a program with all that it started."""
    try:
        pids = descendants(process.pid)
    except OSError:
        pids = []
    try:
        os.killpg(process.pid, signal.SIGKILL)  # it is the first of its session
    except ProcessLookupError:
        pass
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    process.wait()


class Run:
    """A program that runs, with its fault, in a folder of its own."""

    def __init__(self, case, python, checkouts, folder):
        self.case = case
        self.folder = folder
        self.program = cases.PROGRAMS[case.program]
        self.truth = folder / "truth"
        self.hog = self.pauses = None
        cpus = sorted(os.sched_getaffinity(0))
        words = [python, *self.command(checkouts)]
        if case.fault == "hog":
            words = ["taskset", "-c", str(cpus[-1]), *words]
        env = {**os.environ, **ENVIRONMENT, **dict(case.env), "ZOO_TRUTH": str(self.truth), "ZOO_FAULT": case.fault}
        self.limit = make_limit(case.fault)
        self.log = open(folder / "log", "wb")
        words = [str(word) for word in words]
        self.process = subprocess.Popen(
            words, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, preexec_fn=self.begin
        )

    def begin(self):
        come_first()
        if self.limit:
            self.limit.enter()

    def command(self, checkouts):
        script, *args = self.program.words
        if self.program.source:
            if not checkouts:
                raise Skip("ZOO_SOURCES is not set")
            checkout = Path(checkouts) / self.program.source
            if not checkout.is_dir():
                raise Skip("%s is not there" % checkout)
            args += getattr(sources, self.program.prepare)(checkout, self.folder)
        launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", self.program.ranks] if self.program.ranks else []
        return [*launch, PROGRAMS / script, *args]

    def plant(self):
        """What is outside of the program."""
        try:
            if self.limit:
                self.limit.set(self.folder)
        except limits.Unavailable as why:
            raise Skip(str(why)) from why
        if self.case.fault == "hog":
            self.start_hog()
        self.pauses = pauses.of(self.case.fault, self.process.pid, self.limit)
        if self.pauses:
            self.pauses.start()

    def start_hog(self):
        cpu = max(os.sched_getaffinity(0))
        self.hog = subprocess.Popen(["taskset", "-c", str(cpu), sys.executable, "-c", HOG], preexec_fn=come_first)

    def counts(self):
        """What the kernel counts of its limit."""
        return self.limit.counts() if hasattr(self.limit, "counts") else ()

    def said(self):
        return (self.folder / "log").read_text(errors="replace")[-1500:]

    def logs(self):
        """{pid: what it logged}, of all its processes."""
        paths = {int(path.suffix[1:]): path for path in self.folder.glob("truth.*") if path.suffix[1:].isdigit()}
        return {pid: clock.read(path) for pid, path in paths.items()}

    def trainer(self):
        """(pid, its log) of the process with most steps: of several ranks, which make the same, any."""
        logs = self.logs()
        pid = max(logs, key=lambda pid: len(logs[pid]["step"]), default=None)
        return (pid, logs[pid]) if pid else (None, None)

    def until_trains(self):
        end = time.monotonic() + READY_SECONDS
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise Failed("it ended with %d: %s" % (self.process.returncode, self.said()))
            _, log = self.trainer()
            steps = log["step"] if log else []
            aged = len(steps) >= READY_LEAST and time.perf_counter() - steps[0][0] >= READY_AFTER_SECONDS
            if aged and (len(steps) >= READY_STEPS or time.perf_counter() - steps[0][0] >= 2 * READY_AFTER_SECONDS):
                return
            time.sleep(0.1)
        raise Failed("it did not train within %d s: %s" % (READY_SECONDS, self.said()))

    def end(self):
        if self.pauses:
            self.pauses.end()
        end_group(self.process)
        if self.hog:
            end_group(self.hog)
        if self.limit:
            self.limit.remove()
        self.log.close()


def used_seconds(pid):
    """How much CPU time a process's first thread has had, and for how long it was ready to run, and did not."""
    return [int(word) / 1e9 for word in Path("/proc/%d/schedstat" % pid).read_text().split()[:2]]


def threads_of(run):
    """{pid: CPU time, wait for a CPU, steps} of each process that makes steps."""
    return {pid: [*used_seconds(pid), len(log["step"])] for pid, log in run.logs().items() if log["step"]}


def record(run, seconds, file):
    """Records the program. (begin of the window by its clock, what threads_of tells of the window)"""
    with tempfile.TemporaryFile() as err:
        command = [STEPFLAME, "record", "-p", run.process.pid, "-d", "%gs" % seconds, "-o", file]
        process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err, preexec_fn=come_first)
        try:
            begin = before = None
            end = time.monotonic() + seconds + RECORD_SECONDS
            while process.poll() is None and time.monotonic() < end:
                err.seek(0)
                if begin is None and b"armed" in err.read():
                    begin, before = time.perf_counter(), threads_of(run)
                time.sleep(0.01)
            err.seek(0)
            said = err.read().decode(errors="replace")
            if process.poll() != 0 or begin is None:
                raise Failed("record: exit %s: %s" % (process.poll(), said[-1500:]))
            after = threads_of(run)
            return begin, {pid: [b - a for a, b in zip(row, after[pid])] for pid, row in before.items() if pid in after}
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def anonymous_bytes(pid):
    """Memory of it and of all that it has started, a page that several share once, by the kernel."""
    total = 0
    for each in descendants(pid):
        try:
            rows = Path("/proc/%d/smaps_rollup" % each).read_text()
        except OSError:
            continue
        total += sum(1024 * int(kb) for kb in re.findall(r"^Pss_Anon:\s+(\d+) kB", rows, re.M))
    return total


def report(file):
    result = subprocess.run([STEPFLAME, "report", file, "--steps", "--json"], capture_output=True, text=True, timeout=120)
    if result.returncode != 0:
        raise Failed("report: exit %d: %s" % (result.returncode, result.stderr[-1500:]))
    return json.loads(result.stdout)


def report_text(file, *words):
    result = subprocess.run([STEPFLAME, "report", file, *words], capture_output=True, text=True, timeout=120)
    if result.returncode != 0:
        raise Failed("report: exit %d: %s" % (result.returncode, result.stderr[-1500:]))
    return result.stdout


def rows_of(file):
    """Calls of each action and label."""
    return {row["name"]: row["count"] for row in json.loads(report_text(file, "--simple", "--json"))["actions"]}


def run_case(case, python, options):
    """Runs, records and judges one case. A row of the table, as a dict."""
    if not python:
        raise Skip("no Python %s for the zoo" % case.python)
    if not has_modules(python, cases.PROGRAMS[case.program].needs):
        raise Skip("no %s in %s" % (" ".join(cases.PROGRAMS[case.program].needs), python))
    file = options.out / (case.name + ".rec")
    with tempfile.TemporaryDirectory(prefix="zoo-") as folder:
        run = Run(case, python, options.sources, Path(folder))
        try:
            run.until_trains()
            for pid in descendants(run.process.pid):  # torchrun's ranks have sessions of their own
                put_first(pid)
            run.plant()
            counts, memory = run.counts(), anonymous_bytes(run.process.pid)
            begin, threads = record(run, options.seconds, file)
            seconds = time.perf_counter() - begin
            memory = (anonymous_bytes(run.process.pid) - memory) / seconds
            counts = [last - first for first, last in zip(counts, run.counts())]
            pid, log = run.trainer()
            logs = run.logs()
        finally:
            run.end()
            shutil.copy(Path(folder) / "log", options.out / (case.name + ".log"))
    if pid not in threads:
        raise Failed("process %d, which makes most steps, began after the recording" % pid)
    planted = sorted(event for one in logs.values() for event in one["planted"] if event[0] >= begin)
    if ":" in case.fault and len(planted) < PLANTED_LEAST:
        raise Failed("the fault was planted %d times" % len(planted))
    labels = sorted(begin for begin, _ in log["label"])
    truth = {
        "pid": pid,
        "labels": labels,
        "begin": begin,
        "delayed_share": threads[pid][1] / seconds,
        "threads": threads,
        "steps": [end for _, end in log["step"]],
        "planted": planted,
        "quota": counts,
        "memory": memory,
    }
    (options.out / (case.name + ".truth.json")).write_text(json.dumps(truth))
    return judge_file(case, file)


def judge_file(case, file):
    """The row of a recording whose truth is beside it."""
    found = report(file)
    file.with_suffix(".json").write_text(json.dumps(found, indent=1))
    known = json.loads(file.with_suffix(".truth.json").read_text())
    truth = judge.Truth(**{field.name: known.get("planted" if field.name == "timed" else field.name) for field in dataclasses.fields(judge.Truth)})
    verdict, why = judge.judge(found, case, truth, judge.Texts(report_text(file, "--steps"), rows_of(file)))
    told = "%s; %s" % (found["verdict"]["class"], judge.group_text(found))
    if case.expect.place:
        told += "; in %s" % found["verdict"]["place"]
    if case.expect.says:
        told += '; "%s"' % found["verdict"]["why"]
    if case.expect.advice:
        told += '; advice: "%s"' % "; ".join(found["verdict"]["next"])
    if found["straggler"]:
        told += "; straggler %s" % found["straggler"]["rank"]
    speed = "-"
    if found["steps"]:
        own, ours, _ = judge.rates(found, truth)
        speed = "%.4g / %.4g" % (own[0], ours[0])
    return {"told": told, "speed": speed, "verdict": verdict, "why": why, "delayed": truth.delayed_share}


def classes_text(classes):
    """Those of COMPUTES in a word."""
    rest = sorted(classes - cases.COMPUTES if classes >= cases.COMPUTES else classes)
    return " or ".join((["computing"] if classes >= cases.COMPUTES else []) + rest)


def expected_text(expect):
    out = [classes_text(expect.classes)]
    if expect.slow:
        out.append(" or ".join(sorted(expect.slow.causes)) + (" (if told)" if expect.slow.optional else ""))
        out.append(" or ".join(sorted(expect.slow.functions or {"any place"})))
        out.append("every %d" % expect.slow.every if expect.slow.every else "any rhythm")
    if expect.straggler is not None:
        out.append("straggler %d" % expect.straggler)
    if expect.says:
        out.append('"%s"' % expect.says)
    if expect.place:
        out.append("in " + " or ".join(sorted(expect.place)))
    if expect.advice:
        out.append('advice: "%s"' % expect.advice)
    return "; ".join(out)


HEAD = ("program", "python", "fault", "expected", "reported", "steps/s: program / stepflame", "judgement")


def line(cells):
    return "| " + " | ".join(re.sub(r"\s+", " ", str(cell).replace("|", "\\|")) for cell in cells) + " |"


def main():
    p = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    p.add_argument("-k", metavar="NAME", default="", help="only cases in whose name this is (program-fault-python)")
    p.add_argument("--list", action="store_true", help="list the cases, run nothing")
    p.add_argument("--judge", action="store_true", help="run nothing: judge the recordings in --out again")
    p.add_argument("--seconds", type=float, default=12, help="length of a recording (default: %(default)s)")
    p.add_argument("--out", type=Path, default=Path(os.environ.get("OUT") or "build/zoo"), help="where the table and the recordings go")
    p.add_argument("--sources", default=os.environ.get("ZOO_SOURCES"), help="folder with checkouts named OWNER+NAME")
    p.add_argument("--python", help="run all cases with this one")
    p.add_argument("--pythons", default="", help="lines of a minor version and a path, as tools/setup.sh python --zoo prints them")
    options = p.parse_args()
    end_when_told()
    chosen = [case for case in cases.CASES if options.k in case.name]
    if options.list:
        for case in chosen:
            print("%-40s %s; expected: %s" % (case.name, cases.PROGRAMS[case.program].about, expected_text(case.expect)))
        return 0
    pythons = dict(row.split(None, 1) for row in options.pythons.splitlines()) or {"%d.%d" % sys.version_info[:2]: sys.executable}
    options.out.mkdir(parents=True, exist_ok=True)
    counts = dict.fromkeys((judge.RIGHT, judge.WRONG, judge.ABSTAINED, "failed", "skipped"), 0)
    with open(options.out / "zoo.md", "w") as table:

        def put(text):
            print(text, flush=True)
            table.write(text + "\n")
            table.flush()

        put(line(HEAD))
        put(line(["---"] * len(HEAD)))
        for case in chosen:
            row = {"told": "", "speed": "-"}
            try:
                if options.judge:
                    file = options.out / (case.name + ".rec")
                    if not file.exists():
                        raise Skip("no recording")
                    row = judge_file(case, file)
                else:
                    row = run_case(case, options.python or pythons.get(case.python), options)
            except Skip as why:
                row.update(verdict="skipped", why=why)
            except Failed as why:
                row.update(verdict="failed", why=why)
            counts[row["verdict"]] += 1
            said = "%s: %s" % (row["verdict"], row["why"]) if row["why"] else row["verdict"]
            if row.get("delayed", 0) >= judge.STARVED_SHARE:
                said += " (%.0f %% of the time without a CPU)" % (100 * row["delayed"])
            put(line((case.program, case.python, case.fault or "-", expected_text(case.expect), row["told"], row["speed"], said)))
        tail = "".join(", %d %s" % (counts[word], word) for word in ("failed", "skipped") if counts[word])
        put("\n%d right, %d wrong, %d abstained%s" % (counts[judge.RIGHT], counts[judge.WRONG], counts[judge.ABSTAINED], tail))
    print("recordings: %s" % options.out)
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
