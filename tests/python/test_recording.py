# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""stepflame.load: its tables have the figures of the reports, its texts are the program's, and what is bad in a file is said by the program."""

import functools
import html.parser
import http.server
import json
import os
import re
import sys
import threading
from pathlib import Path

import browser
import helpers
import pytest
from replay import recordings
from replay.test_flame import hostile_job

import stepflame

SOME = ["plain", "fit", "ops"]


def importorskip(name):
    return pytest.importorskip(name, reason="no %s" % name)


@pytest.fixture(scope="module")
def loaded():
    importorskip("pyarrow")
    return {name: stepflame.load(recordings.path(name)) for name in SOME}


# ---- tables ----


@pytest.mark.parametrize("name", SOME)
def test_tables(loaded, name):
    """They have the figures of the reports. (tests/replay/test_tables.py has each column, of each recording.)"""
    recording = loaded[name]
    said = json.loads(recording.report("steps", json=True, per_rank=True))["processes"]
    assert len(recording.steps) == sum(len(process["steps"]) for process in said)
    assert sum(recording.steps["duration_ns"].to_pylist()) == sum(round(step["duration_s"] * 1e9) for process in said for step in process["steps"])
    said = json.loads(recording.report("simple", json=True, all=True))["actions"]
    assert sorted(zip(*(recording.actions[column].to_pylist() for column in ("name", "n")))) == sorted((action["name"], action["count"]) for action in said)
    assert len(recording.ops) == 0 or name == "ops"
    assert recording.stacks.column_names == ["stack", "frames"] and set(recording.samples["stack"].to_pylist()) == set(recording.stacks["stack"].to_pylist())
    assert recording.ranks["pid"].to_pylist() == [target["pid"] for target in recording.summary["target"] if target["role"] == "main"]
    assert len(recording.windows) and recording.waits.column_names and recording.gpu.column_names


def test_read_once_and_mapped(monkeypatch):
    """All tables come of one run of the program, and its files are gone while the tables are still read."""
    importorskip("pyarrow")
    runs = []
    run = stepflame.program.run
    monkeypatch.setattr(stepflame.program, "run", lambda *words: runs.append(words) or run(*words))
    recording = stepflame.load(recordings.path("plain"))
    assert not runs
    assert recording.steps.num_rows and recording.stacks.num_rows and recording.steps is recording.table("steps")
    (words,) = runs
    folder = words[words.index("-o") + 1]
    assert not os.path.exists(folder)
    assert re.search(re.escape(folder) + r"/steps\.arrow \(deleted\)", Path("/proc/self/maps").read_text())


def test_frames(loaded):
    rows = loaded["plain"].steps.to_pylist()
    importorskip("pandas")
    frame = loaded["plain"].pandas("steps")
    assert frame["duration_ns"].tolist() == [row["duration_ns"] for row in rows]
    assert frame["start"].dt.tz is not None and list(map(str, frame["job"])) == [row["job"] for row in rows]


def test_frames_of_polars(loaded):
    importorskip("polars")
    assert loaded["plain"].polars("steps").to_dicts() == loaded["plain"].steps.to_pylist()
    assert loaded["plain"].polars("stacks")["frames"].to_list() == loaded["plain"].stacks["frames"].to_pylist()


def test_no_such_table(loaded):
    with pytest.raises(stepflame.StepflameError, match="has no table 'stepz'") as raised:
        loaded["plain"].table("stepz")
    assert "ranks, windows, steps, waits, samples, stacks, actions, ops, gpu" in raised.value.fix


def test_without_packages(monkeypatch):
    recording = stepflame.load(recordings.path("plain"))
    for module, read in (("pandas", recording.pandas), ("polars", recording.polars), ("pyarrow", recording.table)):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(stepflame.StepflameError, match="this needs %s, which this Python" % module) as raised:
            read("steps")
        assert raised.value.fix == "pip install " + module


# ---- texts and pages ----


@pytest.mark.parametrize("name", ["plain", "ddp0", "ops"])
def test_reports(name, tmp_path):
    recording = stepflame.load(recordings.path(name))
    assert recording.summary == json.loads(helpers.report_text(recordings.path(name), "--summary", "--json"))
    assert recording.report("simple", all=True, limit=3) == helpers.report_text(recordings.path(name), "--simple", "--all", "--limit=3")
    assert recording.report(all=False, sort=None) == helpers.report_text(recordings.path(name))
    page = tmp_path / "page.html"
    assert recording.flame(page, slowest=3) == str(page)
    assert "<!doctype html>" in page.read_text()
    with pytest.raises(stepflame.StepflameError, match="has no sort key 'nope'; it has: percent") as raised:
        recording.report("simple", sort="nope")
    assert raised.value.status == helpers.USAGE


