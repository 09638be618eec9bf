# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What `report --steps` says of GPUs: figures of each step against sums made here, and who is to blame. Needs no root and no GPU."""

import json
import random
import subprocess

import helpers
import pytest
import recfile as rec
from intervals import length
from .test_steps_format import MS, PID, START, Job, preamble, write

US = 1000
EVAL = "_PyEval_EvalFrameDefault (python3.11)"


def kernels(spans, device=0):
    return [rec.gpu_activity(PID, rec.KERNEL, a, b - a, 90, i + 1, device=device) for i, (a, b) in enumerate(spans)]


def records_of(job, activities, tier=2, told=True):
    """cupti_ns: all the time."""
    out = preamble() + [rec.name(80, EVAL), rec.name(90, "kernel"), rec.gpu(PID, tier, cupti_ns=10**12)] + job.records + activities
    out.append(rec.window(START - 5 * MS, job.now + 5 * MS, len(job.steps), 1))
    if told:
        for i, step in enumerate(job.steps):
            start = START + step["start"]
            out.append(rec.gpu_step(PID, start, start + step["duration"], launches=100 + i, copies=i, copied_bytes=1000 * i, api_ns=3 * MS + i, sync_ns=MS + i))
    return out


@pytest.mark.parametrize("devices", [1, 2])
def test_figures(tmp_path, devices):
    rng = random.Random(devices)
    job = Job()
    for i in range(40):
        job.step({"forward": rng.randrange(5 * MS, 9 * MS), "other": MS + (40 * MS if i == 20 else 0)})
    end = job.now
    lines = []
    for device in range(devices):
        spans, at = [], START - 2 * MS
        while at < end + 2 * MS:
            at += rng.randrange(0, 900 * US)
            spans.append((at, at + rng.randrange(1, 2 * MS)))
            at = spans[-1][1] - rng.choice([0, 0, 100 * US])  # streams overlap
        lines.append(spans)
    activities = [record for device, spans in enumerate(lines) for record in kernels(spans, device)]
    found = helpers.report(write(tmp_path / "x.rec", records_of(job, activities)), "--steps")
    sums = [0, 0]
    for i, (step, gpu) in enumerate(zip(job.steps, [step["gpu"] for step in found["steps"]])):
        assert (gpu["launches"], gpu["copies"], gpu["copied_bytes"]) == (100 + i, i, 1000 * i)
        assert (gpu["api_s"], gpu["sync_s"]) == (pytest.approx(3e-3 + i / 1e9), pytest.approx(1e-3 + i / 1e9))
        begin = START + step["start"]
        busy = sum(length(spans, begin, begin + step["duration"]) for spans in lines) / devices
        assert gpu["busy_s"] == pytest.approx(busy / 1e9, abs=2e-9)
        assert gpu["idle_s"] == pytest.approx((step["duration"] - busy) / 1e9, abs=2e-9)
        sums = [sums[0] + busy, sums[1] + step["duration"]]
    assert found["all"]["gpu"]["busy_s"] == pytest.approx(sums[0] / 1e9, abs=1e-7)
    assert found["all"]["gpu"]["launches"] == sum(100 + i for i in range(40))
    assert found["of_slow"]["gpu"]["launches"] == 120
    text = " ".join(helpers.report_text(tmp_path / "x.rec", "--steps").split())
    assert f"GPU: 119.5 launches, 19.5 copies (0.0195 MB) a step; 3 ms of it in these calls, 1 ms in waits; busy for {100 * sums[0] / sums[1]:.1f} %" in text
    assert "GPU in slow steps: 120 launches" in text


