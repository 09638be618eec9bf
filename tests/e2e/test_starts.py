# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
The ways in which people start ranks: ps, record, dump and the straggler are right in each, by what each rank says of itself. Other jobs run on this
host meanwhile, so that what looks at all of its processes is held to those of the test.
"""

import contextlib
import gzip
import importlib.util
import json
import os
import re
import signal
from pathlib import Path

import helpers
import pytest

JOB = helpers.JOBS / "started.py"
WAYS = {  # the arguments of the job; what is in front of them: None: python
    "ddp": (["ddp"], None),
    "ddp-by-name": (["ddp"], "name"),
    "ddp-forkserver": (["ddp", "--workers", "forkserver"], None),
    "ddp_spawn": (["ddp_spawn"], None),
    "ddp_fork": (["ddp_fork", "--workers", "fork"], None),
    "spawn": (["spawn", "--workers", "fork"], None),
    "spawn-forkserver": (["spawn", "--workers", "forkserver"], None),
    "process": (["process", "--workers", "spawn"], None),
    "launch": (["launch"], None),
    "torchrun": (["env", "--workers", "fork"], "torchrun"),
    "torchrun-title-before": (["env", "--workers", "fork", "--title", "before"], "torchrun"),
    "torchrun-title-after": (["env", "--workers", "forkserver", "--title", "after"], "torchrun"),
    "accelerate": (["env", "--workers", "fork"], "accelerate"),
    "slurm": (["rank", "--workers", "fork"], "SLURM_PROCID"),
    "mpi": (["rank", "--workers", "fork"], "OMPI_COMM_WORLD_RANK"),
    "by-hand": (["rank", "--workers", "forkserver"], "by hand"),
}


def free_port():
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Started:
    """The processes of one job, each in a session of its own where nothing starts them all."""

    def __init__(self, bench, way):
        self.bench, self.parts = bench, []
        self.go_on = bench.directory / "go-on"
        self.go_on.touch()
        words, self.front = WAYS[way]
        words = [*words, "--go-on", self.go_on]
        port = str(free_port())
        environment = {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
        if self.front == "torchrun":
            command = [helpers.PYTHON, "-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port=" + port, JOB]
            self.parts = [self.start([*command, *words], environment)]
        elif self.front == "accelerate":
            if not importlib.util.find_spec("accelerate"):
                pytest.skip("tools/setup.sh python --readers installs accelerate")
            options = ["--multi_gpu", "--num_processes=2", "--num_machines=1", "--mixed_precision=no", "--dynamo_backend=no", "--main_process_port=" + port]
            self.parts = [self.start([helpers.PYTHON, "-m", "accelerate.commands.launch", *options, JOB, *words], environment)]
        elif words[0] == "rank":
            self.parts = [self.start([helpers.COLD_PYTHON, JOB, *words, "--port", port, "--rank", rank], self.of_rank(rank, environment)) for rank in (0, 1)]
        elif self.front == "name":
            self.parts = [self.start([helpers.PYTHON, JOB.name, *words], environment, cwd=JOB.parent)]
        else:
            lightning = words[0].startswith("ddp")
            python, more = (helpers.PYTHON, []) if lightning else (helpers.COLD_PYTHON, ["--port", port])
            self.parts = [self.start([python, JOB, *words, *more], environment)]

    def await_ranks(self):
        self.pids = dict(helpers.until(helpers.READY_SECONDS * 2, self.ranks, self.what))

    def of_rank(self, rank, environment):
        return environment if self.front == "by hand" else {**environment, self.front: str(rank)}

    def start(self, command, environment, **options):
        inherited = {name: value for name, value in os.environ.items() if not re.match(r"RANK|WORLD_SIZE|SLURM|OMPI|PM|LOCAL_RANK|NODE_RANK", name)}
        return self.bench.process(*command, env={**inherited, **environment}, start_new_session=True, **options)

    def ranks(self):
        found = [(int(rank), int(pid)) for part in self.parts for rank, pid in re.findall(r"^rank (\d) (\d+)$", part.stdout, re.M)]
        for part in self.parts:
            assert part.running(), part.what()
        return found if len(found) == 2 else None

    def what(self):
        return "\n".join(part.what() for part in self.parts)

    def end(self):
        self.go_on.unlink()
        for part in self.parts:
            assert part.wait() == 0, part.what()

    def kill(self):
        for pid in set().union(*(below(part.pid) for part in self.parts if part.running())):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def started(bench):
    jobs = []

    def start(way):
        jobs.append(Started(bench, way))
        jobs[-1].await_ranks()
        return jobs[-1]

    yield start
    for job in jobs:
        job.kill()


def listed():
    result = helpers.stepflame("ps", "--json")
    assert result.returncode == helpers.OK, result
    return json.loads(result.stdout)


def below(pid):
    """Pids of all processes that this one has started, and those have."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        found[int(stat.parent.name)] = int(fields[1])
    all_, more = set(), {pid}
    while more:
        all_ |= more
        more = {child for child, parent in found.items() if parent in more} - all_
    return all_


