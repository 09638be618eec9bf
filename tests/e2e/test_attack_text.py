# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Texts of a job that would steer a terminal, forge a line, break JSON, run in the flame page or be calculated by a spreadsheet: none leaves stepflame
as it is, through any command and format. What reports make of hostile recordings is tests/fuzz/model.c's.
"""

import csv
import io
import json
import marshal
import os
import re
import shutil
import subprocess

import helpers
import pytest
from terminal import COLOURS, at_terminal

HOSTILE_DIR = "dir\x1b[31m\u009b\u202e\n"
RANK = b"\x1b[7m7\xc2\x9b\xff\nforged"
VERSION = b"2.\x1b[31m\xc2\x9b\x9b\xe2\x80\xae\x7f1"

STEERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
FORGED = re.compile(r"^\s*forged", re.M)


def check_text(data, what):
    text = data.decode()  # strict: valid UTF-8
    found = STEERS.search(text)
    assert not found, (what, text[max(0, found.start() - 60) : found.end() + 20])
    assert not FORGED.search(text), (what, text)
    return text


def check_json(data, what):
    assert all(byte == 10 or 32 <= byte < 127 for byte in data), what
    return json.loads(data)


def check_csv(data, what):
    text = check_text(data.replace(b"\r\n", b"\n"), what)
    for row in csv.reader(io.StringIO(text)):
        for cell in row:
            assert cell[:1] not in ("=", "+", "-", "@") or re.fullmatch(r"-?[\d.]+(e[+-]?\d+)?", cell), (what, cell)
    return text


def run(*args, codes=(0,)):
    """What it prints on stdout, as bytes; that on stderr is checked."""
    result = subprocess.run([helpers.STEPFLAME, *map(str, args)], stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    check_text(result.stderr, args)
    assert result.returncode in codes, (args, result.stderr)
    return result.stdout


@pytest.fixture(scope="module")
def hostile_dir(tmp_path_factory):
    directory = tmp_path_factory.mktemp("text") / HOSTILE_DIR
    directory.mkdir()
    return directory


@pytest.fixture
def poser(bench, hostile_dir):
    """A program that has mapped a libtorch_cpu.so, whose version, place, rank and arguments are hostile."""
    (hostile_dir / "lib").mkdir(exist_ok=True)
    (hostile_dir / "version.py").write_bytes(b"__version__ = '" + VERSION + b"'\n")
    (hostile_dir / "empty.c").write_text("int nothing;\n")
    library = helpers.compiled(hostile_dir / "lib" / "libtorch_cpu.so", hostile_dir / "empty.c", "-shared", "-fPIC")
    script = (
        "import ctypes, sys, time; ctypes.CDLL(sys.argv[1]); ctypes.CDLL(None).prctl(15, b'%s', 0, 0, 0); print('ready', flush=True); time.sleep(60)"
        % (r"a\x1b[31m\xc2\x9b\x9b\nb")
    )
    env = {**os.environb, b"RANK": RANK, b"TORCHELASTIC_RUN_ID": RANK}
    return bench.process(helpers.PYTHON, "-c", script, library, "\x1b[2J\u009b\u202e", env=env).until_ready()


def test_process(poser):
    """What a process says of itself, in the commands that look at one."""
    said = check_text(run("ps"), "ps")
    assert r"\x1b[7" in said and r"2.\x1b[31m\x9b" in said  # the name of a job is cut in its middle
    check_json(run("ps", "--json"), "ps --json")
    said = check_text(run("doctor", "-p", poser.pid, codes=(0, 4, 5)), "doctor")
    assert r"a\x1b[31m\x9b" in said and r"2.\x1b[31m" in said
    checks = check_json(run("doctor", "--json", "-p", poser.pid, codes=(0, 4, 5)), "doctor --json")["checks"]
    assert any("a\x1b[31m\x9b" in check["found"] for check in checks)
    said = check_text(run("dump", "-p", poser.pid, codes=(0, 5)), "dump")
    assert r"\x1b[2J\x9b" in said and r"torch 2.\x1b[31m" in said
    check_json(run("dump", "--json", "-p", poser.pid, codes=(0, 5)), "dump --json")
    check_text(run("record", "-p", poser.pid, "-d", "100ms", "-o", "/dev/null", "--step-at", "a\x1b[31m", codes=range(6)), "record")


@helpers.needs_bpf
def test_recording(bench, hostile_dir):
    """What a job's texts become in a recording, in each thing that is made of it."""
    job = shutil.copy(helpers.JOBS / "hostile_text.py", hostile_dir)
    env = {"PYTHONPATH": str(helpers.JOBS), "RANK": os.fsdecode(RANK)}
    file = hostile_dir / "a.rec"
    job = bench.job(job, env=env, python=helpers.COLD_PYTHON).until_ready()
    check_text(run("dump", "-p", job.pid), "dump")
    record = bench.record("-p", job.pid, "--timeline", "--stacks", "--modules", output=file).until_armed()
    job.release()
    live = bench.process(helpers.STEPFLAME, "top", "-p", job.pid, "-n", "1", "-i", "300ms")
    job.truth()
    assert record.wait() == helpers.OK, record.what()
    live.wait()
    for process in (record, live):
        check_text(process.out_path.read_bytes(), process.name)
        check_text(process.err_path.read_bytes(), process.name)
    check_made(file, hostile_dir)


def check_made(file, directory):
    labels = {row["name"] for row in check_json(run("report", "--json", "--all", file), "simple")["actions"]}
    assert {"=1+1,\x1b]0;title\x07\x1b[2J\n\r\tforged line", "@label"} <= labels
    for name in ("simple", "advanced", "ops", "steps", "io", "gpu"):
        more = ["--all"] if name in ("simple", "advanced") else []
        check_text(run("report", "--" + name, *more, file), name)
        check_json(run("report", "--" + name, "--json", "--per-rank", *more, file), name + " --json")
        check_csv(run("report", "--" + name, "--csv", *more, file), name + " --csv")
    check_text(run("report", file), "summary")
    check_text(COLOURS.sub("", at_terminal(80, "report", file)).encode(), "summary in a terminal")
    check_json(run("report", "--summary", "--json", file), "summary --json")
    check_csv(run("report", "--summary", "--csv", file), "summary --csv")
    assert "\"'=1+1,\\x1b]0;" in check_csv(run("report", "--csv", "--all", file), "simple")
    for option, check in (("--all", check_text), ("--json", check_json), ("--csv", check_csv)):
        check(run("diff", file, file, option), "diff " + option)
    for name in ("chrome", "speedscope"):
        check_json(run("export", "-f", name, file), name)
    for line in check_text(run("export", "-f", "folded", file), "folded").splitlines():
        assert re.fullmatch(r"[^ ]+ \d+", line), line
    run("export", "-f", "pstats", "-o", directory / "pstats", file)
    # pstats prints them as they are
    for path, _, function in marshal.loads((directory / "pstats").read_bytes()):
        check_text((path + function).encode(), "pstats")
    check_text(run("flame", "--folded", file), "flame --folded")
    run("flame", "-o", directory / "page.html", file)
    page = check_text((directory / "page.html").read_bytes(), "flame")
    assert page.count("</script") == 2 and "<!--" not in page and "alert(1)" not in re.sub(r"&#60;/script.*", "", page)
    run("merge", file, file, "-o", directory / "merged.rec", codes=(0, 1))
    run("report", directory / "no\x1b[31m\u009b\u202e.rec", codes=(1,))
