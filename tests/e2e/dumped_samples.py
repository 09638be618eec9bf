# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The samples of a recording, as build/tools/recdump prints them; and whether what they name is there, by the sources."""

import ast
import bisect
import collections
import functools
import os
import re
import subprocess

import helpers
import pythons
import source_functions

RECDUMP = os.path.join(os.path.dirname(helpers.STEPFLAME), "tools", "recdump")
CPU, WAIT = 1, 2
Code = collections.namedtuple("Code", "file name first_line lines")
Frame = collections.namedtuple("Frame", "file name line first_line")
Sample = collections.namedtuple("Sample", "pid tid kind cause seconds waits stack cut time_ns kernel")


def causes():
    """The names of enum wait_cause in include/records.h, by number."""
    text = (helpers.ROOT / "include" / "records.h").read_text()
    listed = re.search(r"#define STEPFLAME_WAIT_CAUSES.*?\n\n", text, re.S).group(0)
    return re.findall(r'X\(\w+, "(\w*)"\)', listed)


def line_at(code, offset):
    at = bisect.bisect_right([start for start, _ in code.lines], offset)
    return code.lines[at - 1][1] if at else 0


def fields(line):
    return dict(word.partition("=")[::2] for word in line.split(" ")[1:])


class Samples(list):
    """All samples; their stacks are tuples of Frame, the innermost first."""

    def __init__(self, file):
        names, codes, stacks, raw = {}, {}, {"0" * 16: ((), False)}, []
        dump = subprocess.run([RECDUMP, str(file)], check=True, capture_output=True).stdout.decode()
        for line in dump.splitlines():
            kind = line.split(" ", 1)[0]
            if kind == "NAME":
                head, _, text = line.partition(' text="')
                names[fields(head)["id"]] = text[:-1]
            elif kind in ("CODE", "STACK", "SAMPLE"):
                raw.append((kind, fields(line)))
        for kind, row in raw:
            if kind == "CODE" and not (row["id"] in codes and codes[row["id"]].lines):
                lines = [tuple(map(int, pair.split(":"))) for pair in row["lines"].split(",") if pair]
                codes[row["id"]] = Code(names[row["file"]], names[row["name"]], int(row["first_line"]), lines)
        for kind, row in raw:
            if kind == "STACK" and row["id"] not in stacks:
                frames = [word.split("+") for word in row["frames"].split(",") if word]
                found = [(codes[code.zfill(16)], int(offset)) for code, offset in frames]
                stack = tuple(Frame(code.file, code.name, line_at(code, offset), code.first_line) for code, offset in found)
                stacks[row["id"]] = (stack, row["cut"] != "0")
        self.codes = list(codes.values())
        by_number = causes()
        for kind, row in raw:
            if kind == "SAMPLE":
                stack, cut = stacks.get(row["stack"], ((), True))  # a lost one is told of nowhere
                numbers = (int(row[name]) for name in ("pid", "tid", "kind"))
                cause, seconds = by_number[int(row["cause"])], int(row["weight_ns"]) / 1e9
                self.append(Sample(*numbers, cause, seconds, int(row["waits"]), stack, cut, int(row["time_ns"]), names.get(row["kernel"], "")))

    def of(self, **wanted):
        """Those with these values."""
        return [s for s in self if all(getattr(s, name) == value for name, value in wanted.items())]

    def frames(self):
        return {frame for sample in self for frame in sample.stack}


def seconds_by(samples, key):
    out = collections.Counter()
    for sample in samples:
        out[key(sample)] += sample.seconds
    return out


RENAMED = "/torch/utils/_contextlib.py"  # whose decorate_context gets the name of what it decorates


@functools.lru_cache(None)
def functions(file):
    """As source_functions has them, by this Python or by the newest."""
    try:
        return source_functions.functions(file)
    except SyntaxError:
        command = [[*pythons.SUPPORTED.values()][-1], source_functions.__file__, file]
        return ast.literal_eval(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def check_frames(samples, lost):
    """
    Each frame's function is in its file, at its first line, and its line is in the function; lost (a report's) counts the functions without
    lines. Files in <> are not looked for. How many frames there were.
    """
    wrong, looked_at = [], 0
    for frame in samples.frames():
        if frame.file.startswith("<"):
            continue
        looked_at += 1
        last = functions(frame.file).get((frame.name.rsplit(".", 1)[-1], frame.first_line))
        if frame.file.endswith(RENAMED):
            last = max((end for (_, first), end in functions(frame.file).items() if first == frame.first_line), default=None)
        if frame.name == "<module>":  # up to 3.10 it begins with its first statement
            last = functions(frame.file)["<module>", 0]
        if last is None or (frame.line and not frame.first_line <= frame.line <= last):
            wrong.append((frame, last))
    assert not wrong, wrong[:20]
    assert sum(not code.lines for code in samples.codes) == lost.get("lines_lost", 0)
    return looked_at