def test_less_is_known(tmp_path):
    """Of probes alone, of CUPTI alone, of a part of the steps, and of none."""
    job = Job()
    for _ in range(20):
        job.step({"other": 10 * MS})
    all_time = kernels([(START + i * MS, START + i * MS + 500 * US) for i in range(200)])
    probes = helpers.report(write(tmp_path / "a.rec", records_of(job, [], tier=1)), "--steps")
    assert probes["steps"][3]["gpu"] == {"launches": 103, "copies": 3, "copied_bytes": 3000, "api_s": 0.003000003, "sync_s": 0.001000003, "busy_s": None, "idle_s": None, "profiling_s": None}
    assert "busy" not in helpers.report_text(tmp_path / "a.rec", "--steps")
    cupti = helpers.report(write(tmp_path / "b.rec", records_of(job, all_time, told=False)), "--steps")
    assert cupti["steps"][3]["gpu"]["launches"] is None and cupti["steps"][3]["gpu"]["busy_s"] == pytest.approx(0.005)
    part = helpers.report(write(tmp_path / "c.rec", records_of(job, all_time[:95])), "--steps")
    assert [step["gpu"]["busy_s"] is None for step in part["steps"]] == [i > 8 for i in range(20)]
    none = helpers.report(write(tmp_path / "d.rec", preamble() + job.records), "--steps")
    assert none["steps"][0]["gpu"] is None and none["all"]["gpu"] is None
    assert "GPU" not in helpers.report_text(tmp_path / "d.rec", "--steps")


def judged(tmp_path, busy_us, every_us, waits=(), python=False, step_ms=10):
    """Of steps in which a kernel of busy_us begins every every_us."""
    job = Job()
    for _ in range(50):
        cpu = [("other", 80)] * 2 if python else []
        job.step({"other": step_ms * MS}, waits or [("other", "run_queue", "run_queue", 1000)], cpu=cpu)
    spans = [(at, at + busy_us * US) for at in range(START, job.now, every_us * US)]
    file = write(tmp_path / "x.rec", records_of(job, kernels(spans), told=False))
    return helpers.report(file, "--steps")["verdict"]


def test_gpu_bound(tmp_path):
    """The GPU works nearly always: it bounds, whether the CPU waits for it or runs ahead."""
    verdict = judged(tmp_path, 95, 100)
    assert verdict["class"] == "GPU-bound" and "works for 95 % of the time" in verdict["why"]
    assert any("GPU busy for 95.0 %" in line and "kernels of 95 us" in line for line in verdict["evidence"])
    assert not any(".item()" in line for line in verdict["next"])


def test_launch_bound(tmp_path):
    """Small kernels, further apart than they take, from a CPU that does not wait."""
    verdict = judged(tmp_path, 10, 50)
    assert verdict["class"] == "launch-bound"
    assert "works for 20 % of the time" in verdict["why"] and "50 us to ask for each kernel of 10 us" in verdict["why"]
    assert any("CUDA graphs" in line for line in verdict["next"])
    # Python is why the CPU is slow: it is the same
    assert judged(tmp_path, 10, 50, python=True)["class"] == "launch-bound"


def test_not_the_gpu(tmp_path):
    """A CPU that waits for something else is not bound by its launches."""
    verdict = judged(tmp_path, 10, 50, [("other", "sleep", "sleep", 8 * MS)])
    assert verdict["class"] == "unclear" and "spent sleeping" in verdict["why"]
    verdict = judged(tmp_path, 10, 50, [("other", "lock", "lock", 8 * MS)])
    assert verdict["class"] == "lock-bound"


def test_steps_of_another_rule(tmp_path):
    """Figures of boundaries that are no step's are left out, whatever they say."""
    job = Job()
    for _ in range(20):
        job.step({"other": 10 * MS})
    lies = [rec.gpu_step(PID, a, b, launches=2**64 - 1, copies=2**64 - 1) for a, b in [(START, 0), (START, START + 1), (START - 5, START + 10 * MS), (START + 2, 2**64 - 1)]]
    lies += [rec.gpu_step(PID + 1, START, START + 10 * MS, launches=7)]
    found = helpers.report(write(tmp_path / "x.rec", records_of(job, [], tier=1, told=False) + lies), "--steps")
    assert all(step["gpu"] is None for step in found["steps"])
    twice = [rec.gpu_step(PID, START, START + 10 * MS, launches=n) for n in (5, 6)]
    found = helpers.report(write(tmp_path / "y.rec", records_of(job, [], tier=1, told=False) + twice), "--steps")
    assert found["steps"][0]["gpu"]["launches"] == found["all"]["gpu"]["launches"] in (5, 6)


