# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the README and docs/ show: commands, and what they print."""

import re

import helpers

PAGES = (helpers.ROOT / "README.md", *sorted((helpers.ROOT / "docs").glob("*.md")))


def commands():
    """[argument text] of the lines of code that call stepflame, without a comment behind them."""
    found = {}
    for page in PAGES:
        for line in page.read_text().splitlines():
            if match := re.match(r"    (?:# )?(stepflame [a-z]+(?: (?! ).*)?)$", line.split("  #")[0].rstrip()):
                for command in re.split(r" *[;|] *", match[1]):
                    if command.startswith("stepflame ") and "  " not in command:  # not a sample of what top shows
                        found[command.split("  ")[0].partition(" ")[2]] = True
    return list(found)


def samples(*pages):
    """[(page, command, lines that it printed)] of the code that begins with a command behind a #: of commands on a line, the last one printed."""
    found = []
    for page in pages or PAGES:
        inside = False
        for line in page.read_text().splitlines():
            if line.startswith("    # "):
                found.append((page.name, line[6:].split("; ")[-1], []))
                inside = True
            elif line.startswith("    ") or not line:
                if inside:
                    found[-1][2].append(line[4:])
            else:
                inside = False
    return [sample for sample in found if sample[1].startswith("stepflame ")]


def is_row(cells):
    """Of a table: figures and a name. (What a table's head, or a sentence, has is words.)"""
    return len(cells) > 3 and sum(any(c.isdigit() for c in cell) for cell in cells) > 1


def shapes(lines):
    """
    What a reader looks for, the figures apart: a table's head, whole; of other lines that are not indented their label, or else their first two words.
    Rows and what is indented are of one program.
    """
    found = set()
    for line in lines:
        cells = re.split(r"  +|\t", line.strip())
        if not line.strip() or line.strip() == "..." or set(line) <= set("- "):
            continue
        if len(cells) > 3 and not re.search(r"\d", line):
            found.add(" ".join(line.split()))
        elif line[0] != " " and not is_row(cells):
            found.add(" ".join(re.split(r"  |[:,]", re.sub(r"\d[\d.,]*", "N", line))[0].split()[:2]))
    return found
