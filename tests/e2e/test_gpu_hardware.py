# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Recordings of jobs on a real GPU, against torch.profiler on the same steps: `make test-gpu`. The job is jobs/gpu_hardware.py.

What was measured is printed at the end, and written to the folder OUT, where that is set, with small recordings.
STEPFLAME_GPU_DEVICE=cpu tries the tests themselves where there is no GPU: all runs, and what a GPU did is not looked at.
"""

import json
import os
import shutil
import statistics
import subprocess
import time
from pathlib import Path

import gpu_compare
import helpers
import pytest

DEVICE = os.environ.get("STEPFLAME_GPU_DEVICE", "cuda")
CUDA = DEVICE == "cuda"
INJECT = Path(helpers.STEPFLAME).parent / "libstepflame-inject.so"
OUT = os.environ.get("OUT")
SMALL_BYTES = 256 << 10  # of a recording that is worth keeping
CUPTI_SECONDS = 3  # from `armed` until CUPTI is at work
PATIENCE_SECONDS = 5  # GPU_RING_PATIENCE_NS
STEPS = 20
MANY = ("--launches", 2000, "--step-ms", 50) if CUDA else ("--launches", 50, "--step-ms", 5)
# By its source Kineto subscribes to CUPTI when it is first used, and keeps it; with this it gives it back at the program's next call.
GIVES_BACK = {"TEARDOWN_CUPTI": "1"}
SYNCS = ("cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize")


def why_no_gpu():
    if not CUDA:
        return None
    if not os.path.exists("/proc/driver/nvidia/version"):
        return "no driver of NVIDIA is here"
    asked = subprocess.run([helpers.PYTHON, "-c", "import torch; print(torch.cuda.is_available())"], capture_output=True, text=True)
    if asked.stdout.strip() != "True":
        return "torch finds no GPU: " + (asked.stdout + asked.stderr).strip()[-200:]
    return None


NO_GPU = why_no_gpu()
pytestmark = [
    helpers.needs_bpf,
    pytest.mark.alone,
    pytest.mark.skipif(NO_GPU is not None, reason=str(NO_GPU)),
    pytest.mark.skipif(not INJECT.exists(), reason="no libstepflame-inject.so: CUPTI's headers are not here"),
]


class Told:
    """The job: ask() tells it something and waits for what it says."""

    def __init__(self, bench, *args, inject=True, env=None):
        env = dict(os.environ, PYTHONUNBUFFERED="1", **(env or {}))
        env.pop("CUDA_INJECTION64_PATH", None)
        if inject:
            env["CUDA_INJECTION64_PATH"] = str(INJECT)
        self.bench, self.asked = bench, 0
        command = [helpers.PYTHON, helpers.JOBS / "gpu_hardware.py", "--device", DEVICE, *args]
        self.process = bench.process(*command, stdin=subprocess.PIPE, env=env).until_ready()
        self.pid = self.process.pid

    def said(self):
        lines = self.process.stdout.split("\n")[:-1]
        return [json.loads(line[4:]) for line in lines if line.startswith("did ")]

    def tell(self, *words):
        self.process.popen.stdin.write((" ".join(map(str, words)) + "\n").encode())
        self.process.popen.stdin.flush()
        self.asked += 1

    def hear(self, seconds=helpers.READY_SECONDS):
        helpers.until(seconds, lambda: len(self.said()) >= self.asked or not self.process.running(), self.process.what)
        assert len(self.said()) >= self.asked, self.process.what()
        return self.said()[self.asked - 1]

    def ask(self, *words):
        self.tell(*words)
        said = self.hear()
        assert "error" not in said, said["error"]
        return said

    def profile(self, kind, steps):
        """(what the GPU did, what the job said) by torch.profiler."""
        trace = self.bench.directory / ("trace%d.json" % self.asked)
        said = self.ask("profile", kind, steps, trace)
        return gpu_compare.of_trace(trace), said

    def recorded(self, kind, steps, tier, *options):
        """(record, what the job said); tier 0: nothing records."""
        if not tier:
            return None, self.ask("run", kind, steps)
        how = {1: "uprobe", 2: "cupti"}[tier] if CUDA else "auto"
        record = self.bench.record("-p", self.pid, "--gpu", how, *options).until_armed()
        if tier == 2 and CUDA:
            time.sleep(CUPTI_SECONDS)
        said = self.ask("run", kind, steps)
        return ended(record), said

    def end(self):
        self.tell("quit")
        assert self.process.wait() == 0, self.process.what()


def ended(record):
    record.interrupt()
    assert record.wait() == helpers.OK, record.what()
    return record


def gpu_report(record, *options):
    return helpers.report(record.file, "--gpu", "--limit", 0, *options)


def keep(record, name):
    """For tests/data, which have none of a real GPU."""
    if OUT and Path(OUT).is_dir() and record.file.stat().st_size <= SMALL_BYTES:
        shutil.copy(record.file, Path(OUT) / (name + ".rec"))


@pytest.fixture(scope="module")
def figures(request):
    found = gpu_compare.Figures()
    yield found
    manager = request.config.pluginmanager.getplugin("capturemanager")
    with manager.global_and_fixture_disabled():
        print("\n" + found.text())
    if OUT and Path(OUT).is_dir():
        (Path(OUT) / "figures.md").write_text(found.text() + "\n")


@pytest.fixture(scope="module")
def long_bench(tmp_path_factory):
    b = helpers.Bench(tmp_path_factory.mktemp("hardware"))
    yield b
    b.close()


@pytest.fixture(scope="module")
def job(long_bench):
    """One job for most tests, which begins with the injection library in it."""
    told = Told(long_bench, *MANY, env=GIVES_BACK)
    for kind in ("plain", "copies", "streams", "many"):
        told.ask("warm", kind)
    yield told
    told.end()


def check_tier(found, tier):
    """Of the job: processes that it may have for compiling use no GPU."""
    first = found["tiers"][0]
    assert first["tier"] == tier, found["tiers"]
    return first


def check_work(found, record, traced, traced_steps, steps, again=None):
    """The same kernels and copies, all joined to the calls that asked for them. again: what torch.profiler saw afterwards."""
    if not CUDA:
        return
    tier = check_tier(found, 2)
    assert (tier["unjoined"], tier["unasked"], tier["lost"]) == (0, 0, 0), (tier, helpers.report(record.file)["lost"])
    # GPUs take not the same time each time: what torch.profiler itself finds different is allowed on top of 2 %.
    spread = abs(again.us - traced.us) / traced.us if again else 0
    assert gpu_compare.different(traced, gpu_compare.of_report(found), traced_steps, steps, 0.02 + spread) == []


def check_ops(record, said, traced_steps, steps):
    """The CUDA columns of operators: each has what torch.profiler gives it."""
    rows = {}
    for row in helpers.report(record.file, "--ops", "--limit", 0)["ops"]:
        if row["kind"] not in ("kernel", "copy", "set"):
            total = rows.setdefault(row["name"], [0, 0.0])
            total[:] = total[0] + row["count"], total[1] + (row["self_device_us"] or 0)
    truth = {name: values for name, values in said["ops"].items() if name.startswith("aten::") and values[1]}
    assert not CUDA or truth
    off = []
    for name, (count, us) in truth.items():
        mine = rows.get(name, [0, 0])
        if mine[0] * traced_steps != count * steps or abs(mine[1] / steps - us / traced_steps) > 0.1 * us / traced_steps + 2:
            off.append("%s: %s in %d steps, by torch.profiler %s in %d" % (name, mine, steps, [count, us], traced_steps))
    assert not off, "\n".join(off)


def against_torch_profiler(told, kind, figures, name):
    traced, said = told.profile(kind, STEPS)
    record, ran = told.recorded(kind, 2 * STEPS, 2, "--ops")
    again, _ = told.profile(kind, STEPS)
    found = gpu_report(record)
    check_work(found, record, traced, STEPS, 2 * STEPS, again)
    check_ops(record, said, STEPS, 2 * STEPS)
    assert not CUDA or gpu_compare.different(traced, again, STEPS, STEPS, 0.5) == []
    keep(record, name)
    if CUDA:
        mine = gpu_compare.of_report(found)
        figures.add("%s: kernels a step" % name, mine.kernel_count // (2 * STEPS))
        figures.add("%s: GPU time a step, torch.profiler before" % name, traced.us / STEPS, "us")
        figures.add("%s: GPU time a step, stepflame" % name, mine.us / (2 * STEPS), "us")
        figures.add("%s: GPU time a step, torch.profiler after" % name, again.us / STEPS, "us")
        figures.add("%s: bytes of the recording per activity" % name, record.file.stat().st_size / found["tiers"][0]["activities"])
    return record, found


def test_plain(job, figures):
    record, found = against_torch_profiler(job, "plain", figures, "plain")
    if not CUDA:
        return
    waits = [row for row in found["apis"] if row["name"] in SYNCS]
    assert sum(row["count"] for row in waits) >= 2 * STEPS and all(row["total_s"] > 0 for row in waits)
    # beside CUPTI the runtime may return by a way on which the ends of launches are not looked for
    figures.add("plain, tier 2: calls that have no time", helpers.report(record.file)["lost"].get("gpu_untimed", 0))
    (gpu,) = found["gpus"]
    figures.add("plain: idle", gpu["idle_percent"], "%")
    assert found["usage"] and found["usage"][0]["memory_used_bytes"] > 0


def test_lightning(long_bench, figures):
    pytest.importorskip("lightning")
    told = Told(long_bench, "--lightning", env=GIVES_BACK)
    against_torch_profiler(told, "fit", figures, "lightning")
    told.end()


@pytest.mark.parametrize("kind", ["copies", "streams"])
def test_kinds(job, figures, kind):
    traced, _ = job.profile(kind, STEPS)
    record, said = job.recorded(kind, STEPS, 2)
    found = gpu_report(record)
    keep(record, kind)
    if kind == "copies":
        assert set(said["copied"]) == {"host to device", "device to host"}
    if not CUDA:
        return
    again, _ = job.profile(kind, STEPS)
    check_work(found, record, traced, STEPS, STEPS, again)
    if kind == "copies":
        assert {row["direction"]: row["bytes"] for row in found["copies"]} == said["copied"]
        for row in found["copies"]:
            figures.add("copies: %s" % row["direction"], row["gb_per_s"], "GB/s")
    else:
        assert len(found["streams"]) >= 3


def test_graph(long_bench, figures):
    """CUDA graphs: each kernel of theirs; and in a job where torch.profiler has not been, and then has."""
    told = Told(long_bench)
    told.ask("warm", "graph")
    record, _ = told.recorded("graph", STEPS, 2)
    traced, _ = told.profile("graph", STEPS)
    again, _ = told.profile("graph", STEPS)
    after, _ = told.recorded("graph", STEPS, 2)
    keep(record, "graph")
    if CUDA:
        found = gpu_report(record)
        check_work(found, record, traced, STEPS, STEPS, again)
        assert {row["name"]: row["count"] for row in found["apis"]}["cudaGraphLaunch"] == STEPS
        assert sum(row["count"] for row in found["kernels"]) >= 2 * STEPS
        tier = gpu_report(after)["tiers"][0]
        figures.add("tier where torch.profiler has been, and keeps CUPTI", tier["tier"])
        assert tier["tier"] == 2 or "another tool uses CUPTI" in tier["why"]
    told.end()


def test_first_in_a_window(long_bench, figures):
    """torch.profiler is first used while CUPTI is taken: what it then sees of the GPU, and what later."""
    told = Told(long_bench, env=GIVES_BACK)
    told.ask("warm", "plain")
    record = long_bench.record("-p", told.pid, "--gpu", "cupti" if CUDA else "auto").until_armed()
    if CUDA:
        time.sleep(CUPTI_SECONDS)
    inside, _ = told.profile("plain", STEPS)
    ended(record)
    told.ask("run", "plain", STEPS)
    afterwards, _ = told.profile("plain", STEPS)
    told.end()
    if CUDA:
        figures.add("torch.profiler first used in a window: kernels then, later", "%d, %d" % (inside.kernel_count, afterwards.kernel_count))
        check_tier(gpu_report(record), 2)


def test_calls_alone(job, figures):
    """Tier 1: kernels by name, copies with bytes, and each call once."""
    traced, _ = job.profile("plain", STEPS)
    record, _ = job.recorded("plain", STEPS, 1)
    found = gpu_report(record)
    if not CUDA:
        return
    check_tier(found, 1)
    launches = sum(row["count"] for row in found["kernels"])
    assert launches == traced.kernel_count, (launches, traced.kernel_count)
    lost = helpers.report(record.file)["lost"]
    figures.add("plain, tier 1: kernels without a name", lost.get("kernels_unnamed", 0))
    figures.add("plain, tier 1: calls that have no time", lost.get("gpu_untimed", 0))
    timed = [row for row in found["apis"] if "Launch" in row["name"]]
    assert timed and all(row["total_s"] for row in timed), "ends of launches were not where they are looked for"
    record, said = job.recorded("copies", STEPS, 1)
    assert not CUDA or {row["direction"]: row["bytes"] for row in gpu_report(record)["copies"]} == said["copied"]


ROUNDS = 3


@pytest.mark.parametrize("kind, steps", [("plain", 200), ("many", 20)])
@pytest.mark.parametrize("tier", [1, 2])
def test_cost(job, figures, kind, steps, tier):
    """Steps with and without, in turn; for 2,000 launches in 50 ms of the GPU the aim is 2 %."""
    steps = steps if CUDA else 3
    without, recorded = [], []
    job.ask("run", kind, steps)
    for _ in range(ROUNDS):
        without.append(statistics.median(job.recorded(kind, steps, 0)[1]["steps"]))
        recorded.append(statistics.median(job.recorded(kind, steps, tier)[1]["steps"]))
    without.append(statistics.median(job.recorded(kind, steps, 0)[1]["steps"]))
    pairs = [2 * there / (before + after) for there, before, after in zip(recorded, without, without[1:])]
    noise = max(without) / min(without) - 1
    ratio = statistics.median(pairs)
    figures.add("%s, tier %d: step time" % (kind, tier), ratio, "x of %.4g ms" % (1e3 * statistics.median(without)))
    figures.add("%s, tier %d: without, from block to block" % (kind, tier), 100 * noise, "%")
    if CUDA and kind == "many":
        assert ratio < 1.02 + noise, (pairs, without)
    assert without[-1] < without[0] * 1.5, "the job is slower behind the recordings"


def test_asleep(long_bench, job, figures):
    """The library that nobody has woken, against a job without it, in turn."""
    other = Told(long_bench, *MANY, inject=False)
    other.ask("warm", "plain")
    steps = 200 if CUDA else 3
    ratios = []
    for _ in range(ROUNDS):
        there, without = (statistics.median(told.ask("run", "plain", steps)["steps"]) for told in (job, other))
        ratios.append(there / without)
    other.end()
    figures.add("plain, library asleep: step time", statistics.median(ratios), "x")


def test_injected(long_bench, figures):
    """Into a job that was started without it; torch.profiler works behind it."""
    told = Told(long_bench, inject=False, env=GIVES_BACK)
    told.ask("warm", "plain")
    traced, _ = told.profile("plain", STEPS)
    options = ("--inject",) if CUDA else ()
    record, _ = told.recorded("plain", STEPS, 2, *options)
    again, _ = told.profile("plain", STEPS)
    check_work(gpu_report(record), record, traced, STEPS, STEPS, again)
    record, _ = told.recorded("plain", STEPS, 2)
    check_work(gpu_report(record), record, traced, STEPS, STEPS, again)
    told.end()


def test_busy(job):
    """torch.profiler is there first: it keeps what it has, and the recording is one of calls."""
    traced, _ = job.profile("plain", STEPS)
    trace = job.bench.directory / "busy.json"
    job.ask("begin", trace)
    record = job.bench.record("-p", job.pid, "--gpu", "auto").until_armed()
    if CUDA:
        time.sleep(CUPTI_SECONDS)
    job.ask("run", "plain", STEPS)
    ended(record)
    job.ask("end")
    if not CUDA:
        return
    found = gpu_report(record)
    assert "another tool uses CUPTI" in check_tier(found, 1)["why"]
    assert gpu_compare.different(traced, gpu_compare.of_trace(trace), STEPS, STEPS, 0.5) == []


def test_killed(job, figures):
    """Without a word: the job goes on, soon at its speed, and CUPTI is free again."""
    steps = 100 if CUDA else 3
    before = statistics.median(job.ask("run", "plain", steps)["steps"])
    record = job.bench.record("-p", job.pid, "--gpu", "cupti" if CUDA else "auto").until_armed()
    if CUDA:
        time.sleep(CUPTI_SECONDS)
    job.tell("run", "plain", steps)
    record.kill()
    job.hear()
    time.sleep(PATIENCE_SECONDS + 2)
    after = statistics.median(job.ask("run", "plain", steps)["steps"])
    figures.add("killed: step time afterwards", after / before, "x")
    assert after < 1.5 * before
    traced, _ = job.profile("plain", STEPS)
    assert not CUDA or traced.kernel_count


def test_compiled(long_bench, figures):
    """torch.compile: kernels of Triton's, which it launches by the driver."""
    if not CUDA:
        pytest.skip("Triton is for GPUs")
    told = Told(long_bench, env={**GIVES_BACK, "TORCHINDUCTOR_COMPILE_THREADS": "1"})
    told.tell("warm", "compiled")
    said = told.hear()
    if "error" in said:
        pytest.skip("torch.compile does not work here: " + said["error"][:200])
    traced, _ = told.profile("compiled", STEPS)
    record, _ = told.recorded("compiled", STEPS, 2)
    again, _ = told.profile("compiled", STEPS)
    found = gpu_report(record)
    assert any("triton" in name for name in traced.kernels)
    check_work(found, record, traced, STEPS, STEPS, again)
    keep(record, "compiled")
    record, _ = told.recorded("compiled", STEPS, 1)
    assert sum(row["count"] for row in gpu_report(record)["kernels"]) == traced.kernel_count
    told.end()