def test_diff(tmp_path):
    """What GPUs did in a step, before and after: of the steps that CUPTI watched as a whole."""

    def recorded(name, us, cnt):
        job = Job()
        for _ in range(cnt):
            job.step({"other": 10 * MS})
        # from the middle of the first step to the middle of the last
        work = [(at, at + us * US) for at in range(START + 5 * MS, START + cnt * 10 * MS - 5 * MS, MS)]
        return write(tmp_path / name, records_of(job, kernels(work)))

    a, b = recorded("a.rec", 400, 40), recorded("b.rec", 700, 25)
    command = [helpers.STEPFLAME, "diff", a, b, "--json", "--all", "--limit", "0"]
    found = json.loads(subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True).stdout)
    (busy,) = [row for row in found["gpu"] if row["name"] == "busy"]
    assert (busy["a_s"], busy["b_s"]) == (pytest.approx(0.004), pytest.approx(0.007))
    idle = [sum(row[side] for row in found["gpu"] if row["name"] != "busy") for side in ("a_s", "b_s")]
    assert idle == [pytest.approx(0.006), pytest.approx(0.003)]
    (work,) = found["gpu_work"]
    assert (work["a_s"], work["b_s"], work["changed"]) == (pytest.approx(0.004), pytest.approx(0.007), True)
    # that nothing is known of one of them is no change
    job = Job()
    for _ in range(20):
        job.step({"other": 10 * MS})
    plain = write(tmp_path / "plain.rec", preamble() + job.records)
    found = json.loads(subprocess.run([helpers.STEPFLAME, "diff", plain, b, "--json", "--all"], capture_output=True, text=True, check=True).stdout)
    assert found["gpu"] == found["gpu_work"] == []


def overhead(kind, start_ns, duration_ns, tid=PID):
    """kind: as CUPTI numbers it."""
    return rec.gpu_activity(PID, rec.OVERHEAD, start_ns, duration_ns, tid=tid, detail=(kind, 0, 0, 0, 0, 0, 0, 0))


COMPILER, FLUSH, RESOURCE, LOADING, NEW = 1, 1 << 16, 3 << 16, 5 << 16, 99 << 16  # CUpti_ActivityOverheadKind


def test_profiling(tmp_path):
    """Overhead of CUPTI itself is time lost to profiling, of the thread that it names; what CUDA takes anyway is not, nor a kind that is not known."""
    job = Job()
    for _ in range(20):
        job.step({"other": 10 * MS})
    flushes = [overhead(FLUSH, START + 12 * MS, 2 * MS), overhead(RESOURCE, START + 13 * MS, 2 * MS)]  # one begins in the other: 3 ms
    flushes += [overhead(FLUSH, START + 58 * MS, 4 * MS), overhead(FLUSH, START + 70 * MS, MS, tid=PID + 1)]  # in two steps; of another thread
    others = [overhead(LOADING, START + 80 * MS, 5 * MS), overhead(COMPILER, START + 90 * MS, 7 * MS), overhead(NEW, START + 100 * MS, MS)]
    work = kernels([(START + i * MS, START + i * MS + 500 * US) for i in range(200)])
    file = write(tmp_path / "x.rec", records_of(job, work + flushes + others))
    found = helpers.report(file, "--steps")
    lost = {i: pytest.approx(s) for i, s in {1: 0.003, 5: 0.002, 6: 0.002}.items()}
    assert {i: step["gpu"]["profiling_s"] for i, step in enumerate(found["steps"]) if step["gpu"]["profiling_s"]} == lost
    assert found["all"]["gpu"]["profiling_s"] == pytest.approx(0.007)
    assert "0.007 s of these steps lost to CUPTI" in " ".join(helpers.report_text(file, "--steps").split())
    gpu = helpers.report(file, "--gpu")
    rows = {row["kind"]: (row["count"], row["total_us"], row["profiling"]) for row in gpu["overheads"]}
    assert rows == {
        "buffer_flush": (3, 7000, True),
        "compiler": (1, 7000, False),
        "function_loading": (1, 5000, False),
        "resource": (1, 2000, True),
        "other": (1, 1000, False),
    }
    assert gpu["profiling_us"] == 9000
    text = " ".join(helpers.report_text(file, "--gpu").split())
    assert "3 7.000 CUPTI handed over its buffers" in text and "9.000 ms of it were lost to profiling" in text, text
