# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""stepflame top on a pseudo-terminal, whose screen pyte keeps, and without one."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import statistics
import struct
import termios
import time
from pathlib import Path

import helpers
import psutil
import pytest

pytestmark = helpers.needs_bpf

LOOP = ("plain_loop.py", "--epochs", 100000, "--batches", 50, "--labels")  # until it is killed
SCREEN_SECONDS = 30
HZ = 99  # of samples


class Terminal:
    """stepflame top on a terminal of its own; the process that starts it leads the terminal's session, as a shell does."""

    def __init__(self, *args, rows=24, columns=80, **environ):
        self.pyte = pytest.importorskip("pyte")
        self.screen = self.pyte.Screen(columns, rows)
        self.stream = self.pyte.ByteStream(self.screen)
        self.bytes = b""
        master, self.slave = pty.openpty()
        self.fd = master
        self.resize(rows, columns)
        self.before = termios.tcgetattr(self.slave)
        # pyte knows all that the Linux console does, and not all that xterm does
        environ = dict(os.environ, **{"TERM": "linux", "LC_ALL": "C.UTF-8", **environ})
        for name in ("LINES", "COLUMNS"):  # which a runner of tests may set, and ncurses believes
            environ.pop(name, None)
        command = [helpers.STEPFLAME, "top", *(str(a) for a in args)]
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0)
            for fd in (0, 1, 2):
                os.dup2(self.slave, fd)
            os.execvpe(command[0], command, environ)
        self.status = None

    def resize(self, rows, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.screen.resize(rows, columns)

    def pump(self, seconds=0.02):
        """Takes in what is there; was there anything?"""
        if not select.select([self.fd], [], [], seconds)[0]:
            return False
        data = os.read(self.fd, 1 << 16)
        self.bytes += data
        self.stream.feed(data)
        return True

    def is_whole(self):
        """No screen that is half drawn: it waits, and all that it wrote before has been read."""
        asleep = Path("/proc/%d/stat" % self.pid).read_text().rpartition(") ")[2][0] == "S"
        return asleep and not self.pump(0)

    @property
    def lines(self):
        return [line.rstrip() for line in self.screen.display]

    @property
    def text(self):
        return "\n".join(self.lines)

    def until(self, condition):
        def look():
            self.pump()
            return self.is_whole() and condition()

        return helpers.until(SCREEN_SECONDS, look, lambda: self.text + "\n" + repr(self.bytes[-2000:]), lambda: helpers.delayed(self.pid))

    def until_shows(self, pattern):
        return self.until(lambda: re.search(pattern, self.text, re.M))

    def press(self, keys, pattern):
        os.write(self.fd, keys.encode())
        return self.until_shows(pattern)

    def rows(self):
        """[(numbers, name)] of the table shown."""
        found = []
        header = 1 + next(i for i, line in enumerate(self.lines) if line.startswith("1 Actions"))  # above it notes may come
        columns = len(re.findall(r"\S+(?: ms/s| ms| s| %)|\S+", self.lines[header])) - 1
        for line in self.lines[header + 1 : -1]:
            words = line.split(None, columns)
            if len(words) > columns:
                found.append((words[:columns], words[columns]))
        return found

    def names(self):
        return [name for _, name in self.rows()]

    def wait(self):
        def ended():
            self.pump()
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.status = os.waitstatus_to_exitcode(status) if pid else None
            return pid

        helpers.until(SCREEN_SECONDS, ended, lambda: "still running\n" + self.text, lambda: helpers.delayed(self.pid))
        self.pump()
        return self.status

    def check_restored(self):
        assert termios.tcgetattr(self.slave) == self.before
        hidden, shown = (self.bytes.rfind(s) for s in (b"\033[?25l", b"\033[?25h"))
        assert shown > hidden >= 0, "the cursor is hidden"

    def close(self):
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)
        os.close(self.slave)


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """One for all tests: each of them has to leave it as it was."""
    bench = helpers.Bench(tmp_path_factory.mktemp("watched"))
    job = bench.job(*LOOP).until_ready()
    job.release()
    yield job
    assert job.running()
    bench.close()


