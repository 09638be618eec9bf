# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""report --csv and diff --csv, read back by Python's csv module and compared with the JSON, and tables in narrow terminals."""

import csv
import io
import json
import os
import re
import subprocess

import helpers
import pytest
import recfile as rec
import stepped
from terminal import COLOURS, at_terminal

PID, OTHER = stepped.PID, 777
HOSTILE = 'a "quoted", long\nname\x1b[31m, é\u202e'
ESCAPED = 'a "quoted", long\\x0aname\\x1b[31m, é\\u202e'
PATH = "/data/" + "a directory/" * 12 + "shard-0001.tar"
LONG = "[Strategy]SingleDeviceStrategy." + "a_very_long_name_" * 4 + "of_an_action"
MS = 10**6


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    """Of a job that is in every report, and of a second process."""
    job = stepped.in_every_report(OTHER, HOSTILE, PATH, LONG)
    return job.write(tmp_path_factory.mktemp("csv") / 'every, "report".rec')


def printed(*args):
    result = subprocess.run([helpers.STEPFLAME, *map(str, args)], capture_output=True, timeout=60)
    assert result.returncode == helpers.OK, result.stderr
    return result.stdout.decode()


def flat(row, prefix=""):
    out = {}
    for key, value in row.items():
        if isinstance(value, dict):
            out.update(flat(value, f"{prefix}{key}."))
        else:
            out[prefix + key] = value
    return out


