# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What users get wrong: one message each, that says what, why and the fix, and the exit code that scripts go by."""

import os
import re
import subprocess

import helpers
import pytest
import recfile as r
from helpers import ERROR, USAGE, check_message, stepflame


@pytest.mark.parametrize(
    "args",
    [
        ["--no-such-option"],
        ["no-such-command"],
        [],
        ["record", "--no-such-option"],
        ["record", "-p"],
        ["record", "-p", "abc"],
        ["record", "-p", "-1"],
        ["record", "-p", "0"],
        ["record", "-p", "99999999999999999999"],
        ["record", "-p", "1,"],
        ["record", "-p", "1", "--", "true"],
        ["record", "-p", "1", "-d", "soon"],
        ["record", "-p", "1", "-d", "-5"],
        ["record", "-p", "1", "--steps", "0"],
        ["record", "-p", "1", "--steps", "5x"],
        ["record", "-p", "1", "--children", "some"],
        ["record", "--"],
        ["report", "--no-such-option"],
        ["report", "--sort", "beauty"],
        ["report", "--summary", "--per-rank"],
        ["report", "--summary", "--limit", "3"],
        ["report", "--summary", "--sort", "total"],
        ["report", "--summary", "--all"],
        ["report", "--limit", "many"],
        ["report", "one.rec", "two.rec"],
        ["record", "-o", "-", "--", "true"],
        ["merge", "-", "one.rec", "-o", "out.rec"],
        ["diff", "-", "-"],
        ["flame", "-", "--diff", "-"],
    ],
    ids=" ".join,
)
def test_usage(args, tmp_path):
    result = stepflame(*args, cwd=tmp_path)
    assert result.returncode == USAGE, result
    assert result.stdout == ""
    assert "--help" in result.stderr


def test_report_of_nothing(tmp_path):
    check_message(stepflame("report", tmp_path / "none.rec"), ERROR)
    check_message(stepflame("report", cwd=tmp_path), ERROR)
    check_message(stepflame("report", tmp_path), ERROR)


@pytest.mark.parametrize("content", [b"", b"stepflam", b"#!/bin/sh\nexit 0\n" * 100, bytes(100000)])
def test_report_of_no_recording(tmp_path, content):
    file = tmp_path / "other.rec"
    file.write_bytes(content)
    check_message(stepflame("report", file), ERROR)


def made_recording(rank=0):
    """Of two chunks: an action, samples and a window in the first, then names, and the later state of both."""
    pid = 10 + rank
    yield from [r.host(hostname="host%d" % rank), r.target(pid, rank=rank), r.name(1, "training_step"), r.agg(pid, r.ACTION, 1, 5, 5000)]
    yield from [r.name(2, "/job/train.py"), r.name(3, "main"), r.code(1, 2, 3), r.stack(1, [(1, 0)]), r.window(0, 10**9)]
    yield from [r.sample(pid, pid, r.CPU, 5000 * i, 5000, 1) for i in range(1, 9)]
    yield from [r.name(1000 + i, "x" * 400) for i in range(300)]
    yield from [r.agg(pid, r.ACTION, 1, 9, 9000), r.window(0, 2 * 10**9)]


