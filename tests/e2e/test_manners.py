# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a command line may be like, and what is said to who types it: help, mistyped words, JSON everywhere, terminals, progress."""

import json
import os
import pty
import re
import shutil
import subprocess
from pathlib import Path

import helpers
import pytest
import recfile as r

COMMANDS = ["record", "report", "flame", "export", "diff", "merge", "top", "dump", "ps", "restore", "doctor"]


def test_all_commands():
    """Those of this test are all."""
    text = helpers.stepflame("--help").stdout
    assert re.findall(r"^  (\w+) ", text, re.M) == COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_help(command):
    """Four ways to ask for it, one answer, which names two of them."""
    results = [helpers.stepflame(*args) for args in ([command, "--help"], [command, "-h"], [command, "-?"], ["help", command])]
    assert {result.returncode for result in results} == {helpers.OK} and {result.stderr for result in results} == {""}
    assert len({result.stdout for result in results}) == 1
    assert "Usage: stepflame %s " % command in results[0].stdout and "-h, --help" in results[0].stdout


def test_help_of_all():
    results = [helpers.stepflame(word) for word in ("--help", "-h", "help")]
    assert {result.returncode for result in results} == {helpers.OK} and len({result.stdout for result in results}) == 1


def test_help_of_a_command_that_is_started(tmp_path):
    """What is behind -- is not for stepflame."""
    result = helpers.stepflame("record", "-o", "/dev/null", "--", "echo", "-h", "--jsno", cwd=tmp_path)
    assert "Usage:" not in result.stdout + result.stderr and "mean" not in result.stderr, result


@pytest.mark.parametrize(
    "args, meant",
    [
        (["recrod"], "'record'"),
        (["reports"], "'report'"),
        (["help", "domp"], "'dump'"),
        (["hlep"], "'help'"),
        (["record", "--stpes", "5"], "'--steps'"),
        (["record", "-p", "1", "--max-szie=5M"], "'--max-size'"),
        (["report", "x.rec", "--jsno"], "'--json'"),
        (["ps", "--jsom"], "'--json'"),
        (["top", "--hlep"], "'--help'"),
    ],
    ids=str,
)
def test_mistyped(args, meant, tmp_path):
    result = helpers.stepflame(*args, cwd=tmp_path)
    assert result.returncode == helpers.USAGE and result.stdout == "", result
    assert "did you mean %s?" % meant in result.stderr and "--help" in result.stderr, result


@pytest.mark.parametrize("args", [["xyzzy"], ["record", "--xyzzy"], ["report", "--\x1b[31m"], ["\x1b[31m"], ["record", "--" + "x" * 5000]], ids=lambda args: repr(args)[:30])
def test_nothing_was_meant(args, tmp_path):
    result = helpers.stepflame(*args, cwd=tmp_path)
    assert result.returncode == helpers.USAGE and "mean" not in result.stderr and "--help" in result.stderr, result
    assert "\x1b" not in result.stderr


@pytest.mark.parametrize("args", [["-o", "--jsno", "FILE", "-f", "folded"], ["-fo", "--jsno"], ["--output", "--jsno", "FILE", "-f", "folded"]], ids=str)
def test_arguments_are_not_taken_for_options(args, tmp_path):
    """An option's argument may look like an option."""
    (tmp_path / "FILE").write_bytes(r.recording([r.target(1), r.window(1, 10**9)]))
    assert "mean" not in helpers.stepflame("export", *args, cwd=tmp_path).stderr


@pytest.mark.parametrize(
    "args, report",
    [(["report"], "simple"), (["report", "--io"], "io"), (["diff", "stepflame.rec", "stepflame.rec"], "diff"), (["ps"], "ps"), (["doctor"], "doctor"), (["restore", "-n"], "restore")],
    ids=str,
)
def test_json(args, report, tmp_path):
    """-j is --json wherever there is a report; dump needs a process, and has it too."""
    records = [r.target(1), r.name(1, "training_step"), r.agg(1, r.ACTION, 1, 5, 5000), r.window(0, 10**9)]
    (tmp_path / "stepflame.rec").write_bytes(r.recording(records))
    for option in ("-j", "--json"):
        result = helpers.stepflame(*args, option, cwd=tmp_path)
        assert json.loads(result.stdout)["report"] == report, result


@pytest.mark.skipif(not shutil.which("man"), reason="there is no man")
@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_manual(command, tmp_path):
    """The page has each option of --help, and roff has nothing to complain of."""
    manual = Path(helpers.STEPFLAME).parent / "tools/manual"
    if not manual.exists():
        pytest.skip("%s is not built" % manual)
    page = tmp_path / "page.1"
    page.write_bytes(subprocess.run([manual, "man", *command.split()], capture_output=True, check=True).stdout)
    shown = subprocess.run(["man", "--warnings", "-l", page], capture_output=True, text=True, env={**os.environ, "MANWIDTH": "200", "LC_ALL": "C.UTF-8", "MANPAGER": "cat"})
    assert shown.returncode == 0 and shown.stderr == "", shown
    text = re.sub(r".\x08|\x1b\[[\d;]*m", "", shown.stdout)
    assert ("STEPFLAME-" + command.upper() if command else "STEPFLAME") in text
    for option in re.findall(r"^ *(?:-\w, )?--([\w-]+)", helpers.stepflame("help", *command.split()).stdout, re.M):
        assert option in ("help", "usage", "version") or "--" + option in text, (option, text)


def on_terminal(*command, cwd, streams=("stdout", "stderr")):
    """The exit status of a command whose streams are a terminal, and what it writes there."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, cwd=cwd, **{**dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL), **dict.fromkeys(streams, theirs)})
    os.close(theirs)
    said = b""
    try:
        while more := os.read(ours, 65536):
            said += more
    except OSError:
        pass  # nobody has it open any more
    os.close(ours)
    return process.wait(), said.decode(errors="replace")


@pytest.mark.parametrize("args", [["record", "-p", "1", "-o", "-"], ["merge", "a.rec", "b.rec", "-o", "-"]], ids=lambda args: args[0])
def test_no_recording_for_a_terminal(args, tmp_path):
    status, said = on_terminal(helpers.STEPFLAME, *args, cwd=tmp_path)
    assert status == helpers.USAGE and "not for a terminal" in said, said


def test_no_limit_where_nothing_can_be_dropped(tmp_path):
    result = helpers.stepflame("record", "-p", "1", "-o", "-", "--max-size", "5M", cwd=tmp_path)
    assert result.returncode == helpers.USAGE and "--max-size" in result.stderr and "-o" in result.stderr, result


@helpers.needs_bpf
def test_progress_on_a_terminal(bench):
    """Elapsed and remaining time, in one line, of which nothing stays; without a terminal a short recording says nothing."""
    job = bench.job("plain_loop.py").until_ready()
    command = [helpers.STEPFLAME, "record", "-p", job.pid, "-d", "1s", "-o", "/dev/null"]
    status, said = on_terminal(*command, cwd=bench.directory, streams=("stderr",))
    assert status == helpers.OK, said
    shown = re.findall(r"\r  ([\d.]+) s, ([\d.]+) s left   \d+ steps   \d+ calls   \d+ lost", said)
    assert shown and all(0.8 < float(elapsed) + float(left) < 1.2 for elapsed, left in shown), said
    assert "\r\x1b[K" in said[said.rindex(" lost") :]
    quiet = helpers.stepflame(*command[1:])
    assert quiet.returncode == helpers.OK and " left" not in quiet.stderr and "\r" not in quiet.stderr
    job.kill()