def field(value):
    """As a value of the JSON is in a field."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value.replace(HOSTILE, ESCAPED)
    return value


def check(text, rows, sparse=False):
    """The CSV has these rows. sparse: it also has columns of which some rows, or all, know nothing."""
    assert text.endswith("\r\n") and text.count("\n") == text.count("\r\n") == len(rows) + 1
    heads, *found = csv.reader(io.StringIO(text, newline=""), strict=True)
    assert len(set(heads)) == len(heads) and len(found) == len(rows) > 0
    for line, row in zip(found, map(flat, rows)):
        assert len(line) == len(heads)
        line = dict(zip(heads, line))
        if sparse:
            line = {key: value for key, value in line.items() if value}
            row = {key: value for key, value in row.items() if value is not None}
        assert list(line) == list(row) if not sparse else set(line) == set(row)
        for key, value in row.items():
            same = line[key] == field(value) if value is None or isinstance(value, str) else json.loads(line[key]) == value
            assert same, (key, line[key], value)


def test_formulas(tmp_path):
    """A spreadsheet takes what begins like a formula as one: no text does."""
    names = ["=1+1", "+1", "-1+cmd|' /C calc'!A0", "@SUM(A1)", "a-b=c", "(=1)"]
    records = [rec.target(PID), rec.window(10**9, 2 * 10**9)]
    for i, name in enumerate(names, 1):
        records += [rec.name(i, name), rec.agg(PID, rec.LABEL, i, 1, i * MS, first_ns=10**9 + i)]
    path = tmp_path / "formulas.rec"
    path.write_bytes(rec.recording(records))
    assert [row["name"] for row in helpers.report(path, "--all", "--sort", "first")["actions"]] == names
    _, *rows = csv.reader(io.StringIO(printed("report", path, "--simple", "--csv", "--sort", "first"), newline=""))
    assert [row[0] for row in rows] == ["'" + name if name[0] in "=+-@" else name for name in names]


def of_processes(found, key):
    head = ("pid", "role", "rank")
    return [{**{k: p[k] for k in head}, **row} for p in found["processes"] for row in p[key]]


def functions(found):
    return [{"action": a["name"], **f} for a in found["actions"] for f in a["functions"]]


ROWS = {"--simple": "actions", "--ops": "ops", "--gpu": "kernels", "--steps": "steps"}


@pytest.mark.parametrize("report", ROWS)
@pytest.mark.parametrize("options", [(), ("--limit", 1)], ids=str)
def test_rows(recording, report, options):
    options = (report, *options, *(("--all",) if report == "--simple" else ("--shapes",) if report == "--ops" else ()))
    found = helpers.report(recording, *options)
    check(printed("report", recording, "--csv", *options), found[ROWS[report]], report == "--steps")
    options += ("--per-rank",)
    found = helpers.report(recording, *options)
    check(printed("report", recording, "--csv", *options), of_processes(found, ROWS[report]), report == "--steps")


def test_advanced(recording):
    found = helpers.report(recording, "--advanced")
    check(printed("report", recording, "--advanced", "--csv"), functions(found))
    found = helpers.report(recording, "--advanced", "--per-rank")
    rows = [{"pid": p["pid"], "role": p["role"], "rank": p["rank"], **row} for p in found["processes"] for row in functions(p)]
    check(printed("report", recording, "--advanced", "--csv", "--per-rank"), rows)


def test_io(recording):
    found = helpers.report(recording, "--io")
    assert [p["pid"] for p in found["processes"]] == [PID, OTHER]
    check(printed("report", recording, "--io", "--csv"), of_processes(found, "syscalls"))


def test_heads_of_steps_are_the_same_in_all_recordings(recording, tmp_path):
    """Also in one without steps, GPUs and samples."""
    empty = tmp_path / "empty.rec"
    empty.write_bytes(rec.recording([rec.host(), rec.window(1, 2), rec.target(1)]))
    for options in ((), ("--per-rank",)):
        of_empty = printed("report", empty, "--steps", "--csv", *options)
        assert of_empty == printed("report", recording, "--steps", "--csv", *options).splitlines(True)[0]


HEADS = {"--io": "name,number,count", "--gpu": "name,mangled,count", "--ops": "name,overload,kind", "--advanced": "action,file,line", "--simple": "name,count,total_s"}
REASONS = {"--io": "has no system calls", "--gpu": "has no figures of GPUs", "--ops": "has no operators", "--advanced": "has no samples", "--simple": "No action was seen"}


@pytest.mark.parametrize("report", HEADS)
@pytest.mark.parametrize("options", [(), ("--per-rank",)], ids=str)
def test_heads_where_nothing_was_recorded(recording, tmp_path, report, options):
    """They are those of other recordings, and stderr says why there is nothing else."""
    empty = tmp_path / "empty.rec"
    empty.write_bytes(rec.recording([rec.host(), rec.window(1, 2), rec.target(1)]))
    result = helpers.stepflame("report", empty, report, "--csv", *options)
    assert result.returncode == helpers.OK and REASONS[report] in result.stderr, result
    whole = next(csv.reader(io.StringIO(printed("report", recording, report, "--csv", *options))))
    assert next(csv.reader(io.StringIO(result.stdout))) == [head for head in whole] and result.stdout.count("\n") == 1
    assert HEADS[report] in result.stdout


def test_diff(recording, tmp_path):
    other = stepped.training(steps=100, slow=0, seed=2)
    other.extra = [rec.name(900, HOSTILE), rec.agg(PID, rec.LABEL, 900, 3, 700 * MS)]
    other.write(tmp_path / "other.rec")
    for options in ((), ("--all", "--limit", "0")):
        found = json.loads(printed("diff", recording, tmp_path / "other.rec", "--json", *options))
        rows = [{"section": section, **row} for section, of in found.items() if isinstance(of, list) and section != "notes" for row in of]
        check(printed("diff", recording, tmp_path / "other.rec", "--csv", *options), rows)
    assert {row["section"] for row in rows} >= {"step", "phases", "waits", "functions", "actions"}


def test_either_json_or_csv(recording):
    for args in (("report", recording), ("diff", recording, recording), ("ps",), ("doctor",), ("restore", "-n"), ("dump", "-p", "1"), ("top", "-p", "1")):
        assert helpers.stepflame(*args, "--json", "--csv").returncode == helpers.USAGE


def fits(columns, *command):
    """What a terminal shows of both streams, in lines of its width."""
    text = COLOURS.sub("", at_terminal(columns, *command, both=True))
    assert [line for line in text.splitlines() if len(line) > columns] == [], command
    return text


def rows_of(text, head):
    """The rows of the table whose line of heads contains this."""
    lines = iter(text.splitlines())
    next(line for line in lines if head in line)
    return [line for line in iter(lambda: next(lines), "") if not line.startswith("-")]


@pytest.mark.parametrize("columns", [80, 100, 120, 200])
@pytest.mark.parametrize("report,head", [("--steps", "because of "), ("--steps", "ms of it"), ("--gpu", "  kernel"), ("--io", "% time")], ids=str)
def test_no_line_is_longer_than_the_terminal(recording, report, head, columns):
    whole = rows_of(printed("report", recording, report), head)
    for text in (at_terminal(columns, "report", recording, report), at_terminal(50, "report", recording, report, env=[("COLUMNS", str(columns))])):
        rows = rows_of(text, head)
        assert max(map(len, rows)) <= columns
        if max(map(len, whole)) <= columns:
            assert rows == whole


@pytest.mark.parametrize("columns", [80, 100, 120, 200])
@pytest.mark.parametrize("report", ["--summary", "--steps", "--io", "--gpu"])
def test_no_report_is_wider_than_the_terminal(recording, report, columns):
    fits(columns, "report", recording, report)


@pytest.mark.parametrize("columns", [80, 100, 120, 200])
@pytest.mark.parametrize("options", [("--per-rank",), ("--all",), ("--limit", "2"), ("--io", "--per-rank"), ("--gpu", "--by-action"), ("--steps", "--per-rank")], ids=str)
def test_no_table_that_is_not_asked_for_by_name_is_wider(recording, options, columns):
    """Lightning's, torch's and pstats' layouts are as they are."""
    fits(columns, "report", recording, *options)


