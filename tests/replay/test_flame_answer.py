# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the flame page leads with, in a real browser: the answer that `report --steps --json` gives, and the steps of its causes. Needs no root."""

import struct
import xml.etree.ElementTree
import zlib
from collections import Counter, defaultdict

import browser as web
import helpers
import pytest
import recfile as rec
import stepped
from stepped import PID
from .test_flame import HOSTILE, flame, hostile_job, parse, run  # noqa: F401
from .test_flame_page import boxes, browser, folded, opened, state  # noqa: F401
from .test_summary import EVERY, training

MS = 10**6
SVG = "{http://www.w3.org/2000/svg}"
ANSWER = "return app.tracks[0].answer"
CHOSEN = "const {steps, track} = app.sets[arguments[0]]; return [...track.index].filter((_, i) => steps[i])"


@pytest.fixture
def slept(tmp_path):
    """Every 20th step sleeps."""
    path = tmp_path / "slept.rec"
    path.write_bytes(rec.recording(list(training())))
    return path


def text_of(page, selector):
    return page.run("return document.querySelector(arguments[0]).innerText", selector)


def check_answer(page, expected):
    """The page has the verdict and the causes of the report, and shows them."""
    answer = page.run(ANSWER)
    verdict = expected["verdict"]
    assert {key: answer["verdict"][key] for key in verdict} == verdict
    shown = text_of(page, "#answer")
    assert verdict["why"] in shown and (verdict["place"] or "") in shown
    assert verdict["class"] == "unclear" or f"({verdict['class']})" in shown
    assert not verdict["next"] or verdict["next"][0] in shown
    assert [{key: cause[key] for key in wanted} for cause, wanted in zip(answer["causes"], expected["causes"])] == expected["causes"]
    assert len(answer["causes"]) == len(expected["causes"])
    rows = page.run("return [...document.querySelectorAll('.cause')].map((e) => e.innerText)")
    assert len(rows) == len(expected["causes"])
    for row, cause in zip(rows, expected["causes"]):
        share = 100 * cause["over_s"] / expected["all"]["total_s"]
        assert float(row.split()[0]) == pytest.approx(share, abs=0.06)
        assert f"{cause['count']} step" in row
        if cause["rhythm"]:
            assert f"every {cause['rhythm']['shortest']}" in row


