#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Plants the small faults of tools/faults.txt, one at a time, in a copy of the tree, to see which of them the tests notice.

list: their names. check: each can be planted and compiles; those in bpf/ also load (needs root). run: a table of what noticed which, in stages:

    tools/faults.py run --resume results.jsonl --stage unit --stage 'replay=python -m pytest -x tests/replay'

The first stage that fails has noticed a fault; the rest are not run. A stage is a shell command, run in the copy after `make all`; the stage
`unit` builds and runs those C tests that have the faulty file in them. Each stage must pass without a fault. With --resume, what the file has is not
run again, so that a run can be stopped, and more stages added. The tree itself is never changed.
"""

import argparse
import contextlib
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "tools" / "faults.txt"
MAKE = "make --no-print-directory -j2"
BUILD_SECONDS = 3600
NAMES_SHOWN = 5
TIME_OUT = "time-out"
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)|^\[  FAILED  \] ([A-Za-z_]\w*)$|^== (\S+): (?:status|time-out)", re.M)
# All programs of the kernel's side.
LOAD = (
    "build/stepflame record -d 1s -o build/faults.rec --ops --shapes --stacks --modules --memory --timeline --exact=force --syscalls "
    "--gpu uprobe -- sleep 2"
)


class Fault(NamedTuple):
    name: str
    file: str
    what: str
    old: str
    new: str

    def faulty(self):
        """Text of the file with the fault in it."""
        text = "\n" + (ROOT / self.file).read_text()
        if text.count("\n" + self.old) != 1:
            sys.exit("%s: its lines are not once in %s" % (self.name, self.file))
        return text.replace("\n" + self.old, "\n" + self.new)[1:]


def read_faults():
    faults = []
    for block in re.split(r"\n\s*\n", LIST.read_text()):
        lines = [line for line in block.splitlines() if not line.startswith("#")]
        if not lines:
            continue
        if len(lines) < 4 or not lines[2].startswith("\tseen: ") or any(line[:1] not in "-+ " for line in lines[3:]):
            sys.exit("%s: '%s' is not as the head of the file says" % (LIST, lines[0]))
        old, new = ("".join(line[1:] + "\n" for line in lines[3:] if line[0] in kept) for kept in (" -", " +"))
        faults.append(Fault(*lines[0].split(), lines[1].strip(), old, new))
    return faults


class Tree:
    """The copy. A file is written only where it differs, so that make builds only what has changed."""

    def __init__(self, folder):
        self.folder = folder.resolve()
        if self.folder == ROOT or self.folder in ROOT.parents:
            sys.exit("--tree %s: a copy, not the tree itself" % folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.lock = os.open(self.folder / ".faults-lock", os.O_CREAT | os.O_RDWR)
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            sys.exit("%s: another run is at work there" % folder)
        listed = subprocess.check_output(["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"], text=True)
        names = {name for name in listed.split("\0") if name and (ROOT / name).is_file()}
        for name in names:
            self.write(name)
        for path in self.folder.rglob("*"):
            inside = path.relative_to(self.folder)
            made = inside.parts[0].startswith((".", "build")) or "__pycache__" in inside.parts
            if not made and path.is_file() and str(inside) not in names:  # it was removed or renamed
                path.unlink()

    def write(self, name, text=None):
        """None: as the tree has it."""
        path, data = self.folder / name, (ROOT / name).read_bytes() if text is None else text.encode()
        if not path.is_file() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            path.chmod((ROOT / name).stat().st_mode)

    @contextlib.contextmanager
    def planted(self, fault):
        try:
            self.write(fault.file, fault.faulty())
            yield
        finally:
            self.write(fault.file)

    def run(self, command, seconds=BUILD_SECONDS):
        """Status (TIME_OUT: it took longer) and output. What it leaves running is killed."""
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            process = subprocess.Popen(
                command, cwd=self.folder, shell=True, start_new_session=True, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
            try:
                status = process.wait(seconds)
            except subprocess.TimeoutExpired:
                status = TIME_OUT
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            output.seek(0)
            return status, output.read()

    def make(self, *targets):
        status, output = self.run(" ".join([MAKE, *targets]))
        if status:
            sys.exit("%s\nmake %s failed" % (output, " ".join(targets)))

    def unit(self, file, seconds):
        """Builds and runs the C tests that had this file in them when they were built last; None: all."""
        sources = sorted([*self.folder.glob("tests/unit/test_*.c"), *self.folder.glob("tests/bpf/test_*.c")])
        programs = [self.folder / "build" / path.relative_to(self.folder).with_suffix("") for path in sources]
        programs = [str(program.relative_to(self.folder)) for program in programs if not file or has(program, file)]
        worst, said = 0, ""
        self.make(*programs or ["all"])
        for program in programs:
            status, output = self.run(program, seconds)
            said += output + ("== %s: %s\n" % (program, status if status == TIME_OUT else "status %s" % status) if status else "")
            worst = worst or status
        return worst, said


def has(program, file):
    if not program.is_file():
        return False
    if file.startswith("user/"):
        return b"%s\0" % file.encode() in program.read_bytes()  # names of sources, for debuggers
    needs = program.with_suffix(".d")
    return needs.is_file() and file in re.split(r"[\s:]+", needs.read_text())


def check(tree, faults):
    bad = 0
    tree.make("all")
    for fault in faults:
        is_bpf = fault.file.startswith("bpf/")
        with tree.planted(fault):
            status, output = tree.run(MAKE + (" all" if is_bpf or not fault.file.endswith(".c") else " build/%s.o" % fault.file[:-2]))
            if not status and is_bpf:
                status, output = tree.run(LOAD)
        print("%-26s %s" % (fault.name, "FAILED\n" + output if status else "ok"), flush=True)
        bad += status != 0
    sys.exit(bad != 0)


def run_stage(tree, stage, command, fault, seconds):
    start = time.monotonic()
    if stage == "unit" and not command:
        status, output = tree.unit(fault and fault.file, seconds)
    else:
        tree.make("all")
        status, output = tree.run(command, seconds)
    names = list(dict.fromkeys("".join(found) for found in FAILED.findall(output)))[:NAMES_SHOWN] if status else []
    took = round(time.monotonic() - start, 1)
    return {"fault": fault.name if fault else "", "stage": stage, "status": status, "tests": names, "seconds": took, "output": output[-3000:]}


def noticed_by(result):
    return " ".join(result["tests"]) or "status %s" % result["status"]


def run(tree, faults, stages, seconds, resume):
    """Returns the results, by fault (empty: none planted) and stage."""
    done = {}
    for line in resume.read_text().splitlines() if resume and resume.exists() else []:
        result = json.loads(line)
        done[result["fault"], result["stage"]] = result
    for fault in [None, *faults]:
        name = fault.name if fault else ""
        with tree.planted(fault) if fault else contextlib.nullcontext():
            for stage, command in stages:
                if (name, stage) not in done:
                    result = done[name, stage] = run_stage(tree, stage, command, fault, seconds)
                    if not fault and result["status"]:
                        sys.exit("%s\nstage %s does not pass without a fault: %s" % (result["output"], stage, noticed_by(result)))
                    if resume:
                        with resume.open("a") as file:
                            file.write(json.dumps(result) + "\n")
                    print("%-26s %-8s %s" % (name or "(none)", stage, noticed_by(result) if result["status"] else "passes"), flush=True)
                if done[name, stage]["status"]:
                    break
    return done


def tell(faults, stages, done):
    noticed = 0
    print("\n| fault | file | noticed by | tests | seconds |\n|---|---|---|---|---|")
    for fault in faults:
        results = [done[fault.name, stage] for stage, _ in stages if (fault.name, stage) in done]
        by = next((result for result in results if result["status"]), None)
        noticed += by is not None
        seconds = sum(result["seconds"] for result in results)
        print("| %s | %s | %s | %s | %.0f |" % (fault.name, fault.file, by["stage"] if by else "-", noticed_by(by) if by else "", seconds))
    print("\nnoticed: %d of %d" % (noticed, len(faults)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["list", "check", "run"])
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[])
    parser.add_argument("--tree", type=Path, default=ROOT / "build" / "faults", help="the folder of the copy")
    parser.add_argument("--stage", action="append", default=[], metavar="NAME=COMMAND|unit")
    parser.add_argument("--timeout", type=float, default=1800, metavar="SECONDS", help="of a stage; of each program of `unit`")
    parser.add_argument("--resume", type=Path, metavar="FILE", help="results, a JSON object a line, which are not run again")
    args = parser.parse_args()
    faults = read_faults()
    unknown = set(args.only) - {fault.name for fault in faults}
    if unknown or (args.what == "run") != bool(args.stage):
        parser.error("no such fault: %s" % " ".join(unknown) if unknown else "run, and only run, has stages")
    faults = [fault for fault in faults if not args.only or fault.name in args.only]
    for fault in faults:
        fault.faulty()
    if args.what == "list":
        print("\n".join("%-26s %-36s %s" % (fault.name, fault.file, fault.what) for fault in faults))
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # through all that restores the file
    tree = Tree(args.tree)
    if args.what == "check":
        check(tree, faults)
    stages = [tuple(stage.partition("=")[::2]) for stage in args.stage]
    tell(faults, stages, run(tree, faults, stages, args.timeout, args.resume))


if __name__ == "__main__":
    main()