@pytest.fixture
def terminal(job):
    started = []

    def start(*args, **more):
        started.append(Terminal("-p", job.pid, *args, **more))
        return started[-1]

    yield start
    for t in started:
        t.close()


def test_screen(job, terminal):
    t = terminal("-i", "300ms")
    t.until_shows(r"^ *\S+ .*\bmy label$")
    assert t.lines[0].startswith("stepflame top  pid %d  Python 3." % job.pid)
    assert re.match(r"up [\d.]+ s  CPU \d+ %  \d+ steps  \S+ steps/s", t.lines[1]), t.text
    assert re.match(r"memory 0\.\d+ GB in 1 process, \d+ threads", t.lines[2]), t.text
    assert re.match(r"cost \d+ hits/s, about \S+ % of the job; stepflame \S+ % CPU, \S+ MB", t.lines[3]), t.text
    assert t.lines[4].startswith("lost "), t.text
    assert {"forward", "backward", "my label", "outer", "inner \N{GREEK SMALL LETTER LAMDA}"} <= set(t.names())
    assert len(t.lines) == 24 and t.lines[23].startswith("q quit")

    t.press("2", r"own % total %.*function")
    t.until_shows(r"\(jobs/plain_loop\.py:\d+\)|\(.*\.py:\d+\)")
    t.press("3", r"^ *main ms/s")
    t.until_shows(r"\(on the CPU\)$")
    t.press("4", r"CPU % queue %  wait %")
    t.until_shows(r" %d/%d " % (job.pid, job.pid))
    t.press("\t", r"steps steps/s last ms")
    t.until_shows(r" pid %d [\u2581-\u2588]+$" % job.pid)
    t.press("6", r"CPU %      MB threads pid role name")
    t.until_shows(r"^ +\d\S* +\d+ +\d+ %d main \S+$" % job.pid)
    t.press("h", r"^q, Ctrl-C +quit")
    t.press(" ", r"CPU %      MB threads")


def test_sort_and_filter(terminal):
    t = terminal("-i", "300ms")
    t.until_shows(r"inner")

    def falling(column):
        values = [float(row[0][column].replace("-", "nan")) for row in t.rows()]
        values = [v for v in values if v == v]
        return len(values) > 3 and values == sorted(values, reverse=True)

    # until: the screen may be half drawn when it is read
    t.until(lambda: falling(2))
    t.press("s", r"by total %")
    t.until(lambda: falling(3))
    t.press("ss", r"by name")
    t.until(lambda: t.names() == sorted(t.names()))
    t.press("<<<<", r"by mean ms")
    t.until(lambda: falling(1))
    t.press("/LABEL", r"/LABEL_")
    t.until(lambda: t.names() == ["my label"])
    t.press("\n", r"/LABEL$")
    t.press("\033", r"backward")


def test_pause_and_reset(job, terminal):
    t = terminal("-i", "200ms")

    def count():
        return [int(numbers[4]) for numbers, name in t.rows() if name == "backward"][0]

    t.until_shows(r"backward$")
    t.press("p", r"PAUSED")
    held = t.text
    deadline = time.monotonic() + 1
    while time.monotonic() < deadline:
        t.pump()
        assert t.text == held
    first = count()
    t.press("p", r"steps/s(?!.*PAUSED)")
    t.until(lambda: t.text != held and count() > first)
    before = count()
    t.press("r", r"backward$")
    t.until(lambda: count() < before)


def test_resize(terminal):
    t = terminal("-i", "300ms", rows=40, columns=120)
    t.until_shows(r"enumerate\(DataLoader\)#_SingleProcessDataLoaderIter.__next__$")
    t.resize(24, 60)
    t.until(lambda: t.lines[23].startswith("q quit"))
    t.until_shows(r"enumerate.*\.\..*$")
    t.resize(6, 30)
    t.until(lambda: t.lines[0].startswith("stepflame top"))


