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
from terminal import at_terminal

COMMANDS = ["record", "report", "flame", "export", "diff", "merge", "top", "watch", "dump", "ps", "restore", "doctor"]


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
        (["--hepl"], "'--help'"),
        (["--versoin"], "'--version'"),
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


@pytest.mark.parametrize("word", ["-v", "--hepl", "--versoin", "--xyzzy"])
def test_an_option_is_no_command(word):
    result = helpers.stepflame(word)
    helpers.check_message(result, helpers.USAGE)
    assert "there is no option '%s'" % word in result.stderr and "Usage:" not in result.stderr
    assert word != "-v" or "--version" in result.stderr


def test_one_report_at_a_time(tmp_path):
    (tmp_path / "a.rec").write_bytes(r.recording([r.target(1), r.window(1, 10**9)]))
    result = helpers.stepflame("report", "a.rec", "--simple", "--ops", cwd=tmp_path)
    assert result.returncode == helpers.USAGE and "either --simple or --ops" in result.stderr, result
    assert helpers.stepflame("report", "a.rec", "--simple", "--simple", cwd=tmp_path).returncode == helpers.OK


def test_messages_fit_the_terminal(tmp_path):
    """On a terminal; elsewhere each part of one is a line, for who searches it."""
    args = ["report", "no.rec", "--ops"]
    (tmp_path / "no.rec").write_bytes(r.recording([r.target(1), r.window(1, 10**9)]))
    args += ["--csv"]
    whole = helpers.stepflame(*args, cwd=tmp_path).stderr
    assert whole.count("\n") == 1 and len(whole) > 120
    for columns in (80, 100):
        shown = at_terminal(columns, "report", tmp_path / "no.rec", *args[2:], both=True).split("stepflame: ")[1]
        assert max(map(len, ("stepflame: " + shown).splitlines())) <= columns and " ".join(shown.split()) == whole.partition(": ")[2].strip()


def flame_input(tmp_path):
    (tmp_path / "a.rec").write_bytes(r.recording([r.target(1), r.window(1, 10**9), r.sample(1, 1, r.CPU, 10**6, 10**6)]))
    return tmp_path / "a.rec"


def test_a_reader_of_flame_may_leave(tmp_path):
    """As one of export."""
    for attempt in range(5):
        read, write = os.pipe()
        os.close(read)
        result = subprocess.run([helpers.STEPFLAME, "flame", flame_input(tmp_path), "-o", "-"], stdout=write, stderr=subprocess.PIPE, text=True)
        os.close(write)
        assert (result.returncode, result.stderr) == (helpers.OK, "")


def test_a_full_disk(tmp_path):
    result = helpers.stepflame("flame", flame_input(tmp_path), "-o", "/dev/full")
    helpers.check_message(result, helpers.ERROR)
    assert "No space left" in result.stderr and "free some space" in result.stderr and "your own" not in result.stderr
    assert "in a folder of your own" in helpers.stepflame("flame", tmp_path / "a.rec", "-o", "/no/such/page.html").stderr


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
    if command == "record":
        assert "--exact[=force]" in text and "--gpu=" in text
    if not command:
        words = " ".join(text.split())
        assert "6 diff --threshold: FILE2 is slower" in words
        for variable in ("NO_COLOR", "STEPFLAME_DEBUG", "STEPFLAME_INJECT", "STEPFLAME_PROBES", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"):
            assert variable in text, variable


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
