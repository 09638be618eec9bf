# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A cluster of Spark: a master and two workers, each a process of its own, answer as DuckDB does. The executors know nothing of stepflame."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import generated
import helpers
import pytest

pytestmark = pytest.mark.long
Process = tuple[subprocess.Popen, Path]
FLEET = [sys.executable, "-m", "stepflame.fleet"]
HANGS_SECONDS = 3600
QUESTIONS = (("report", "train"), ("spend", "--by", "host"), ("hosts",), ("ops",), ("sql", "SELECT host, m, sum(ns) AS ns FROM waits GROUP BY host, m ORDER BY host, m"), ("compare", "train@2026-11-02T10:00..2026-11-02T10:30", "train@2026-11-02T10:30..2026-11-02T11:00"))


@contextlib.contextmanager
def started(folder: Path, name: str, *words: str) -> Iterator[Process]:
    """A process of Spark, in a group of its own with what it starts, and its log."""
    import pyspark

    home, log = Path(pyspark.__file__).parent, folder / (name + ".log")
    # not PYTHONPATH, nor what this process is set up with: a worker is another machine
    environment = {"PATH": os.environ["PATH"], "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m", "HOME": str(folder)}
    # it ends with this process, whatever ends that
    command = ["setpriv", "--pdeathsig", "TERM", home / "bin/spark-class", "org.apache.spark.deploy." + words[0], "--host", "127.0.0.1", "--port", "0", "--webui-port", "0", *words[1:]]
    with open(log, "wb") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment, process_group=0)
    try:
        yield process, log
    finally:
        process.terminate()  # a worker ends its executors then
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(60)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def until_says(of: Process, pattern: str) -> str:
    """Java starts slowly where others work: the time for which it was ready to run and did not does not count."""
    process, log = of

    def said() -> list[str]:
        assert process.poll() is None, log.read_text()[-2000:]
        return re.findall(pattern, log.read_text())

    return helpers.until(120, lambda: (found := said()) and found[0], lambda: log.read_text()[-2000:], lambda: helpers.delayed(process.pid))


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[str, list[Process]]]:
    pytest.importorskip("pyspark", reason="no pyspark: pip install pyspark")
    for program in ("java", "setpriv"):
        if not shutil.which(program):
            pytest.skip("no %s, with which a cluster of Spark is started" % program)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, contextlib.ExitStack() as running:
        folder = Path(name)
        head = running.enter_context(started(folder, "master", "master.Master"))
        url = until_says(head, r"Starting Spark master at (spark://\S+)")
        until_says(head, "I have been elected leader")
        workers = []
        for i in range(2):
            workers.append(running.enter_context(started(folder, "worker%d" % i, "worker.Worker", "--cores", "1", "--memory", "1g", "--work-dir", str(folder / ("work%d" % i)), url)))
        for worker in workers:
            until_says(worker, "Successfully registered with master")
        yield url, workers


def asked(words: tuple[str, ...], store: str, engine: tuple[str, ...]) -> str:
    environment = {**os.environ, "PYTHONPATH": str(generated.ROOT / "user/python"), "SPARK_LOCAL_IP": "127.0.0.1"}
    ran = subprocess.run([*FLEET, *words, "--store", store, *engine], capture_output=True, text=True, env=environment, timeout=HANGS_SECONDS)
    assert ran.returncode == 0, ran.stderr[-2000:]
    return ran.stdout


@pytest.mark.parametrize("words", QUESTIONS, ids=[words[0] for words in QUESTIONS])
def test_a_cluster_answers_as_duckdb_does(made, cluster, words):
    url, _ = cluster
    store = made.all_of(generated.PLANTS)
    theirs, ours = (json.loads(asked((*words, "--json"), store, engine)) for engine in (("--engine", "spark", "--master", url, "--memory", "600MB"), ()))
    assert generated.same(theirs, ours), (theirs, ours)
    assert words[0] != "report" or sorted(finding["kind"] for finding in theirs["findings"]) == sorted(generated.PLANTS)


def test_both_workers_work_with_the_memory_that_was_asked_for(made, cluster):
    url, workers = cluster
    asked(("sql", "SELECT count(*) FROM windows"), made.all_of(generated.PLANTS), ("--engine", "spark", "--master", url, "--memory", "700MB"))
    assert all("-Xmx700M" in log.read_text() for _, log in workers)