JAX = """
import sys, time, jax, jax.numpy as jnp
f = jax.jit(lambda x: jnp.tanh(x @ x).sum())
x = jnp.ones((1024, 1024))
f(x).block_until_ready()
print("ready", flush=True)
sys.stdin.readline()
for _ in range(50):
    f(x).block_until_ready()
print("done", flush=True)
sys.stdin.readline()
"""


def test_jax(long_bench, figures):
    """XLA calls CUDA through stubs of its own: each launch is there once."""
    present = subprocess.run([helpers.PYTHON, "-c", "import jax; print(jax.default_backend())"], capture_output=True, text=True)
    if CUDA and present.stdout.strip() != "gpu":
        pytest.skip("no jax that has a GPU")
    if not CUDA and present.returncode:
        pytest.skip("no jax")
    env = dict(os.environ, XLA_PYTHON_CLIENT_PREALLOCATE="false", CUDA_INJECTION64_PATH=str(INJECT))
    told = long_bench.process(helpers.PYTHON, "-c", JAX, stdin=subprocess.PIPE, env=env)
    told.until_ready()
    record = long_bench.record("-p", told.pid, "--gpu", "cupti" if CUDA else "auto").until_armed()
    if CUDA:
        time.sleep(CUPTI_SECONDS)
    told.popen.stdin.write(b"\n")
    told.popen.stdin.flush()
    told.until_says("^done$", helpers.END_SECONDS, "stdout")
    ended(record)
    told.popen.stdin.write(b"\n")
    told.popen.stdin.flush()
    assert told.wait() == 0, told.what()
    if not CUDA:
        return
    found = gpu_report(record)
    tier = check_tier(found, 2)
    kernels = sum(row["count"] for row in found["kernels"])
    launches = sum(row["count"] for row in found["apis"] if "Launch" in row["name"])
    figures.add("jax: kernels, launches, not joined", "%d, %d, %d" % (kernels, launches, tier["unjoined"]))
    assert kernels and kernels % 50 == 0 and tier["unjoined"] == 0
    assert 0 < launches <= kernels
    keep(record, "jax")
