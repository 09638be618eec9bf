#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Checks the documentation: prose is at most 100 columns wide (tables, code and sample output may be wider), links lead to a file and a
heading that exist, and so do the files of this repository that the text names. Status 1: something is wrong.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COLUMNS = 100
DOCUMENTS = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FILE = re.compile(r"`((?:bpf|docs|include|tests|tools|user)/[\w./*\[\]-]+)`")
ITEM = re.compile(r"(?:[-*]|\d+\.) ")


def prose(text):
    """Each line of prose with its number: not of tables and code, which is fenced, or behind a blank line and indented by 4 more than the item."""
    fenced = code = False
    blank, indent = True, 0
    for number, line in enumerate(text.splitlines(), 1):
        own = len(line) - len(line.lstrip(" "))
        item = ITEM.match(line.lstrip())
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif line.strip() and not fenced:
            code = own >= indent + 4 and (code or blank)
            if item and not code:
                indent = own + 2
            elif own == 0 and blank:
                indent = 0
            if not code and not line.lstrip().startswith("|"):
                yield number, line
        blank = not line.strip()


def anchors(path):
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def wrong_links(name, text):
    for link in LINK.findall(text):
        target, _, anchor = link.partition("#")
        path = (ROOT / name).parent / target if target else ROOT / name
        if "://" in link:
            continue
        if not path.exists():
            yield f"{name}: links to {link}, which does not exist"
        elif anchor and anchor not in anchors(path):
            yield f"{name}: links to {link}: {path.name} has no such heading"


def wrong_with(name):
    text = (ROOT / name).read_text()
    for number, line in prose(text):
        if len(line) > COLUMNS:
            yield f"{name}:{number}: {len(line)} columns, more than {COLUMNS}"
    for file in FILE.findall(text):
        if not list(ROOT.glob(file.replace(".[ch]", ".c").rstrip("/"))):
            yield f"{name}: names {file}, which does not exist"
    yield from wrong_links(name, text)


found = [line for name in DOCUMENTS for line in wrong_with(name)]
print("\n".join(found), end="\n" if found else "", file=sys.stderr)
sys.exit(1 if found else 0)
