# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Makes the recordings of tests/data/recordings, of real jobs, each with what its job said of itself: NAME.rec and NAME.json; then writes what
commands print of all of them now as what is expected. `make recordings` runs it, as root; ARGS are names of recordings, or --accept.

NAME.json: {"job": its command, "options": those of record, "truth": what the job wrote}.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "e2e"), str(TESTS / "e2e" / "jobs")]

import common  # noqa: E402
import gpu  # noqa: E402
import helpers  # noqa: E402
import recfile  # noqa: E402

OUT = TESTS / "data" / "recordings"
KEPT_DIGITS = 9  # of a second
MAX_BYTES = 100_000
JAX = os.environ.get("STEPFLAME_JAX_PYTHON", "~/.cache/stepflame/venv-jax/bin/python")
TRANSFORMERS = os.environ.get("STEPFLAME_TRANSFORMERS_PYTHON", "~/.cache/stepflame/zoo-3.11/bin/python")

EVERY_OP = ("--shapes", "--memory", "--stacks", "--modules")

# name: (script, its arguments, options of record, what Bench.job is given)
JOBS = {
    "fit": ("lightning_fit.py", ("--batches", 8, "--epochs", 1), (), {}),
    "gan": ("lightning_gan.py", ("--batches", 15), ("-F", 499), {}),
    "plain": ("plain_loop.py", ("--labels", "--batches", 60), (), {}),
    "workers": ("plain_loop.py", ("--workers", 2, "--batches", 12), ("--syscalls",), {}),
    "loaders": ("loaders.py", ("--workers", 2, 1, "--batches", 18), ("--syscalls",), {}),
    "io": ("io_calls.py", ("--directory", "DIRECTORY"), ("--syscalls",), {}),
    "ops": ("ops.py", ("--model", "mlp", "--batches", 4, "--shapes", "--memory"), (*EVERY_OP, "--timeline"), {}),
    "conv": ("ops.py", ("--model", "conv", "--batches", 5, "--shapes"), ("--ops", "--shapes"), {}),
    "exact": ("exact_calls.py", (), ("--exact=force", "-F", 0, "-d", 60), {}),
    "sleep": ("planted.py", ("--plant", "sleep", "--batches", 120), (), {}),
    "lock": ("planted.py", ("--plant", "lock", "--batches", 100), (), {}),
    "garbage": ("planted.py", ("--plant", "gc", "--batches", 80), (), {}),
    "late_worker": ("planted.py", ("--plant", "worker", "--batches", 40), (), {}),
    "python": ("answers.py", ("--kind", "python", "--batches", 150), (), {}),
    "jax": ("jax_loop.py", ("--annotate", "--labels", "--evaluate", 7, "--sleep", 0.002), (), {"python": os.path.expanduser(JAX)}),
    "before": ("known.py", (), ("-F", 499), {}),
    "after": ("known.py", ("--forward-ms", 7), ("-F", 499), {}),
}


def rounded(value):
    """Without digits that nobody compares."""
    if isinstance(value, float):
        return round(value, KEPT_DIGITS)
    if isinstance(value, dict):
        return {str(key): rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, (list, tuple)) else value


def shorter(truth):
    """Of Lightning's actions [name, calls, seconds, shortest, longest], in the order of their first calls; of torch.profiler's rows the numbers."""
    if "actions" in truth:
        durations = [(action, truth["actions"][action]) for action in truth["order"]]
        rows = [[action, len(each), sum(each), min(each), max(each)] for action, each in durations]
        return {"actions": rows, **{key: truth[key] for key in ("steps", "delayed", "pid")}}
    return {key: value for key, value in truth.items() if key not in ("tree", "launches", "exact", "odd", "links")}


def neutral(data):
    """Paths of this machine as those of no machine, as long as they were."""
    for path, instead in ((TESTS.parent, b"/stepflame"), (Path.home(), b"/home")):
        path = str(path).encode()
        data = data.replace(path + b"/", (instead + b"-" * len(path))[: len(path)] + b"/")
    return data


