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
TESTED = "a unit test has it alone"
ONE_INCLUDER = {  # headers that only one other file includes, and why they are headers
    "user/analysis/cause/outside.h": "what is outside of steps: a question by itself",
    "user/analysis/cause/slowdown.h": "since when steps are slower: a question by itself",
    "user/analysis/compare/diff_rows.h": "what a row of a diff is made of knows nothing of recordings",
    "user/analysis/loader/advice.h": "what would help knows nothing of how batches were found",
    "user/analysis/loader/loader_parts.h": "what a loader is made of: workers.c has enough with who was late",
    "user/analysis/steps/in_front.h": "what was before the model: a question by itself",
    "user/analysis/timeline/lanes.h": "the page's lanes, through page.h",
    "user/analysis/timeline/timeline.h": "all formats have it, through export.h",
    "user/analysis/timeline/tracks.h": "all formats have it, through export.h",
    "user/cmd/config.h": TESTED,
    "user/cmd/progress.h": TESTED,
    "user/export/arrow.h": "a format of files, which knows nothing of jobs",
    "user/model/waits.h": "causes that other threads and disks show, after all samples are there",
    "user/page/page.h": "a page, which knows nothing of the command line",
    "user/proc/far_files.h": TESTED,
    "user/proc/proc_usage.h": TESTED,
    "user/proc/remote_load.h": "what is written into a process, which knows nothing of CUDA",
    "user/recording/merge.h": "files into one, which knows nothing of the command line",
    "user/recording/trim.h": TESTED,
    "user/report/diff.h": "a report, which has a command of its own",
    "user/report/print/lines.h": "a kind of layout, like table.h",
    "user/report/schema.h": "of all reports: report.c, which they include, cannot have it",
    "user/runtime/python/pyawaited.h": "what a thread waits for: a question by itself",
    "user/runtime/python/pycheck.h": TESTED,
    "user/runtime/python/pyexact.h": "where every call passes: a question by itself",
    "user/session/launch.h": TESTED,
    "user/session/restore.h": "breakpoints that were left, which knows nothing of the command line",
    "user/session/sources/awaited.h": "places where threads wait, of which samples tell: a question by itself",
    "user/session/sources/gpu_reader.h": TESTED,
    "user/session/sources/ops.h": TESTED,
    "user/session/sources/ticks.h": "ticks, by which rests are measured, and rests",
    "user/session/sources/xla.h": "doctor asks the source what it finds",
    "user/top/screen.h": "the terminal, which knows nothing of jobs",
    "user/watch/events.h": "children that copy recordings",
    "user/watch/watch.h": "the loop, which knows nothing of the command line",
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


def test_headers():
    """A header stands between files: what only one of them wants is in that one, or a reader is told why not."""
    includers = {}
    for path in SOURCES:
        for header in re.findall(r'#\s*include "([^"]+)"', path.read_text()):
            includers.setdefault(header, set()).add(str(path.relative_to(ROOT)))
    headers = {name for name in map(lambda path: str(path.relative_to(ROOT)), SOURCES) if name.endswith(".h")}
    few = {name for name in headers if name.startswith("user/") and len(includers.get(name, set()) - {name[:-1] + "c"}) < 2}
    assert few == set(ONE_INCLUDER)


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