COMMANDS = {
    "report": ["report", "FILE"],
    "io": ["report", "--io", "FILE"],
    "steps": ["report", "--steps", "FILE"],
    "json": ["report", "--json", "FILE"],
    "flame": ["flame", "FILE", "-o", "OUT"],
    "folded": ["flame", "FILE", "--folded"],
    "export": ["export", "FILE", "-f", "folded", "-o", "OUT"],
    "diff": ["diff", "FILE", "WHOLE"],
    "diff from": ["diff", "WHOLE", "FILE"],
    "merge": ["merge", "FILE", "WHOLE", "-o", "OUT"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_cut_recordings(tmp_path, command):
    """What is cut is told as such, by all who read recordings; with nothing to tell it is an error."""
    file, whole, out = tmp_path / "cut.rec", tmp_path / "whole.rec", tmp_path / "out"
    data = r.recording(made_recording(rank=1))
    whole.write_bytes(r.recording(made_recording()))
    names = {"FILE": file, "WHOLE": whole, "OUT": out}
    first = 24 + 16 + int.from_bytes(data[28:32], "little")  # where the first chunk ends
    assert 60000 < first < len(data) - 2000
    for cut in (0, 3, 8, 20, 24, 30, 40, 1000, first - 1):
        file.write_bytes(data[:cut])
        result = stepflame(*[names.get(word, word) for word in COMMANDS[command]])
        check_message(result, ERROR)
        how = {0: "is empty", 24: "has no records"}.get(cut, "is cut off after %d bytes: nothing in it can be reported" % cut)
        assert how in result.stderr and result.stdout == "" and not out.exists(), (cut, result)
    for cut in (first + 1, first + 16, first + 1000, len(data) - 1):
        file.write_bytes(data[:cut])
        result = stepflame(*[names.get(word, word) for word in COMMANDS[command]])
        assert result.returncode == helpers.OK, (cut, result)
        assert result.stderr.count("is cut off after %d bytes: this is what" % cut) == 1, (cut, result)
        out.unlink(missing_ok=True)
    damaged = bytearray(data)
    damaged[first + 20] ^= 0xFF
    file.write_bytes(damaged)
    result = stepflame(*[names.get(word, word) for word in COMMANDS[command]])
    assert result.returncode == helpers.OK and "is damaged behind its first %d bytes" % first in result.stderr, result


def piped(*args, data=None, cwd=None):
    return subprocess.run([helpers.STEPFLAME, *map(str, args)], input=data, capture_output=True, cwd=cwd, timeout=helpers.END_SECONDS)


@pytest.mark.parametrize("command", [["export", "a.rec", "-f", "folded"], ["flame", "a.rec"], ["merge", "a.rec", "b.rec"]], ids=lambda c: c[0])
def test_standard_output(tmp_path, command):
    """-o - is standard output: the bytes that a file would have, and no file of that name."""
    for rank, name in enumerate(["a.rec", "b.rec"]):
        (tmp_path / name).write_bytes(r.recording(made_recording(rank)))
    to_stdout = piped(*command, "-o", "-", cwd=tmp_path)
    to_file = piped(*command, "-o", "out", cwd=tmp_path)
    assert (to_stdout.returncode, to_file.returncode) == (helpers.OK, helpers.OK), (to_stdout, to_file)
    written = (tmp_path / "out").read_bytes()
    nonce = rb'(?<=nonce[=-])"?[\w+/=]+'  # a page has one of its own each time
    assert re.sub(nonce, b"", to_stdout.stdout) == re.sub(nonce, b"", written) and len(written) > 20
    assert to_file.stdout == b"" and not (tmp_path / "-").exists()


@pytest.mark.parametrize("command", [["report", "FILE"], ["report", "--io", "FILE", "--json"], ["flame", "FILE", "--folded"], ["export", "FILE", "-f", "folded"], ["diff", "FILE", "a.rec"]], ids=" ".join)
def test_standard_input(tmp_path, command):
    data = r.recording(made_recording())
    (tmp_path / "a.rec").write_bytes(data)
    of_file = piped(*[word.replace("FILE", "a.rec") for word in command], cwd=tmp_path)
    of_stdin = piped(*[word.replace("FILE", "-") for word in command], data=data, cwd=tmp_path)
    assert of_file.returncode == helpers.OK, of_file
    assert of_stdin.returncode == helpers.OK and of_stdin.stdout.replace(b"standard input", b"a.rec").replace(b"report FILE", b"report a.rec") == of_file.stdout, of_stdin
    cut = piped(*[word.replace("FILE", "-") for word in command], data=data[:1000], cwd=tmp_path)
    assert cut.returncode == ERROR and b"standard input is cut off after 1000 bytes" in cut.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@pytest.mark.parametrize("args", [["--help"], ["report"], ["report", "--json"]], ids=" ".join)
def test_report_to_a_full_disk(tmp_path, args):
    (tmp_path / "stepflame.rec").write_bytes(r.recording([r.target(1), r.window(1, 10**9)]))
    with open("/dev/full", "w") as full:
        result = subprocess.run([helpers.STEPFLAME, *args], stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    assert result.returncode == ERROR and "No space left" in result.stderr, result
