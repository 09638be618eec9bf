# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The page of a job: what it says is what the tables say, in a real browser without a network; texts of others stay texts."""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import browser as web
import generated
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from stepflame.fleet import engine, page, report, schema

PLANTS = ["slow-host:host=1,begin=8,percent=12", "throttled-gpu:rank=20,begin=15", "bad-shard:rank=5,begin=3,end=6,every=10", "stall:rank=30,begin=12,seconds=20"]
HOSTILE = '</script><script>document.title = "owned"</script><img src=x onerror="document.title = 1"> \u202e\x1b[31m'


def with_plants(made) -> str:
    options = [word for plant in PLANTS for word in ("--plant", plant)]
    return made.store("page", "--ranks", "32", "--hours", "0.4", "--checkpoints", "0", "--steps", "none", "--rest", "2=0.5", "--late", "9=5", *options)


@pytest.fixture(scope="module")
def written(made, tmp_path_factory):
    """The store, and its page."""
    store, out = with_plants(made), tmp_path_factory.mktemp("page") / "fleet.html"
    page.write(generated.duckdb(store, job="train"), "train", out)
    return store, out


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return generated.Stores(tmp_path_factory.mktemp("stores"))


def unpacked(out: Path) -> tuple[dict, dict[str, np.ndarray]]:
    body = gzip.decompress(base64.b64decode(re.search(r'id="data">([^<]*)<', out.read_text())[1]))
    size = int.from_bytes(body[:4], "little")
    head, at, planes = json.loads(body[4 : 4 + size]), 4 + size, {}
    for name, length in head["planes"]:
        planes[name] = np.frombuffer(body[at : at + length], np.uint8).reshape(-1, head["count"])
        at += length
    assert at == len(body)
    return head, planes


def unfolded(code, knee, steps):
    return np.where(code <= steps, code / steps * knee, knee * 2.0 ** ((code - steps) / 6))


# --- the file ---


def test_figures_are_the_tables(written):
    store, out = written
    head, planes = unpacked(out)
    rows = generated.duckdb(store, job="train").run("SELECT *, (step_ns - comm_ns) / steps AS own, step_ns / steps AS step FROM windows WHERE steps > 0")
    middle = {m: (np.median([r["own"] for r in rows if r["m"] == m]), np.median([r["step"] for r in rows if r["m"] == m])) for m in {r["m"] for r in rows}}
    place = {rank: number for number, rank in enumerate(head["ranks"])}
    sync = {(r["rank"], r["m"]): r["ns"] for r in generated.duckdb(store, job="train").run("SELECT rank, m, sum(ns) AS ns FROM waits WHERE cause = 'gpu_sync' GROUP BY rank, m")}
    alone = {(r["rank"], r["m"]): r["own"] - sync[r["rank"], r["m"]] / r["steps"] for r in rows}
    assert len(rows) == np.count_nonzero(planes["own"])
    for row in rows:
        at = place[row["rank"]], row["m"] - head["first"]
        own, step = middle[row["m"]]
        without_sync = alone[row["rank"], row["m"]] - np.median([alone[r["rank"], r["m"]] for r in rows if r["m"] == row["m"]])
        for plane, share in (("own", (row["own"] - own) / step), ("alone", without_sync / step)):
            code = int(planes[plane][at]) - 128
            assert abs(np.sign(code) * unfolded(abs(code), 0.2, 80) - share) <= (0.0013 if abs(share) < 0.2 else 0.06 * abs(share)), row
        for phase in ("forward", "comm", "data"):
            value = row[phase + "_ns"] / row["steps"] / head["usual"]
            assert abs(unfolded(int(planes[phase][at]), 1, 200) - value) <= (0.0026 if value < 1 else 0.06 * value)
        assert abs(planes["seen"][at] / 200 - row["seen_ns"] / 6e10) < 0.006
        assert abs(planes["mhz"][at] / 100 * head["mhz"] - row["gpu_mhz"]) < 0.01 * head["mhz"] + 1
    late = [column for column in range(head["count"]) if planes["own"][place[9], column]]
    assert late[0] == 5 and planes["rested"][place[16]].max() > 80


