# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Times, figures and tables as text. What comes from files is printed as one line, without control characters."""

from __future__ import annotations

import calendar
import math
import re
import textwrap
import time
from collections.abc import Iterable, Sequence
from typing import Any

from ..errors import StepflameError

WIDTH = 100


def line(value: Any) -> str:
    """Text that somebody else wrote."""
    return "".join(c if c.isprintable() else "?" for c in str(value))


def clock(minute: int) -> str:
    return time.strftime("%H:%M", time.gmtime(minute * 60))


def moment(minute: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(minute * 60))


def iso(minute: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(minute * 60))


def minute_of(text: str, option: str) -> int:
    for form in ("%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M", "%Y-%m-%d"):
        try:
            return calendar.timegm(time.strptime(text, form)) // 60
        except ValueError:
            pass
    raise StepflameError("%s %s: it is no time" % (option, text), "say it in UTC, such as 2026-11-02T10:20", 2)


def figure(value: float, digits: int = 3) -> str:
    """Of so many digits, or as many as it has before the point; "%g" has exponents."""
    text = "%.*f" % (max(0, digits - 1 - math.floor(math.log10(abs(value)))), value) if value else "0"
    return text.rstrip("0").rstrip(".") if "." in text else text


def duration(ns: float) -> str:
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if abs(ns) >= size:
            return "%s %s" % (figure(ns / size), unit)
    return "%.0f ns" % ns


def hours_said(hours: float) -> str:
    return "%.1f" % hours if hours >= 10 else figure(hours, 2)


def percent(share: float) -> str:
    return "%.1f %%" % (100 * share) if share < 0.0995 else "%.0f %%" % (100 * share)


def count(n: int, noun: str, several: str | None = None) -> str:
    return "%d %s" % (n, noun if n == 1 else several or noun + "s")


def several(names: Sequence[Any], most: int = 4) -> str:
    texts = [line(name) for name in names]
    if len(texts) > most + 1:
        texts = [*texts[:most], "%d more" % (len(texts) - most)]
    return texts[0] if len(texts) == 1 else "%s and %s" % (", ".join(texts[:-1]), texts[-1])


def ranges(numbers: Iterable[int]) -> str:
    """ "0-7, 12" """
    found: list[list[int]] = []
    for number in sorted(set(numbers)):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return several([str(a) if a == b else "%d-%d" % (a, b) for a, b in found], 8)


def paragraph(head: str, text: str, width: int = 12) -> str:
    """What follows a bullet in `head` stands under its text."""
    width = max(width, len(head))
    return textwrap.fill(text, WIDTH, initial_indent=head.ljust(width), subsequent_indent=" " * width, break_long_words=False, break_on_hyphens=False)


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """The first column and texts are flush left, figures right. Of a long first cell the beginning is cut."""
    cells = [[line("-" if value is None else value) for value in row] for row in rows]
    right = [all(re.match(r"^[-+]?[\d.,]+( ?(%|s|ms|us|ns|x|h))?$|^-$", row[i]) for row in cells) and i > 0 for i in range(len(head))]
    widths = [max([len(head[i]), *(len(row[i]) for row in cells)]) for i in range(len(head))]
    widths[0] = max(min(widths[0], WIDTH - sum(widths[1:]) - 2 * (len(head) - 1)), 12)

    def one(row: Sequence[str]) -> str:
        first = row[0] if len(row[0]) <= widths[0] else row[0][: widths[0] - 3] + "..."
        return "  ".join(text.rjust(widths[i]) if right[i] else text.ljust(widths[i]) for i, text in enumerate([first, *row[1:]])).rstrip()

    return "\n".join([one(list(head)), *map(one, cells)])
