#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Runs tests, part by part, and says at the end what passed, what failed, and how long each part took.

    tests/run.py gate               `make test`: what a commit has to hold
    tests/run.py all                `make test-all`: everything
    tests/run.py PART... [-- ARGS]  these parts alone; ARGS go to pytest: tests/run.py live -- -k fork

Parts that judge no time run beside the live part, which leaves nearly half of two processors idle: at the lowest priority, so that they get what is left.

What fails runs again at once, alone, up to twice. If it passes then, it is flaky: it does not fail the run, but its name is printed, and the log of
its failure is kept in build/flaky/. With CI set, a skip that tests/e2e/skips.py does not allow fails the run.
"""

import argparse
import concurrent.futures
import contextlib
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

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/e2e"))
import skips  # noqa: E402

BUILD = ROOT / os.environ.get("BUILD", "build")
LOGS = BUILD / "flaky"
AGAIN = 2  # times that what failed runs again
STILL_FAILING_MAX = 10  # tests that fail again, after which the others do not run again
HANGS_SECONDS = 900  # of a C test
BUILD_GB, TEMPORARY_GB = 1.0, 2.0  # of disk; the gate was seen to take 0.1 and 0.5
TWO_AT_A_TIME = ["-n", "2", "--dist", "worksteal"]


def make(*targets):
    return ["make", "--no-print-directory", "-j", str(os.cpu_count()), *targets]


def check_room():
    """Tests on a disk that is full fail in many ways, none of which says so."""
    for folder, needed in ((ROOT, BUILD_GB), (Path(tempfile.gettempdir()), TEMPORARY_GB)):
        free = shutil.disk_usage(folder).free / 1e9
        if free < needed:
            sys.exit("tests/run.py: the disk of %s has %.1f GB free, and the tests want %.1f GB there: free some" % (folder, free, needed))


def set_up(_):
    """Status 3: cannot be had here. The tests that want it say so when they are skipped."""
    for optional, args in ((0, "build"), (1, "browser"), (0, "python --readers"), (0, "cuda --tests"), (1, "python --jax"), (1, "python --debian-torch")):
        status = subprocess.run(["tools/setup.sh", *args.split()], stdout=subprocess.DEVNULL).returncode
        if status and not optional:
            sys.exit(status)
    return {}


def set_up_engines(_):
    """Tests that want them say so when they are skipped."""
    for args in ("--engines", "--free-threaded 3.14", "--free-threaded 3.15"):
        subprocess.run(["tools/setup.sh", "python", *args.split()], stdout=subprocess.DEVNULL)
    return {}


def built(*targets):
    def build(_):
        status = subprocess.run(make(*targets)).returncode
        return sys.exit(status) if status else {}

    return build


class C:
    """The programs of tests/unit and tests/bpf, two at a time. A test's name is "unit/test_text::test_cut"."""

    OUTCOMES = {"OK": "passed", "FAILED": "failed", "SKIPPED": "skipped"}  # as cmocka prints them

    def __init__(self, **env):
        self.env = env

    def run_one(self, program):
        begin = time.monotonic()
        with tempfile.TemporaryFile("w+", errors="replace") as out:  # a pipe would wait for children that a failed test has left
            process = subprocess.Popen([BUILD / "tests" / program], cwd=ROOT, env={**os.environ, **self.env}, stdin=subprocess.DEVNULL, stdout=out, stderr=out, process_group=0)
            try:
                status, hangs = process.wait(HANGS_SECONDS), ""
            except subprocess.TimeoutExpired:
                status, hangs = 1, "hangs: %s\n" % program
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            out.seek(0)
            text = out.read() + hangs
        found = {}
        for word, name in re.findall(r"^\[ +(OK|FAILED|SKIPPED) +\] (?!\d+ test\(s\))(.+)$", text, re.M):
            found["%s::%s" % (program, name)] = (self.OUTCOMES[word], text)
        if status and "failed" not in [outcome for outcome, _ in found.values()]:
            found[program + "::"] = ("failed", "%s\nexit status %d\n" % (text, status))
        print("== %s: %s" % (program, "FAILED\n" + text if status else "%d passed in %.1f s" % (len(found), time.monotonic() - begin)), flush=True)
        return found

    def run(self, names=None):
        programs = sorted("%s/%s" % (path.parent.name, path.stem) for path in ROOT.glob("tests/[ub]*/test_*.c"))
        if names:
            programs = sorted({name.partition("::")[0] for name in names})
        found = {}
        with concurrent.futures.ThreadPoolExecutor(1 if names else 2) as pool:
            for outcomes in pool.map(self.run_one, [p for p in programs if (BUILD / "tests" / p).exists()]):
                found.update(outcomes)
        failed = {name.partition("::")[0] for name, (outcome, _) in found.items() if outcome == "failed"}
        # a program that crashed, as a test without a name
        found.update({name: ("passed", "") for name in names or () if name.partition("::")[0] not in failed and name not in found})
        return found


