# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The walks of docs/: each command runs on the program of its page, and prints what the page shows, but for the figures."""

import re
import shlex

import documented
import helpers
import pytest

pytestmark = helpers.needs_bpf

SECONDS = 4  # of a recording, for which the pages take 10
SAMPLED_SECONDS = 8  # of one that is long enough for functions to differ by more than chance
SLOWER = 6  # diff's exit code


def walk(bench, page, *jobs, seconds=SECONDS):
    """Runs the page's commands; each recording is of the next of the jobs, [script, ARGS...]. {command: what it printed}"""
    printed, jobs = {}, [bench.job(*args) for args in jobs]
    for job in jobs:
        job.until_ready()
    for _, command, lines in documented.samples(helpers.ROOT / "docs" / page):
        args = shlex.split(command)[1:]
        if "PID" in args:  # of the reader's own job: test_docs.py
            continue
        if args[0] == "record":
            job = jobs.pop(0)
            job.release()
            args = ["record", "-p", job.pid, *(("%ds" % seconds) if arg == "10s" else arg for arg in args[1:])]
        result = helpers.stepflame(*args, cwd=bench.directory)
        assert result.returncode in ((helpers.OK, SLOWER) if "--threshold" in args else (helpers.OK,)), (command, result.stderr)
        if args[0] != "ps":  # which knows nothing of a job that comes last on the page
            assert documented.shapes(lines) <= documented.shapes(result.stdout.splitlines()), (command, documented.shapes(lines) - documented.shapes(result.stdout.splitlines()))
        printed[command] = re.sub(r"\s+", " ", result.stdout)
        if args[0] == "record":
            job.kill()
    return printed


def test_slow_now(bench):
    printed = walk(bench, "walk-slow-now.md", ["walk_slow_now.py", "--epochs", 9])
    record = printed["stepflame record -d 10s -o now.rec"]
    assert re.search(r"steps, every 40th step: waiting for process \d+ \(sleeping\), at walk_slow_now.py:\d+ log_metrics", record)
    assert re.search(r"the steps wait for process \d+, which meanwhile is waiting: sleep, in walk_slow_now.py:\d+ serve", printed["stepflame report now.rec --steps --limit 3"])
    assert "<html" in (bench.directory / "now.html").read_text()


def test_loader(bench):
    printed = walk(bench, "walk-loader.md", ["walk_loader.py", "--batches", 2000], ["walk_loader.py", "--batches", 4000, "--workers", 7])
    assert "getting the data (input-bound)" in printed["stepflame record -d 10s -o loader.rec"]
    assert "Images.fetch, sleep" in printed["stepflame report loader.rec --io"]
    few, many = (helpers.report(bench.directory / name, "--steps")["ordinary_s"] for name in ("loader.rec", "loader7.rec"))
    assert many < few / 2


def test_since_yesterday(bench):
    job = ["walk_yesterday.py", "--epochs", 9]
    printed = walk(bench, "walk-since-yesterday.md", job, [*job, "--norms"], seconds=SAMPLED_SECONDS)
    assert "norm" in printed["stepflame diff yesterday.rec today.rec"]


@pytest.mark.parametrize("page", ["walk-slow-now.md", "walk-loader.md", "walk-since-yesterday.md"])
def test_lines_of_the_program(page):
    """The lines that a page names are those of the program now."""
    text = (helpers.ROOT / "docs" / page).read_text()
    for script, line, function in set(re.findall(r"(walk_\w+\.py):(\d+) (?:\w+\.)?(\w+)", text)):
        lines = (helpers.JOBS / script).read_text().splitlines()
        above = [of for of in lines[: int(line)] if re.match(r"\s*def ", of)]
        assert "def %s(" % function in above[-1], (script, line, function)
