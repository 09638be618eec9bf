# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The flame page in a real browser without a network. What is expected is computed by tests/e2e/stepped.py, or comes from `flame --folded`. Needs no root."""

import os
import re
from collections import Counter

import browser as web
import pytest
import recfile as rec
import sampled
import stepped
from stepped import PID
from .test_flame import HOSTILE, flame, hostile_job, large, parse, run, slowest  # noqa: F401


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if web.why_none():
        # where tests run by themselves, somebody must see that these did not
        (pytest.fail if os.environ.get("CI") else pytest.skip)(web.why_none())
    b = web.Browser(tmp_path_factory.mktemp("browser"))
    yield b
    b.close()


@pytest.fixture
def opened(browser):
    """Opens the page of a recording; in the end nothing may have been complained of, or asked of any address but the page's."""
    files = []

    def open_page(recording, *args, address=""):
        page = recording.with_suffix(".html")
        flame(recording, *args, "-o", page)
        files.append(page.resolve().as_uri())
        browser.console(), browser.requests()
        browser.open(page, (address or "#") + "&squeeze=")
        return browser

    yield open_page
    assert browser.console() == []
    asked = {url.partition("#")[0] for url in browser.requests()}
    assert {url for url in asked if not url.startswith(("chrome:", "data:", "about:", "blob:"))} <= set(files)


def folded(page):
    return page.run("return app.folded()")


def total_ms(weights, divisor):
    return sum(weights.values()) / 1e6 / divisor


def boxes(page):
    """{name: (x, width, row)} of the widest box of each name that is drawn."""
    script = """return app.flame.boxes().map((b) => [app.name(b.tree, b.node)[0], b.x, b.width, b.row])"""
    out = {}
    for name, x, width, row in page.run(script):
        if name not in out or width > out[name][1]:
            out[name] = (x, width, row)
    return out


def middle(page, box):
    """Of a box, as a point of the window."""
    left, top, scroll = page.run("const r = app.flame.canvas.getBoundingClientRect(); return [r.left, r.top, app.flame.scroller.scrollTop]")
    return left + box[0] + box[1] / 2, top + box[2] * 20 + 14 - scroll


def step_point(page, step, row=40):
    """Of a step's bar, as a point of the window."""
    left, top = page.run("const r = document.getElementById('strip-0').getBoundingClientRect(); return [r.left, r.top]")
    return left + page.run("return app.overviews[0].xOf(arguments[0] + 0.5)", step), top + row


def state(page):
    return page.run("return app.state")


@pytest.mark.parametrize("args", [[], ["--step", 19], ["--slowest", 5], ["-p", PID + 100], ["--all-threads"]])
def test_shows_what_folded_says(opened, run, args):  # noqa: F811
    job, path = run
    page = opened(path, *args)
    if state(page)["a"] == "all":
        page.press("w")
    assert parse(folded(page)) == parse(flame(path, *args, "--folded").stdout.decode())


def test_draws_what_it_knows(opened, run):  # noqa: F811
    """Boxes are as wide as their share, and of the colour of their kind."""
    job, path = run
    page = opened(path)
    phases = Counter()
    for stack, ns in job.folded().items():
        phases[stack[0][0]] += ns
    drawn, space = boxes(page), page.run("return app.flame.space")
    for phase, ns in phases.items():
        assert drawn[phase][1] == pytest.approx(space * ns / sum(phases.values()), abs=0.1)
    pixel = """const [x, row] = arguments, {scroller, canvas} = app.flame;
        scroller.scrollTop = row * 20 - 100;
        app.flame.draw();
        const copy = Object.assign(document.createElement('canvas'), {width: 1, height: 1}).getContext('2d', {willReadFrequently: true});
        copy.drawImage(canvas, x, row * 20 - scroller.scrollTop + 6, 1, 1, 0, 0, 1, 1);
        return [...copy.getImageData(0, 0, 1, 1).data.slice(0, 3)];"""
    for name, colour in [("forward", "--phase"), ("memcpy (libc.so.6)", "--native"), ("_get_data", "--python"), ("aten::gelu", "--op")]:
        x, width, row = drawn[name]
        found = page.run(pixel, round(x + width - 3), row)
        wanted = page.run("return app.colours.rgb(arguments[0])", colour)
        assert all(abs(a - b) <= (20 if colour == "--python" else 2) for a, b in zip(found, wanted)), name


