# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
What each command prints of each recording of a real job is what it printed before: tests/data/recordings/expected has it, large outputs as an
outline (outline.py). A change that is meant is written there by

    make recordings ARGS=--accept
"""

import contextlib
import difflib
import gzip
import json
import re

import helpers
import pytest

from . import outline, recordings

ACCEPT = "make recordings ARGS=--accept"
SHOWN_LINES = 80  # of a difference
SORTED_LINES = 9  # of a table that is printed for its order
OPS = recordings.having("--ops", "--shapes")
IO = recordings.having("--syscalls")
GPU = recordings.having("--gpu")
SAMPLED = [name for name in recordings.NAMES if name not in ("exact",)]
ACTION = {"fit": "run_training_batch", "gan": "[LightningModule]Gan.train_dataloader", "jax": "train_step", "io": "gc generation 0"}
SORTS = ["name", "calls", "mean", "total", "min", "max", "first", "self", "percent"]
SORTS_PSTATS = ["tottime", "cumulative", "ncalls", "pcalls", "name", "file", "line", "nfl", "stdname"]
SORTS_OPS = ["cpu_time_total", "self_cpu_time_total", "cpu_time", "count", "cpu_memory_usage", "self_cpu_memory_usage", "flops", "name"]
SORTS_OPS += ["cuda_time_total", "self_cuda_time_total", "cuda_time", "device_memory_usage", "self_device_memory_usage"]


def reports(options, sorts=(), rows="report", sorted_options=("--limit", "2")):
    """Commands of one kind of report: with each of these options, and sorted by each key."""
    return [["report", "FILE", *words.split()] for words in options] + [["report", "FILE", rows, "--sort", key, *sorted_options] for key in sorts]


# family: (the recordings, their commands). FILE: the recording; OUT: a file or folder whose content counts; ACTION, WORKER: what it has.
FAMILIES = {
    "summary": (recordings.NAMES, reports(["", "--summary", "--json --summary"])),
    "actions": (
        recordings.NAMES,
        [
            *reports(["--simple --limit 8", "--limit 8", "--simple --all --leaf --limit 6", "--per-rank --limit 4", "--json --all --simple", "--csv"]),
            *[["report", "FILE", "--simple", "--all", "--sort", key, "--limit", "2"] for key in SORTS],
            ["report", "FILE", "--simple", "--action", "ACTION"],
            ["report", "FILE", "--action", "no such action"],
        ],
    ),
    "advanced": (
        recordings.NAMES,
        [
            *reports(["--advanced --limit 4", "--advanced --all --limit 2 --leaf", "--advanced --cpu --native --limit 2", "--advanced --per-rank --limit 1"]),
            *reports(["--advanced --json --all", "--advanced --json --leaf --native --cpu", "--advanced --csv"]),
            ["report", "FILE", "--advanced", "--action", "ACTION", "--limit", "3"],
            *[["report", "FILE", "--advanced", "--action", "ACTION", "--sort", key, "--limit", "2"] for key in SORTS_PSTATS],
        ],
    ),
    "steps": (
        recordings.NAMES,
        reports(["--steps", "--steps --sort index --limit 3", "--steps --sort duration --limit 1 --per-rank", "--steps --json", "--steps --csv"]),
    ),
    "ops": (
        OPS,
        [
            *reports(["--ops --limit 6", "--ops --shapes --limit 4", "--ops --stacks --modules --limit 4", "--ops --by-action --limit 3"]),
            *reports(["--ops --overloads --flops --limit 4", "--ops --per-rank --limit 2", "--ops --action forward --limit 3"]),
            *reports(["--ops --json", "--ops --json --shapes --stacks --modules --flops --overloads", "--ops --json --by-action", "--ops --csv"]),
            *[["report", "FILE", "--ops", "--sort", key, "--limit", "2"] for key in SORTS_OPS],
        ],
    ),
    "io": (
        IO,
        [
            *reports(["--io --limit 8", "--io --per-rank --limit 2", "--io --json", "--io --csv"]),
            *[["report", "FILE", "--io", "--sort", key, "--limit", "3"] for key in ("time", "calls", "errors", "bytes", "disk", "name")],
        ],
    ),
    "workers": (
        ["late_worker"],
        [
            *reports(["--io --limit 1", "--io --json"]),
            *[["export", "FILE", "-f", form, "-p", "WORKER"] for form in ("folded", "pprof", "speedscope", "chrome")],
            ["flame", "FILE", "--folded", "-p", "WORKER"],
        ],
    ),
    "gpu": (
        GPU,
        [
            *reports(["--gpu", "--gpu --per-rank --limit 2", "--gpu --by-op --limit 4", "--gpu --by-action --limit 4", "--gpu --overloads --limit 2"]),
            *reports(["--gpu --json", "--gpu --json --by-op", "--gpu --json --by-action", "--gpu --csv", "--gpu --csv --by-op"]),
            *[["report", "FILE", "--gpu", "--sort", key, "--limit", "2"] for key in ("total", "count", "avg", "max", "bytes", "name")],
        ],
    ),
    "without": (["plain"], reports(["--ops", "--io", "--gpu", "--ops --json", "--gpu --json", "--ops --shapes"])),
    "timeline": (recordings.NAMES, [["export", "FILE", "-f", form, "-o", "OUT"] for form in ("chrome", "perfetto", "tensorboard")]),
    "samples": (
        recordings.NAMES,
        [
            *[["export", "FILE", "-f", form] for form in ("folded", "speedscope", "pprof")],
            ["export", "FILE", "-f", "pstats", "-o", "OUT"],
            ["export", "FILE", "-f", "pstats", "-o", "OUT", "--all-threads", "--cpu"],
            ["export", "FILE", "-f", "folded", "--native"],
            ["export", "FILE", "-f", "folded", "--cpu", "--action", "ACTION"],
            ["export", "FILE", "-f", "speedscope", "--native", "--cpu"],
        ],
    ),
    "flame": (
        SAMPLED,
        [
            *[["flame", "FILE", "--folded", *words.split()] for words in ("", "--all-threads", "--native", "--slowest 2", "--step 3")],
            ["flame", "FILE", "-o", "OUT"],
            ["flame", "FILE", "--native", "--slowest", "3", "-o", "OUT"],
        ],
    ),
    "recdump": (recordings.NAMES, [["recdump", "FILE"]]),
}
FAMILIES["diff"] = (
    ["before"],
    [
        *[["diff", "before.rec", "after.rec", *words.split()] for words in ("", "--all", "--limit 2 --all", "--json --all --limit 0", "--csv --all")],
        ["diff", "after.rec", "before.rec", "--threshold", "10"],
        ["diff", "before.rec", "after.rec", "--threshold", "10"],
        ["diff", "before.rec", "after.rec", "--threshold", "90"],
        *[["diff", *pair, *more] for pair in (("sleep.rec", "lock.rec"), ("gpu_cupti.rec", "gpu_uprobe.rec"), ("ops.rec", "conv.rec")) for more in ((), ("--json", "--all"))],
        ["flame", "before.rec", "--diff", "after.rec", "--folded"],
        ["flame", "before.rec", "--diff", "after.rec", "-o", "OUT"],
    ],
)
RANKS = "merged.rec"  # of both ranks
FAMILIES["merge"] = (
    ["rank0"],
    [
        ["merge", "rank0.rec", "rank1.rec", "-o", RANKS],
        ["recdump", RANKS],
        *[["report", RANKS, *words.split()] for words in ("", "--json", "--per-rank --limit 4", "--steps --limit 3", "--steps --per-rank --limit 2", "--steps --json")],
        *[["report", RANKS, *words.split()] for words in ("--advanced --limit 2", "--advanced --per-rank --limit 1", "--simple --csv", "--steps --csv", "--io")],
        ["export", RANKS, "-f", "chrome", "-o", "OUT"],
        ["export", RANKS, "-f", "tensorboard", "-o", "OUT"],
        ["export", RANKS, "-f", "folded"],
        ["flame", RANKS, "-o", "OUT"],
    ],
)
CASES = [(family, name) for family, (names, _) in FAMILIES.items() for name in names]


def outlined(command, data, own):
    """Lines of what it wrote: texts in full, the rest by what it is. own: the name of the test's folder."""
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    data = data.replace(own, b"DIRECTORY")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return ["(%d bytes #%s)" % (len(data), outline.digest(data))]
    if command[0] == "recdump":
        return outline.of_records(text)
    if text.lower().startswith("<!doctype html>"):
        return outline.of_page(text)
    with contextlib.suppress(ValueError):
        return outline.of_json(json.loads(text))
    if {"--csv", "folded", "--folded"} & set(command):
        return outline.of_lines(text)
    if "--sort" in command:
        return outline.of_lines(text, SORTED_LINES)
    return list(map(outline.packed, text.splitlines()))


