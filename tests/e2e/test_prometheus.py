# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Debian's Prometheus asks `watch` over several jobs. Truth: the jobs' own counts and clocks; and that it takes all rules and all queries of the dashboard."""

import bisect
import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path

import helpers
import pytest
from namespace import Host, needs_namespace
from test_watch import free_port
from test_watch_tls import Files, get

SERVICE = helpers.ROOT / "tools/service"
NAMES = ["plain", 'quo"te\\', "{job='x'}", "Ünïcode$(id)", "x" * 300]
STEPS = 100
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def programs():
    """The folder with prometheus and promtool."""
    made = subprocess.run([helpers.ROOT / "tools/setup.sh", "prometheus"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    if made.returncode != 0:
        pytest.skip("tools/setup.sh prometheus: exit %d" % made.returncode)
    return Path(made.stdout.strip())


def expressions():
    """All queries of the dashboard, as Grafana asks them, and those of its variables."""
    board = json.loads((SERVICE / "dashboard.json").read_text())
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    for name, value in (("$job", ".*"), ("$__rate_interval", "20s"), ("$__range", "5m")):
        asked = [expr.replace(name, value) for expr in asked]
    assert not [expr for expr in asked if "$" in expr]
    return asked


class Prometheus:
    def __init__(self, bench, programs, port, target, **scrape):
        self.url = "http://127.0.0.1:%d" % port
        folder = bench.directory / "prometheus"
        folder.mkdir()
        shutil.copy(SERVICE / "alerts.yml", folder)
        scrape = {"job_name": "stepflame", "honor_labels": True, "static_configs": [{"targets": [target]}], **scrape}
        config = {"global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": ["alerts.yml"], "scrape_configs": [scrape]}
        (folder / "prometheus.json").write_text(json.dumps(config))  # which is YAML, too
        options = {"config.file": folder / "prometheus.json", "storage.tsdb.path": folder / "data", "web.listen-address": self.url.partition("//")[2]}
        self.process = bench.process(programs / "prometheus", *("--%s=%s" % option for option in options.items()))
        self.process.until_says("Server is ready to receive web requests", helpers.READY_SECONDS, "stderr")

    def get(self, path, **query):
        with urllib.request.urlopen("%s/api/v1/%s?%s" % (self.url, path, urllib.parse.urlencode(query)), timeout=helpers.END_SECONDS) as answer:
            found = json.load(answer)
        assert found["status"] == "success", found
        return found["data"]

    def query(self, expr):
        """[(labels, value)]"""
        found = self.get("query", query=expr)
        return [(one["metric"], float(one["value"][1])) for one in found["result"]] if found["resultType"] == "vector" else [({}, float(found["result"][1]))]

    def values(self, expr):
        """{job: value}"""
        return {labels["job"]: value for labels, value in self.query(expr)}


def shown(name):
    """A name of a job as a label has it: its first 63 bytes, each byte that is not printable ASCII, or a quote or a backslash, as _."""
    return re.sub(rb'[^ !#-\[\]-~]', b"_", name.encode()[:63]).decode()


@helpers.needs_bpf
@needs_namespace
def test_jobs(bench, programs):
    """Five jobs, whose names are hostile: counts are theirs, histograms their clocks. Asked over TLS, with a token."""
    tls = Files(bench.directory)
    stop, port = bench.directory / "stop", free_port()
    watch = [helpers.STEPFLAME, "watch", "--state", bench.directory / "state", "--leave-free", "1K", "--listen", "127.0.0.1:%d" % port, *tls.options()]
    host = Host(bench, *("TORCHELASTIC_RUN_ID=%s RANK=%d STEPFLAME_WATCH=1" % (name, i) for i, name in enumerate(NAMES)), script=helpers.JOBS / "paced.py", args=["--stop", stop], beside=[watch])
    for pid in host.pids:
        host.process.until_says("watches process %d" % pid, helpers.END_SECONDS, "stderr")
    server = Prometheus(bench, programs, free_port(), "127.0.0.1:%d" % port, scheme="https", tls_config={"ca_file": str(tls.cert)}, authorization={"credentials_file": str(tls.token)})
    host.go.touch()
    jobs = {shown(name): i for i, name in enumerate(NAMES)}
    helpers.until(helpers.END_SECONDS, lambda: len([one for one in server.values("stepflame_steps_total").values() if one > STEPS]) == len(NAMES), lambda: "%s\n%s" % (server.values("stepflame_steps_total"), host.process.what()))

    # what is asked while they run, and has an answer with the next metrics, if it is a rate; some only with a budget
    def unanswered():
        return [expr for expr in expressions() if not re.search("overhead_ratio|rested_seconds", expr) and not server.query(expr)]

    helpers.until(helpers.END_SECONDS, lambda: not unanswered(), lambda: "%s\n%s" % (unanswered(), host.process.what()))
    rules = [rule for group in server.get("rules")["groups"] for rule in group["rules"]]
    assert len(rules) >= 6 and all(rule["health"] == "ok" for rule in rules), rules
    assert not [rule["name"] for rule in rules if rule["state"] == "firing"]

    stop.touch()
    files = [Path("%s.%d" % (bench.directory / "truth", i + 1)) for i in range(len(NAMES))]
    helpers.until(helpers.END_SECONDS, lambda: all(file.exists() and file.stat().st_size for file in files), host.process.what)
    truths = [json.loads(file.read_text()) for file in files]
    expected = {job: truths[i]["steps"] for job, i in jobs.items()}
    helpers.until(helpers.END_SECONDS, lambda: server.values("stepflame_steps_total") == expected, lambda: "%s\n%s" % (expected, server.values("stepflame_steps_total")))
    assert {labels["job"]: int(labels["rank"]) for labels, _ in server.query("stepflame_steps_total")} == jobs
    assert server.values("up") == {"stepflame": 1}
    sums, counts = server.values("stepflame_step_duration_seconds_sum"), server.values("stepflame_step_duration_seconds_count")
    for job, i in jobs.items():
        durations = sorted(truths[i]["durations"])
        assert counts[job] == len(durations)
        assert abs(sums[job] - sum(durations)) < 0.001 + 0.0001 * sum(durations), (sums[job], sum(durations))
        for labels, value in server.query("stepflame_step_duration_seconds_bucket"):
            if labels["job"] == job and labels["le"] != "+Inf":
                near = [bisect.bisect(durations, float(labels["le"]) + error) for error in (-0.0005, 0.0005)]
                assert near[0] - 2 <= value <= near[1] + 2, (labels, value, near)
    text = get(port, "/metrics", tls).encode()
    check = subprocess.run([programs / "promtool", "check", "metrics"], input=text, capture_output=True)
    assert check.returncode == 0 and not check.stderr, check


def test_rules(programs, tmp_path):
    """Debian's promtool takes the alerts, and reckons when they ring."""
    for file in SERVICE / "alerts.yml", helpers.ROOT / "tests/data/alerts_test.yml":
        shutil.copy(file, tmp_path)
    for words in (["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]):
        done = subprocess.run([programs / "promtool", *words], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done


def test_dashboard():
    """What Grafana wants to be there, and no metric that `watch` does not have."""
    board = json.loads((SERVICE / "dashboard.json").read_text())
    known = set(re.findall(r"stepflame_[a-z_]+", (helpers.ROOT / "user/watch/metrics.c").read_text()))
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"]) and board["uid"] and board["title"]
    for panel in board["panels"]:
        assert panel["targets"] and panel["description"] and panel["datasource"]["uid"] == "${datasource}", panel
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for other in board["panels"]:
            its = other["gridPos"]
            apart = place["x"] + place["w"] <= its["x"] or its["x"] + its["w"] <= place["x"] or place["y"] + place["h"] <= its["y"] or its["y"] + its["h"] <= place["y"]
            assert other is panel or apart, (panel["title"], other["title"])
    for expr in expressions():
        assert set(re.findall(r"stepflame_[a-z_]+", expr)) <= known, expr