@pytest.mark.parametrize("ranks, hosts", ((2, 1), (2, 2), (8, 2)))
def test_of_two_the_faster_one_is_usual(tmp_path, ranks, hosts):
    slow = lambda rank: rank >= ranks // 2  # noqa: E731
    data = lambda rank, minute: 100 * (1 + 20 * slow(rank)) * generated.MS  # noqa: E731
    store = generated.trained(tmp_path, ranks, lambda rank, minute: 100 + 20 * slow(rank), hosts=hosts, data_ns=data)
    page.write(generated.duckdb(store, job="train"), "train", tmp_path / "x.html")
    head, planes = unpacked(tmp_path / "x.html")
    assert set(head["usualOwn"]) == {100_000_000} and set(head["usualPhases"]["data"]) == {1_000_000} and set(head["usualPhases"]["comm"]) == {40_000_000}
    own = unfolded(planes["own"].astype(int) - 128, 0.2, 80)
    assert own[: ranks // 2] == pytest.approx(0) and own[ranks // 2 :] == pytest.approx(20 / 140, abs=0.0013)


def test_nothing_is_fine_that_is_not_known(tmp_path):
    store = generated.trained(tmp_path, 4, lambda rank, minute: 100 + 20 * (rank > 1))
    page.write(generated.duckdb(store, job="train"), "train", tmp_path / "x.html")
    assert unpacked(tmp_path / "x.html")[0]["nothing"][0].startswith("it is not known")
    assert "none differs" not in (tmp_path / "x.html").read_text() and "<li>ranks wait for stragglers in" in (tmp_path / "x.html").read_text()


def test_findings_name_their_places(written):
    head, _ = unpacked(written[1])
    found = {finding["kind"]: finding for finding in head["findings"]}
    assert [head["ranks"][row] for row in found["slow-host"]["rows"]] == list(range(8, 16))
    assert [head["ranks"][row] for row in found["throttled-gpu"]["rows"]] == [20] and found["throttled-gpu"]["times"][0][0] in (14, 15, 16)
    assert found["late-data"]["times"][:2] == [[3, 6], [13, 16]]
    assert set(head["details"]["rows"]) >= {row for finding in head["findings"] for row in finding["rows"]}


def test_waits_and_stacks_are_the_tables(written):
    store, out = written
    details = unpacked(out)[0]["details"]
    head = unpacked(out)[0]
    fleet = generated.duckdb(store, job="train")
    waits = {(row["rank"], row["m"], row["phase"], row["cause"]): row for row in fleet.run("SELECT w.*, v.steps FROM waits w JOIN windows v ON w.host = v.host AND w.pid = v.pid AND w.m = v.m")}
    assert len(details["waits"][0]) > 1000
    for row, at, phase, cause, place, us in zip(*details["waits"]):
        wait = waits[head["ranks"][row], head["first"] + at, details["texts"][phase], details["texts"][cause]]
        assert details["texts"][place] == wait["place"] and abs(wait["ns"] / wait["steps"] / 1000 - us) <= 0.51
    top = fleet.run("SELECT arg_max(path, ns) AS path FROM (SELECT stack, sum(weight_ns) AS ns FROM samples WHERE main AND rank = 20 AND m = %d GROUP BY stack) s JOIN (SELECT DISTINCT stack, path FROM stacks) n USING (stack)" % (head["first"] + 20))
    row = head["ranks"].index(20)
    first = next(i for i, (r, at) in enumerate(zip(*details["stacks"][:2])) if (r, at) == (row, 20))
    assert details["texts"][details["stacks"][2][first]] == top[0]["path"]


def test_policy_and_no_network(written):
    text = written[1].read_text()
    nonces = set(re.findall(r'nonce="(\w+)"', text))
    assert len(nonces) == 1 and f"script-src 'nonce-{nonces.pop()}'" in text and "default-src 'none'" in text
    assert not re.search(r'(src|href)="|https?://', text.partition('id="data"')[0])


def test_page_command(written, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(generated.ROOT / "user/python")}
    command = [sys.executable, "-m", "stepflame.fleet", "page", "train", "--store", written[0], "-o"]
    assert subprocess.run([*command, tmp_path / "x.html"], env=environment).returncode == 0
    assert unpacked(tmp_path / "x.html")[0] == unpacked(written[1])[0]
    failed = subprocess.run([*command, tmp_path / "none" / "x.html"], env=environment, capture_output=True, text=True)
    assert failed.returncode == 1 and "cannot write" in failed.stderr and "fix:" in failed.stderr


def test_long_times_become_wider(made, tmp_path):
    store = made.store("long", "--ranks", "8", "--hours", "5", "--step", "5", "--steps", "none")
    page.write(generated.duckdb(store, job="train"), "train", tmp_path / "x.html")
    head, planes = unpacked(tmp_path / "x.html")
    assert (head["width"], head["count"]) == (2, 150) and (planes["own"] > 0).all()


@pytest.mark.long
def test_ten_thousand_ranks_are_small(made, tmp_path):
    store = made.store("large", "--ranks", "10000", "--workers", "2", "--steps", "none", "--plant", "slow-host:host=700,begin=20")
    page.write(generated.duckdb(store, job="train"), "train", tmp_path / "x.html")
    assert (tmp_path / "x.html").stat().st_size < 3e6
    assert unpacked(tmp_path / "x.html")[0]["findings"][0]["rows"] == list(range(5600, 5608))


@pytest.mark.long
def test_spark_gives_the_same_page(made):
    pytest.importorskip("pyspark", reason="no pyspark: pip install pyspark")
    if not shutil.which("java"):
        pytest.skip("no Java, which Spark needs")
    spark, scope = engine.Spark("local[2]", "2GB"), engine.Scope(job="train")
    try:
        fleets = [engine.Fleet(with_plants(made), one, scope) for one in (engine.DuckDB("2GB", 2), spark)]
        ours, theirs = (page.collect(fleet, report.report(fleet, "train")) for fleet in fleets)
    finally:
        spark.close()
    assert ours[0] == theirs[0]
    assert all((ours[1][name] == theirs[1][name]).all() for name in ours[1])


# --- in a browser ---


class Browser(web.Browser):
    def open(self, path: Path) -> None:
        super().open(path, ready="!!app?.heat?.area")


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    if web.why_none():
        # where tests run by themselves, somebody must see that these did not
        (pytest.fail if os.environ.get("CI") else pytest.skip)(web.why_none())
    found = Browser(tmp_path_factory.mktemp("browser"))
    yield found
    found.close()


@pytest.fixture
def opened(started):
    """Opens a page; in the end nothing may have been complained of, or asked of any address but the page's."""
    files = []

    def open_page(path: Path) -> Browser:
        files.append(path.resolve().as_uri())
        started.console(), started.requests()
        started.open(path)
        return started

    yield open_page
    assert started.console() == []
    assert {url for url in started.requests() if not url.startswith(("chrome:", "data:", "about:", "blob:"))} <= set(files)


def text(shown: Browser, selector: str) -> str:
    return shown.run("return document.querySelector(arguments[0]).innerText", selector)


def point(shown: Browser, rank: int, column: int) -> tuple[float, float]:
    """Of a rank at a time, in the window."""
    return tuple(shown.run(
        """const {heat, data} = app, box = heat.canvas.getBoundingClientRect(), {left, top, width, height} = heat.area;
        const line = heat.lineOf[data.ranks.indexOf(arguments[0])];
        return [box.left + left + (arguments[1] + 0.5) / data.count * width, box.top + top + (line - heat.top + 0.5) / heat.shown * height]""", rank, column))  # fmt: skip


def colour(shown: Browser, rank: int, column: int) -> list[int]:
    return shown.run(
        """app.drawNow(); const {canvas} = app.heat, box = canvas.getBoundingClientRect(), r = devicePixelRatio;
        const copy = Object.assign(document.createElement('canvas'), {width: canvas.width, height: canvas.height}).getContext('2d', {willReadFrequently: true});
        copy.drawImage(canvas, 0, 0);
        return [...copy.getImageData(Math.round((arguments[0] - box.left) * r), Math.round((arguments[1] - box.top) * r), 1, 1).data]""",
        *point(shown, rank, column))[:3]  # fmt: skip


def test_straggler_and_stall_are_seen(opened, written):
    shown = opened(written[1])
    usual, slow, throttled, stalls = (colour(shown, *at) for at in ((2, 20), (10, 20), (20, 20), (30, 12)))
    for red, _, blue in (slow, throttled, stalls):
        assert red - blue > usual[0] - usual[2] + 60
    shown.run("app.set({measure: 'stalls'})")
    column, beside = colour(shown, 2, 12), colour(shown, 2, 18)
    assert column[0] - column[2] > beside[0] - beside[2] + 60
    shown.run("app.set({measure: 'clock'})")
    assert colour(shown, 20, 20) != colour(shown, 21, 20)
    shown.run("app.set({measure: 'seen'})")
    assert colour(shown, 9, 2) != colour(shown, 9, 10)


def test_hover_click_and_findings(opened, written):
    shown = opened(written[1])
    shown.move(point(shown, 20, 20))
    assert "rank 20" in text(shown, "#tip") and "node-00002" in text(shown, "#tip") and "10:20" in text(shown, "#tip") and "MHz" in text(shown, "#tip")
    here = point(shown, 20, 20)
    shown.drag(here, here)
    details = text(shown, "#details")
    assert "rank 20 on node-00002 at 2026-11-02 10:20" in details and "gpu_sync in backward" in details and "_engine_run_backward" in details
    said = [finding["kind"] for finding in unpacked(written[1])[0]["findings"]]
    number = said.index("slow-host") + 1
    shown.click(f"#findings li:nth-child({number}) button")
    assert shown.run("return [app.state.marked, app.heat.cursor.line]") == [number - 1, 8]
    assert shown.until(f"return !document.querySelector('#findings li:nth-child({number}) ul').hidden")


def test_keys_alone(opened, written):
    shown = opened(written[1])
    shown.run("document.getElementById('heat').focus()")
    shown.press(web.RIGHT, web.RIGHT, web.DOWN, web.ENTER)
    assert shown.run("return app.heat.cursor.column") == 1
    assert "rank 1 on node-00000 at 2026-11-02 10:01" in text(shown, "#details")
    assert "rank 1 · node-00000 · 10:01" in text(shown, "#status")
    shown.press("+", "+")
    assert shown.run("return app.heat.shown < 32")
    shown.press("m", "o", "h", "t")
    assert shown.run("return [app.state.measure, app.state.order, app.state.group]") == ["alone", "host", True]
    assert shown.run("return document.documentElement.dataset.theme") == "dark"
    shown.press("/")
    shown.press(*"node-00003", web.ENTER)
    assert "on node-00003" in text(shown, "#details")
    shown.press(web.ESCAPE)
    assert shown.run("return app.heat.shown === app.heat.lines.length")


def test_as_a_table(opened, written):
    shown = opened(written[1])
    shown.run("document.getElementById('worst').open = true")
    rows = shown.run("return [...document.querySelectorAll('#worst-rows tr')].map((row) => [...row.cells].map((cell) => cell.innerText))")
    assert {"rank 20", "rank 5", "rank 8", "rank 15", "rank 30"} <= {row[0] for row in rows[:12]}
    shown.click("#worst-rows tr:first-child button")
    assert rows[0][0] in text(shown, "#details h2")
    # and without scripts
    plain = re.search(r"<noscript>(.*)</noscript>", written[1].read_text(), re.S)[1]
    assert "rank 20" in plain and "node-00001" in plain


def test_texts_of_others_stay_texts(opened, made, tmp_path):
    shutil.copytree(with_plants(made), tmp_path / "store")
    for path in (tmp_path / "store/v1").rglob("node-00001-*.parquet"):
        table = pq.ParquetFile(path).read()
        for name, kind in (("host", pa.utf8()), ("place", pa.utf8()), ("cause", pa.utf8()), ("frames", pa.list_(pa.utf8()))):
            if name in table.column_names:
                value = [HOSTILE + "a > b"] if name == "frames" else HOSTILE
                table = table.set_column(table.column_names.index(name), name, pa.array([value] * table.num_rows, kind))
        pq.write_table(table, path)
    (tmp_path / "store/v1/.import").mkdir()
    page.write(generated.duckdb(str(tmp_path / "store"), job="train"), "train", tmp_path / "x.html")
    shown = opened(tmp_path / "x.html")
    shown.run("document.getElementById('worst').open = true")
    here = point(shown, 10, 20)
    shown.move(here)
    shown.drag(here, here)
    assert shown.run("return [document.title, document.images.length, document.scripts.length]") == ["stepflame fleet", 0, 2]
    assert HOSTILE[:30] in text(shown, "#details") and "\\u202e\\x1b" in text(shown, "#details") and "\u202e" not in text(shown, "body")


def known_recordings(store: Path, job: str, rows: list[dict[str, object]]) -> None:
    """Writes what an import knows of recordings. Times: minutes since 10:00, the job's beginning."""
    folder = store / ("v1/recordings/date=2026-11-02/cluster=c1/job=" + job)
    folder.mkdir(parents=True, exist_ok=True)
    begin = 1793613600
    blank = {"host": "node-00002", "rank": 20, "machine": "node-00002", "bytes": 1, "modified": 0}
    made = [{**blank, **row, **{key: (begin + 60 * row[key]) * 10**6 for key in ("since", "until")}} for row in rows]
    pq.write_table(pa.Table.from_pylist(made, schema.TABLES["recordings"].schema), folder / "node-00002-10.parquet")


def test_recordings_that_are_known(opened, made, tmp_path):
    """Each that has the rank in that minute, of whatever machine; of a ring what it had the last time."""
    shutil.copytree(with_plants(made), tmp_path / "store")
    head = page_head(tmp_path)
    pid = head["pids"][head["ranks"].index(20)]
    known_recordings(tmp_path / "store", "train", [
        {"pid": pid, "path": "/tmp/it's.rec", "since": 19, "until": 21},
        {"pid": pid, "path": "/srv/all.rec", "machine": "archive", "since": 0, "until": 50},
        {"pid": pid, "path": "/tmp/later.rec", "since": 30, "until": 40},
        {"pid": pid + 1, "rank": 21, "path": "/tmp/other-rank.rec", "since": 0, "until": 50},
        {"pid": pid, "path": "/w/ring.rec", "since": 10, "until": 25, "modified": 10},
        {"pid": pid, "path": "/w/ring.rec", "since": 25, "until": 40, "modified": 20},
    ])  # fmt: skip
    page.write(generated.duckdb(str(tmp_path / "store"), job="train"), "train", tmp_path / "x.html")
    shown = opened(tmp_path / "x.html")
    here = point(shown, 20, 20)
    shown.drag(here, here)
    assert shown.run("return [...document.querySelectorAll('#details p:has(code)')].map((one) => one.innerText)") == [
        f"archive: stepflame flame /srv/all.rec -p {pid}", f"node-00002: stepflame flame '/tmp/it'\\''s.rec' -p {pid}",
    ]  # fmt: skip


def page_head(folder: Path) -> dict:
    page.write(generated.duckdb(str(folder / "store"), job="train"), "train", folder / "head.html")
    return unpacked(folder / "head.html")[0]


def test_recordings_of_other_jobs_are_not_in_the_page(made, tmp_path):
    shutil.copytree(with_plants(made), tmp_path / "store")
    for job in ("train", "other"):
        known_recordings(tmp_path / "store", job, [{"pid": 1, "path": "/%s.rec" % job, "since": 0, "until": 5}])
    row = page_head(tmp_path)["ranks"].index(20)
    first = 1793613600 // 60
    assert page_head(tmp_path)["recordings"] == {"texts": ["node-00002", "/train.rec"], "rows": [[row], [1], [0], [1], [first], [first + 5]]}


def test_schema_has_all_phases(written):
    """The page's script names each phase."""
    script = (Path(page.__file__).parent / "page_data.js").read_text()
    assert set(re.findall(r"'(\w+)'", re.search(r"const STEPS = \[(.*)\]", script)[1])) == set(schema.PHASES)