def test_search(opened, run):  # noqa: F811
    job, path = run
    page = opened(path)
    page.press("/", *"aten::gelu")
    weights = job.folded()
    share = sum(ns for stack, ns in weights.items() if any(name == "aten::gelu" for name, _, _ in stack)) / sum(weights.values())
    shown = page.run("return document.getElementById('matched').textContent")
    assert float(shown.split()[0]) == pytest.approx(100 * share, abs=0.06)
    assert page.run("return document.querySelectorAll('#table-body tr').length") == 1
    page.press(web.ESCAPE)
    assert page.run("return document.activeElement.id") != "search"
    assert "q=aten" in page.run("return location.hash")


def test_search_that_is_no_expression(opened, run):  # noqa: F811
    page = opened(run[1])
    page.press("/", *"(libc.so")
    assert page.run("return app.matches.includes(1)")


def test_zoom(opened, run):  # noqa: F811
    page = opened(run[1])
    space = page.run("return app.flame.space")
    before = boxes(page)["backward"][1]
    assert before < space / 2
    page.drag(*[middle(page, boxes(page)["backward"])] * 2)
    assert boxes(page)["backward"][1] == pytest.approx(space) and boxes(page)["Tensor.backward"][1] == pytest.approx(space, abs=1)
    address = page.run("return location.hash")
    page.press(web.ESCAPE)
    assert boxes(page)["backward"][1] == before
    page = opened(run[1], address=address)
    assert boxes(page)["backward"][1] == pytest.approx(space)


def test_brush_and_compare(opened, run):  # noqa: F811
    job, path = run
    page = opened(path)
    page.drag(step_point(page, 4), step_point(page, 9))
    page.drag(step_point(page, 30, 130), step_point(page, 39, 130), shift=True)
    assert (state(page)["a"], state(page)["b"]) == ("5-10", "31-40")
    a, b = job.folded(range(4, 10)), job.folded(range(30, 40))
    sums = page.run("return app.sums")
    assert sums[0] / 1e6 == pytest.approx(total_ms(a, 6), rel=1e-3) and sums[1] / 1e6 == pytest.approx(total_ms(b, 10), rel=1e-3)
    for stack, (us_a, us_b) in parse(folded(page), counts=2).items():
        assert us_a or us_b, stack
    gone = {stack for stack in a if stack not in b}
    assert gone and page.run("const t = app.flame.trees[0]; return app.flame.boxes().some((x) => t.total[0][x.node] > 0 && !t.total[1][x.node])")
    page.press("x")
    assert (state(page)["a"], state(page)["b"]) == ("31-40", "5-10")
    page.press("c")
    assert (state(page)["a"], state(page)["b"]) == ("all", "")


def test_outside_of_steps(opened, tmp_path):
    """What was before the first step and after the last is no step's time; it is in the whole time, which is told per second."""
    job = stepped.training(steps=50, slow=0)
    end = job.rows[-1].time
    outside = [stepped.Row(PID, at, stepped.PERIOD, job.rows[1].spot) for at in (1000, *range(end + 10**8, end + 2 * 10**9, stepped.PERIOD))]
    job.rows = [outside[0], *job.rows, *outside[1:]]
    page = opened(job.write(tmp_path / "r.rec"))
    assert page.run("return app.sums[0] / 1e6") == pytest.approx(total_ms(job.folded(range(50)), 50), rel=1e-3)
    mean_ms = sum(end - start for start, end, *_ in job.steps) / 50 / 1e6
    assert "all steps: 50 steps, %.1f ms each" % mean_ms in page.run("return document.getElementById('chosen').textContent")
    page.click("#wholeTime")
    seconds = max(row.time for row in job.rows) / 1e9
    assert page.run("return app.sums[0] / 1e6") == pytest.approx(total_ms(job.folded(), seconds), rel=1e-3)
    assert "per second" in page.run("return document.getElementById('story').textContent")
    page.drag(step_point(page, 4), step_point(page, 9), shift=True)  # per step is held against per step
    assert (state(page)["a"], state(page)["b"]) == ("all", "5-10")


def test_per_second_of_what_was_kept(opened, tmp_path):
    """The whole time of a recording that has dropped its first hour is that since then."""
    job, hour = stepped.training(steps=50, slow=0), 3600 * 10**9
    seconds = job.end / 1e9
    job.steps = [(start + hour, end + hour, phases) for start, end, phases in job.steps]
    for row in job.rows:
        row.time += hour
    job.extra.append(rec.record("DROPPED", time_ns=stepped.START + hour, events=1000))
    page = opened(job.write(tmp_path / "r.rec"))
    page.click("#wholeTime")
    assert page.run("return app.sums[0] / 1e6") == pytest.approx(total_ms(job.folded(), seconds), rel=1e-3)