def has_xdist():
    return not subprocess.run([os.environ["STEPFLAME_PYTHON"], "-c", "import xdist"], capture_output=True).returncode


class Pytest:
    def __init__(self, *choice, alone=False, **env):
        self.choice = list(choice)
        self.workers = [] if alone else TWO_AT_A_TIME
        self.env = env

    def run(self, names=None, args=()):
        python = os.environ["STEPFLAME_PYTHON"]
        command = [python, "-m", "pytest", "-q", "-o", "addopts=-ra -p no:cacheprovider", "-p", "outcomes"]
        if names:
            command += ["--maxfail", str(STILL_FAILING_MAX), *("tests/" + name for name in names)]
        else:
            command += [*(self.workers if has_xdist() else []), *self.choice, *args]
        with tempfile.NamedTemporaryFile("r", prefix="outcomes-") as file:
            env = dict(os.environ, PYTHONPATH=str(ROOT / "tests"), **self.env)
            status = subprocess.run([*command, "--outcomes", file.name], cwd=ROOT, env=env).returncode
            found = {}
            for line in file:
                test = json.loads(line)
                if found.get(test["name"], ("",))[0] != "failed":
                    found[test["name"]] = (test["outcome"], test["reason"])
        if status not in (0, 5) and not any(outcome == "failed" for outcome, _ in found.values()):
            found["pytest"] = ("failed", "exit status %d: see above" % status)  # a usage, a worker that crashed
        return found


class Script:
    """A command that has tests of its own; it has passed, failed, or, with status 77, done nothing, and does not run again."""

    OUTCOMES = {0: "passed", 77: "skipped"}

    def __init__(self, *command):
        self.command = command

    def run(self, names=None):
        if names:
            return {}
        status = subprocess.run(self.command, cwd=ROOT).returncode
        return {" ".join(self.command): (self.OUTCOMES.get(status, "failed"), "exit status %d: see above" % status)}


PARTS = {
    "set-up": set_up,
    "engines": set_up_engines,
    "build": built("all", "tests", "doubles"),
    "doubles": built("doubles"),
    "packages": built("packages"),
    "C": C(STEPFLAME_GATE="1"),
    "C-all": C(),
    "replay": Pytest("tests/replay", "-m", "not long"),
    "replay-all": Pytest("tests/replay"),
    "python": Pytest("tests/python", "tests/fleet", "-m", "not long", "--ignore-glob", "*_live.py", STEPFLAME_GATE="1"),
    "python-all": Pytest("tests/python", "tests/fleet"),
    "live": Pytest("tests/e2e", "-m", "gate and not long", STEPFLAME_GATE="1"),
    "e2e": Pytest("tests/e2e", "-m", "not alone"),
    "alone": Pytest("tests/e2e", "-m", "alone", alone=True),
    "matrix": Script("env", "MADE=1", "tests/e2e/matrix.sh", *TWO_AT_A_TIME),
    "vm": Pytest("tests/vm", "--ignore", "tests/vm/test_jobs.py"),  # training jobs in emulation take an hour: make test-vm
    "lint": Script("make", "--no-print-directory", "lint-all"),
    "fuzz": Script("make", "--no-print-directory", "fuzz", "FUZZ_SECONDS=20"),
}
RUNS = {
    "gate": ["set-up", "build", "C", "replay", "python", "live"],
    "all": ["set-up", "engines", "build", "packages", "C-all", "replay-all", "fuzz", "lint", "e2e", "python-all", "alone", "matrix", "vm"],
}
BESIDE = {"live": ["C", "replay", "python"], "e2e": ["C-all", "replay-all", "fuzz", "lint"]}  # parts that run beside that one, if the same run has both


def keep_log(name, time_of_it, reason):
    LOGS.mkdir(parents=True, exist_ok=True)
    path = LOGS / ("%s.%d.log" % (re.sub(r"[^\w.-]+", "-", name)[-150:], time_of_it))
    path.write_text(reason)
    return path.relative_to(ROOT)


