#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
tools/clocks.py: finds, in what the gate runs (tests/replay, and the tests that tests/gate.txt lists), each use of a clock and each sleep: no verdict
of the gate may depend on how fast the machine is. A test waits for what a process says or does (tests/e2e/helpers.py), and compares counts, order,
CPU time, or what two clocks say of the same thing.

Looked at: the tests, the fixtures that they ask for, and what these call in the same file. `# clock: WHY` behind a line allows it.
"""

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GATE = ROOT / "tests/gate.txt"


def functions_of(tree):
    return {node.name: node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef))}


def reached(functions, names):
    """Names of the functions and classes of the file that the named ones use, directly or by another one; a fixture is used by an argument of its name."""
    found, left = set(), list(names)
    while left:
        name = left.pop()
        if name in found or name not in functions:
            continue
        found.add(name)
        for node in ast.walk(functions[name]):
            left += [node.id] if isinstance(node, ast.Name) else [node.arg] if isinstance(node, ast.arg) else [node.attr] if isinstance(node, ast.Attribute) else []
    return found


def clocks_in(path, names):
    """[(line, text)]; names: of its tests; None: the whole file."""
    text = path.read_text()
    lines, tree = text.split("\n"), ast.parse(text)
    functions = functions_of(tree)
    looked_at = [tree] if names is None else [functions[name] for name in reached(functions, names)]
    found = {(1, "no test " + name) for name in (names or ()) if name not in functions}
    for node in (node for root in looked_at for node in ast.walk(root)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "time" and "# clock: " not in lines[node.lineno - 1]:
            found.add((node.lineno, lines[node.lineno - 1].strip()))
    return sorted(found)


def main():
    tests = {}
    for line in GATE.read_text().split():
        if "::" in line:
            file, *names = line.partition("[")[0].split("::")
            tests.setdefault(ROOT / ("tests/e2e/test_" + file), set()).add(names[-1])
    tests.update({path: None for path in (ROOT / "tests/replay").glob("*.py")})
    status = 0
    for path, names in sorted(tests.items()):
        if not path.exists():
            print("%s: %s is not there" % (GATE.relative_to(ROOT), path.relative_to(ROOT)))
            status = 1
            continue
        for number, line in clocks_in(path, names):
            print("%s:%d: in the gate: %s" % (path.relative_to(ROOT), number, line))
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