def test_answer_of_the_report(opened, slept):  # noqa: F811
    page = opened(slept)
    expected = helpers.report(slept, "--steps")
    check_answer(page, expected)
    first = expected["causes"][0]
    assert (first["cause"], first["count"], first["rhythm"]["shortest"]) == ("sleep", 200 // EVERY, EVERY)
    assert "sleeping in data" in text_of(page, ".cause") and "train.py:10 Rows.__getitem__" in text_of(page, ".cause")


def test_answer_of_a_run(opened, run):  # noqa: F811
    check_answer(opened(run[1]), helpers.report(run[1], "--steps"))


def test_answers_of_ranks(opened, tmp_path):  # noqa: F811
    """The page begins with the rank that the report shows; each other rank has its own answer."""
    path = tmp_path / "ranks.rec"
    path.write_bytes(rec.recording(list(training(ranks=3))))
    page = opened(path)
    found = helpers.report(path, "--steps", "--per-rank")
    check_answer(page, found)
    for process in found["processes"]:
        page.run("app.set({track: String(app.data.tracks.findIndex((t) => t.pid === arguments[0]))})", process["pid"])
        if page.run("return !app.tracks[0].first"):
            check_answer(page, process)


def test_cause_selects_its_steps(opened, slept):  # noqa: F811
    page = opened(slept)
    steps = helpers.report(slept, "--steps")["steps"]
    for number, cause in enumerate(page.run(ANSWER)["causes"]):
        page.run("document.querySelectorAll('.cause')[arguments[0]].click()", number)
        wanted = [step["index"] for step in steps if step["cause"] == cause["cause"]]
        assert page.run(CHOSEN, 0) == wanted and state(page)["a"] == f"cause:{number}"
        assert page.run("return document.querySelectorAll('.cause')[arguments[0]].getAttribute('aria-pressed')", number) == "true"
    assert [step["index"] for step in steps if step["cause"] == "sleep"] == list(range(EVERY, 201, EVERY))


def test_cause_redraws_the_flame(opened, run):  # noqa: F811
    job, path = run
    page = opened(path)
    page.click(".cause")
    chosen = page.run(CHOSEN, 0)
    assert chosen == page.run(ANSWER)["causes"][0]["steps"] and chosen
    # what a sample of workers has in it is not of the thread that is shown
    ours = Counter(job.folded([index - 1 for index in chosen]))
    assert sum(parse(folded(page)).values()) == pytest.approx(sum(ours.values()) / 1000, abs=len(ours))
    page.click(".cause")
    assert state(page)["a"] == "all"
    page.press("1")
    assert state(page)["a"] == "cause:0"
    page.click(".against")
    assert (state(page)["a"], state(page)["b"]) == ("mid", "cause:0") and page.run(CHOSEN, 1) == chosen
    assert "{waiting: data_wait}" in text_of(page, "#story")
    assert page.run("return location.hash").count("cause") == 1


def test_two_answers(opened, run, tmp_path):  # noqa: F811
    second = stepped.training(steps=50, slow=5, seed=9).write(tmp_path / "b.rec")
    page = opened(run[1], "--diff", second)
    heads = page.run("return [...document.querySelectorAll('.verdict .why')].map((e) => e.innerText)")
    for found, path in zip(heads, (run[1], second)):
        assert helpers.report(path, "--steps")["verdict"]["why"] in found
    lists = page.run("return [...document.querySelectorAll('#causes ol')].map((e) => e.children.length)")
    page.run("document.querySelectorAll('.cause')[arguments[0]].click()", lists[0])
    assert (state(page)["a"], state(page)["b"]) == ("all", "cause:0")
    assert page.run("return document.activeElement.dataset.cause") == "1:0"
    assert page.run(CHOSEN, 1) == page.run("return app.tracks[1].answer.causes[0].steps")


def test_no_steps_no_answer(opened, tmp_path):  # noqa: F811
    job = stepped.Job(rows=[stepped.Row(PID, 20_000_000, 10_000_000, stepped.WAIT_DATA)])
    page = opened(job.write(tmp_path / "r.rec"), address="#a=cause:0")
    assert page.run("return document.getElementById('answer').hidden && document.getElementById('causes').hidden")


def hostile_answer(path):
    """A function with a hostile name holds up every tenth step."""
    at = stepped.Spot("data", ((f"/x/{HOSTILE[1]}.py", HOSTILE[0] + HOSTILE[3] + HOSTILE[6], 3),), cause="sleep")
    job, now = stepped.Job(), 0
    for i in range(60):
        wait = 60 * MS if i % 10 == 9 else 0
        if wait:
            job.rows.append(stepped.Row(PID, now + wait, wait, at))
        job.rows.append(stepped.Row(PID, now + wait + 5 * MS, 10 * MS, stepped.spot("forward", [("/home/me/model.py", "Net.forward", 9)])))
        job.steps.append((now, now + wait + 10 * MS, {"data": wait, "forward": 10 * MS}))
        now += wait + 10 * MS
    return job.write(path)


def test_hostile_answer(opened, tmp_path):  # noqa: F811
    page = opened(hostile_answer(tmp_path / "hostile.rec"))
    shown = text_of(page, "#answer") + text_of(page, "#causes")
    assert HOSTILE[0] + "\\u202eevil\\u2066" + HOSTILE[6] in shown and "\u202e" not in shown
    assert page.run("return window.hit === undefined && document.images.length === 0 && document.scripts.length") == 1


def saved(page, selector):
    """The bytes that a button saves."""
    page.run("window.make ??= URL.createObjectURL; window.saved = null; URL.createObjectURL = (blob) => window.make.call(URL, (window.saved = blob))")
    page.click(selector)
    script = "const [done] = arguments; const wait = () => (window.saved ? window.saved.arrayBuffer().then((b) => done([...new Uint8Array(b)])) : setTimeout(wait, 10)); wait();"
    return bytes(page.call("POST", "/execute/async", {"script": script, "args": []}))


@pytest.mark.parametrize("which", ["slept", "hostile", "compared"])
def test_saved_svg(opened, slept, run, tmp_path, which):  # noqa: F811
    """It is XML, has a box for each one of the flame, and its names are text."""
    path = {"slept": slept, "hostile": hostile_job().write(tmp_path / "h.rec"), "compared": run[1]}[which]
    page = opened(path, address="#a=mid&b=slow:3" if which == "compared" else "")
    root = xml.etree.ElementTree.fromstring(saved(page, "#save-svg"))
    assert root.tag == SVG + "svg"
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {"svg", "defs", "pattern", "path", "rect", "text", "image"}
    texts = [element.text for element in root.iter(SVG + "text")]
    drawn = boxes(page)
    assert len(list(root.iter(SVG + "rect"))) > page.run("return app.flame.boxes().length")
    assert {name for name, (_, width, _) in drawn.items() if width > 500 and name != "all"} <= set(texts)
    assert "Limited by " + page.run(ANSWER)["verdict"]["head"] in texts
    assert [element.get("href")[:22] for element in root.iter(SVG + "image")] == ["data:image/png;base64,"]
    width, height = (float(root.get(key)) for key in ("width", "height"))
    for element in root.iter(SVG + "rect"):
        assert float(element.get("x")) >= 0 and float(element.get("y")) + float(element.get("height")) <= height
        assert float(element.get("x")) + float(element.get("width")) <= width + 1


def pixels(png):
    """(width, height, distinct rows) of a PNG, whose checksums are right."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at, chunks = 8, []
    while at < len(png):
        (size,) = struct.unpack(">I", png[at : at + 4])
        kind, data = png[at + 4 : at + 8], png[at + 8 : at + 8 + size]
        assert zlib.crc32(kind + data) == struct.unpack(">I", png[at + 8 + size : at + 12 + size])[0]
        chunks.append((kind, data))
        at += 12 + size
    width, height = struct.unpack(">II", chunks[0][1][:8])
    raw = zlib.decompress(b"".join(data for kind, data in chunks if kind == b"IDAT"))
    assert chunks[-1][0] == b"IEND" and len(raw) % height == 0
    row = len(raw) // height
    return width, height, len({raw[y * row : (y + 1) * row] for y in range(height)})


def test_saved_png(opened, slept):  # noqa: F811
    page = opened(slept)
    size = page.run("const p = app.picture(); return [p.width, p.height]")
    width, height, distinct = pixels(saved(page, "#save-png"))
    assert [width, height] == [2 * side for side in size] and distinct > 20


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", [(390, 844), (760, 1000), (1400, 900)])
def test_sizes(opened, run, size, theme):  # noqa: F811
    """Nothing sticks out at the side, and the answer is on the first screen; on a large one the flame is, too."""
    page = opened(run[1])
    page.resize(*size)
    try:
        for chosen in ({"a": "all", "b": ""}, {"a": "mid", "b": "cause:0"}, {"view": "time"}):
            page.run("app.set(arguments[0])", {"theme": theme, **chosen})
            width, space = page.run("return [document.documentElement.scrollWidth, innerWidth]")
            assert width <= space == size[0]
            script = """return [...document.querySelectorAll('#app *')].filter((e) => e.getClientRects().length && !e.closest('aside, #flame-box, #threads, #phase') &&
                e.getBoundingClientRect().right > innerWidth + 0.5).map((e) => e.tagName + e.id + e.className)"""
            assert page.run(script) == []
            bottom = page.run("return document.querySelector('.verdict').getBoundingClientRect().bottom")
            assert 0 < bottom < size[1] / 2
            if size[0] == 1400 and "view" not in chosen:
                top, low = page.run("const r = document.getElementById('flame-box').getBoundingClientRect(); return [r.top, r.bottom]")
                assert low <= size[1] and low - top > 200
            assert boxes(page)["data"][1] > 10
    finally:
        page.resize()


def test_by_keyboard_alone(opened, slept):  # noqa: F811
    """Tab comes to the first cause, to the steps and to the table; Enter and arrows work there."""
    page = opened(slept)
    reached = []
    for _ in range(40):
        page.press(web.TAB)
        reached.append(page.run("const e = document.activeElement; return e.id || e.className || e.tagName"))
        if reached[-1] == "cause" and state(page)["a"] == "all":
            page.press(web.ENTER)
            assert state(page)["a"] == "cause:0" and page.run("return document.activeElement.className") == "cause"
        if reached[-1] == "strip-0":
            page.press(web.RIGHT)
            first = state(page)["a"]
            page.press(web.RIGHT)
            assert first != state(page)["a"]
    assert {"save-svg", "save-png", "cause", "against", "strip-0", "threads", "phase", "flame", "TR"} <= set(reached)
    page.run("document.querySelector('#table-body tr').focus()")
    page.press(web.DOWN, web.ENTER)
    assert state(page)["view"] == "sandwich"


def test_names_keep_both_ends(opened, slept):  # noqa: F811
    page = opened(slept)
    names = ["package.module.Class.method.<locals>.wrapper", "훈련🔥" * 30, "x", "ab" * 5000]
    script = "const [name, room] = arguments; const c = document.createElement('canvas').getContext('2d'); const t = app.flame.fit(c, name, room); return [t, c.measureText(t).width, t.isWellFormed()]"
    for name in names:
        for room in (5, 30, 60, 120, 200):
            shown, width, sound = page.run(script, name, room)
            assert width <= room and sound
            head, dots, tail = shown.partition("…")
            assert shown == name or name.startswith(head) and name.endswith(tail)
            assert shown == name or len(shown) < 5 or (head and tail and dots)


def test_columns_without_numbers_are_left_out(opened, run):  # noqa: F811
    page = opened(run[1])
    heads = "return [...document.querySelectorAll('#table-head button')].map((b) => b.textContent.replace(' ↓', ''))"
    assert page.run(heads) == ["own", "total"]
    page.run("app.set({a: 'all', b: '1-20'})")
    assert page.run(heads) == ["own in B", "own B − A", "total B − A"]
    page.run("app.set({b: '5000-6000'})")
    assert page.run(heads) == ["own B − A", "total B − A"]


def test_legend_means_one_thing(opened, run):  # noqa: F811
    """Each colour of the legend is another, and A and B have none."""
    page = opened(run[1])
    page.run("app.set({a: 'mid', b: 'cause:0'})")
    found = page.run("return [...document.querySelectorAll('#legend .kind')].map((e) => getComputedStyle(e).backgroundColor)")
    assert len(found) == len(set(found)) > 6
    assert "slow step" in text_of(page, "#legend") and "GPU" not in page.run("return app.legend().map(([kind]) => kind).join()")


def lanes_of(page):
    """{tid: [(from, to, is a wait)]} in microseconds, in the order of the lanes."""
    script = "return app.lanes.lanes.map(({thread, items}) => [thread.tid, items.map((i) => [i.from, i.to, i.wait])])"
    return {tid: [tuple(item) for item in items] for tid, items in page.run(script)}


def lanes_expected(job, step):
    start, end = (ns // 1000 for ns in job.steps[step][:2])
    out = defaultdict(list)
    for row in sorted(job.rows, key=lambda row: row.time):
        to = row.time // 1000
        first = max(0, to - row.span)
        if to > start and (first if row.span else to) < end:
            out[row.tid].append((first, to, row.span > 0))
    return out


def test_one_step_over_time(opened, run):  # noqa: F811
    """Each thread's waits as they were, and its samples; the slowest of what is selected, or the one step."""
    job, path = run
    page = opened(path)
    page.press("o")
    slowest = max(range(len(job.steps)), key=lambda i: job.steps[i][1] // 1000 - job.steps[i][0] // 1000)
    assert lanes_of(page) == lanes_expected(job, slowest) and f"step {slowest + 1}:" in text_of(page, "#story")
    for step in (1, 18, 40, 79):
        page.run("app.set({a: arguments[0]})", f"{step + 1}-{step + 1}")
        found = lanes_of(page)
        assert found == lanes_expected(job, step) and list(found)[0] == PID
    page.run("app.set({a: '19-19'})")
    assert "{waiting: data_wait} in _get_data" in page.run("return app.lanes.textOf(app.lanes.lanes[0].items.find((i) => i.wait))")
    wait = max(lanes_expected(job, 18)[PID], key=lambda item: item[1] - item[0])
    left, width = page.run("const i = app.lanes.lanes[0].items.find((i) => i.to === arguments[0]); return app.lanes.placeOf(i)", wait[1])
    took = (job.steps[18][1] - job.steps[18][0]) / 1000
    assert width / (page.run("return app.lanes.space") - 16) == pytest.approx((wait[1] - wait[0]) / took, rel=0.01)
    x, y = page.run("const r = app.lanes.canvas.getBoundingClientRect(); return [r.left, r.top]")
    page.move((x + left + width / 2, y + 45))
    tip = text_of(page, "#tip")
    assert "data_wait" in tip and "in data" in tip and "ended by" in tip
    page.press("f", web.RIGHT, web.RIGHT, web.DOWN)
    assert page.run("return app.lanes.focused.number") == 1 and text_of(page, "#status")
    root = xml.etree.ElementTree.fromstring(saved(page, "#save-svg"))
    assert any("data_wait" in element.text for element in root.iter(SVG + "text"))
    page.press("f", web.ENTER)
    assert state(page)["view"] == "sandwich"


def test_threads_without_data_have_no_lane(opened, tmp_path):  # noqa: F811
    """And a wait that lasts longer than the step, or began before it, is in it."""
    job = stepped.Job(steps=[(i * 10 * MS, (i + 1) * 10 * MS, {}) for i in range(10)])
    job.rows = [stepped.Row(PID, i * 10 * MS + 5 * MS, 2 * MS, stepped.WAIT_DATA) for i in range(10)]
    job.rows += [stepped.Row(PID + 1, 95 * MS, 90 * MS, stepped.WAIT_DATA), stepped.Row(PID + 2, 12 * MS, 3 * MS, stepped.WAIT_DATA)]
    job.rows.sort(key=lambda row: row.time)
    page = opened(job.write(tmp_path / "r.rec"), address="#view=time&a=1-1")
    assert list(lanes_of(page)) == [PID, PID + 1, PID + 2] and lanes_of(page) == lanes_expected(job, 0)
    page.run("app.set({a: '5-5'})")
    assert lanes_of(page) == lanes_expected(job, 4) and set(lanes_of(page)) == {PID, PID + 1}
    page.run("app.set({a: '900-901'})")
    assert page.run("return document.getElementById('lanes-box').hidden")


def test_hostile_lanes(opened, tmp_path):  # noqa: F811
    page = opened(hostile_job().write(tmp_path / "hostile.rec"), address="#view=time")
    for _ in range(3):
        page.press("f", web.RIGHT)
    assert text_of(page, "#status") and page.run("return window.hit === undefined && document.images.length === 0")
    assert xml.etree.ElementTree.fromstring(saved(page, "#save-svg")).tag == SVG + "svg"


def test_answer_without_scripts(slept, tmp_path):
    out = tmp_path / "page.html"
    flame(slept, "-o", out)
    text = out.read_text()
    verdict = helpers.report(slept, "--steps")["verdict"]
    assert verdict["why"].replace("<", "&#60;").replace(">", "&#62;") in text and "every 20th step" in text
