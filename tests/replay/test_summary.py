# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The summary, which `report` prints by default and `record` at its end: one screen, of recordings whose steps are known, and of a job that knows its own."""

import json
import os
import re

import helpers
import pytest
import recfile as rec
from terminal import COLOURS, at_terminal

MS = 10**6
START = 10**9
PID = 4242
LINES, COLUMNS = 24, 100
NAME = "é名\x1b[31m\u202e" + "a_very_long_name_" * 8
ESCAPED = "é名\\x1b[31m\\u202ea_very"
SLEEP_MS, EVERY = 60, 20


def steps(pid, count=200, slow=EVERY, number=0):
    """
    Steps of 10 ms: 1 in data, 3 in forward, 6 in backward. Every `slow`-th sleeps for another 60 ms in data, in a function of
    the user's.
    """
    code, stack = 100 + 10 * number, 100 + 10 * number
    yield rec.name(code, "/home/me/train.py")
    yield rec.name(code + 1, "Rows.__getitem__")
    yield rec.name(code + 2, "Net.forward")
    yield rec.code(code, code, code + 1, 10)
    yield rec.code(code + 1, code, code + 2, 50)
    yield rec.stack(stack, [(code, 0)])
    yield rec.stack(stack + 1, [(code + 1, 0)])
    yield rec.name(code + 3, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")
    yield rec.path(code, [(rec.LABEL, code + 3)])
    at = START
    yield rec.boundary(pid, pid, 0, at)
    for index in range(1, count + 1):
        slept = SLEEP_MS * MS if slow and index % slow == 0 else 0
        data, forward, backward = MS + slept, 3 * MS + index % 3, 6 * MS
        if slept:
            yield rec.sample(pid, pid, rec.WAIT, at + slept, slept, stack, code, cause="sleep")
        yield rec.sample(pid, pid, rec.CPU, at + data + MS, 10 * MS, stack + 1)
        at += data + forward + backward
        yield rec.boundary(pid, pid, index, at, (0, data, forward, backward, 0, 0, 0, 0))


def training(ranks=1, **of):
    yield rec.host()
    for rank in range(ranks):
        yield rec.target(PID + rank, rank=rank if ranks > 1 else -1)
    for rank in range(ranks):
        yield from steps(PID + rank, number=rank, **of)
        for number, (name, ms, own) in enumerate([("backward", 1200, 1200), (NAME, 600, 600), ("outer", 1900, 10), ("tiny", 0.001, 0.001)]):
            yield rec.name(500 + number, name)
            yield rec.agg(PID + rank, rec.LABEL, 500 + number, 200, round(ms * MS), self_ns=round(own * MS), first_ns=START)
    yield rec.cost(20000, 20000, 2500, 10**8, 40 * 10**6)
    yield rec.counter("open_at_start", 4)
    yield rec.window(START, START + 3 * 10**9, 201, 1)


def write(path, records):
    path.write_bytes(rec.recording(records))
    return path


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    return write(tmp_path_factory.mktemp("summary") / "a.rec", training())


UTF8 = {"LC_ALL": "C.UTF-8", "TERM": "xterm"}


def checked(text, columns):
    lines = text.splitlines()
    assert 0 < len(lines) <= LINES, text
    plain = [COLOURS.sub("", line) for line in lines]
    # the only wide character of the recordings here
    assert all(len(line) + line.count("名") <= columns for line in plain), text
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", "".join(plain)), text
    return "\n".join(plain) + "\n"


def one_line(text):
    return " ".join(text.split())


def test_what_it_says(recording):
    """Steps, what limits them, the slow ones with cause, rhythm and place, phases, the longest actions, cost, losses, the next command."""
    text = checked(helpers.stepflame("report", recording, env={**os.environ, **UTF8}).stdout, COLUMNS)
    said = one_line(text)
    durations = [10 + (SLEEP_MS if index % EVERY == 0 else 0) for index in range(1, 201)]
    rate = 200 / (sum(durations) / 1e3)
    assert "Recorded 3.0 s of process 4242, Python 3.11.2, torch 2.6.0+cpu" in said
    assert "Steps 200: median 10 ms, p99 70 ms, %.3g a second" % rate in said
    lost = 100 * 10 * SLEEP_MS / sum(durations)
    assert "Limited by sleeping (input-bound): about %.0f %% of the time can be won, all in 10 slow steps" % lost in said
    assert "Try set num_workers in the DataLoader" in said
    assert "Slow steps 10 of 200 over " in said and "cost %.1f %% of the time" % lost in said
    assert "%.1f %% 10 steps, every 20th step: sleeping in data, at train.py:10 Rows.__getitem__" % lost in said
    assert re.search(r"█ backward 46 % ▒ data 31 % ▓ forward 23 %", said)
    (bar,) = re.findall(r"^Phases +([█▒▓]+)$", text, re.M)
    assert len(bar) == COLUMNS - 12 and bar == "█" * bar.count("█") + "▒" * bar.count("▒") + "▓" * bar.count("▓")
    for block, share in (("█", 6), ("▒", 4), ("▓", 3)):
        assert abs(bar.count(block) / len(bar) - share / 13) < 0.02
    assert "1.2 40.0 % 200 6 backward" in said and ESCAPED in said
    assert "outer" not in said and "tiny" not in said  # one merely contains others, one takes no time
    assert "Cost job about 1.7 % slower" in said and "lost: spans that had begun before" in said
    assert "Next stepflame report %s --steps" % recording in said


@pytest.mark.parametrize("kinds, said", [(1, ""), (2, "; 1 more kind of loss"), (3, "; 2 more kinds of loss")])
def test_losses(tmp_path, kinds, said):
    """The one of which there are most, and how many others there are."""
    counters = [rec.counter(name, count) for name, count in (("stack_lost", 5), ("lines_lost", 3), ("spans_cut", 2))[:kinds]]
    path = tmp_path / "a.rec"
    path.write_bytes(rec.recording([rec.target(PID), rec.window(1, 10**9), *counters]))
    assert "lost: stacks cut where a frame could not be read (5)%s" % said in one_line(helpers.stepflame("report", path).stdout)


@pytest.mark.parametrize("locale", ["C.UTF-8", "C", "POSIX"])
@pytest.mark.parametrize("columns", [20, 40, 59, 60, 80, 100, 120, 200])
def test_fits_any_terminal(recording, tmp_path, columns, locale):
    """Also with notes, many ranks and hostile texts; and says the most important at any width."""
    notes = [rec.note("%d: %s " % (i, NAME) + "words " * 60) for i in range(5)]
    many = write(tmp_path / ("many, 'of them'" + "x" * 60 + ".rec"), [*training(ranks=5), *notes])
    for file in (recording, many):
        text = checked(at_terminal(columns, "report", file, env={**UTF8, "LC_ALL": locale}.items()), max(min(columns, COLUMNS), 40))
        assert text.isascii() if locale != "C.UTF-8" else columns < 60 or not text.isascii()
        said = one_line(text)
        assert "median 10 ms, p99 70 ms" in said and "input-bound" in said and re.search(r"stepflame report \S.* --steps", said)
        assert "10 of 200 over" in said and "every 20th step" in said
        if file == many and columns >= 60:
            assert "Ranks 5 make steps" in said and "Note 0: é名" in said.replace("??", "é名")


def test_colours(recording):
    """On a terminal that has them; never with NO_COLOR, TERM=dumb or in a file. Nothing else changes."""
    coloured = at_terminal(90, "report", recording, env=[*UTF8.items(), ("NO_COLOR", None)])
    assert "\x1b[1mSteps\x1b[0m" in coloured and re.search("\x1b\\[\\d+m█", coloured)
    for env in ({"NO_COLOR": "1"}, {"NO_COLOR": None, "TERM": "dumb"}, {"NO_COLOR": None, "TERM": None}):
        plain = at_terminal(90, "report", recording, env=[*UTF8.items(), *env.items()])
        assert "\x1b" not in plain and plain == COLOURS.sub("", coloured)
    assert "\x1b[0m" in at_terminal(90, "report", recording, env=[*UTF8.items(), ("NO_COLOR", "")])
    in_file = helpers.stepflame("report", recording, env={**os.environ, **UTF8, "COLUMNS": "50"}).stdout
    assert "\x1b" not in in_file and max(map(len, in_file.splitlines())) > 80
    assert "\x1b" not in at_terminal(90, "report", recording, "--steps", env=UTF8.items())


def test_ordinary_steps(tmp_path):
    text = checked(helpers.stepflame("report", write(tmp_path / "a.rec", training(slow=0))).stdout, COLUMNS)
    assert "Slow steps  none of 200 took longer than 15 ms" in text


@pytest.mark.parametrize("columns", [40, 100])
@pytest.mark.parametrize(
    "records, says",
    [
        ([], "none was seen"),
        ([rec.target(1), rec.window(START, 2 * START)], "none was seen. Is the job training"),
        ([rec.target(1), rec.window(START, 2 * START, 50, 2)], "50 ended, 50 a second"),
        ([rec.target(1), rec.boundary(1, 1, 0, START), rec.window(START, 2 * START, 1, 1)], "no whole step"),
        ([rec.target(1, rec.CHILD), rec.window(START, 2 * START)], "none was seen"),
    ],
)
def test_no_steps(tmp_path, records, says, columns):
    """It says what to do next."""
    file = write(tmp_path / "a.rec", records or [rec.window(START, START)])
    said = one_line(checked(at_terminal(columns, "report", file, env=UTF8.items()), columns))
    assert says in said and "ecord" in said and "Next" in said and "stepflame report" in said
    found = json.loads(helpers.stepflame("report", "--summary", "--json", file).stdout)
    assert found["steps"] is None and found["limit"] is None and found["phases"] == []


def test_operators(tmp_path):
    """Operators take the place of actions, if there are any."""
    ops = [rec.name(700, "aten::mm"), rec.op(PID, rec.SPAN_OP, 700, 400, 9 * 10**8, 9 * 10**8), rec.op_window(PID, 0, 0, 200, START, 2 * START)]
    text = checked(helpers.stepflame("report", write(tmp_path / "a.rec", [*training(), *ops])).stdout, COLUMNS)
    assert re.search(r"0\.9 +100\.0 % +400 +2\.25  aten::mm", text) and "backward  " not in text.split("Longest")[1]


def test_json_and_csv(recording):
    """The figures of the reports that say more."""
    found = json.loads(helpers.stepflame("report", "--summary", "--json", recording).stdout)
    more = json.loads(helpers.stepflame("report", "--steps", "--json", recording).stdout)
    assert found["report"] == "summary"
    assert found["steps"]["count"] == len(more["steps"]) == 200
    assert found["steps"]["median_s"] == more["median_s"] and found["steps"]["p99_s"] == more["p99_s"]
    assert found["steps"]["per_second"] == pytest.approx(200 / sum(s["duration_s"] for s in more["steps"]))
    for key in ("class", "share", "why", "place"):
        assert found["limit"][key] == more["verdict"][key]
    assert found["limit"]["next"] == more["verdict"]["next"][0]
    assert found["slow"] == {"count": 10, "limit_s": more["limit_s"], "causes": more["causes"]}
    assert found["phases"] == more["all"]["phases"]
    assert [(row["name"], row["count"]) for row in found["longest"]] == [("backward", 200), (NAME, 200), ("outer", 200)][:2]
    assert found["longest"][0]["self_s"] == 1.2 and found["longest"][0]["percent"] == pytest.approx(40)
    assert found["ranks"] == [{"pid": PID, "rank": None, "steps": 200, "median_s": found["steps"]["median_s"], "straggler": False}]
    assert found["loaders"] == []
    rows = helpers.stepflame("report", "--summary", "--csv", recording).stdout.splitlines()
    assert rows[0] == "name,kind,count,self_s,percent,self_mean_s" and rows[1].startswith("backward,label,200,1.2,")


def test_which_report_is_the_default(recording):
    """Without options the summary; options of a table, and --json, ask for the simple report, in a layout that fits."""
    summary = helpers.stepflame("report", recording).stdout
    assert summary == helpers.stepflame("report", "--summary", recording).stdout
    for option in (["--json"], ["--csv"], ["--all"], ["--leaf"], ["--limit", "3"], ["--sort", "name"], ["--action", "backward"], ["--per-rank"]):
        text, lightning = (helpers.stepflame("report", *which, recording, *option).stdout for which in ((), ("--simple",)))
        assert text != summary and text
        if option[0] in ("--json", "--csv"):
            assert text == lightning
        else:
            rows = [line.strip("|").split("\t|") for line in lightning.splitlines() if re.match(r"\|  (?!Action |Total )", line)]
            assert "Profiler Report\n" in lightning and "Profiler" not in text
            assert re.findall(r"^ *[\d.]+ +[\d.]+ +[\d.]+ +(\d+) (.+)$", text, re.M) == [(row[2].strip(), row[0].strip()) for row in rows] != []
    assert helpers.stepflame("report", "--simple", recording).stdout.startswith("Profiler Report\n")


def test_rows_of_the_simple_report(tmp_path):
    """A screen of them, unless asked for more; a program that reads them gets all."""
    rows = [rec.agg(PID, rec.ACTION, name, 1, 10**6, first_ns=1) for name in range(1, 31)]
    recording = tmp_path / "a.rec"
    recording.write_bytes(rec.recording([rec.target(PID), rec.window(1, 10**9), *(rec.name(n, f"action {n}") for n in range(1, 31)), *rows]))
    for options, cnt in ((["--simple"], 15), (["--all"], 30), (["--limit", "0"], 30), (["--limit", "20"], 20), (["--csv"], 30)):
        text = helpers.stepflame("report", recording, *options).stdout
        assert text.count("action ") == cnt and ("15 more rows (--limit 15)" in text) == (cnt == 15), options
    assert len(helpers.report(recording)["actions"]) == 30


def test_dropped(tmp_path):
    """How many events record --max-size has dropped."""
    path = tmp_path / "a.rec"
    dropped = rec.record("DROPPED", time_ns=START + 500 * MS, events=1234)
    path.write_bytes(rec.recording([rec.host(), rec.target(PID), dropped, rec.window(START, START + 1000 * MS)]))
    for options, says in ((), "Dropped 1234 events of the first 0.5 s"), (("--simple",), "dropped: 1234 samples, steps and other events of the first 0.5 s"):
        assert says in " ".join(helpers.report_text(path, *options).split())


@pytest.mark.parametrize(
    "step_ms, steps, hours, says",
    [
        (0.34, 3000, 0, ("median 340 us", "2941 a second")),
        (0.9997, 3000, 0, ("median 1 ms", "1000 a second")),
        (12345, 40, 0, ("median 12.3 s", "steps: 40 (Lightning's run_training_batch): median 12345 ms, p99 12345 ms")),
        (100, 40, 30, ("Recorded 108000 s", "window: 108000 s")),
    ],
    ids=["short", "a little less than 1 ms", "long", "for long"],
)
def test_large_figures(tmp_path, step_ms, steps, hours, says):
    """No figure has an exponent, however short or long the steps are."""
    ends = [START + round(i * step_ms * MS) for i in range(steps + 1)]
    spent = round(step_ms * MS / 2)
    boundaries = [rec.boundary(PID, PID, i, at, (0, spent, spent, 0, 0, 0, 0, 0)) for i, at in enumerate(ends)]
    end = START + hours * 3600 * 10**9 if hours else ends[-1] + MS
    sample = (rec.name(1, "train"), rec.code(1, 1, 1), rec.stack(1, [(1, 0)]), rec.sample(PID, PID, rec.CPU, ends[-1] - 1000, spent, 1))
    path = write(tmp_path / "a.rec", [rec.host(), rec.target(PID), *boundaries, *sample, rec.window(START, end, steps, 1)])
    text = one_line(helpers.report_text(path) + helpers.report_text(path, "--steps"))
    assert all(one in text for one in says), text
    assert not re.search(r"\d[.\d]*e[+-]\d", text), text


FETCHES, SAVES, SCORES = 600, 601, 602


def behind(*work):
    """Steps, then what the thread does: (what, ms), where "sleep" and "hang" are waits and all else is on the CPU; it still runs."""
    yield from training(slow=0)
    names = {FETCHES: "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", SAVES: "save", SCORES: "score a batch"}
    for ident, text in names.items():
        yield rec.name(ident, text)
        yield rec.path(ident, [(rec.SAVE if ident == SAVES else rec.LABEL, ident)])
    yield rec.name(603, "evaluate")
    yield rec.code(603, 100, 603, 30)
    yield rec.stack(603, [(603, 0)])
    at = START + 2000 * MS + 3 * MS
    for what, ms in work:
        path = {"fetch": FETCHES, "hang in fetch": FETCHES, "save": SAVES, "hang in save": SAVES, "score": SCORES}.get(what, 0)
        waits = what == "sleep" or what.startswith("hang")
        for part in [ms] if waits else [10] * (ms // 10):
            at += part * MS
            yield rec.sample(PID, PID, rec.WAIT if waits else rec.CPU, at, part * MS, 603, path, cause="sleep" if waits else None)
    yield rec.window(START, at + 5 * MS, 201, 1)


EVALUATES = [("fetch", 20), ("model", 80)] * 60


@pytest.mark.parametrize(
    "work, says",
    [
        (EVALUATES, "No step has ended in the last 6.0 s, since step 200: it evaluates, mostly running, at train.py:30 evaluate"),
        ([("fetch", 20), ("sleep", 3000)] * 2 + [("fetch", 20), ("sleep", 2500)], "No step has ended in the last 8.6 s, since step 200: it evaluates, mostly sleeping"),
        ([("score", 20), ("model", 80)] * 60, "No step has ended in the last 6.0 s, since step 200: labels and actions go on, mostly running"),
        ([("model", 10), ("save", 4000)], "No step has ended in the last 4.0 s, since step 200: it saves, mostly running"),
        ([("model", 6000)], "Stalled no step has ended in the last 6.0 s, since step 200: mostly running, at train.py:30 evaluate"),
        ([("hang in fetch", 6000)], "Stalled no step has ended in the last 6.0 s, since step 200: mostly sleeping"),
        ([("model", 10), ("hang in fetch", 6000)], "Stalled no step"),
        ([("model", 10), ("hang in save", 6000)], "Stalled no step"),
        ([*EVALUATES, ("sleep", 6000)], "Stalled no step has ended in the last 12.0 s"),
        ([("fetch", 20), ("model", 1000)], None),
    ],
    ids=["evaluates", "slowly", "labels", "saves", "runs", "no batch", "no batch later", "no disk", "evaluated", "shortly"],
)
def test_no_step(tmp_path, work, says):
    """A job that evaluates, or saves, makes no step and does not stand still; one in which nothing begins or ends does."""
    file = write(tmp_path / "a.rec", behind(*work))
    text = one_line(checked(helpers.stepflame("report", file).stdout, COLUMNS))
    assert says in text if says else "Stalled" not in text and "No step" not in text, text
    stall = helpers.report(file, "--summary")["stall"]
    assert bool(stall) == bool(says and says.startswith("Stalled")) and ("Stalled" in text) == bool(stall), stall
