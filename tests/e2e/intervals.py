# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Intervals of time: (start, end) pairs that may overlap."""


def length(intervals, start=float("-inf"), end=float("inf")):
    """For how long at least one of them lasts between two instants."""
    total, until = 0, start
    for a, b in sorted(intervals):
        a, b = max(a, until), min(b, end)
        if b > a:
            total, until = total + b - a, b
    return total
