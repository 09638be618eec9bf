#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Checks how files include each other: by their path from the root, and only what is in their own folder or in one further up in LAYERS;
and that no more than two (a .c and its .h are one) include each other in a circle. Status 1: some do not.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LAYERS = [
    "include",  # contracts of the kernel's side and ours
    "user/lib",
    "user/elf",
    "user/x86",
    "user/proc",
    "user/runtime",
    "user/identity",
    "user/recording",
    "user/session",
    "user/model",
    "user/analysis/live",
    "user/analysis/steps",
    "user/analysis/place",
    "user/analysis/gpu",
    "user/analysis/flame",
    "user/analysis/resources",
    "user/analysis/cause",
    "user/analysis/loader",
    "user/analysis/compare",
    "user/analysis/timeline",
    "user/analysis/verdict",
    "user/report/print",
    "user/report",
    "user/export",
    "user/page",
    "user/top",
    "user/watch",
    "user/cmd",
]
ALONE = {"bpf": ["include", "bpf"], "user/inject": ["include", "user/inject"]}  # built by themselves
GENERATED = {"stepflame.skel.h", "syscall_names.h", "finders.h"}
INCLUDE = re.compile(r'^#\s*include "([^"]+)"', re.M)


def layer_of(path):
    """The index of the innermost folder of LAYERS that has it: what reports are made of (user/report/print) is below the reports."""
    within = [i for i, layer in enumerate(LAYERS) if path.startswith(layer + "/")]
    return max(within, key=lambda i: len(LAYERS[i]), default=None)


def wrong_with(path, included):
    if included in GENERATED:
        return None
    if not (ROOT / included).is_file():
        return "is not a path from the root"
    for folder, may in ALONE.items():
        if path.startswith(folder + "/"):
            return None if included.startswith(tuple(one + "/" for one in may)) else "%s is built by itself" % folder
    mine, other = layer_of(path), layer_of(included)
    if mine is not None and (other is None or other > mine):
        return "%s is below it" % LAYERS[mine]
    return None


def reached_from(unit, units):
    seen, todo = set(), [unit]
    while todo:
        new = units.get(todo.pop(), set()) - seen
        seen |= new
        todo += new
    return seen


def circles(units):
    """Sets of more than two that all include each other, directly or not."""
    reached = {unit: reached_from(unit, units) for unit in units}
    found = {frozenset(other for other in reached[unit] if unit in reached.get(other, ())) for unit in units}
    return [circle for circle in found if len(circle) > 2]


def main():
    status = 0
    units = {}  # what each file, without its ending, includes
    for folder in ("include", "bpf", "user"):
        for file in sorted((ROOT / folder).rglob("*.[ch]")):
            path = str(file.relative_to(ROOT))
            for included in INCLUDE.findall(file.read_text()):
                if included[:-2] != path[:-2]:
                    units.setdefault(path[:-2], set()).add(included[:-2])
                wrong = wrong_with(path, included)
                if wrong:
                    print('%s: "%s": %s' % (path, included, wrong), file=sys.stderr)
                    status = 1
    for circle in circles(units):
        print("%s include each other in a circle" % ", ".join(sorted(circle)), file=sys.stderr)
        status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