@pytest.mark.parametrize("how", ["q", "\003", signal.SIGTERM, signal.SIGHUP], ids=["q", "Ctrl-C", "TERM", "HUP"])
def test_end(job, terminal, how):
    """The terminal is as it was, and the job goes on."""
    t = terminal("-i", "300ms")
    t.until_shows(r"backward$")
    if isinstance(how, str):
        os.write(t.fd, how.encode())
    else:
        os.kill(t.pid, how)
    assert t.wait() == helpers.OK
    t.check_restored()
    assert job.running()


def test_crash(job, terminal):
    """Not even a fault leaves the terminal unusable."""
    t = terminal("-i", "300ms")
    t.until_shows(r"backward$")
    os.kill(t.pid, signal.SIGSEGV)
    assert t.wait() == -signal.SIGSEGV
    t.check_restored()
    assert job.running()


def test_job_ends(bench):
    job = bench.job(*LOOP).until_ready()
    job.release()
    t = Terminal("-p", job.pid, "-i", "300ms")
    t.until_shows(r"backward$")
    job.kill()
    assert t.wait() == helpers.OK
    t.check_restored()
    assert b"the job has ended" in t.bytes
    t.close()


def test_no_color(terminal):
    colours = re.compile(rb"\033\[[0-9;]*\b3[0-7]m")
    t = terminal("-i", "300ms")
    t.until_shows(r"backward$")
    t.press("1", "backward")
    assert colours.search(t.bytes)
    t = terminal("-i", "300ms", NO_COLOR="1")
    t.until_shows(r"backward$")
    assert not colours.search(t.bytes)


def test_ascii(terminal):
    """Where the locale has no UTF-8."""
    t = terminal("-i", "300ms", "--view", "steps", LC_ALL="C")
    t.until_shows(r" pid \d+ [_.\-=+*#@]+$")
    t.press("1", r"inner \?$")
    assert max(t.bytes) < 128


def test_unknown_terminal(terminal):
    t = terminal(TERM="no such terminal")
    assert t.wait() == helpers.ERROR
    assert b"fix: set TERM" in t.bytes


# ---- without a terminal ----


def table(text, title):
    """The rows of a table in the output of --batch: {name: numbers}."""
    lines = iter(text.splitlines())
    next(line for line in lines if re.search(title, line))
    rows = {}
    for line in lines:
        if not line:
            break
        words = line.split(None, 5)
        rows[words[-1]] = words[:-1]
    return rows


def test_once(job):
    """One picture after one interval, as stdout is no terminal; its counts fit each other."""
    found = helpers.stepflame("top", "-p", job.pid, "-i", "1s")
    assert found.returncode == helpers.OK, found.stderr
    assert found.stdout.count("stepflame top") == 1 and "\033" not in found.stdout
    rows = table(found.stdout, "calls/s")
    steps = int(re.search(r"(\d+) steps ", found.stdout).group(1))
    assert steps > 0
    counts = [int(rows[name][4]) for name in ("forward", "backward", "my label", "outer")]
    # the job runs on between the reading of one number and the next, but not for many steps
    assert steps - 1 <= min(counts) and max(counts) <= min(counts) + 1 <= steps + 5, found.stdout
    for title in (r"own % total %", r"main ms/s", r"CPU % queue %", r"steps steps/s"):
        assert re.search(title, found.stdout), found.stdout
    assert job.running()


def waits(text):
    """The main thread's: {cause: ms/s}."""
    found = re.findall(r"^ *<?([\d.]+) +\S+ +\S+ +\S+ (\S.*)", text, re.M)
    return {cause: float(value) for value, cause in found}


def cpu_error(cpu, seconds):
    """Four standard deviations of the CPU time that samples tell, of a thread that had the CPU so long of these seconds."""
    return 4 * 1.25**0.5 * (cpu * max(seconds - cpu, 0.05) / seconds / HZ) ** 0.5 + 0.02 * cpu


def schedstat(pid):
    """Seconds that the main thread had a CPU, and waited for one, by the kernel."""
    return [int(ns) / 1e9 for ns in Path("/proc/%d/schedstat" % pid).read_text().split()[:2]]