class Beside:
    """Parts that run in a process of their own, at the lowest priority. Their output comes when they are done."""

    def __init__(self, names):
        self.out, self.results = tempfile.TemporaryFile("w+", errors="replace"), tempfile.NamedTemporaryFile("r", prefix="results-")
        self.names = names
        self.process = subprocess.Popen(["nice", "-n", "19", sys.executable, __file__, *names, "--results", self.results.name], stdout=self.out, stderr=self.out, stdin=subprocess.DEVNULL)

    def wait(self):
        self.process.wait()

    def rows(self):
        """What run_part found for each part, as of main's table, and the logs of those that are flaky."""
        self.wait()
        self.out.seek(0)
        print(self.out.read(), flush=True)
        text = self.results.read()
        if not text:  # it was killed, or found no room
            return [(name, {name: ("failed", "exit status %d: see above" % self.process.returncode)}, {}, 0) for name in self.names], {}
        return json.loads(text)


def run_part(part, args, before_again=lambda: None):
    """({name: (outcome, reason)}, {name: log} of those that are flaky)"""
    if not hasattr(part, "run"):
        return part(args), {}
    found = part.run(args=args) if args and isinstance(part, Pytest) else part.run()
    logs = {}
    before_again()
    for again in range(1, AGAIN + 1):
        failed = [name for name, (outcome, _) in found.items() if outcome == "failed"]
        if not failed or "pytest" in failed:
            break
        for name in failed:
            logs[name] = keep_log(name, again, found[name][1])
        print("\n%d failed, and run again, alone: %s\n" % (len(failed), ", ".join(failed)), flush=True)
        rerun = part.run(failed)
        found.update({name: rerun[name] for name in failed if name in rerun})
    return found, {name: log for name, log in logs.items() if found[name][0] != "failed"}


def print_table(table, flaky, failed):
    print("\n%-10s %7s %7s %7s %7s %8s" % ("", "passed", "failed", "skipped", "flaky", "minutes"))
    for name, found, part_flaky, seconds in table:
        outcomes = [outcome for outcome, _ in found.values()]
        counts = [outcomes.count(outcome) for outcome in ("passed", "failed", "skipped")] + [len(part_flaky)]
        print("%-10s %s %8.1f" % (name, " ".join("%7s" % (count if found else "") for count in counts), seconds / 60))
    for name, log in flaky.items():
        print("flaky: %s (%s)" % (name, log))
    for name in failed:
        print("failed: %s" % name)


def main():
    words = sys.argv[1:]
    args = words[words.index("--") + 1 :] if "--" in words else []
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=[*RUNS, *PARTS], metavar="gate|all|PART", help="PART: " + ", ".join(PARTS))
    parser.add_argument("--results", help=argparse.SUPPRESS)
    chosen = parser.parse_args(words[: words.index("--")] if "--" in words else words)
    os.chdir(ROOT)
    os.environ.setdefault("STEPFLAME", str(BUILD / "stepflame"))
    check_room()
    names = [part for choice in chosen.parts for part in RUNS.get(choice, [choice])]
    hosts = BESIDE.keys() & set(names) if chosen.parts[0] in RUNS else set()
    beside = {guest for host in hosts for guest in BESIDE[host]}
    table, flaky = [], {}
    for name in names:
        if name in beside:
            continue
        if isinstance(PARTS[name], Pytest) and "STEPFLAME_PYTHON" not in os.environ:
            os.environ["STEPFLAME_PYTHON"] = subprocess.run(["tools/setup.sh", "python"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
        side = Beside(BESIDE[name]) if name in hosts else None
        begin = time.monotonic()
        found, part_flaky = run_part(PARTS[name], args, side.wait if side else lambda: None)
        row = (name, found, part_flaky, time.monotonic() - begin)
        if side:
            rows, side_flaky = side.rows()
            table += rows
            flaky.update(side_flaky)
        table.append(row)
        flaky.update(part_flaky)
    if chosen.results:
        Path(chosen.results).write_text(json.dumps((table, flaky), default=str))
    every = [(name, *result) for _, found, _, _ in table for name, result in found.items()]
    failed = [name for name, outcome, _ in every if outcome == "failed"]
    unexpected = skips.unexpected(every) if os.environ.get("CI") else []
    print_table(table, flaky, failed)
    for name, reason in unexpected:
        print("skipped, and may not be (tests/e2e/skips.py): %s: %s" % (name, reason))
    counts = [sum(outcome == which for _, outcome, _ in every) for which in ("passed", "failed", "skipped")]
    print("%d passed, %d failed, %d skipped" % tuple(counts))
    return 1 if failed or unexpected else 0


if __name__ == "__main__":
    sys.exit(main())
