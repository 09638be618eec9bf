# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`stepflame flame`: its folded stacks, and the file that the page is. What is expected is computed by tests/e2e/stepped.py. Needs no root."""

import html.parser
import itertools
import math
import random
import re
import subprocess
from collections import Counter

import helpers
import pytest
import recfile as rec
import sampled
import stepped
from stepped import PID, Job, Row, Spot


def flame(*args, ok=True):
    result = subprocess.run([helpers.STEPFLAME, "flame", *map(str, args)], capture_output=True, timeout=60)
    assert (result.returncode == 0) == ok, result.stderr
    return result


def clean(text):
    return re.sub(r"[\x00-\x20;\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]", "_", text)


def text_of(stack):
    frames = []
    for name, file, line in stack:
        frames.append(clean(file.rpartition("/")[2]) + ":" + clean(name) + (f":{line}" if line else "") if file else clean(name))
    return ";".join(frames)


def parse(text, counts=1):
    """{stack: us}, or {stack: (us, us)}"""
    out = {}
    for line in text.splitlines():
        stack, *numbers = line.rsplit(" ", counts)
        assert stack not in out
        out[stack] = tuple(map(int, numbers)) if counts > 1 else int(numbers[0])
    return out


def close(found, expected_ns):
    expected = Counter()
    for stack, ns in expected_ns.items():
        expected[text_of(stack)] += ns / 1000
    assert set(found) >= {stack for stack, us in expected.items() if us > 0.6}
    assert set(found) <= {stack for stack, us in expected.items() if us > 0.4}
    for stack, us in found.items():
        assert us == pytest.approx(expected[stack], abs=1), stack


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    job = stepped.training(steps=80, slow=19)
    return job, job.write(tmp_path_factory.mktemp("flame") / "run.rec")