@pytest.mark.alone
def test_batch(bench, job):
    """What the main thread did in a second is a second, and what the kernel says: waits to the microsecond, CPU time as far as samples tell."""
    seconds, edges = 1.5, 0.05  # between a picture and our seeing it, at both ends
    top = bench.process(helpers.STEPFLAME, "top", "-p", job.pid, "-i", "1500ms", "-b", "-n", 3, "--view", "waits")
    truth = []
    for count in (1, 2, 3):
        helpers.until(SCREEN_SECONDS, lambda: len(re.findall("^stepflame top", top.stdout, re.M)) >= count, top.what)
        truth.append((time.monotonic(), *schedstat(job.pid)))
    assert top.wait() == helpers.OK, top.what()
    pictures = re.split("^stepflame top", top.stdout, flags=re.M)[1:]
    assert len(pictures) == 3
    found = [waits(picture) for picture in pictures]
    for picture, causes in zip(pictures, found):
        assert "calls/s" not in picture
        cpu = causes["(on the CPU)"] / 1000 * seconds
        assert abs(sum(causes.values()) / 1000 * seconds - seconds) < cpu_error(cpu, seconds) + edges, picture
    between, cpu, queued = (last - first for first, last in zip(truth[0], truth[-1]))
    if abs(between - 2 * seconds) > edges:
        raise helpers.Busy("pictures were seen %.3f s apart" % between)
    ours = {cause: sum(causes.get(cause, 0) for causes in found[1:]) / 1000 * seconds for cause in ("(on the CPU)", "run_queue")}
    assert ours["run_queue"] == pytest.approx(queued, abs=edges), (ours, truth)
    assert ours["(on the CPU)"] == pytest.approx(cpu, abs=cpu_error(cpu, 2 * seconds) + edges), (ours, truth)


def test_json(job):
    """Lines of JSON with what the text has."""
    result = helpers.stepflame("top", "-p", job.pid, "--json", "-n", 2, "-i", "300ms", "--limit", 3)
    assert result.returncode == helpers.OK, result
    first, second = map(json.loads, result.stdout.splitlines())
    assert first["report"] == "top" and first["elapsed_s"] < second["elapsed_s"] and first["step_count"] < second["step_count"]
    assert str(job.pid) in first["target"] and second["interval_s"] == pytest.approx(0.3, abs=0.2)
    assert "Optimizer.step" in second["step_rule"]
    actions = {row["name"]: row for row in second["actions"]}
    assert 0 < len(actions) <= 3
    assert all(set(row) == {"name", "calls_per_s", "mean_ms", "percent", "total_percent", "calls"} for row in actions.values()), actions
    (steps,) = second["steps"]
    assert steps["steps"] >= second["step_count"] > 10 and 0 < steps["p50_ms"] <= steps["p95_ms"] <= steps["max_ms"]
    result = helpers.stepflame("top", "-p", job.pid, "--json", "--once", "-i", "300ms", "--view", "waits")
    assert [view for view in ("actions", "functions", "waits", "threads") if view in json.loads(result.stdout)] == ["waits"], result


