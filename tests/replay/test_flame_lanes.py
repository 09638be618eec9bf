# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Streams of GPUs and phases in the flame page's view of one step over time, in a real browser: against `export -f chrome`
of the same recording, the log of the doubles of CUDA's libraries, and phases by instants that are computed here.
"""

import random
import re
import xml.etree.ElementTree
from collections import defaultdict

import browser as web
import pytest
import recfile as rec
import stepped
from stepped import PID, START
from .test_export import chrome, ns, slices
from .test_flame import HOSTILE
from .test_flame_answer import MS, SVG, saved, text_of
from .test_flame_page import browser, opened, state  # noqa: F401
from .test_gpu_flame import TEXTS, activities, random_job

SPANS = """return app.lanes.lanes.filter((lane) => lane.source).map((lane) => [app.lanes.nameOf(lane), lane.source.kind === STREAM, lane.source.pid,
    lane.source.device, lane.source.stream, lane.items.map((i) => [spanName(app.data, lane.source, i.at), i.from, i.to])])"""
GPU_WORK = ("kernel", "gpu_memcpy", "gpu_memset")


def show(page, step):
    page.run("app.set({view: 'time', a: arguments[0]})", f"{step}-{step}")


def streams_of(page):
    """{(pid, device, stream): [(from, to, name)]} in microseconds of the recording."""
    return {tuple(which): sorted((a, b, name) for name, a, b in items) for _, stream, *which, items in page.run(SPANS) if stream}


def phases_of(page):
    """The thread's phases, or None where there is no lane: [(from, to, name)] in microseconds."""
    lanes = [[(a, b, name) for name, a, b in items] for _, stream, *_, items in page.run(SPANS) if not stream]
    assert len(lanes) <= 1
    return lanes[0] if lanes else None


def steps_of(page):
    """{number: (start, end)} in microseconds."""
    return {index: span for index, *span in page.run("const t = app.tracks[0]; return [...t.index].map((n, i) => [n, t.start[i], t.end[i]])")}


def exported(path, origin_ns):
    """Work on GPUs that `export` draws: {(pid of the trace, stream): [(from, to, name)]} in microseconds from an instant of CLOCK_MONOTONIC."""
    trace = chrome(path)
    (host,) = [row for kind, row in rec.read_records(path) if kind == "HOST"]
    base = trace["baseTimeNanoseconds"] - host.realtime_ns + host.monotonic_ns - origin_ns
    out = defaultdict(list)
    for e in slices(trace):
        if e["cat"] in GPU_WORK:
            begin = ns(e["ts"]) + base
            out[e["pid"], e["tid"]].append((begin / 1000, (begin + ns(e["dur"])) / 1000, e["name"]))
    return out


def during(items, span):
    """What is in a step; the page knows no time before the recording."""
    return sorted((max(0, begin), end, name) for begin, end, name in items if begin < span[1] and end > span[0])


def same(found, expected):
    assert [name for *_, name in found] == [name for *_, name in expected]
    for a, b in zip(found, expected):
        assert a[:2] == pytest.approx(b[:2], abs=1e-3)


def test_streams(opened, tmp_path):  # noqa: F811
    """Each stream's work as it was, as the trace of the same recording has it."""
    job, works = random_job(3)
    path = job.write(tmp_path / "r.rec")
    page = opened(path)
    trace = exported(path, START)
    for step, span in steps_of(page).items():
        show(page, step)
        found = streams_of(page)
        assert set(found) == {(PID, 0, 7), (PID, 0, 8), (PID, 1, 7), (PID + 77, 0, 7)} and phases_of(page) is None
        for device, stream in (0, 7), (0, 8), (1, 7):
            same(found[PID, device, stream], during(trace[device, stream], span))
            mine = [(a / 1000, b / 1000, TEXTS[what]) for a, b, what, d, s in works if (d, s) == (device, stream)]
            same(found[PID, device, stream], during(mine, span))
    names = [name for name, *_ in page.run(SPANS)]
    assert names[0].startswith("GPU 0, stream 7, busy ") and names[-1].startswith(f"pid {PID + 77}, GPU 0, stream 7, busy ")