def slowest(job, count):
    return sorted(range(len(job.steps)), key=lambda i: (job.steps[i][0] // 1000 - job.steps[i][1] // 1000, i))[:count]


def test_folded(run):
    job, path = run
    close(parse(flame(path, "--folded").stdout.decode()), job.folded())


@pytest.mark.parametrize("number", [1, 19, 80])
def test_folded_of_a_step(run, number):
    job, path = run
    close(parse(flame(path, "--folded", "--step", number).stdout.decode()), job.folded([number - 1]))


@pytest.mark.parametrize("count", [1, 5, 1000])
def test_folded_of_the_slowest(run, count):
    job, path = run
    close(parse(flame(path, "--folded", "--slowest", count).stdout.decode()), job.folded(slowest(job, count)))


@pytest.mark.parametrize("steps", [None, [18], "slowest"])
def test_folded_of_workers(run, steps):
    """A wait that spans steps is divided among them by time."""
    job, path = run
    worker = PID + 100
    args = {"None": [], "[18]": ["--step", 19], "slowest": ["--slowest", 4]}[str(steps)]
    chosen = slowest(job, 4) if steps == "slowest" else steps
    close(parse(flame(path, "--folded", "-p", worker, *args).stdout.decode()), job.folded(chosen, [worker]))
    close(parse(flame(path, "--folded", "--all-threads", *args).stdout.decode()), job.folded(chosen, {row.tid for row in job.rows}))


def test_many_waits_in_one_sample(tmp_path):
    """Short waits that a sample stands for lie in the step of that sample."""
    job = Job(steps=[(0, 10_000_000, {}), (10_000_000, 20_000_000, {})])
    job.rows = [Row(PID, 12_000_000, 8_000_000, stepped.WAIT_DATA, waits=9), Row(PID, 12_000_000, 4_000_000, stepped.WAIT_DATA)]
    path = job.write(tmp_path / "r.rec")
    assert sum(parse(flame(path, "--folded", "--step", 1).stdout.decode()).values()) == 2000
    assert sum(parse(flame(path, "--folded", "--step", 2).stdout.decode()).values()) == 10000


@pytest.mark.parametrize("seed", range(4))
def test_same_total_as_export(tmp_path, seed):
    path = sampled.random_job(seed).write(tmp_path / "r.rec")
    exported = subprocess.run([helpers.STEPFLAME, "export", "-f", "folded", str(path)], capture_output=True, check=True).stdout
    total = lambda text: sum(int(line.rpartition(" ")[2]) for line in text.decode().splitlines())  # noqa: E731
    folded = flame(path, "--folded").stdout
    assert total(folded) == pytest.approx(total(exported), abs=len(exported.splitlines()))


def test_folded_diff(run, tmp_path):
    job, path = run
    other = stepped.training(steps=50, slow=5, seed=9)
    found = parse(flame(path, "--diff", other.write(tmp_path / "b.rec"), "--folded").stdout.decode(), counts=2)
    for which, of in enumerate((job, other)):
        close({stack: us[which] for stack, us in found.items() if us[which]}, of.folded())


def test_the_interpreters_functions(tmp_path):
    """They are Python's own time, unless they are asked for; what has no Python frame keeps them."""
    spots = [stepped.spot("other", [("/home/me/train.py", "f", 7)], native=native) for native in sampled.NATIVES if native]
    spots.append(Spot("other", (), native="_PyEval_EvalFrameDefault (python3.11)"))
    job = Job(rows=[Row(PID, (i + 1) * 20_000_000, 10_000_000, at) for i, at in enumerate(spots)])
    path = job.write(tmp_path / "r.rec")
    plain, native = (flame(path, "--folded", *args).stdout.decode() for args in ([], ["--native"]))
    close(parse(plain), job.folded())
    close(parse(native), {at.stack_with(at.native): 10_000_000 for at in spots})
    assert plain.count("(python3.11)") == 1 and "libpython" not in plain and native.count("(python3.11)") == 2
    # and in what the page says without scripts
    for args, own in ([], "20.000"), (["--native"], None):
        flame(path, "-o", tmp_path / "page.html", *args)
        text = (tmp_path / "page.html").read_text()
        assert re.findall(r"<tr><td>([\d.]+)<td>50.000<td>f<td>/home/me/train.py", text) == ([own] if own else [])
        assert ("dict_get" in text) == (own is None)


def test_no_steps(tmp_path):
    job = Job(rows=[Row(PID, 20_000_000, 10_000_000, stepped.WAIT_DATA)])
    path = job.write(tmp_path / "r.rec")
    close(parse(flame(path, "--folded").stdout.decode()), job.folded())
    error = flame(path, "--folded", "--slowest", 3, ok=False).stderr.decode()
    assert "has no steps" in error and "fix:" in error


@pytest.mark.parametrize(
    "args, why",
    [
        (["--step", "9999"], "no step 9999"),
        (["--step", "-1"], "needs a number"),
        (["--slowest", "0"], "needs a number"),
        (["--step", "1", "--slowest", "2"], "exclude each other"),
        (["-p", "77"], "no samples of process 77"),
        (["--folded", "-o", "x.html"], "--folded writes to stdout"),
        (["--diff", "/nowhere.rec"], "no recording /nowhere.rec"),
    ],
)
def test_says_what_is_wrong(run, args, why):
    error = flame(run[1], *args, ok=False).stderr.decode()
    assert why in error


def test_no_samples(tmp_path):
    path = tmp_path / "r.rec"
    path.write_bytes(rec.recording([rec.host(), rec.target(PID)]))
    assert "has no samples" in flame(path, ok=False).stderr.decode()


class Markup(html.parser.HTMLParser):
    """Elements, attributes, and the text of table cells as a browser would read them."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.text = Counter(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags[tag] += 1
        self.attributes += [(tag, *attr) for attr in attrs]

    def handle_data(self, data):
        self.text.append(data.strip())


HOSTILE = ["</script><script>window.hit=1</script>", "<img src=x onerror=window.hit=1>", "a\nb\0c\x1b[31m".replace("\0", ""), "\u202eevil\u2066", "]]>&amp;\"'`${window.hit=1}", "-->", "훈련🔥"]


def hostile_job():
    job = Job(steps=[(i * 50_000_000, (i + 1) * 50_000_000, {"forward": 50_000_000}) for i in range(10)])
    for i, text in enumerate(HOSTILE):
        at = Spot("forward", ((f"/x/{text}.py", text, 3), ("/x/b.py", text, 4)), ops=(text,), native=text, kernel=text)
        job.rows += [Row(PID, n * 50_000_000 + 1_000_000 * (i + 1), 10_000_000, at) for n in range(10)]
    job.rows.sort(key=lambda row: row.time)
    job.targets = [rec.target(PID, command=HOSTILE[0], python="<b>3", torch="<i>2")]
    job.extra = [rec.note(HOSTILE[1])]
    return job


def test_page_is_one_file(run, tmp_path):
    """Nothing in it has an address, and without scripts it still says what took the time."""
    job, path = run
    out = tmp_path / "page.html"
    flame(path, "-o", out)
    page = Markup(out.read_text())
    assert not [a for a in page.attributes if a[1] in ("src", "href", "action", "srcset") or a[1].startswith("on")]
    policy = [a[2] for a in page.attributes if a[1] == "content" and "default-src" in a[2]]
    assert policy and policy[0].startswith("default-src 'none'")
    own = Counter()
    for stack, ns in job.folded().items():
        own[stack[-2 if stack[-1][0].startswith("ended by") else -1][0]] += ns
    name, ns = own.most_common(1)[0]
    assert name in page.text and f"{ns / 1e6:.3f}" in page.text


def test_page_of_hostile_names(tmp_path):
    hostile = tmp_path / "hostile.html"
    job = hostile_job()
    flame(job.write(tmp_path / "hostile.rec"), "-o", hostile)
    text = hostile.read_text()
    page = Markup(text)
    assert "img" not in page.tags and page.tags["script"] == 2
    assert "\u202e" not in text and "\x1b" not in text
    close(parse(flame(tmp_path / "hostile.rec", "--folded").stdout.decode()), job.folded())


def large_job(steps=10_000, stacks=50_000):
    """As many distinct stacks, 25 frames deep, as samples can show in as many steps."""
    rng = random.Random(5)
    files = [f"/venv/lib/python3.11/site-packages/package_{i}/module_{i}.py" for i in range(200)]
    functions = [(rng.choice(files), f"Class{i % 97}.function_{i}", 10 + i % 900) for i in range(4000)]
    spots, trunk = [], [tuple(rng.choices(functions, k=14)) for _ in range(40)]
    for i in range(stacks):
        phase = ("data", "forward", "backward", "optimizer")[i % 4]
        spots.append(Spot(phase, trunk[i % 40] + tuple(rng.choices(functions, k=8)), native=f"native_{i % 700} (libtorch_cpu.so)"))
    job = Job()
    for i in range(steps):
        start = i * 100_000_000
        job.steps.append((start, start + 100_000_000, {"forward": 60_000_000, "backward": 40_000_000}))
        job.rows += [Row(PID, start + (n + 1) * stepped.PERIOD - 10**6, stepped.PERIOD, spots[(i * 9 + n) % stacks]) for n in range(9)]
    return job


@pytest.fixture(scope="session")
def large(tmp_path_factory):
    return large_job().write(tmp_path_factory.mktemp("large") / "large.rec")


@pytest.mark.long
def test_large_page_is_small(large, tmp_path):
    out = tmp_path / "page.html"
    flame(large, "-o", out)
    assert out.stat().st_size < 10_000_000


@pytest.mark.parametrize("seed", range(12))
def test_damaged_recordings(tmp_path, seed):
    """Whatever numbers stand in sound chunks: an answer or an error, not a crash."""
    rng = random.Random(seed)
    job = stepped.training(steps=12, slow=5, spots=20, seed=seed)
    path = job.write(tmp_path / "r.rec")
    records = []
    for kind, payload in rec.read_raw(path):
        data = bytearray(payload)
        for _ in range(rng.choice([0, 0, 1, 3])):
            at = rng.randrange(len(data) // 8) * 8
            data[at : at + 8] = rng.choice([b"\0" * 8, b"\xff" * 8, rng.randbytes(8), (1).to_bytes(8, "little")])
        records.append(rec.raw(kind, bytes(data)))
    path.write_bytes(rec.recording(records))
    for args in (["-o", tmp_path / "page.html"], ["--folded"], ["--folded", "--slowest", 3, "--all-threads"], ["--folded", "--diff", path]):
        result = subprocess.run([helpers.STEPFLAME, "flame", str(path), *map(str, args)], capture_output=True, timeout=60)
        assert result.returncode in (helpers.OK, helpers.ERROR) and b"Sanitizer" not in result.stderr and b"runtime error" not in result.stderr, result.stderr


# How those see who lack one of three kinds of cones: Machado, Oliveira and Fernandes, 2009, severity 1.0, on linear sRGB.
SIGHTS = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}


def times(matrix, vector):
    return [sum(a * b for a, b in zip(row, vector)) for row in matrix]


def linear(hexes):
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (int(hexes[i : i + 2], 16) / 255 for i in (0, 2, 4))]


def oklab(rgb):
    """https://bottosson.github.io/posts/oklab/"""
    lms = times(((0.4122214708, 0.5363325363, 0.0514459929), (0.2119034982, 0.6806995451, 0.1073969566), (0.0883024619, 0.2817188376, 0.6299787005)), rgb)
    roots = [max(0, c) ** (1 / 3) for c in lms]
    return times(((0.2104542553, 0.793617785, -0.0040720468), (1.9779984951, -2.428592205, 0.4505937099), (0.0259040371, 0.7827717662, -0.808675766)), roots)


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colours_are_told_apart(theme, sight):
    """Kinds of frames, and more and less, by whoever looks; and the text on them is read (WCAG's contrast)."""
    style = (helpers.ROOT / "user/page/page.css").read_text().split(':root[data-theme="dark"]')[theme == "dark"]
    colours = {name: linear(re.search(rf"--{name}: #(\w{{6}});", style)[1]) for name in "python op native kernel wait phase less neutral more frame-ink".split()}
    seen = {name: oklab(times(SIGHTS[sight], rgb)) for name, rgb in colours.items()}
    distance = lambda a, b: math.dist(seen[a], seen[b])  # noqa: E731
    kinds = ["python", "op", "native", "kernel", "wait", "phase"]
    # waits are hatched, too, and phases are one row on top
    assert min(distance(a, b) for a, b in itertools.combinations(kinds, 2)) > 0.06
    assert min(distance(a, b) for a, b in itertools.combinations(["less", "neutral", "more"], 2)) > 0.15
    luminance = {name: 0.2126 * r + 0.7152 * g + 0.0722 * b for name, (r, g, b) in colours.items()}
    for name, value in luminance.items():
        dark, light = sorted([value, luminance["frame-ink"]])
        assert name == "frame-ink" or (light + 0.05) / (dark + 0.05) > 4.5, name