def test_slowest_against_median(opened, run):  # noqa: F811
    """One click tells of the wait that was planted in each 19th step."""
    job, path = run
    page = opened(path)
    page.click("#slowest")
    story = page.run("return document.getElementById('story').textContent")
    assert "{waiting: data_wait}" in story
    waits = [sum(ns for stack, ns in job.folded(steps).items() if "{waiting: data_wait}" in [name for name, _, _ in stack]) / len(steps) for steps in (slowest(job, 80)[20:60], slowest(job, 5))]
    change = page.run("const f = app.data.texts.indexOf('{waiting: data_wait}'); const k = app.data.functions.name.indexOf(f); return compare(app.table.sums.own, k, app.steps).change")
    assert change == pytest.approx(waits[1] - waits[0], rel=0.02)


def test_keyboard(opened, run):  # noqa: F811
    page = opened(run[1])
    page.press("f", web.DOWN, web.LEFT)
    assert page.run("const b = app.flame.focused; return [b.row, app.name(b.tree, b.node)[0]]") == [1, "forward"]
    assert "forward" in page.run("return document.getElementById('status').textContent")
    page.press(web.ENTER)
    assert boxes(page)["forward"][1] == pytest.approx(page.run("return app.flame.space"))
    page.press(web.BACKSPACE, "i")
    assert state(page)["view"] == "inverted"
    page.press("i", "]", "]", "}")
    assert state(page)["a"] == "2-3"
    page.press("s")
    assert state(page)["view"] == "sandwich"
    page.press("s", "t")
    assert page.run("return document.documentElement.dataset.theme") == "dark"
    page.press("?")
    assert page.run("return document.getElementById('help').open")
    page.press(web.ESCAPE)
    assert not page.run("return document.getElementById('help').open")


def test_short_chains(opened, run):  # noqa: F811
    page = opened(run[1])
    page.press("k")
    drawn = boxes(page)
    assert "main" not in drawn and drawn["_engine_run_backward"][2] == drawn["backward"][2] + 1
    assert sum(page.run("return app.flame.rows[2].map((b) => b.width)")) == pytest.approx(page.run("return app.flame.space"), rel=0.01)
    page.drag(*[middle(page, drawn["_engine_run_backward"])] * 2)
    assert boxes(page)["_engine_run_backward"][1] == pytest.approx(page.run("return app.flame.space"))


@pytest.mark.parametrize("lines", ["1", ""])
def test_inverted_and_sandwich_keep_the_time(opened, run, lines):  # noqa: F811
    job, path = run
    page = opened(path, address=f"#view=inverted&lines={lines}")
    own, total = Counter(), Counter()
    for stack, ns in job.folded().items():
        own[stack[-1][0]] += ns
        for name in {name for name, _, _ in stack}:
            total[name] += ns
    tree = "const t = app.flame.trees[0];"
    roots = page.run(tree + "return [...t.childrenOf(0)].map((n) => [app.name(t, n)[0], t.total[0][n]])")
    found = Counter()
    for name, ns in roots:
        found[name] += ns
    assert found == pytest.approx(own)
    name = "aten::gelu"
    page.run("app.set({view: 'sandwich', fn: String(app.data.functions.name.indexOf(app.data.texts.indexOf(arguments[0])))})", name)
    assert page.run("return app.flame.trees.map((t) => t.total[0][1])") == pytest.approx([total[name]] * 2)
    assert {"forward", "backward", "optimizer"} & set(boxes(page))


def test_recursion_counts_once(opened, tmp_path):
    """In the table, as in cProfile: the time of a function is that of its outermost calls."""
    f, g, main = (sampled.Function("/t.py", line, name) for line, name in ((1, "f"), (20, "g"), (40, "main")))
    job = sampled.Job()
    job.samples = [sampled.Sample(sampled.PID, sampled.PERIOD, frames, []) for frames in ([(f, 0), (f, 12), (g, 0), (f, 12), (main, 0)], [(g, 0), (main, 0)])]
    page = opened(job.write(tmp_path / "r.rec"))
    script = """const at = (name) => app.data.functions.name.indexOf(app.data.texts.indexOf(name)), {own, total} = app.table.sums;
        return ['f', 'g', 'main'].map((name) => [own[0][at(name)], total[0][at(name)]]);"""
    once = sampled.PERIOD
    assert page.run(script) == [[once, once], [once, 2 * once], [0, 2 * once]]


def test_filters(opened, run):  # noqa: F811
    job, path = run
    page = opened(path)
    page.run("const s = document.getElementById('phase'); s.value = 'forward'; s.dispatchEvent(new Event('change', {bubbles: true}))")
    expected = {stack: ns for stack, ns in job.folded().items() if stack[0][0] == "forward"}
    assert sum(parse(folded(page)).values()) == pytest.approx(sum(expected.values()) / 1000, abs=len(expected))
    page.run("app.set({a: 'time', phase: '', threads: arguments[0]})", f"tid:{PID + 100}/{PID + 100}")
    assert parse(folded(page)) == parse(flame(path, "--folded", "-p", PID + 100).stdout.decode())


