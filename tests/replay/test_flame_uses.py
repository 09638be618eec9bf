# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What was used over time, on the flame page in a real browser. What is expected is computed here, or comes from `report --steps`. Needs no root."""

import browser as web
import helpers
import pytest
import recfile as rec
import stepped
from stepped import PID
from .test_flame_page import browser, opened, step_point  # noqa: F401

S = 10**9
SIZES = [(1400, 900), (390, 844)]


def looks(end_ns, gpus=1):
    """Of the process that makes the steps, whose memory grows, of two workers, of which one ends, and of GPUs."""
    cpu = Counts()
    for i in range(end_ns // S + 3):
        now = stepped.START - S // 2 + i * S
        for k, (pid, memory) in enumerate([(PID, 700_000_000 + i * 5_000_000), (PID + 100, 300_000_000), (PID + 101, 310_000_000)]):
            if pid == PID + 101 and i > 6:
                continue
            cpu[pid] += (S if i % 5 else S // 4) if not k else S // 5
            yield rec.record("RESOURCES", time_ns=now + k * 100_000, pid=pid, known=15, user_ns=cpu[pid], rss_bytes=memory, read_bytes=i)
        for g in range(gpus):
            yield rec.gpu_usage(g, now, (i % 3 + 4) << 30, 80 << 30, (40 + i - g, 3, 300000, 60, 1500))


class Counts(dict):
    def __missing__(self, key):
        return 0


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    job = stepped.training()
    job.extra = list(looks(job.end))
    path = tmp_path_factory.mktemp("uses") / "run.rec"
    job.write(path)
    return job, path


def used(page, step):
    """{name: [values as the page has them]} of a step, by its index in the page."""
    return dict(page.run("const t = app.tracks[0], s = arguments[0]; return app.overviews[0].uses.map((r) => [r.name, [r.own, r.all].map((u) => u && valueBetween(u, t.start[s], t.end[s]))])", step))


def test_steps_are_those_of_the_report(opened, run):  # noqa: F811
    page = opened(run[1])
    steps = helpers.report(run[1], "--steps")["steps"]
    assert len(steps) == 200
    for at in range(0, 199, 7):
        found, resources = used(page, at), steps[at]["resources"]
        assert found["memory"] == [resources["rss_bytes"], None]
        assert found["CPU"][0] / 1000 == pytest.approx(resources["cpu_percent"], abs=0.01)
        assert found["memory, all"][1] == pytest.approx(resources["rss_bytes"] + 300e6 + (310e6 if at < 60 else 0), rel=1e-3) or 60 <= at < 90
    assert list(found) == ["memory", "memory, all", "CPU", "GPU 0"]
    # the workers take a fifth of a processor each
    assert used(page, 10)["CPU"][1] - used(page, 10)["CPU"][0] == pytest.approx(40000, abs=100)
    assert used(page, 150)["CPU"][1] - used(page, 150)["CPU"][0] == pytest.approx(20000, abs=100)


def test_tip_has_the_values(opened, run):  # noqa: F811
    page = opened(run[1])
    bottom = page.run("return app.overviews[0].height")
    for row in (40, bottom - 10):
        page.move(step_point(page, 100, row))
        tip = page.run("return document.getElementById('tip').innerText")
        step = helpers.report(run[1], "--steps")["steps"][100]["resources"]
        assert "memory\t%d MB" % round(step["rss_bytes"] / 1e6) in tip and "CPU\t%.1f %%" % step["cpu_percent"] in tip and "GPU 0\t" in tip


@pytest.mark.parametrize("size", SIZES, ids=["wide", "phone"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_is_drawn(opened, run, size, theme):  # noqa: F811
    """The line of the memory goes up, in the ink of the theme, and nothing is wider than the window."""
    page = opened(run[1], address="#theme=" + theme)
    try:
        page.resize(*size)
        page.until("return app.overviews[0].width < innerWidth")
        page.until("return document.documentElement.scrollWidth <= innerWidth")
        heights = """const o = app.overviews[0], ink = o.colours.rgb('--ink'), ratio = devicePixelRatio;
            const pen = Object.assign(document.createElement('canvas'), {width: o.canvas.width, height: o.canvas.height}).getContext('2d', {willReadFrequently: true});
            pen.drawImage(o.canvas, 0, 0);
            return [0.1, 0.5, 0.9].map((share) => {
              const x = Math.round((LEFT + share * o.width) * ratio), {data} = pen.getImageData(x, USES_TOP * ratio, 1, USE_ROW * ratio);
              for (let y = 0; y < data.length / 4; y++) if (data[4 * y + 3] > 200 && ink.every((c, i) => Math.abs(c - data[4 * y + i]) < 40)) return y;
              return -1;
            });"""
        first, middle, last = page.run(heights)
        assert first > middle > last >= 0
        label = "const o = app.overviews[0], pen = o.canvas.getContext('2d'); pen.font = '11px ' + css('--font'); return Math.max(...o.uses.map((r) => Math.max(pen.measureText(rangeText(r)).width, pen.measureText(r.name).width)))"
        assert page.run(label) <= page.run("return LEFT - 6")
    finally:
        page.resize()


def test_one_step(opened, run):  # noqa: F811
    """Lanes of the step, behind those of its process and its workers; the keyboard comes to them."""
    page = opened(run[1], address="#view=time")
    names = page.run("return app.lanes.lanes.map((l) => app.lanes.nameOf(l))")
    at = next(i for i, name in enumerate(names) if name.startswith("memory "))
    assert all("thread" in name for name in names[:at]) and [name.split()[0] for name in names[at:]] == ["memory", "memory,", "CPU", "GPU"]
    step = page.run("return app.lanes.track.index[app.lanes.step]")
    resources = next(s["resources"] for s in helpers.report(run[1], "--steps")["steps"] if s["index"] == step)
    assert names[at] == "memory %d MB" % round(resources["rss_bytes"] / 1e6)
    page.run("document.getElementById('lanes').focus()")
    page.press(*[web.DOWN] * (at + 1))
    assert page.run("return document.getElementById('status').innerText").startswith("memory ")


def test_nothing_known(opened, tmp_path):  # noqa: F811
    """No row of what was not recorded, or is 0 all the time."""
    job = stepped.training(steps=40)
    job.write(tmp_path / "none.rec")
    page = opened(tmp_path / "none.rec")
    assert page.run("return app.overviews[0].uses.length") == 0 and page.run("return app.overviews[0].height") < 240
    job.extra = [rec.gpu_usage(0, stepped.START + i * S, 0, 1, (0, 0, 1, 1, 1)) for i in range(4)]
    job.extra += [rec.record("RESOURCES", time_ns=stepped.START + i * S, pid=PID, known=1, rss_bytes=10**9) for i in range(4)]
    job.write(tmp_path / "zero.rec")
    page = opened(tmp_path / "zero.rec")
    assert page.run("return app.overviews[0].uses.map((r) => r.name)") == ["memory"]
    assert page.run("return rangeText(app.overviews[0].uses[0])") == "0.98–1.00\u2009GB"


def test_without_steps(opened, tmp_path):  # noqa: F811
    """The whole time, with the values under the pointer; of many GPUs the mean."""
    job = stepped.training()
    job.extra, job.steps = list(looks(job.end, gpus=3)), []
    job.write(tmp_path / "a.rec")
    page = opened(tmp_path / "a.rec")
    left, top, width = page.run("const r = document.getElementById('strip-0').getBoundingClientRect(); return [r.left + LEFT, r.top, r.width - LEFT]")
    page.move((left + width / 2, top + 20))
    tip = page.run("return document.getElementById('tip').innerText")
    middle = int(job.end / S + 2.5) // 2
    assert tip.startswith("at ") and "CPU" in tip and "memory\t1.04 GB" in tip.replace("1.03", "1.04").replace("1.05", "1.04")
    mean = next(line for line in tip.splitlines() if line.startswith("3 GPUs"))
    assert float(mean.split("\t")[1].split()[0]) == pytest.approx(40 + middle - 1, abs=2)


def test_long_and_hostile(opened, tmp_path):  # noqa: F811
    """A day is thinned; numbers that no kernel counts do no harm."""
    job = stepped.training(steps=20)
    job.extra = [rec.record("RESOURCES", time_ns=stepped.START + i * S, pid=PID, known=15, user_ns=i * S // 2, rss_bytes=10**9 + i * 1000) for i in range(20000)]
    job.extra += [rec.record("RESOURCES", time_ns=t, pid=PID + 1, known=15, user_ns=2**64 - 1 - t, rss_bytes=2**64 - 1) for t in (0, 1, 2**64 - 1)]
    job.write(tmp_path / "a.rec")
    page = opened(tmp_path / "a.rec")
    counts = page.run("return app.data.uses.filter((u) => u.pid === %d).map((u) => u.count)" % PID)
    assert counts and all(2000 < count <= 4000 for count in counts)
    assert page.run("return app.data.uses.every((u) => u.value.every((v) => v >= 0 && Number.isFinite(v)))")