def test_reads_and_steers(opened, tmp_path):  # noqa: F811
    """The tip, the keys, the image, and the function below a wait for the kernel."""
    job = stepped.Job(steps=[(i * 10 * MS, (i + 1) * 10 * MS, {}) for i in range(3)])
    job.rows = [stepped.Row(PID, i * 10 * MS + 9 * MS, 4 * MS, stepped.spot("backward", [], ops=("cudaStreamSynchronize",), cause="gpu_sync")) for i in range(3)]
    job.extra = [rec.gpu(PID, 2), *activities([(i * 10 * MS + 6 * MS, i * 10 * MS + 8 * MS, (rec.KERNEL, 0), 0, 7) for i in range(3)])]
    page = opened(job.write(tmp_path / "r.rec"), address="#view=time&a=2-2")
    left, top, x, width = page.run("const r = app.lanes.canvas.getBoundingClientRect(), l = app.lanes.lanes[1]; return [r.left, r.top, ...app.lanes.placeOf(l.items[0])]")
    assert (x - 8, width) == pytest.approx([share * (page.run("return app.lanes.space") - 16) for share in (0.6, 0.2)])
    page.move((left + x + width / 2, top + 85))
    tip = text_of(page, "#tip")
    assert "gemm_kernel" in tip and "6.00 ms to 8.00 ms, work of the GPU of 2.00 ms" in tip and "GPU 0, stream 7, busy 2.00 ms" in tip
    page.press("f", web.RIGHT, web.DOWN)
    assert "gemm_kernel" in text_of(page, "#status")
    assert any(element.text.startswith("gemm") for element in xml.etree.ElementTree.fromstring(saved(page, "#save-svg")).iter(SVG + "text"))
    assert "kernel" in page.run("return app.legend().map(([kind]) => kind)")
    page.press("f", web.ENTER)
    assert state(page)["view"] == "sandwich" and page.run("return app.data.texts[app.data.functions.name[app.state.fn]]") == "gemm_kernel (GPU)"


def test_what_was_not_recorded(opened, tmp_path):  # noqa: F811
    """Outside of CUPTI's windows a stream is not idle: nobody looked."""
    job, works = random_job(5)
    windows = [(15 * MS, 32 * MS), (32 * MS, 47 * MS), (95 * MS, 200 * MS)]
    inside = [w for w in works if any(a <= w[0] and w[1] <= b for a, b in windows)]
    job.extra = [rec.gpu(PID, 2), *activities(inside), *(rec.gpu_window(PID, i, START + a, START + b) for i, (a, b) in enumerate(windows))]
    page = opened(job.write(tmp_path / "r.rec"))
    gaps = "return app.lanes.lanes.find((lane) => lane.source).gaps"
    for step, expected in (2, [(10, 15)]), (3, []), (4, []), (5, [(47, 50)]), (10, [(90, 95)]):
        show(page, step)
        assert page.run(gaps) == [[a * 1000, b * 1000] for a, b in expected], step
        assert ("recorded" in page.run(SPANS)[0][0]) == bool(expected) and "not recorded" not in text_of(page, "#story")
    show(page, 7)
    assert not page.run(SPANS) and "What the GPU did in this step was not recorded" in text_of(page, "#story")


def test_bounded(opened, tmp_path):  # noqa: F811
    """More work than a page has room for is merged, and its time and its number stay; the page says so."""
    rng = random.Random(4)
    job = stepped.Job(steps=[(i * 100 * MS, (i + 1) * 100 * MS, {}) for i in range(20)], rows=[stepped.Row(PID, 5 * MS, MS, stepped.WAIT_DATA)])
    works, at = [], 0
    while at < 1990 * MS:
        at += rng.choice([1000, 3000, 12_000, 200_000])
        works += [(at, at + 2000, (rec.KERNEL, rng.randrange(2)), 0, stream) for stream in (7, 8)]
        at += 2000
    repeated = [(a, b, what, device, stream) for a, b, what, _, stream in works for device in range(6)]
    assert len(repeated) > 250_000
    job.extra = [rec.gpu(PID, 2), *activities(repeated)]
    path = job.write(tmp_path / "r.rec")
    page = opened(path)
    sums = page.run("return app.data.lanes.map((s) => [s.count, s.busy.reduce((x, y) => x + y, 0), s.merged.reduce((x, y) => x + y, 0)])")
    assert 10_000 < sum(count for count, *_ in sums) <= 100_000 and len(sums) == 12
    for _, busy, merged in sums:
        assert busy == pytest.approx(2 * len(works) / 2, rel=1e-9) and merged == len(works) / 2
    about = page.run("return document.getElementById('about-text').textContent")
    grain = float(re.search(r"work of a stream that begins within ([\d.]+) ms is one bar", about)[1]) * 1000
    begins = page.run("return [...app.data.lanes[0].from]")
    assert min(b - a for a, b in zip(begins, begins[1:])) >= grain - 1e-3
    shown = page.run("const s = app.data.lanes[0]; return [...s.from].map((from, i) => [from, s.to[i], s.merged[i]])")
    for begin, end, merged in shown[::97]:
        mine = [w for w in works if w[4] == 7 and begin * 1000 <= w[0] and w[1] <= end * 1000 + 1]
        assert len(mine) == merged and (mine[0][0], mine[-1][1]) == pytest.approx((begin * 1000, end * 1000))
    assert path.with_suffix(".html").stat().st_size < 1_500_000
    show(page, 3)
    assert re.search(r"\d+ pieces of work, busy ", "\n".join(page.run("return app.lanes.lanes.filter((l) => l.source).flatMap((l) => l.items.flatMap((i) => app.lanes.describe(i)[1]))")))


