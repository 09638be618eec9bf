#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Draws the pictures of the README, of a recording: its first screen, as a terminal shows it, and its flame page. And the page of a job's ranks.

    tools/pictures.py FILE    writes docs/images/screen.png and docs/images/flame.png
    tools/pictures.py --fleet STORE JOB    writes docs/images/fleet.png

Needs a browser (tools/setup.sh browser) and pngquant.
"""

import html
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))

import browser  # noqa: E402
import helpers  # noqa: E402
import terminal  # noqa: E402

COLUMNS = 100
COLOURS = 64
PAGE_PIXELS = 1200, 760
FLEET_PIXELS = 1200, 700
# of an xterm: what the sequences ESC [ N m say
STYLES = {"0": "", "1": "font-weight:bold", "2": "color:#888", "31": "color:#e05555", "32": "color:#3fb950", "33": "color:#d4a72c", "34": "color:#4a90e2"}
STYLES |= {"35": "color:#b87fd9", "36": "color:#39b5b5"}
SCREEN = """<!DOCTYPE html><meta charset="utf-8"><style>
body { margin: 0; background: #16181d; color: #d8dbe0; }
pre { margin: 0; padding: 12px 16px; font: 13px/1.3 'DejaVu Sans Mono', monospace; width: max-content; }
</style><pre>%s</pre><script>const app = {flame: {trees: true}};</script>"""
SIZE_OF_SCREEN = "const pre = document.querySelector('pre'); return [pre.offsetWidth, pre.offsetHeight]"


def screen(recording):
    """The page of what `report` prints at a terminal, with the command above it."""
    text = f"$ stepflame record -d 10s -o {recording.name}\n" + terminal.at_terminal(COLUMNS, "report", recording.name)
    parts = re.split("\x1b\\[([0-9;]*)m", text)
    spans = [html.escape(parts[0])]
    for codes, part in zip(parts[1::2], parts[2::2], strict=True):
        spans.append('<span style="%s">%s</span>' % (";".join(STYLES[code or "0"] for code in codes.split(";")), html.escape(part)))
    return SCREEN % "".join(spans)


def draw(page, size, out, ready="!!app?.flame?.trees"):
    with tempfile.TemporaryDirectory() as profile:
        shown = browser.Browser(profile, size=(1600, 1000))
        try:
            shown.open(page, ready=ready)
            shown.resize(*(size or shown.run(SIZE_OF_SCREEN)))
            shown.screenshot(out)
            subprocess.run(["pngquant", "--force", "--speed", "1", "--output", out, str(COLOURS), out], check=True)
        finally:
            shown.close()


def fleet(store, job, out):
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "fleet.html"
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "user/python")}
        subprocess.run([sys.executable, "-m", "stepflame.fleet", "page", job, "--store", store, "-o", page], check=True, env=environment)
        draw(page, FLEET_PIXELS, out, "!!app?.heat?.area")


def main():
    if len(sys.argv) == 4 and sys.argv[1] == "--fleet":
        return fleet(*sys.argv[2:], ROOT / "docs/images/fleet.png")
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    recording = Path(sys.argv[1]).resolve()
    images = ROOT / "docs" / "images"
    images.mkdir(exist_ok=True)
    os.chdir(recording.parent)  # the screen then names the file alone
    with tempfile.TemporaryDirectory() as folder:
        page, flame = Path(folder) / "screen.html", Path(folder) / "flame.html"
        page.write_text(screen(recording))
        subprocess.run([helpers.STEPFLAME, "flame", recording, "-o", flame], check=True)
        draw(page, None, images / "screen.png")
        draw(flame, PAGE_PIXELS, images / "flame.png")


if __name__ == "__main__":
    main()
