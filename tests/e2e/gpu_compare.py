# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a GPU did by torch.profiler's trace and by `stepflame report --gpu --json`, in one form, and what differs between them."""

import collections
import ctypes
import json
import re
from dataclasses import dataclass, field

DIRECTIONS = {"HtoD": "host to device", "DtoH": "device to host", "DtoD": "device to device", "HtoH": "host to host"}
HASHED = re.compile(r" #[0-9a-f]{8}$")  # a name that had no room in the recording


@dataclass
class Work:
    """kernels: {name: [count, us]}, copies and sets: {direction: [count, bytes, us]} ("": of sets)."""

    kernels: dict = field(default_factory=dict)
    copies: dict = field(default_factory=dict)

    def add(self, of, key, *values):
        row = of.setdefault(key, [0] * len(values))
        row[:] = [old + new for old, new in zip(row, values)]

    @property
    def kernel_count(self):
        return sum(count for count, _ in self.kernels.values())

    @property
    def us(self):
        return sum(us for _, us in self.kernels.values()) + sum(us for _, _, us in self.copies.values())


def demangler():
    """The C++ library's, as torch.profiler's. A name that is none of C++ stays as it is."""
    function = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
    function.restype = ctypes.c_void_p
    free = ctypes.CDLL(None).free
    free.argtypes = [ctypes.c_void_p]

    def demangle(name):
        if not name.startswith("_Z"):
            return name
        status = ctypes.c_int()
        found = function(name.encode(), None, None, ctypes.byref(status))
        text = ctypes.string_at(found).decode() if found else name
        free(found)
        return text

    return demangle


def of_trace(path):
    """Of Kineto's Chrome trace."""
    demangle, work = demangler(), Work()
    with open(path) as f:
        events = json.load(f)["traceEvents"]
    for event in events:
        kind = event.get("cat")
        if kind == "kernel":
            work.add(work.kernels, demangle(event["name"]), 1, event["dur"])
        elif kind == "gpu_memcpy":
            (direction,) = re.findall(r"^Memcpy (\w+)", event["name"])
            work.add(work.copies, DIRECTIONS.get(direction, direction), 1, event["args"].get("bytes", 0), event["dur"])
        elif kind == "gpu_memset":
            work.add(work.copies, "", 1, event["args"].get("bytes", 0), event["dur"])
    return work


def of_report(found):
    """Of report --gpu --json --limit 0."""
    demangle, work = demangler(), Work()
    for row in found["kernels"]:
        work.add(work.kernels, demangle(row["mangled"] or ""), row["count"], row["total_us"] or 0)
    for row in found["copies"]:
        work.add(work.copies, row["direction"], row["count"], row["bytes"], row["total_us"] or 0)
    for row in found["sets"]:
        work.add(work.copies, "", row["count"], row["bytes"], row["total_us"] or 0)
    return work


def different(traced, recorded, traced_steps=1, recorded_steps=1, tolerance=0.02):
    """
    Lines that say what differs: kernels and copies by name and count per step, bytes, and the time of all within `tolerance`.
    A name with a hash stands for one of those that only the trace has, with its count.
    """
    lines, unknown = [], collections.Counter()
    for name, (count, _) in recorded.kernels.items():
        if HASHED.search(name):
            unknown[count * traced_steps] += 1
        elif name not in traced.kernels:
            lines.append("kernel %s: recorded %d times, not in the trace" % (name, count))
    for name, (count, _) in traced.kernels.items():
        there = recorded.kernels.get(name, [0])[0]
        if name not in recorded.kernels and unknown[count * recorded_steps]:
            unknown[count * recorded_steps] -= 1
        elif count * recorded_steps != there * traced_steps:
            lines.append("kernel %s: %d in %d steps, in the trace %d in %d" % (name, there, recorded_steps, count, traced_steps))
    if sum(unknown.values()):
        lines.append("%d kernels with a hash are not in the trace" % sum(unknown.values()))
    for direction in {**traced.copies, **recorded.copies}:
        there, here = (work.copies.get(direction, [0, 0, 0])[:2] for work in (traced, recorded))
        if [n * recorded_steps for n in there] != [n * traced_steps for n in here]:
            lines.append("copies %r: %s in %d steps, in the trace %s in %d" % (direction, here, recorded_steps, there, traced_steps))
    of_trace_us, recorded_us = traced.us / traced_steps, recorded.us / recorded_steps
    if abs(recorded_us - of_trace_us) > tolerance * of_trace_us:
        lines.append("%.1f us on the GPU a step, in the trace %.1f" % (recorded_us, of_trace_us))
    return lines


class Figures:
    """A table of what was measured, for people."""

    def __init__(self):
        self.rows = []

    def add(self, what, value, unit=""):
        self.rows.append((what, "%.4g" % value if isinstance(value, float) else str(value), unit))

    def text(self):
        if not self.rows:
            return ""
        widths = [max(len(row[i]) for row in self.rows) for i in (0, 1)]
        return "\n".join("| %-*s | %*s %s |" % (widths[0], what, widths[1], value, unit) for what, value, unit in self.rows)
