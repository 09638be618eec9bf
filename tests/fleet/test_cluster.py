# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A cluster of Spark: a master and two workers, each a process of its own, answer as DuckDB does. The executors know nothing of stepflame."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import generated
import helpers
import pytest

pytestmark = pytest.mark.long
FLEET = [sys.executable, "-m", "stepflame.fleet"]
QUESTIONS = (("report", "train"), ("spend", "--by", "host"), ("hosts",), ("ops",), ("compare", "train@2026-11-02T10:00..2026-11-02T10:07", "train@2026-11-02T10:07..2026-11-02T10:15"))


@contextlib.contextmanager
def started(folder: Path, name: str, *words: str) -> Iterator[Path]:
    """A process of Spark, and its log."""
    import pyspark

    home = Path(pyspark.__file__).parent
    log = folder / (name + ".log")
    # not PYTHONPATH, nor what this process is set up with: a worker is another machine
    environment = {"PATH": os.environ["PATH"], "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_WORKER_DIR": str(folder / name), "HOME": str(folder)}
    with open(log, "wb") as out:
        process = subprocess.Popen([home / "bin/spark-class", "org.apache.spark.deploy." + words[0], "--host", "127.0.0.1", *words[1:]], stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=environment)
    try:
        yield log
    finally:
        process.terminate()
        process.wait()


def until_says(log: Path, pattern: str, times: int = 1) -> str:
    helpers.until(120, lambda: len(re.findall(pattern, log.read_text())) >= times, lambda: log.read_text()[-2000:])
    return re.findall(pattern, log.read_text())[0]


@pytest.fixture(scope="module")
def master() -> Iterator[tuple[str, list[Path]]]:
    pytest.importorskip("pyspark", reason="no pyspark: pip install pyspark")
    if not shutil.which("java"):
        pytest.skip("no Java, which Spark needs")
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as running:
        folder = Path(name)
        log = running.enter_context(started(folder, "master", "master.Master", "--port", "0", "--webui-port", "0"))
        url = until_says(log, r"Starting Spark master at (spark://\S+)")
        workers = [running.enter_context(started(folder, "worker%d" % i, "worker.Worker", "--cores", "1", "--memory", "1g", "--webui-port", "0", url)) for i in range(2)]
        until_says(log, r"Registering worker", 2)
        yield url, workers


def answer(store: str, words: tuple[str, ...], *engine: str) -> dict:
    environment = {**os.environ, "PYTHONPATH": str(generated.ROOT / "user/python"), "SPARK_LOCAL_IP": "127.0.0.1"}
    ran = subprocess.run([*FLEET, *words, "--store", store, "--json", *engine], capture_output=True, text=True, env=environment)
    assert ran.returncode == 0, ran.stderr[-2000:]
    return json.loads(ran.stdout)


def same(one: object, other: object) -> bool:
    if isinstance(one, float) or isinstance(other, float):
        return one == pytest.approx(other, rel=1e-9, abs=1e-6)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def test_a_cluster_answers_as_duckdb_does(made, master):
    url, workers = master
    store = made.store("cluster", "--ranks", "32", "--hours", "0.25", "--checkpoints", "0", "--steps", "none", "--plant", "slow-host:host=2,begin=4,percent=12")
    for words in QUESTIONS:
        theirs, ours = answer(store, words, "--engine", "spark", "--master", url), answer(store, words)
        assert same(theirs, ours), (words, theirs, ours)
    assert [finding["hosts"] for finding in answer(store, ("report", "train"))["findings"]] == [["node-00002"]]
    # both workers did something
    assert all("Asked to launch executor" in log.read_text() for log in workers)