@pytest.mark.parametrize("columns", [60, 80, 100, 120, 200])
def test_parts_of_a_phase_add_up(recording, columns):
    """However few of them have columns of their own."""
    text = at_terminal(columns, "report", recording, "--steps").replace("on CPU", "on_CPU").replace("total s", "total_s").replace(" %", "%")
    heads = next(line for line in text.splitlines() if "ms/step" in line).split()
    for row in [row for row in rows_of(text, "ms/step") if re.match(r"\w+ +\d", row)]:
        cells = dict(zip(heads, row.split(), strict=True))
        of = {head: 0 if cell == "-" else float(cell) for head, cell in cells.items() if head not in ("phase", "total_s", "share", "ms/slow")}
        assert of.pop("ms/step") == pytest.approx(sum(of.values()), abs=0.0006 * len(of)), row
    assert "on_CPU" in heads and ("ms/slow" in heads) == (columns >= 100)


def test_paths_keep_their_end(recording):
    whole = rows_of(printed("report", recording, "--io"), "bytes read")
    assert whole[0].endswith(" " + PATH)
    row = rows_of(at_terminal(120, "report", recording, "--io"), "bytes read")[0]
    assert len(row) == 120 and row.endswith("shard-0001.tar") and " /data/a" in row and "…" in row
    # there is no room for the path, so it has a line of its own
    row, path = rows_of(at_terminal(90, "report", recording, "--io"), "bytes read")[:2]
    assert row == whole[0][: -len(PATH)].rstrip() and len(path) == 90 and path.startswith("    /data/a directory/")


def test_names_of_diff(recording, tmp_path):
    stepped.training(steps=100, slow=0, seed=2).write(tmp_path / "other.rec")
    args = ("diff", recording, tmp_path / "other.rec", "--all", "--limit", "0")
    whole = printed(*args)
    assert max(len(line) for line in whole.splitlines() if " +- " in line) > 120
    for columns in (80, 100, 120):
        lines = [line for line in at_terminal(columns, *args).splitlines() if " +- " in line and "median" not in line]
        assert max(map(len, lines)) <= columns and any("…" in line for line in lines)


def test_where_nothing_is_cut(recording):
    for report in ("--steps", "--io", "--gpu"):
        whole = printed("report", recording, report)
        env = {**os.environ, "COLUMNS": "80"}
        assert whole == subprocess.run([helpers.STEPFLAME, "report", str(recording), report], capture_output=True, text=True, env=env).stdout
        assert "…" not in whole and at_terminal(1000, "report", recording, report) == whole
    for report in ("--simple", "--advanced", "--ops"):  # of Lightning and torch
        assert at_terminal(80, "report", recording, report) == printed("report", recording, report)
