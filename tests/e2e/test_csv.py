# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""report --csv and diff --csv, read back by Python's csv module and compared with the JSON, and tables in narrow terminals."""

import csv
import io
import json

import helpers
import pytest
import stepped
from terminal import at_terminal
from replay.test_csv import fits, printed, recording  # noqa: F401


def rows_as_csv(*command):
    """What a command prints with --csv, and the rows of its JSON."""
    return printed(*command, "--csv"), json.loads(printed(*command, "--json"))


def test_commands_have_csv(jobs):
    """As JSON has it; a thread and a process may do something else by then."""
    (pid,) = jobs
    text, found = rows_as_csv("restore", "-n", "-p", pid)
    assert found["files"] == [] and text == "pid,found,why_left,file\r\n"
    text, found = rows_as_csv("doctor", "-p", pid)
    assert text.startswith("name,verdict,found,fix\r\n") and text.count("\n") == 1 + len(found["checks"])
    text, found = rows_as_csv("dump", "-p", pid)
    rows = list(csv.DictReader(io.StringIO(text)))
    assert list(rows[0]) == list(found["threads"][0])
    assert [(int(row["pid"]), int(row["tid"]), row["name"]) for row in rows] == [(t["pid"], t["tid"], t["name"]) for t in found["threads"]]
    outermost = [frames[-1] for frames in (json.loads(rows[0]["frames"]), found["threads"][0]["frames"])]
    assert outermost[0] == outermost[1]
    text, found = rows_as_csv("ps")
    ours = [row for row in found["processes"] if row["pid"] == pid]
    rows = [row for row in csv.DictReader(io.StringIO(text)) if row["pid"] == str(pid)]
    assert len(ours) == len(rows) == 1 and list(rows[0]) == list(ours[0])
    assert rows[0] == {key: "" if value is None else str(value).lower() if isinstance(value, bool) else str(value) for key, value in ours[0].items()}


@helpers.needs_bpf
def test_csv_of_top(jobs):
    (pid,) = jobs
    for view in ((), ("--view", "threads")):
        rows = list(csv.DictReader(io.StringIO(printed("top", "-p", pid, "-i", "300ms", "-n", "2", "--csv", *view))))
        assert len({row["elapsed_s"] for row in rows}) == 2 and list(rows[0])[:2] == ["elapsed_s", "name"]
        found = json.loads(printed("top", "-p", pid, "-i", "300ms", "-n", "1", "--json", *(view or ("--view", "actions"))))
        assert list(rows[0])[1:] == list(found["threads" if view else "actions"][0])


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    """The pid of a job that runs as long as the tests of this file."""
    bench = helpers.Bench(tmp_path_factory.mktemp("jobs"))
    job = bench.job("plain_loop.py", "--epochs", 10**6, "--slow", 0.001, cold=True).until_ready()
    job.release()
    yield [job.pid]
    bench.close()


@pytest.mark.parametrize("columns", [80, 100, 120, 200])
def test_no_command_is_wider_than_the_terminal(recording, jobs, tmp_path, columns):
    """stderr is that terminal, too."""
    (pid,) = jobs
    stepped.training(steps=100, slow=0, seed=2).write(tmp_path / "other.rec")
    fits(columns, "diff", recording, tmp_path / "other.rec", "--all", "--limit", "0")
    fits(columns, "diff", recording, recording)
    assert str(pid) in fits(columns, "ps")
    assert "CAP_" in fits(columns, "doctor", "-p", pid)
    assert "nothing was left" in " ".join(fits(columns, "restore", "-n", "-p", pid).split())
    assert "plain_loop.py" in fits(columns, "dump", "-p", pid)
    assert "Usage" in fits(columns, "--help")
    for command in ("record", "report", "flame", "export", "diff", "merge", "top", "watch", "dump", "ps", "restore", "doctor"):
        fits(columns, "help", command)


@helpers.needs_bpf
@pytest.mark.parametrize("columns", [80, 120])
def test_top_as_text_is_not_wider(jobs, columns):
    (pid,) = jobs
    assert str(pid) in fits(columns, "top", "-p", pid, "-i", "200ms", "--once")


def test_columns_of_ps(jobs):
    """Their width follows from what is in them; a narrow terminal has what doctor does not say."""
    (pid,) = jobs
    for text in (printed("ps"), at_terminal(80, "ps"), at_terminal(200, "ps")):
        heads, *rows = text.splitlines()
        row = next(row for row in rows if row.split()[0] == str(pid))
        assert row[heads.index("SEEN") - 1] == " " and row[heads.index("SEEN") :].startswith("actions, labels")
        assert row[heads.index("COMMAND") - 1] == " " and row[heads.index("COMMAND") :].startswith("/")
    assert "TORCH/JAX" in heads and "TORCH/JAX" not in at_terminal(80, "ps")