def test_hostile_names(opened, tmp_path):
    """Names are shown, with what could steer a reader made visible; none of them does anything."""
    page = opened(hostile_job().write(tmp_path / "hostile.rec"))
    page.press("f", web.DOWN, web.DOWN)
    page.move(middle(page, boxes(page)["forward"]))
    for keys in ("d", "i", "s"):
        page.press(keys)
    assert page.run("return window.hit === undefined && document.images.length === 0 && document.scripts.length") == 1
    texts = page.run("return app.data.texts")
    assert HOSTILE[0] in texts and "\\u202eevil\\u2066" in texts and "a\\x0ab\\x0c\\x1b[31m".replace("\\x0c", "c") in texts
    shown = page.run("return document.body.innerText")
    assert not re.search("[\u202a-\u202e\u2066-\u2069]", shown)


def test_two_recordings(opened, run, tmp_path):  # noqa: F811
    job, path = run
    other = stepped.training(steps=50, slow=5, seed=9)
    second = other.write(tmp_path / "b.rec")
    page = opened(path, "--diff", second)
    assert parse(folded(page), counts=2) == parse(flame(path, "--diff", second, "--folded").stdout.decode(), counts=2)
    assert "{waiting: data_wait}" in page.run("return document.getElementById('story').textContent")
    assert page.run("return !document.getElementById('strip-1').parentElement.hidden")


def test_ranks(opened, tmp_path):
    """Each rank has its steps and its threads, and workers belong to the one that started them."""
    job = stepped.Job(targets=[stepped.rec.target(PID, rank=0), stepped.rec.target(77, rank=1), stepped.rec.target(78, stepped.rec.WORKER, parent=77)])
    for i, pid in enumerate((PID, 77, 78)):
        job.rows += [stepped.Row(pid, n * 50_000_000 + 20_000_000, (i + 1) * 1_000_000, stepped.WAIT_DATA, pid=pid) for n in range(6)]
    job.extra = [stepped.rec.boundary(pid, pid, n, stepped.START + n * 50_000_000) for pid in (PID, 77) for n in range(6)]
    page = opened(job.write(tmp_path / "r.rec"))
    assert page.run("return [...document.getElementById('track').options].map((o) => o.text)") == ["rank 1, pid 77", f"rank 0, pid {PID}"]
    for pid, threads, each in ((PID, "steps", 1), (77, "steps", 2), (77, "all", 5)):
        script = "const [pid, threads] = arguments; app.set({track: String(app.data.tracks.findIndex((t) => t.pid === pid)), threads, a: '1-5'})"
        page.run(script, pid, threads)
        assert page.run("return app.sums[0] / 1e6") == pytest.approx(each), (pid, threads)


def test_no_steps(opened, tmp_path):
    job = stepped.Job(rows=[stepped.Row(PID, 20_000_000, 10_000_000, stepped.WAIT_DATA)])
    page = opened(job.write(tmp_path / "r.rec"))
    assert "No steps were found" in page.run("return document.getElementById('story').textContent")
    assert page.run("return document.getElementById('overview').hidden") and "data" in boxes(page)


def test_address_is_not_trusted(opened, run):  # noqa: F811
    for address in ("#a=9-1&b=slow:0&view=nothing&fn=-7&zoom=1.x.99&track=77&threads=tid:x&q=[&width=z&phase=<b>", "#view=sandwich&fn=99999999"):
        page = opened(run[1], address=address)
        page.press("i", "d", "f")


def test_download(opened, run, tmp_path):  # noqa: F811
    page = opened(run[1])
    page.run("URL.createObjectURL = (blob) => ((window.saved = blob.text()), '#')")
    page.click("#download")
    saved = page.call("POST", "/execute/async", {"script": "window.saved.then(arguments[0])", "args": []})
    assert parse(saved) == parse(flame(run[1], "--folded").stdout.decode())


@pytest.mark.long
def test_large_page_opens_soon(opened, large):  # noqa: F811
    """10,000 steps and 50,000 distinct stacks: in CPU time of the whole browser, for other things may run on the machine."""
    page = opened(large)
    times = []
    for _ in range(3):
        begin = page.cpu_seconds()
        page.open(large.with_suffix(".html"))
        times.append(page.cpu_seconds() - begin)
    assert page.run("return app.data.tracks[0].count") == 10_000
    assert min(times) < 2, times
