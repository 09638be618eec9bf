# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A headless Chromium without a network, driven through chromedriver by the W3C's WebDriver protocol: JSON over HTTP."""

import base64
import json
import os
import re
import shutil
import subprocess
import urllib.request
from pathlib import Path

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # WebDriver's name of a reference
SHIFT, TAB, ENTER, ESCAPE, BACKSPACE, LEFT, UP, RIGHT, DOWN = "\ue008", "\ue004", "\ue007", "\ue00c", "\ue003", "\ue012", "\ue013", "\ue014", "\ue015"


def why_none():
    """Why there is no browser here, or None."""
    if not CHROMIUM or not DRIVER:
        return "chromium and chromedriver are not installed (tools/setup.sh browser)"
    return None


class Browser:
    def __init__(self, directory, size=(1440, 900), scale=1, reached=""):
        """reached: an address, of this machine, that may be opened beside files."""
        self.driver = subprocess.Popen([DRIVER, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, text=True)
        for line in self.driver.stdout:
            found = re.search(r"started successfully on port (\d+)", line)
            if found:
                self.url = f"http://127.0.0.1:{found[1]}"
                break
        arguments = ["--headless=new", "--disable-gpu", "--no-first-run", "--hide-scrollbars", f"--user-data-dir={directory}"]
        arguments += [f"--window-size={size[0]},{size[1]}", f"--force-device-scale-factor={scale}"]
        # no name resolves and no proxy answers: nothing else can be opened
        rules = "MAP * ~NOTFOUND" + (reached and ", EXCLUDE " + reached)
        arguments += ["--host-resolver-rules=" + rules, "--proxy-server=127.0.0.1:9"]
        arguments += ["--no-sandbox"] if os.geteuid() == 0 else []
        options = {"binary": CHROMIUM, "args": arguments, "prefs": {"download.default_directory": str(directory)}}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}
        self.session = ""
        self.session = "/session/" + self.call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + self.session + path, data, {"Content-Type": "application/json"}, method=method)
        # a proxy of the environment is not for us
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=120) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(error.read().decode()) from None

    def open(self, path, address="", ready="!!app?.flame?.trees"):
        self.call("POST", "/url", {"url": "about:blank"})
        self.call("POST", "/url", {"url": Path(path).resolve().as_uri() + address})
        self.until("return typeof app !== 'undefined' && " + ready)

    def resize(self, *size):
        """Width and height of what shows pages, in CSS pixels; none: as it was."""
        shown = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False} if size else {}
        self.call("POST", "/goog/cdp/execute", {"cmd": f"Emulation.{'set' if size else 'clear'}DeviceMetricsOverride", "params": shown})
        if size:
            self.until(f"return innerWidth === {size[0]}")

    def run(self, script, *args):
        return self.call("POST", "/execute/sync", {"script": script, "args": args})

    def until(self, script):
        """The script's first true value; it is asked again by the browser itself, at each frame."""
        wait = "const [done] = arguments; const ask = () => { let v; try { v = (() => { %s })(); } catch (e) {} v ? done(v) : setTimeout(ask, 5); }; ask();"
        return self.call("POST", "/execute/async", {"script": wait % script, "args": []})

    def press(self, *keys):
        actions = []
        for key in keys:
            held = [SHIFT] if key in "{}?" else []
            actions += [{"type": "keyDown", "value": k} for k in held] + [{"type": t, "value": key} for t in ("keyDown", "keyUp")]
            actions += [{"type": "keyUp", "value": k} for k in held]
        self.call("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def drag(self, start, end, shift=False):
        """From one point of the window to another; a click where they are the same."""
        mouse = [{"type": "pointerMove", "x": round(start[0]), "y": round(start[1])}, {"type": "pointerDown", "button": 0}]
        mouse += [{"type": "pointerMove", "x": round(end[0]), "y": round(end[1]), "duration": 20}, {"type": "pointerUp", "button": 0}]
        keys = [{"type": "keyDown", "value": SHIFT}] + [{"type": "pause"}] * 3 + [{"type": "keyUp", "value": SHIFT}] if shift else []
        mouse = [{"type": "pause"}] * bool(shift) + mouse
        sources = [{"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": mouse}]
        self.call("POST", "/actions", {"actions": sources + ([{"type": "key", "id": "keys", "actions": keys}] if keys else [])})

    def click(self, selector):
        element = self.call("POST", "/element", {"using": "css selector", "value": selector})
        self.call("POST", f"/element/{element[ELEMENT]}/click", {})

    def move(self, point):
        mouse = [{"type": "pointerMove", "x": round(point[0]), "y": round(point[1])}]
        self.call("POST", "/actions", {"actions": [{"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": mouse}]})

    def screenshot(self, path):
        Path(path).write_bytes(base64.b64decode(self.call("GET", "/screenshot")))

    def console(self):
        """What was said to the console, errors of scripts and of the page's policy too."""
        return [entry["message"] for entry in self.call("POST", "/se/log", {"type": "browser"})]

    def requests(self):
        """Addresses that were asked for."""
        events = [json.loads(entry["message"])["message"] for entry in self.call("POST", "/se/log", {"type": "performance"})]
        return [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]

    def cpu_seconds(self):
        """CPU time of all processes of the browser."""
        children, ticks, todo, total = {}, {}, [self.driver.pid], 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text(errors="replace").rpartition(")")[2].split()
            except OSError:
                continue  # it ended
            children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
            ticks[int(stat.parent.name)] = int(fields[11]) + int(fields[12])
        while todo:
            pid = todo.pop()
            total += ticks.get(pid, 0)
            todo += children.get(pid, [])
        return total / os.sysconf("SC_CLK_TCK")

    def close(self):
        try:
            self.call("DELETE", "")
        finally:
            self.driver.terminate()
            self.driver.wait(10)
