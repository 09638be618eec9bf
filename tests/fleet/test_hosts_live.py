# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
From `watch` on three hosts to the answer: three ranks of torchrun, each on a host of its own (a name and a PID namespace), with a `watch` of its own,
and one of them late. The store has what the reports of the three rings say, and names the rank, its host and the line.
"""

import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import helpers
import pytest

ROOT = Path(__file__).resolve().parents[2]
JOB = Path(__file__).with_name("jobs") / "ddp.py"
HOSTS = 3
SLOW = 1
SECONDS = 200  # so that at least three minutes of the clock are seen
HOST = """
hostname host-{i}
{watch} &
watch=$!
sleep 2
{torchrun}
status=$?
kill -TERM $watch
wait $watch
exit $status
"""


def fleet(*words):
    command = [sys.executable, "-m", "stepflame.fleet", *map(str, words)]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "user/python"), "STEPFLAME": helpers.STEPFLAME}
    result = subprocess.run(command, env=env, capture_output=True, text=True, timeout=helpers.END_SECONDS)
    assert result.returncode == 0, (words, result.stdout, result.stderr)
    return result.stdout


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hosts")
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    env = {name: value for name, value in os.environ.items() if name != "STEPFLAME_WATCH"}
    hosts = []
    for i in range(HOSTS):
        torchrun = [helpers.PYTHON, "-m", "torch.distributed.run", "--nnodes", HOSTS, "--node-rank", i, "--nproc-per-node", 1, "--rdzv-backend", "static", "--rdzv-id", "three"]
        torchrun += ["--master-addr", "127.0.0.1", "--master-port", port, JOB, "--steps-log", folder / "log", "--seconds", SECONDS, "--slow-rank", SLOW, "--slow-ms", 20]
        watch = [helpers.STEPFLAME, "watch", "--state", folder / ("state-%d" % i)]
        script = HOST.format(i=i, watch=shlex.join(map(str, watch)), torchrun=shlex.join(map(str, torchrun)))
        log = open(folder / ("host-%d.log" % i), "w")
        hosts.append(subprocess.Popen(["unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script], env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
    try:
        for i, host in enumerate(hosts):
            assert host.wait(SECONDS + helpers.READY_SECONDS) == 0, (folder / ("host-%d.log" % i)).read_text()
    finally:
        for host in hosts:
            host.kill()
    return folder


@pytest.mark.long
@helpers.needs_bpf
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="hosts of their own need root and unshare")
def test_three_hosts(recorded):
    store = recorded / "store"
    for i in range(HOSTS):  # one after the other, as hosts do
        fleet("import", "--store", store, recorded / ("state-%d" % i))
    rings = [json.loads(helpers.stepflame("report", recorded / ("state-%d" % i) / "ring.rec", "--steps", "--json").stdout) for i in range(HOSTS)]
    rows = json.loads(fleet("sql", "--store", store, "--json", "SELECT host, sum(steps) AS n, sum(step_ns) AS ns, sum(data_ns) AS data FROM windows GROUP BY host ORDER BY host"))["rows"]
    assert [row["host"] for row in rows] == ["host-%d" % i for i in range(HOSTS)]
    for row, ring in zip(rows, rings):
        assert row["n"] == len(ring["steps"]) > 1000
        assert row["ns"] == sum(round(step["duration_s"] * 1e9) for step in ring["steps"])
        assert row["data"] == sum(round(step["phases"].get("data", 0) * 1e9) for step in ring["steps"])
    said = json.loads(fleet("report", "--store", store, "--json", "three"))
    assert (said["ranks"], said["hosts"]) == (HOSTS, HOSTS) and not said["left_out"]
    (finding,) = [finding for finding in said["findings"] if finding["kind"] != "stall"]
    assert finding["ranks"] == [SLOW] and finding["hosts"] == ["host-%d" % SLOW]
    assert 15e6 < finding["excess_ns"] < 25e6
    assert any("ddp.py:%d slow" % line_of("time.sleep(asked.slow_ms") in reason for reason in finding["because"]), finding
    assert not said["clocks"], said["clocks"]
    again = json.loads(fleet("import", "--store", store, "--json", *(recorded / ("state-%d" % i) for i in range(HOSTS))))
    assert again["files"] == 0, again


def line_of(text):
    return next(number for number, line in enumerate(JOB.read_text().splitlines(), 1) if text in line)
