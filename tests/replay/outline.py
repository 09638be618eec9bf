# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
What is kept of large outputs: of each key of a JSON text how many values it has, their sum or their first, and a digest of all in their order,
so that a change shows where it is.
"""

import base64
import gzip
import hashlib
import json
import re

DIGITS = 6
SHOWN = 40
WIDTH = 90


def digest(data):
    return hashlib.sha256(data if isinstance(data, bytes) else data.encode()).hexdigest()[:DIGITS]


def collect(value, key, found):
    if isinstance(value, dict):
        for name, item in value.items():
            name = "N" if name.isdigit() else name  # of stack frames
            collect(item, "%s.%s" % (key, name) if key else name, found)
    elif isinstance(value, list):
        found.setdefault(key + "[]", []).append(len(value))
        for item in value:
            collect(item, key + "[]", found)
    else:
        found.setdefault(key, []).append(value)


def line_of(key, values):
    """Numbers with their sum, others with the first; what is short in full."""
    rest = ""
    numbers = [value for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)]
    first = values[0] if len(values) == 1 or not numbers else None
    said = json.dumps(first, ensure_ascii=False) if first is not None else "sum %.12g" % sum(numbers) if numbers else "null"
    if len(values) > 1 or len(said) > SHOWN:
        rest = " #" + digest(json.dumps(values))
    return "%s%s: %s%s" % (key, " *%d" % len(values) if len(values) > 1 else "", said[:SHOWN], rest)


def of_json(value):
    found = {}
    collect(value, "", found)
    return [line_of(key, values) for key, values in found.items()]


def packed(line):
    """A line of a table, with long runs of blanks and dashes as their lengths."""
    return re.sub(r"([ -])\1{5,}", lambda run: "%s{%d}" % (run[1], len(run[0])), line)


def of_lines(text, shown=4):
    """The first lines, and of all their count and a digest."""
    lines = text.splitlines()
    return [*(packed(line)[:WIDTH] for line in lines[:shown]), "(%d lines #%s)" % (len(lines), digest(text))]


def of_page(text):
    """What the page says without scripts, and its data: a head in JSON, and numbers."""
    static = text[text.index("<noscript>") : text.index("</noscript>")]
    data = gzip.decompress(base64.b64decode(re.search(r'id="data">([^<]*)<', text)[1]))
    size, at, shift = 0, 0, 0
    while True:  # LEB128, as user/page/data.js reads it
        size |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            break
    head = json.loads(data[at : at + size])
    rest = data[at + size :]
    return [*static.splitlines()[:24], "(static #%s)" % digest(static), *of_json(head), "(%d bytes of numbers #%s)" % (len(rest), digest(rest))]


def of_records(text):
    """Of recdump's lines: how many of each type, and a digest of them."""
    types = {}
    for line in text.splitlines():
        types.setdefault(line.split(" ", 1)[0], []).append(line)
    return ["%s *%d: %s #%s" % (kind, len(lines), lines[0][len(kind) + 1 :][:60], digest("\n".join(lines))) for kind, lines in types.items()]
