#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Prints how the code in user/ is cut: files and lines of each folder, how long functions are, which public functions and which headers stand between
two files only. In: the sources, and what `make` built of them in build/ (or in the folder named). -v: also names these functions and headers.

    tools/sizes.py [-v] [BUILD]
"""

import collections
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LONG = 60  # lines of a function, above which -v names it
COMMENTS = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
BODY = re.compile(r"\)\n\{\n(.*?)^\}", re.M | re.S)  # as clang-format leaves it


def sources(folder, ends=(".c", ".h")):
    return sorted(path for path in (ROOT / folder).rglob("*") if path.suffix in ends)


def code_lines(path):
    return sum(1 for line in COMMENTS.sub("", path.read_text()).splitlines() if line.strip())


def folders():
    found = collections.defaultdict(lambda: [0, 0])
    for path in sources("user"):
        found[str(path.parent.relative_to(ROOT))][0] += 1
        found[str(path.parent.relative_to(ROOT))][1] += path.read_text().count("\n")
    return found


def includers():
    """{header of user/: the files that include it, but for its own .c and for tests}"""
    found = {str(path.relative_to(ROOT)): set() for path in sources("user", (".h",))}
    for path in sources("user") + sources("bpf") + sources("include"):
        name = str(path.relative_to(ROOT))
        for header in re.findall(r'#\s*include "([^"]+)"', path.read_text()):
            if header in found and header[:-1] + "c" != name:
                found[header].add(name)
    return found


def callers(build):
    """{public function: (its file, the other files of user/ that refer to it)}"""
    defined, used = {}, collections.defaultdict(set)
    for path in sources("user", (".c",)):
        name = str(path.relative_to(ROOT))
        object_file = build / (name[:-1] + "o")
        if not object_file.exists():
            continue  # user/inject: no part of the program
        for line in subprocess.run(["nm", object_file], capture_output=True, text=True, check=True).stdout.splitlines():
            kind, symbol = line.split()[-2:]
            if kind == "T":
                defined[symbol] = name
            elif kind == "U":
                used[symbol].add(name)
    return {symbol: (name, sorted(used[symbol])) for symbol, name in defined.items()}


def function_lengths():
    """[(lines between its braces, its file and its head's last line)], shortest first"""
    found = []
    for path in sources("user", (".c",)):
        text = path.read_text()
        for body in BODY.finditer(text):
            head = text[text.rfind("\n", 0, body.start()) + 1 : body.start() + 1]
            found.append((body[1].count("\n"), "%s: %s" % (path.relative_to(ROOT), head.strip())))
    return sorted(found)


def main():
    words = [word for word in sys.argv[1:] if word != "-v"]
    verbose, build = "-v" in sys.argv[1:], Path(words[0] if words else ROOT / "build")
    by_folder, headers, functions, lengths = folders(), includers(), callers(build), function_lengths()
    files, code = sum(cnt for cnt, _ in by_folder.values()), sum(map(code_lines, sources("user")))
    one = sorted((name, symbol, users[0]) for symbol, (name, users) in functions.items() if len(users) == 1)
    few = sorted((name, sorted(users)) for name, users in headers.items() if len(users) <= 2)
    lone = [name for name, users in few if len(users) < 2]
    print("%-28s %5s %7s" % ("folder", "files", "lines"))
    for folder, (cnt, lines) in sorted(by_folder.items()):
        print("%-28s %5d %7d" % (folder, cnt, lines))
    lines = sum(cnt for _, cnt in by_folder.values())
    print("files of user/: %d, lines: %d, of them code: %d, files per 1,000 of these: %.2f" % (files, lines, code, 1000 * files / code))
    print("lines of tests: %d" % sum(path.read_text().count("\n") for path in sources("tests", (".c", ".h", ".py"))))
    at = [lengths[len(lengths) // 2][0], lengths[len(lengths) * 99 // 100][0], lengths[-1][0]]
    print("functions: %d, median %d lines, 99 %% have at most %d, the longest %d" % (len(lengths), *at))
    print("public functions: %d, of them with one calling file: %d" % (len(functions), len(one)))
    print("headers: %d, of them with at most two includers: %d, with at most one: %d" % (len(headers), len(few), len(lone)))
    if verbose:
        print(*("%d lines: %s" % row for row in reversed(lengths) if row[0] > LONG), sep="\n")
        print(*("%s %s <- %s" % row for row in one), sep="\n")
        print(*("%s <- %s" % (name, ", ".join(users)) for name, users in few), sep="\n")


if __name__ == "__main__":
    main()