def check_ps(job, way):
    """Its trainers with their ranks and workers, and nothing else is a trainer. Returns the pids of its workers."""
    ranks = {pid: rank for rank, pid in job.pids.items()}
    assert sorted(ranks.values()) == [0, 1]
    mine = set().union(*(below(part.pid) for part in job.parts))
    seen = listed()
    trainers = {row["pid"]: row for row in seen["processes"] if row["pid"] in mine and row["role"] == "trainer"}
    assert {pid: row["rank"] for pid, row in trainers.items()} == ranks, seen
    parts = {row["pid"]: row for row in seen["parts"] if row["pid"] in mine}
    workers = {pid: row["of"] for pid, row in parts.items() if row["role"] == "worker"}
    expected = 1 if "--workers" in WAYS[way][0] else 0
    assert sorted(workers.values()) == sorted(ranks) * expected, parts
    assert all(row["workers"] == expected for row in trainers.values()), trainers
    return workers


def check_dump(job):
    dumped = json.loads(helpers.stepflame("dump", "--json", "-p", job.pids[0], "-p", job.pids[1]).stdout)
    assert {process["rank"]: process["pid"] for process in dumped["target"] if process["role"] == "main"} == job.pids


def check_targets(job, workers, file):
    targets = {target["pid"]: target for target in helpers.report(file, "--all", "--per-rank")["target"]}
    assert {target["rank"]: pid for pid, target in targets.items() if target["role"] == "main"} == job.pids, targets
    assert {pid for pid, target in targets.items() if target["role"] == "worker"} >= set(workers), targets


def check_straggler(job, file):
    steps = json.loads(helpers.report_text(file, "--steps", "--json"))
    assert steps["straggler"]["rank"] == 1 and steps["straggler"]["pid"] == job.pids[1], steps["straggler"]
    verdict = steps["verdict"]
    assert (verdict["class"], verdict["cause"], verdict["place"]) == ("straggler", "sleep", "started.py:%d late" % line_of("time.sleep(LATE")), verdict
    assert "rank 1 holds the others up" in helpers.report_text(file)


def check_traces(job, folder, file):
    """Holistic Trace Analysis, where it is there, shows both ranks, each in the file of its process."""
    result = helpers.stepflame("export", file, "-f", "tensorboard", "-o", folder)
    assert result.returncode == helpers.OK and not result.stderr, result
    hta = pytest.importorskip("hta.trace_analysis", reason="tools/setup.sh python --readers installs HolisticTraceAnalysis")
    assert sorted(hta.TraceAnalysis(trace_dir=str(folder)).t.traces) == [0, 1]
    traces = {json.loads(gzip.decompress(path.read_bytes()))["distributedInfo"]["rank"]: path.name for path in folder.iterdir()}
    assert all("_%d." % pid in traces[rank] for rank, pid in job.pids.items()), traces


def check_tables(job, file, folder):
    """Its ranks are of one job there, also those of a job without a name."""
    ipc = pytest.importorskip("pyarrow.ipc", reason="tools/setup.sh python --readers installs pyarrow")
    result = helpers.stepflame("export", file, "-f", "arrow", "-o", folder)
    assert result.returncode == helpers.OK and not result.stderr, result
    rows = ipc.open_file(folder / "ranks.arrow").read_all().to_pylist()
    assert {row["rank"]: row["pid"] for row in rows} == job.pids
    assert len({row["job"] for row in rows}) == 1 and {row["uid"] for row in rows} == {os.getuid()}, rows
    assert {row["launcher"] for row in rows} == {"torchrun" if job.front in ("torchrun", "accelerate") else "none"}, rows


@helpers.needs_bpf
@pytest.mark.parametrize("way", ["ddp", "spawn", "torchrun-title-after"])
def test_who(bench, started, way):
    job = started(way)
    workers = check_ps(job, way)
    record = bench.record("-p", "%d,%d" % (job.pids[0], job.pids[1]), "-d", "1s")
    assert record.wait() == helpers.OK, record.what()
    check_targets(job, workers, record.file)
    check_tables(job, record.file, bench.directory / "tables")
    check_dump(job)
    job.end()


@pytest.mark.alone
@helpers.needs_bpf
@pytest.mark.parametrize("way", WAYS)
def test_start(bench, started, way):
    job = started(way)
    workers = check_ps(job, way)
    # Both ranks, the first of them first, which may have started the other one; and beside that, each by itself.
    both = bench.record("-p", "%d,%d" % (job.pids[0], job.pids[1]), "-d", "4s", output=bench.directory / "both.rec")
    each = [bench.record("-p", job.pids[rank], "-d", "4s", output=bench.directory / ("%d.rec" % rank)) for rank in (0, 1)]
    for record in (both, *each):
        assert record.wait() == helpers.OK, record.what()
        assert "given twice" not in record.stderr, record.stderr
    merged = bench.directory / "merged.rec"
    result = helpers.stepflame("merge", *(record.file for record in each), "-o", merged)
    assert result.returncode == helpers.OK, result
    for file in (both.file, merged):
        check_targets(job, workers, file)
        check_straggler(job, file)
        check_tables(job, file, bench.directory / ("tables-" + file.stem))
    check_dump(job)
    job.end()
    check_traces(job, bench.directory / "traces", merged)


def line_of(text):
    return next(number for number, line in enumerate(JOB.read_text().splitlines(), 1) if text in line)