def printed(name, command, directory):
    """A command with its exit code, what it said, and what it wrote."""
    out = directory / "out"
    places = {"FILE": name + ".rec", "ACTION": ACTION.get(name, "forward"), "OUT": out, RANKS: directory / RANKS}
    places["WORKER"] = str(recordings.truth(name).get("worker"))
    result = recordings.run(*(places.get(word, word) for word in command))
    lines = ["$ stepflame " + " ".join(places[word] if word in ("FILE", "ACTION", "WORKER") else word for word in command)]
    own = str(directory).encode()
    lines += outlined(command, result.stdout, own)
    files = sorted(path for path in ([out] if out.is_file() else out.rglob("*")) if path.is_file())
    for path in files:
        lines += ["== %s" % (path.name if path != out else "OUT"), *outlined(command, path.read_bytes(), own)]
        path.unlink()
    lines += ["stderr: " + line for line in result.stderr.replace(own, b"DIRECTORY").decode().splitlines()]
    return lines + (["exit %d" % result.returncode] if result.returncode else []) + [""]


def shortened(blocks):
    """All lines; the foot of a report, from its window on, once."""
    seen, lines = set(), []
    for block in blocks:
        at = next((i for i, line in enumerate(block) if line.startswith("window:")), len(block))
        foot = tuple(block[at:])
        lines += block[:at]
        lines += ["(foot as above)", ""] if foot in seen else foot
        seen.add(foot or None)
    return lines


@pytest.fixture(scope="module")
def version():
    return helpers.stepflame("--version").stdout.split()[-1]


@pytest.mark.parametrize("family, name", CASES, ids=["%s-%s" % case for case in CASES])
def test_output(family, name, tmp_path, request, version):
    lines = shortened(printed(name, command, tmp_path) for command in FAMILIES[family][1])
    text = re.sub(r"(?<![\d.])%s(?![\d.])" % re.escape(version), "VERSION", "\n".join(lines))
    file = recordings.EXPECTED / name / (family + ".txt")
    if request.config.getoption("--accept"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    expected = file.read_text() if file.exists() else ""
    if text != expected:
        change = list(difflib.unified_diff(expected.splitlines(), text.splitlines(), str(file), "now", n=1, lineterm=""))
        more = ["... %d more lines" % (len(change) - SHOWN_LINES)] * (len(change) > SHOWN_LINES)
        pytest.fail("\n".join([*change[:SHOWN_LINES], *more, "where this is meant: " + ACCEPT]), pytrace=False)


def test_nothing_is_left_over():
    """Of each kept text there is a test."""
    found = {(path.stem, path.parent.name) for path in recordings.EXPECTED.rglob("*.txt")}
    assert found == set(CASES)
