# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the house style promises and a program can check. Needs no root."""

import re

import helpers
import pytest

ROOT = helpers.ROOT
MAX_LINES = 1000
LONGER = {  # and why: no reader would cut it
    "user/analysis/cause/blame.c": "slow steps get a cause, a group, a place and a rhythm, each from those before",
    "user/export/tables.c": "nine tables, for each its columns and its rows",
    "user/report/gpu.c": "the columns of seven tables, of which text and JSON are made",
}
SOURCES = sorted(
    path for folder in ("bpf", "user", "include") for path in (ROOT / folder).rglob("*") if path.suffix in (".c", ".h")
)


def test_there_are_sources():
    assert len(SOURCES) > 20


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_file(path):
    text = path.read_text()
    assert (text.count("\n") > MAX_LINES) == (str(path.relative_to(ROOT)) in LONGER)
    assert text.startswith("/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */\n") or text.startswith(
        "// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause\n"
    )


def counters():
    text = (ROOT / "include" / "counters.h").read_text().partition("#define STEPFLAME_COUNTERS(X)")[2]
    return re.findall(r'X\((\w+),\s*"(\w+)",\s*"([^"]+)"\)', text)


def test_counters_are_documented():
    documentation = "".join(path.read_text() for path in (ROOT / "docs").rglob("*.md"))
    found = counters()
    assert found and len({name for _, name, _ in found}) == len(found)
    assert [name for _, name, _ in found if name not in documentation] == []


@pytest.mark.parametrize("args", [[], ["record"], ["report"], ["ps"], ["doctor"], ["watch"], ["top"]], ids=str)
def test_help(args):
    result = helpers.stepflame(*args, "--help")
    assert result.returncode == 0, result
    assert "stepflame" in result.stdout and result.stderr == ""
    assert max(map(len, result.stdout.splitlines())) <= 100


def test_version():
    makefile = (ROOT / "Makefile").read_text()
    version = re.search(r"^VERSION := (\S+)", makefile, re.M).group(1)
    assert version in helpers.stepflame("--version").stdout
    assert "## [Unreleased]" in (ROOT / "CHANGELOG.md").read_text()