def test_hostile(opened, tmp_path):  # noqa: F811
    """Names and times that lie."""
    job, works = random_job(2)
    numbers = [1, START, START + 10 * MS, 2**63, 2**64 - 1]
    job.extra += [rec.name(950 + i, name) for i, name in enumerate(HOSTILE)]
    job.extra += [rec.gpu_activity(PID, kind, start, took, ident, direction=7, device=ident) for kind in range(6) for start in numbers for took in numbers for ident in (0, 950, 951)]
    job.extra += [rec.gpu_window(PID, i, a, b) for i, (a, b) in enumerate((a, b) for a in numbers for b in numbers)]
    job.extra += [rec.spans(PID, PID, [rec.span(kind, 950, start, took) for kind in range(1, 20) for start in numbers for took in numbers])]
    page = opened(job.write(tmp_path / "r.rec"))
    for step in 1, 2, 20:
        show(page, step)
        assert page.run("return app.lanes.lanes.length") > 1
        page.run("app.lanes.lanes.forEach((l) => l.items.forEach((i) => app.lanes.describe(i)))")
        page.press("f", web.RIGHT)
    assert page.run("return window.hit === undefined && document.images.length === 0")


def inside(outer, own):
    """The rule of docs/steps.md: what is in a validation belongs to it, but for collectives and checkpoints."""
    return outer if own == "other" or (outer == "validation" and own not in ("comm", "checkpoint")) else own


def test_phases(opened, tmp_path):  # noqa: F811
    """By the recorded spans' begins and ends, the innermost first; derived ones are around all others."""
    names = {100: ("backward", rec.BACKWARD, "backward"), 101: ("[Strategy]M.training_step", rec.ACTION, "forward"), 102: ("Optimizer.step#Adam.step", rec.LABEL, "optimizer")}
    names |= {103: ("mine", rec.LABEL, "other"), 104: ("allreduce", rec.COMM, "comm"), 105: ("forward", rec.FORWARD, "forward"), 106: ("enumerate(DataLoader)#X", rec.LABEL, "data")}
    rng = random.Random(6)
    job = stepped.Job(steps=[(i * 10 * MS, (i + 1) * 10 * MS, {"forward": 5 * MS}) for i in range(12)], rows=[stepped.Row(PID, 5 * MS, MS, stepped.WAIT_DATA)])
    spans, rows = [], []

    def nest(begin, end, depth):
        while end - begin > 400_000 and rng.random() < 0.8:
            first = rng.randrange(begin, end, 1000)
            last = rng.randrange(first, end, 1000)
            kind = rng.choice([100, 101, 102, 103, 104, 106])
            if depth < 4:
                nest(first, last, depth + 1)
            spans.append((kind, first, last))
            begin = last

    for i in range(10):
        nest(i * 10 * MS + 1000, (i + 1) * 10 * MS, 0)
        spans.append((105, i * 10 * MS + 3 * MS, i * 10 * MS + 6 * MS))
    rows = [rec.span(names[kind][1], kind, START + a, b - a) for kind, a, b in spans]
    job.extra = [rec.name(ident, text) for ident, (text, *_) in names.items()]
    job.extra += [rec.spans(PID, PID, rows), rec.spans(PID, PID + 1, rows[:3])]
    page = opened(job.write(tmp_path / "r.rec"))
    for step in range(1, 11):
        show(page, step)
        found = phases_of(page)
        for time in range((step - 1) * 10 * MS + 500, step * 10 * MS, 20_000):
            around = [s for s in spans if s[1] <= time < s[2]]
            phase = "other"
            for kind, *_ in sorted(around, key=lambda s: (s[0] != 105, s[1], -s[2])):
                phase = inside(phase, names[kind][2])
            assert next((name for a, b, name in found if a * 1000 <= time < b * 1000), "other") == phase, (step, time)
        assert all(x[1] <= y[0] for x, y in zip(found, found[1:]))
    for step in 11, 12:
        show(page, step)
        assert phases_of(page) is None


def test_bounded_phases(opened, tmp_path):  # noqa: F811
    """Of more phases than a page has room for the short ones go; the page says which, and the lane how much is not drawn."""
    job = stepped.Job(steps=[(i * 100 * MS, (i + 1) * 100 * MS, {"forward": 75 * MS}) for i in range(20)], rows=[stepped.Row(PID, 5 * MS, MS, stepped.WAIT_DATA)])
    starts = [(at, (1 + i % 3) * 4000) for i, at in enumerate(range(0, 1999 * MS, 16_000))]
    rows = [rec.span(rec.BACKWARD, 100, START + at, took) for at, took in starts]
    assert len(rows) > 120_000
    job.extra = [rec.name(100, "backward"), *(rec.spans(PID, PID, rows[i : i + 4096]) for i in range(0, len(rows), 4096))]
    page = opened(job.write(tmp_path / "r.rec"))
    about = page.run("return document.getElementById('about-text').textContent")
    grain = float(re.search(r"over time, those shorter than ([\d.]+) ms are not drawn", about)[1]) * 1e6
    show(page, 3)
    expected = [(at / 1000, (at + took) / 1000, "backward") for at, took in starts if took >= grain and 200 * MS <= at + took and at < 300 * MS]
    found = phases_of(page)
    assert 4000 < grain <= 12_000 and len(found) == len(expected)
    same(found, expected)
    assert re.search(r" of 75.0 ms, of the rest it is not known when", page.run(SPANS)[0][0])