def keep(name, record, job, options, truth):
    assert record.wait() == helpers.OK, record.what()
    OUT.mkdir(exist_ok=True)
    data = recfile.changed(Path(record.file), neutral)
    assert len(data) < MAX_BYTES, (name, len(data))
    (OUT / (name + ".rec")).write_bytes(data)
    command = [Path(job.script).name, *job.args]
    said = {"job": command, "options": [str(option) for option in options], "truth": rounded(shorter(truth))}
    (OUT / (name + ".json")).write_bytes(neutral(json.dumps(said, separators=(",", ":"), sort_keys=True).encode() + b"\n"))
    print("%s: %d bytes, truth %d" % (name, len(data), (OUT / (name + ".json")).stat().st_size), flush=True)


def record_job(bench, name):
    script, args, options, more = JOBS[name]
    args = [bench.directory if arg == "DIRECTORY" else arg for arg in args]
    job = bench.job(script, *args, **more).until_ready()
    record = bench.record("-p", job.pid, *options).until_armed()
    job.release()
    truth = job.truth()
    if name == "exact":  # cProfile and --exact do not go together: a run like this one has its counts
        like = bench.job(script, "--profile").until_ready()
        like.release()
        truth["rows"] = like.truth()["rows"]
    keep(name, record, job, options, truth)


def record_ranks(bench, name):
    """DDP's two ranks, each into a recording of its own."""
    meet, jobs = bench.directory / "meet", []
    for rank in range(2):
        jobs.append(bench.job("ranks.py", "--rank", rank, "--meet", meet, "--ddp", "--late", 0.01, "--batches", 30, env={"RANK": str(rank)}))
    records = [bench.record("-p", job.until_ready().pid).until_armed() for job in jobs]
    for job in jobs:
        job.release()
    truths = [job.truth() for job in jobs]
    for rank, (job, record, truth) in enumerate(zip(jobs, records, truths)):
        keep("rank%d" % rank, record, job, (), truth)


def work_of(log):
    """What the doubles' log has of the GPU: {kind: {name: [count, ns, bytes]}}, and {library: {function: calls}}."""
    work, calls = {}, {}
    for op in log.ops("kernel", "copy", "set"):
        row = work.setdefault(op["kind"], {}).setdefault(op.get("name") or str(op.get("direction", "")), [0, 0, 0])
        row[:] = [row[0] + 1, row[1] + op["end"] - op["start"], row[2] + op.get("bytes", 0)]
    for call in log.calls():
        calls.setdefault(call["library"], Counter())[gpu.plain(call["name"])] += 1
    return {"work": work, "calls": calls}


def record_gpu(bench, name):
    """A loop whose operators launch kernels of the doubles."""
    how = name.removeprefix("gpu_")
    injected = {"injection": gpu.INJECT} if how == "cupti" else {}
    job = gpu.Jobs(bench).python("gpu_loop.py", "--batches", 12, "--nccl", **injected).until_ready()
    options = ("--gpu", how, *(("--timeline", "--shapes") if how == "cupti" else ()))
    record = bench.record("-p", job.pid, *options).until_armed()
    job.release()
    keep(name, record, job, options, dict(job.truth(), **work_of(job.log)))


def record_trainer(bench, name):
    python = os.path.expanduser(TRANSFORMERS)
    if not os.access(python, os.X_OK):
        print("%s: left out, %s is not there (tools/setup.sh python --zoo)" % (name, python))
        return
    job = bench.job("hf_trainer.py", python=python).until_ready()
    record = bench.record("-p", job.pid).until_armed()
    job.release()
    keep(name, record, job, (), job.truth())


MADE = {**dict.fromkeys(JOBS, record_job), "ranks": record_ranks, "gpu_cupti": record_gpu, "gpu_uprobe": record_gpu, "trainer": record_trainer}


def make_recordings(names):
    common.come_first()  # what else runs on the machine is not what is recorded
    for name in names:
        with tempfile.TemporaryDirectory() as directory:
            with contextlib.closing(helpers.Bench(Path(directory))) as bench:
                MADE[name](bench, name)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("names", nargs="*", metavar="NAME", help="all: %s" % " ".join(MADE))
    p.add_argument("--accept", action="store_true", help="make no recording: write what is expected")
    args = p.parse_args()
    if not args.accept:
        make_recordings(args.names or MADE)
    test = TESTS / "replay" / "test_expected.py"
    sys.exit(subprocess.run([sys.executable, "-m", "pytest", "-q", test, "--accept"]).returncode)


if __name__ == "__main__":
    main()