def bad_files(folder):
    (folder / "text.rec").write_text("hello\n")
    (folder / "empty.rec").touch()
    (folder / "folder.rec").mkdir()
    (folder / "cut.rec").write_bytes(recordings.path("plain").read_bytes()[:3000])
    (folder / "--help").write_text("hello\n")
    return [*sorted(folder.iterdir()), folder / "missing.rec", Path("/dev/null")]


def test_bad_files(tmp_path):
    """Each is refused with the program's own words: by load, or where it looks like a recording, by what reads it."""
    for file in bad_files(tmp_path):
        said = helpers.stepflame("report", "--", file)
        assert said.returncode == helpers.ERROR and said.stderr.startswith("stepflame: error: "), said
        with pytest.raises(stepflame.StepflameError) as raised:
            stepflame.load(file).report()
        assert "stepflame: error: %s\n" % raised.value == said.stderr
        assert raised.value.what and raised.value.fix and raised.value.status == 1
    importorskip("pyarrow")
    with pytest.raises(stepflame.StepflameError, match="cut.rec is cut off after 3000 bytes"):
        stepflame.load(tmp_path / "cut.rec").steps


class Tags(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))


def check_shown(text, page):
    """A notebook gets a text and a frame that is another origin, and nothing else, whatever the names in the recording are."""
    (pre, pre_attributes), (frame, attributes) = Tags(text).tags
    assert (pre, pre_attributes, frame) == ("pre", {}, "iframe")
    assert set(attributes) == {"sandbox", "style", "srcdoc"} and "allow-same-origin" not in attributes["sandbox"]
    without_nonce = [re.sub("nonce[-=][\"']?[0-9a-f]+", "", one) for one in (attributes["srcdoc"], page)]
    assert without_nonce[0] == without_nonce[1]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    return stepflame.load(hostile_job().write(tmp_path_factory.mktemp("hostile") / "hostile.rec"))


def test_notebook(hostile, tmp_path):
    for recording in (stepflame.load(recordings.path("plain")), hostile):
        check_shown(recording._repr_html_(), Path(recording.flame(tmp_path / "page.html")).read_text())
    (tmp_path / "cut.rec").write_bytes(recordings.path("plain").read_bytes()[:3000])
    assert [tag for tag, _ in Tags(stepflame.load(tmp_path / "cut.rec")._repr_html_()).tags] == ["pre"]


def test_display(hostile):
    """As IPython asks for it."""
    core = pytest.importorskip("IPython.core.interactiveshell", reason="no IPython")
    shown, _ = core.InteractiveShell.instance().display_formatter.format(hostile)
    assert [tag for tag, _ in Tags(shown["text/html"]).tags] == ["pre", "iframe"]
    assert shown["text/plain"] == repr(hostile)


@pytest.mark.long
@pytest.mark.skipif(browser.why_none() is not None, reason=str(browser.why_none()))
def test_in_a_browser(hostile, tmp_path):
    """The page in the frame works when it is touched, is no part of the notebook, and its names do nothing."""
    (tmp_path / "notebook.html").write_text("<!doctype html><meta charset=utf-8><title>notebook</title>" + hostile._repr_html_())
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page = browser.Browser(tmp_path, reached="127.0.0.1")
    try:
        page.call("POST", "/url", {"url": "http://127.0.0.1:%d/notebook.html" % server.server_port})
        page.call("POST", "/frame", {"id": page.call("POST", "/element", {"using": "css selector", "value": "iframe"})})
        page.until("return typeof app !== 'undefined' && !!app?.flame?.trees")
        assert page.run("app.set({a: 'slow:5'}); return [origin, window.hit]") == ["null", None]
        page.until("return location.href === 'about:srcdoc' && app.state.a === 'slow:5'")
        with pytest.raises(RuntimeError, match="Blocked a frame"):
            page.run("return parent.document.title")
        page.call("POST", "/frame", {"id": None})
        assert page.run("return [document.title, window.hit]") == ["notebook", None]
        assert [url for url in page.requests() if url.endswith("notebook.html")] == ["http://127.0.0.1:%d/notebook.html" % server.server_port]
    finally:
        page.close()
        server.shutdown()