def test_processes(bench):
    """CPU time and memory of each process are psutil's, and those of the job their sums."""
    edges, ticks = 0.05, 4 * 0.01  # between a picture and our seeing it; user and system time, at both ends
    job = bench.job("plain_loop.py", "--batches", 10**6, "--workers", 1).until_ready()
    job.release()
    main = psutil.Process(job.pid)
    (worker,) = helpers.until(helpers.READY_SECONDS, main.children, job.what)
    top = bench.process(helpers.STEPFLAME, "top", "-p", job.pid, "-i", "1s", "--json", "-n", 3, "--view", "processes")
    truth = []
    for count in (1, 2, 3):
        helpers.until(SCREEN_SECONDS, lambda: top.stdout.count("\n") >= count, top.what)
        truth.append((time.monotonic(), [(sum(process.cpu_times()[:2]), process.memory_info().rss) for process in (main, worker)]))
    assert top.wait() == helpers.OK, top.what()
    pictures = [json.loads(line) for line in top.stdout.splitlines()]
    rows = [{row["name"].split()[0]: row for row in picture["processes"]} for picture in pictures]
    for picture, by_pid in zip(pictures, rows):
        assert {name.split(None, 1)[1].split()[0] for name in (row["name"] for row in by_pid.values())} == {"main", "worker"}
        assert picture["process_count"] == len(by_pid) == 2 and picture["thread_count"] == sum(row["threads"] for row in by_pid.values())
        assert picture["rss_bytes"] == pytest.approx(1e6 * sum(row["rss_mb"] for row in by_pid.values()))
        assert picture["cpu_percent"] == pytest.approx(sum(row["cpu_percent"] for row in by_pid.values()))
    for i, process in enumerate((main, worker)):
        own = [by_pid[str(process.pid)] for by_pid in rows]
        for row, (_, looked) in zip(own, truth):
            assert row["rss_mb"] * 1e6 == pytest.approx(looked[i][1], abs=16 << 20)  # what a step allocates and frees
        cpu = sum(row["cpu_percent"] / 100 * picture["interval_s"] for row, picture in zip(own[1:], pictures[1:]))
        told = truth[2][1][i][0] - truth[0][1][i][0]
        if abs(cpu - told) > 2 * edges + ticks:
            raise helpers.Busy((cpu, told, truth))
    job.kill()


def test_stuck(bench):
    """A thread that waits all the time is seen to wait, though its wait has not ended."""
    ready = bench.directory / "ready"
    script = "import sys, time, torch; open(sys.argv[1], 'w').close(); time.sleep(1000)"
    job = bench.process(helpers.PYTHON, "-c", script, ready)
    helpers.until(helpers.READY_SECONDS, ready.exists, job.what)
    found = helpers.stepflame("top", "-p", job.pid, "-b", "-n", 2, "-i", "500ms", "--view", "waits")
    assert found.returncode == helpers.OK, found.stderr
    for picture in found.stdout.split("\n\n" + "stepflame top"):
        assert waits(picture)["sleep"] > 950, picture


@pytest.mark.alone
def test_counts_and_step_times(bench):
    """Counts are those of the job, and the times of its steps, by its own clock."""
    job = bench.job("planted.py", "--plant", "none").until_ready()
    top = bench.process(helpers.STEPFLAME, "top", "-p", job.pid, "-b", "-i", "1s", "--limit", 0)
    top.until_says("^stepflame top", helpers.ARMED_SECONDS, "stdout")
    job.release()
    truth = job.truth()
    assert top.wait() == helpers.OK, top.what()
    last = re.split("^stepflame top", top.stdout, flags=re.M)[-1]
    ends = [row[0] for row in truth["log"]]
    ms = [1000 * (end - begin) for begin, end in zip(ends, ends[1:])]
    assert len(ms) < 256  # that are kept
    rows = table(last, "calls/s")
    for name in ("Optimizer.step#SGD.step", "backward", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"):
        assert int(rows[name][4]) == len(ends), (name, rows)
    (row,) = [line.split() for line in last.splitlines() if " pid %d" % job.pid in line and line.strip()[0].isdigit()]
    assert int(row[0]) == len(ends)
    for what, told, wanted in (
        ("last", row[2], ms[-1]),
        ("mean", row[3], statistics.mean(ms)),
        ("median", row[4], statistics.median(ms)),
        ("longest", row[6], max(ms)),
    ):
        # three digits are printed; a few calls of Python lie between the two clocks
        helpers.check_error(float(told) - wanted, 0.005 * wanted + 0.1, 1000 * truth["delayed"], (what, told, wanted))


def test_messages(bench):
    helpers.check_message(helpers.stepflame("top", "-p", 999999999), helpers.TARGET)
    for args in (["-p", "x"], ["-p", 1, "-i", "1ms"], ["-p", 1, "--view", "all"], ["-p", 1, "more"], ["-p", 1, "-n", "-1"]):
        found = helpers.stepflame("top", *args)
        assert found.returncode == helpers.USAGE, (args, found.stderr)
