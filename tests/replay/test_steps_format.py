# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`report --steps` of recordings made here: its sums against those of this file, what it says where data is missing, and text that lies."""

import random
import re
import statistics

import helpers
import pytest
import recfile as rec

PID = 4242
START = 10**9
MS = 10**6
PHASES = ["other", "data", "forward", "backward", "optimizer", "comm", "checkpoint", "validation"]
LABELS = {"data": "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "optimizer": "Optimizer.step#SGD.step"}
KINDS = {"backward": rec.BACKWARD, "forward": rec.FORWARD, "comm": rec.COMM}
PATHS = {phase: 100 + i for i, phase in enumerate(PHASES) if phase in LABELS or phase in KINDS}
LOADER_OPTIMIZER = 2
FILE, FUNCTION, CODE, STACK = 50, 51, 60, 61


def preamble(targets=(), steps=0, rule=LOADER_OPTIMIZER, file="/home/me/train.py", function="Net.load", hostname="host"):
    records = [rec.host(hostname=hostname), *(targets or [rec.target(PID)]), rec.window(START, START + 10**11, steps, rule)]
    for phase, path in PATHS.items():
        records.append(rec.name(path, LABELS.get(phase, "comm all_reduce" if phase == "comm" else phase)))
        records.append(rec.path(path, [(KINDS.get(phase, rec.LABEL), path)]))
    records += [rec.name(FILE, file), rec.name(FUNCTION, function), rec.code(CODE, FILE, FUNCTION, 10, [(0, 12)])]
    return records + [rec.stack(STACK, [(CODE, 0)])]


def write(path, records):
    path.write_bytes(rec.recording(records))
    return path


class Job:
    """Steps whose waits fit; records in the order in which they come, and what the report has to say."""

    def __init__(self, pid=PID, start=START, rule=LOADER_OPTIMIZER, stack=STACK):
        self.pid, self.now, self.rule, self.stack = pid, start, rule, stack
        self.records = [rec.boundary(pid, pid, 0, start, rule=rule)]
        self.steps = []

    def step(self, phases, waits=(), cpu=(), lost=0):
        """phases: {name: ns}; waits: (phase, kernel's cause, reported cause, ns)."""
        begin, duration = self.now, sum(phases.values())
        self.now += duration
        at = begin + duration // 2
        longest = begin
        for phase, cause, _, ns in waits:
            at = max(longest + ns, begin + ns)
            longest = at
            self.records.append(rec.sample(self.pid, self.pid, rec.WAIT, at, ns, self.stack, PATHS.get(phase, 0), cause=cause))
        for phase, native in cpu:
            ids = (self.stack, PATHS.get(phase, 0))
            self.records.append(rec.sample(self.pid, self.pid, rec.CPU, self.now - 1, 10 * MS, *ids, native=native))
        index = (self.steps[-1]["index"] if self.steps else 0) + 1 + lost
        self.records.append(rec.boundary(self.pid, self.pid, index, self.now, [phases.get(p, 0) for p in PHASES], self.rule))
        by_cause = {}
        for _, _, cause, ns in waits:
            by_cause[cause] = by_cause.get(cause, 0) + ns
        self.steps.append({"index": index, "start": begin - START, "duration": duration, "phases": phases, "waits": by_cause, "lost": lost})


def check_steps(found, job):
    expected = [step for step in job.steps if not step["lost"]]
    assert [step["index"] for step in found["steps"]] == [step["index"] for step in expected]
    for ours, theirs in zip(expected, found["steps"]):
        assert theirs["start_s"] == pytest.approx(ours["start"] / 1e9, abs=1e-12)
        assert theirs["duration_s"] == pytest.approx(ours["duration"] / 1e9)
        assert theirs["phases"] == {name: pytest.approx(ns / 1e9) for name, ns in ours["phases"].items() if ns}
        assert theirs["waits"] == {cause: pytest.approx(ns / 1e9) for cause, ns in ours["waits"].items()}
        assert theirs["oncpu_s"] == pytest.approx((ours["duration"] - sum(ours["waits"].values())) / 1e9, abs=1e-12)
    durations = sorted(step["duration"] for step in expected)
    assert found["median_s"] == pytest.approx(statistics.median_low(durations) / 1e9)
    assert found["p99_s"] == pytest.approx(durations[-(-99 * len(durations) // 100) - 1] / 1e9)


def random_job(seed):
    rng = random.Random(seed)
    job = Job()
    for i in range(1, 301):
        phases = {phase: rng.randrange(MS, 2 * MS) for phase in PHASES if rng.random() < 0.8} or {"other": MS}
        if i % 20 == 0:
            phases["data"] = phases.get("data", 0) + 60 * MS
        waits = []
        for phase in phases:
            if rng.random() < 0.5:
                cause = rng.choice(rec.CAUSES[1:])
                vague = cause in ("lock", "sleep", "pipe", "socket", "poll", "unknown")
                waits.append((phase, cause, "collective" if phase == "comm" and vague else cause, rng.randrange(1, phases[phase] // 2)))
        if i % 20 == 0:
            waits = [("data", "disk_read", "disk_read", 59 * MS)]
        # spans of a checkpoint or validation are Lightning's, which no path here has
        waits = [w for w in waits if w[0] in PATHS or w[0] == "other"]
        job.step(phases, waits, lost=2 if i == 150 else 0)
    return job


@pytest.mark.parametrize("seed", range(5))
def test_sums(tmp_path, seed):
    job = random_job(seed)
    file = write(tmp_path / "x.rec", preamble() + job.records)
    found = helpers.report(file, "--steps")
    check_steps(found, job)
    assert found["lost_steps"] == 2
    assert found["remainder_s"] == 0
    slow = [step["index"] for step in job.steps if step["phases"].get("data", 0) > 50 * MS and not step["lost"]]
    assert found["slow"] == slow
    assert {step["cause"] for step in found["steps"] if step["index"] in slow} == {"disk_read"}
    assert found["verdict"]["class"] == "input-bound"
    for kind, chosen in (("all", lambda step: True), ("of_slow", lambda step: step["index"] in slow)):
        steps = [step for step in job.steps if not step["lost"] and chosen(step)]
        assert found[kind]["steps"] == len(steps)
        for phase in found[kind]["phases"]:
            assert phase["total_s"] == pytest.approx(sum(step["phases"].get(phase["name"], 0) for step in steps) / 1e9)
            assert phase["oncpu_s"] + sum(phase["waits"].values()) == pytest.approx(phase["total_s"])


def test_order_does_not_matter(tmp_path):
    job = random_job(7)
    records = preamble() + job.records
    one = helpers.report(write(tmp_path / "a.rec", records), "--steps")
    mixed = job.records[:-1]
    random.Random(1).shuffle(mixed)
    # the last boundary says which rule held
    two = helpers.report(write(tmp_path / "b.rec", preamble() + mixed + job.records[-1:]), "--steps")
    assert one["steps"] == two["steps"]


def test_remainder(tmp_path):
    """What does not fit is counted, and never makes a step longer."""
    job = Job()
    for _ in range(20):
        job.step({"data": 4 * MS, "other": 6 * MS})
    job.records.insert(2, rec.sample(PID, PID, rec.WAIT, START + 15 * MS, 5 * MS, 0, PATHS["data"], cause="poll"))
    job.records.insert(2, rec.sample(PID, PID, rec.WAIT, START + 31 * MS, 3 * MS, 0, 0, cause="poll"))
    found = helpers.report(write(tmp_path / "x.rec", preamble() + job.records), "--steps")
    assert found["remainder_s"] == pytest.approx(0.003)
    assert found["steps"][1]["waits"] == {"poll": pytest.approx(0.004)}
    assert found["steps"][3]["waits"] == {"poll": pytest.approx(0.001)}
    assert "remainder: 1.50 %" in helpers.report_text(tmp_path / "x.rec", "--steps")


def test_without_samples(tmp_path):
    job = Job()
    for i in range(100):
        job.step({"data": 1 * MS, "forward": 9 * MS})
    file = write(tmp_path / "x.rec", preamble() + job.records)
    found = helpers.report(file, "--steps")
    assert found["steps"][0]["waits"] is None and found["steps"][0]["oncpu_s"] is None
    assert found["verdict"]["class"] == "unclear"
    assert "no samples" in found["verdict"]["why"]
    text = helpers.report_text(file, "--steps")
    assert "waits: not known" in text and "on CPU" not in text
    # data alone can be told
    job = Job()
    for i in range(100):
        job.step({"data": 5 * MS, "forward": 5 * MS})
    assert helpers.report(write(tmp_path / "y.rec", preamble() + job.records), "--steps")["verdict"]["class"] == "input-bound"


@pytest.mark.parametrize(
    "phase, symbol, cause, verdict",
    [
        ("other", "_PyEval_EvalFrameDefault (python3.11)", "python", "Python-bound"),
        ("forward", "PyObject_Call (libpython3.12.so.1.0)", "python", "Python-bound"),
        ("forward", "memcpy (libc.so.6)", "op", "CPU-op-bound"),
        ("other", "at::_ops::mm::call (libtorch_cpu.so)", "op", "CPU-op-bound"),
        ("other", "libcublasLt.so.13", "op", "CPU-op-bound"),  # without symbols
        ("forward", "python3.11", "python", "Python-bound"),
        ("forward", "[jit]", "op", "CPU-op-bound"),
        ("forward", "cpp_fused_add_0 (c2q5ab7.main.so)", "op", "CPU-op-bound"),  # of torch.compile
        ("forward", "sgemm_kernel (libopenblas.so.0)", "op", "CPU-op-bound"),  # as torch of a distribution calls it
        ("backward", "gomp_barrier_wait_end (libgomp-a34b3233.so.1.0.0)", "op", "CPU-op-bound"),
        ("forward", "_ZL4lsap (_lsap.cpython-311-x86_64-linux-gnu.so)", "native", "unclear"),
        ("forward", "cv2.abi3.so", "native", "unclear"),
        ("forward", "dgemm_kernel (libscipy_openblas64_-32a4b2a6.so)", "native", "unclear"),
        ("optimizer", "libarrow.so.2600", "native", "unclear"),
        ("other", "decode (libjpeg.so)", "native", "unclear"),
        ("other", "no library at all", "native", "unclear"),
    ],
)
def test_on_cpu(tmp_path, phase, symbol, cause, verdict):
    """Who had the CPU, of all steps and of those that took longer for it."""
    job = Job()
    for i in range(1, 101):
        slow = i % 20 == 0
        job.step({"other": 5 * MS, "forward": 5 * MS} | ({phase: 105 * MS} if slow else {}), cpu=[(phase, 80)] * 10 if slow else [])
    found = helpers.report(write(tmp_path / "x.rec", preamble() + [rec.name(80, symbol)] + job.records), "--steps")
    assert {step["cause"] for step in found["steps"] if step["index"] in found["slow"]} == {cause}
    assert found["verdict"]["class"] == verdict
    assert found["of_slow"]["cpu"][cause]["share"] == 1
    assert found["all"]["cpu"]["kernel"] == {"share": 0, "error": pytest.approx(1 / 50)}


@pytest.mark.parametrize("symbol, why", [("memcpy (libc.so.6)", "operators on the CPU take 100 % of a step's time"), ("_PyEval_EvalFrameDefault (python3.11)", "Python itself, not operators, takes 100 % of a step's time")])
def test_on_cpu_in_all_steps(tmp_path, symbol, why):
    job = Job()
    for _ in range(100):
        job.step({"forward": 10 * MS}, cpu=[("forward", 80)] * 10)
    found = helpers.report(write(tmp_path / "x.rec", preamble() + [rec.name(80, symbol)] + job.records), "--steps")
    assert found["verdict"]["why"].startswith(why), found["verdict"]


@pytest.mark.parametrize(
    "waited, why",
    [
        (0, "100 % of the time of a step is on the CPU: 20 % operators, 0 % Python, 80 % other native code, 0 % kernel; no wait stands out"),
        (900_000, "native code on the CPU takes 73 % of a step's time: 15 % operators, 58 % other libraries"),
    ],
)
def test_libraries_in_the_model(tmp_path, waited, why):
    """What scipy or OpenCV does in forward is no operator, which record --ops would show."""
    job = Job()
    for _ in range(100):
        waits = [("other", cause, cause, waited) for cause in ("disk_read", "sleep", "pipe")] if waited else []
        job.step({"forward": 7 * MS, "other": 3 * MS}, waits, cpu=[("forward", 80)] * 8 + [("forward", 81)] * 2)
    names = [rec.name(80, "lsap (_lsap.cpython-311-x86_64-linux-gnu.so)"), rec.name(81, "at::native::mm (libtorch_cpu.so)")]
    found = helpers.report(write(tmp_path / "x.rec", preamble() + names + job.records), "--steps")["verdict"]
    assert (found["class"], found["why"]) == ("compute-bound", why), found
    assert "record --ops says" not in found["next"][0], found


def slow_reads(steps, every, stack=STACK):
    """Every N-th step waits 30 ms more for a file of the dataset."""
    job = Job(stack=stack)
    for i in range(1, steps + 1):
        slow = i % every == 0
        job.step({"data": 30 * MS * slow + MS, "forward": 9 * MS}, [("data", "disk_read", "disk_read", 30 * MS)] * slow)
    return job


def test_causes_by_loss(tmp_path):
    """The first cause is what loses most, whichever comes first and is more frequent."""
    job = Job()
    for i in range(1, 201):
        write_ms, read_ms = 15 * (i % 10 == 5), 60 * (i % 20 == 10)
        waits = [("optimizer", "fsync", "fsync", write_ms * MS)] * (write_ms > 0) + [("data", "disk_read", "disk_read", read_ms * MS)] * (read_ms > 0)
        job.step({"data": (1 + read_ms) * MS, "forward": 9 * MS, "optimizer": (1 + write_ms) * MS}, waits)
    found = helpers.report(write(tmp_path / "x.rec", preamble() + job.records), "--steps")
    check_steps(found, job)
    assert [(group["cause"], group["count"]) for group in found["causes"]] == [("disk_read", 10), ("fsync", 20)]
    assert [group["over_s"] for group in found["causes"]] == [pytest.approx(0.6), pytest.approx(0.3)]
    text = helpers.report_text(tmp_path / "x.rec")
    assert text.index("10 steps, every 20th") < text.index("20 steps, every 10th")


@pytest.mark.parametrize("cause", ["gil", "lock"])
def test_locks(tmp_path, cause):
    """A lock that other threads of the job hold: the interpreter's is one, too."""
    job = Job()
    for _ in range(100):
        job.step({"other": 10 * MS}, [("other", cause, cause, 4 * MS)])
    verdict = helpers.report(write(tmp_path / "x.rec", preamble() + job.records), "--steps")["verdict"]
    assert (verdict["class"], verdict["share"]) == ("lock-bound", pytest.approx(0.4))
    what = {"gil": "the GIL (Python's lock)", "lock": "locks that other threads hold"}
    assert verdict["why"] == "40 % of the time of a step waits for " + what[cause]


def rhythm_of(group):
    return group["rhythm"]["shortest"], group["rhythm"]["longest"]


@pytest.mark.parametrize("stack", [STACK, 0, 77], ids=["", "no stacks", "stacks that are not there"])
def test_stacks_that_cannot_be_read(tmp_path, stack):
    """There is a cause all the same, and no place."""
    job = slow_reads(200, 20, stack)
    found = helpers.report(write(tmp_path / "x.rec", preamble() + job.records), "--steps")
    verdict, (group,) = found["verdict"], found["causes"]
    assert (verdict["class"], verdict["cause"], verdict["phase"]) == ("input-bound", "disk_read", "data"), verdict
    assert group["over_s"] == pytest.approx(0.3) and rhythm_of(group) == (20, 20)
    # ordinary steps have no samples here, that those of slow ones could be held against
    assert verdict["place"] is None
    assert [spot["name"] for spot in group["where"]] == ["Net.load"] * (stack == STACK)
    assert verdict["evidence"] == ["train.py:12 Net.load: 0.3 s"] * (stack == STACK)


@pytest.mark.long
def test_a_hundred_thousand_steps(tmp_path):
    job = slow_reads(100000, 20)
    found = helpers.report(write(tmp_path / "x.rec", preamble() + job.records), "--steps")
    assert len(found["steps"]) == 100000 and found["verdict"]["class"] == "input-bound"
    (group,) = found["causes"]
    assert group["over_s"] == pytest.approx(150) and rhythm_of(group) == (20, 20)


def test_nothing_to_tell(tmp_path):
    none = write(tmp_path / "none.rec", preamble(rule=0))
    assert "No step was seen" in helpers.report_text(none, "--steps")
    found = helpers.report(none, "--steps")
    assert (found["steps"], found["slow"], found["median_s"], found["straggler"]) == ([], [], None, None)
    assert found["verdict"]["class"] == "unclear"
    untimed = write(tmp_path / "untimed.rec", preamble(steps=100))
    assert "without -F 0" in helpers.report_text(untimed, "--steps")
    job = Job()
    job.step({"other": 10 * 60 * 10**9})
    one = write(tmp_path / "one.rec", preamble() + job.records)
    assert helpers.report(one, "--steps")["verdict"]["why"] == "only 1 step: record for longer"
    assert "median 600000 ms" in helpers.report_text(one, "--steps")
    short = Job()
    for _ in range(20000):
        short.step({"optimizer": 20_000, "other": 30_000})
    found = helpers.report(write(tmp_path / "short.rec", preamble() + short.records), "--steps")
    assert found["median_s"] == pytest.approx(50e-6) and len(found["steps"]) == 20000


def test_names_that_lie(tmp_path):
    """Text of the target steers no terminal, and breaks no line."""
    job = Job()
    for i in range(1, 101):
        more = 50 * MS if i % 10 == 0 else 0
        job.step({"data": 2 * MS + more, "other": 8 * MS}, [("data", "sleep", "sleep", more)] if more else [])
    file = write(tmp_path / "x.rec", preamble(file="/a\n/evil\x1b[31m.py", function="f\r\u202eg") + job.records)
    text = helpers.report_text(file, "--steps")
    assert "\x1b" not in text and "\r" not in text and "\u202e" not in text
    assert "evil\\x1b[31m.py:12 f\\x0d\\u202eg" in text.replace("\n  ", " ")
    assert helpers.report(file, "--steps")["causes"][0]["where"][0]["name"] == "f\r\u202eg"


def ranks_of(*times, first=PID):
    """A job for each (compute, comm)."""
    jobs = []
    for i, (compute, comm) in enumerate(times):
        job = Job(first + i)
        for _ in range(50):
            job.step({"forward": compute, "comm": comm} if comm else {"forward": compute},
                     [("comm", "socket", "collective", comm // 2)] if comm else [])
        jobs.append(job)
    return jobs


def write_ranks(file, jobs, ranks):
    """None: nothing says the rank."""
    targets = [rec.target(job.pid, **({} if rank is None else {"rank": rank})) for job, rank in zip(jobs, ranks)]
    return write(file, preamble(targets) + [record for job in jobs for record in job.records])


@pytest.mark.parametrize("ranks", [(None, None), (0, 0), (1, None)])
def test_ranks_without_numbers(tmp_path, ranks):
    """What nothing gives a number of its own is compared all the same, and named by its PID."""
    file = write_ranks(tmp_path / "x.rec", ranks_of((6 * MS, 24 * MS), (29 * MS, 1 * MS)), ranks)
    found = helpers.report(file, "--steps")
    name = "process %d" % (PID + 1)
    assert found["straggler"]["pid"] == PID + 1 and found["straggler"]["rank"] == ranks[1]
    assert found["verdict"]["class"] == "straggler"
    assert found["verdict"]["why"].startswith(name + " holds the others up, 23 ms of each step of 30 ms: on the CPU in forward")
    assert name in found["verdict"]["next"][0]
    assert "straggler: %s: it is in collectives for 1 ms" % name in helpers.report_text(file, "--steps")
    assert [rank["straggler"] for rank in helpers.report(file, "--summary")["ranks"]] == [False, True]


@pytest.mark.parametrize("optimizer, slower", [(6 * MS, True), (4 * MS, False)])
def test_rank_on_a_slower_cpu(tmp_path, optimizer, slower):
    """A rank whose phases all take longer by about the same factor has a slower CPU, the same code as the others; if the optimizer's does not, it has more to do."""
    jobs = [Job(PID), Job(PID + 1)]
    for _ in range(50):
        jobs[0].step({"forward": 8 * MS, "backward": 16 * MS, "optimizer": 4 * MS, "comm": 15 * MS}, [("comm", "socket", "collective", 14 * MS)])
        comm = 43 * MS - 12 * MS - 23 * MS - optimizer
        jobs[1].step({"forward": 12 * MS, "backward": 23 * MS, "optimizer": optimizer, "comm": comm}, [("comm", "socket", "collective", MS)])
    found = helpers.report(write_ranks(tmp_path / "x.rec", jobs, (0, 1)), "--steps")
    verdict = found["verdict"]
    assert found["straggler"]["rank"] == 1 and verdict["class"] == "straggler"
    assert ("its CPU is slower, in all phases" in verdict["why"]) == slower
    assert ("all its phases take 1.46 times as long on the CPU, together 13 ms more" in found["straggler"]["why"]) == slower
    assert (verdict["phase"] is None and verdict["place"] is None) or not slower
    assert verdict["next"] == (["see what else runs beside rank 1 (top), and how fast its CPUs are clocked"] if slower else ["find out what rank 1 does there that the others do not"])


@pytest.mark.parametrize(
    "data, forward, kind",
    [
        ((60, 60), (20, 26), "input-bound"),  # a straggler of 6 %
        ((60, 66), (20, 20), "input-bound"),  # likewise, for its data: there is as much in all ranks
        ((10, 50), (40, 40), "straggler"),  # most of what limits it is its own
        ((10, 10), (40, 80), "straggler"),
    ],
)
def test_straggler_or_what_limits_all(tmp_path, data, forward, kind):
    """A rank that holds the others up a little does not hide what limits all of them."""
    jobs = [Job(PID), Job(PID + 1)]
    for _ in range(50):
        for rank, job in enumerate(jobs):
            comm = 100 - data[rank] - forward[rank]
            waits = [("data", "disk_read", "disk_read", (data[rank] - 1) * MS), ("comm", "socket", "collective", (comm - 1) * MS)]
            job.step({"data": data[rank] * MS, "forward": forward[rank] * MS, "comm": comm * MS}, waits)
    found = helpers.report(write_ranks(tmp_path / "x.rec", jobs, (0, 1)), "--steps")
    assert found["straggler"]["rank"] == 1 and found["verdict"]["class"] == kind, found["verdict"]
    held = [text for text in found["verdict"]["evidence"] if text.startswith("rank 1 holds the others up, 6 ms of each step of 100 ms: it is in collectives for")]
    assert len(held) == (kind == "input-bound"), found["verdict"]


def test_another_job_is_no_rank(tmp_path):
    """A process that is in no collective is not the one for which the others wait."""
    even = ranks_of((20 * MS, 10 * MS), (20 * MS, 10 * MS), (30 * MS, 0))
    file = write_ranks(tmp_path / "even.rec", even, (0, 1, None))
    assert helpers.report(file, "--steps")["straggler"] is None
    assert "no rank holds the others up" in helpers.report_text(file)
    late = ranks_of((6 * MS, 24 * MS), (29 * MS, 1 * MS), (30 * MS, 0))
    assert helpers.report(write_ranks(tmp_path / "late.rec", late, (0, 1, None)), "--steps")["straggler"]["rank"] == 1
    alone = ranks_of((30 * MS, 0), (20 * MS, 10 * MS))
    file = write_ranks(tmp_path / "alone.rec", alone, (None, None))
    assert helpers.report(file, "--steps")["straggler"] is None
    assert "no rank holds" not in helpers.report_text(file)


def ranks_in_turn(phase="forward", second=PID + 1):
    """In each step one of two ranks, by chance, has 16 ms more in that phase; the collective takes 2 ms of itself."""
    order = [0, 1] * 40
    random.Random(3).shuffle(order)
    jobs = [Job(PID), Job(second)]
    for late in order:
        for rank, job in enumerate(jobs):
            comm = 2 if rank == late else 18
            phases = {"data": 1 * MS, "forward": 9 * MS, "comm": comm * MS}
            phases[phase] += (18 - comm) * MS
            job.step(phases, [("comm", "socket", "collective", (comm - 1) * MS)])
    return jobs


@pytest.mark.parametrize(
    "phase, second, why, advice",
    [
        ("forward", PID + 1, "the ranks wait for each other in turn: 8 ms of each step, and collectives themselves take 2 ms; who is last has more on the CPU in forward", "batches of equal work in all ranks"),
        ("data", PID + 1, "who is last has more on the CPU in data", "its data, its workers, its disk"),
        ("forward", PID + 1 + (1 << 22), None, "a faster network"),  # of another machine: its clock may be off
    ],
)
def test_ranks_in_turn(tmp_path, phase, second, why, advice):
    """Where another rank has the longest batch in each step, the network is not what they wait for."""
    file = write_ranks(tmp_path / "x.rec", ranks_in_turn(phase, second), (0, 1))
    found = helpers.report(file, "--steps")
    verdict = found["verdict"]
    assert found["straggler"] is None and verdict["class"] == "comm-bound", found
    assert (why in verdict["why"]) if why else ("in turn" not in verdict["why"]), verdict
    assert advice in verdict["next"][0], verdict
    assert ("they wait for each other in turn" in " ".join(helpers.report_text(file).split())) == bool(why)


def test_slow_collectives(tmp_path):
    """Where all ranks are in collectives for as long, these take the time."""
    file = write_ranks(tmp_path / "x.rec", ranks_of((20 * MS, 10 * MS), (20 * MS, 10 * MS)), (0, 1))
    verdict = helpers.report(file, "--steps")["verdict"]
    assert verdict["class"] == "comm-bound" and "in turn" not in verdict["why"] and "a faster network" in verdict["next"][0], verdict


def jobs_of(*meetings):
    """Two jobs of two ranks, none of which is late; where each meets, and the number that torchrun gave it."""
    jobs = ranks_of((20 * MS, 10 * MS), (20 * MS, 10 * MS), (5 * MS, 25 * MS), (5 * MS, 25 * MS))
    told = [rec.record("JOB", pid=PID + i, launcher=1 if meetings[i // 2][1] else 0, meets=meetings[i // 2][0], id=meetings[i // 2][1]) for i in range(4)]
    return jobs, told


@pytest.mark.parametrize(
    "meetings, apart",
    [
        ((("127.0.0.1 29500", ""), ("127.0.0.1 29501", "")), True),
        ((("10.0.0.1 29500", ""), ("10.0.0.2 29500", "")), True),
        ((("", "run-1"), ("", "run-2")), True),
        ((("", ""), ("", "")), False),  # nothing says so
        ((("localhost 29500", ""), ("worker-0 29500", "")), False),  # one rank's own name of the same
    ],
)
def test_two_jobs(tmp_path, meetings, apart):
    """Ranks are compared with those of their own job: another one, in the same recording, does not wait for them."""
    jobs, told = jobs_of(*meetings)
    targets = [rec.target(job.pid, rank=i % 2) for i, job in enumerate(jobs)]
    file = write(tmp_path / "x.rec", preamble(targets) + told + [record for job in jobs for record in job.records])
    found = helpers.report(file, "--steps")
    assert (found["straggler"] is None) == apart, found["straggler"]
    assert ("no rank holds the others up" in helpers.report_text(file)) == apart
    # and of two jobs the one that has a straggler is told
    late = ranks_of((29 * MS, 1 * MS), (6 * MS, 24 * MS), first=PID + 2)
    file = write(tmp_path / "y.rec", preamble(targets) + told + [record for job in jobs[:2] + late for record in job.records])
    assert helpers.report(file, "--steps")["straggler"]["pid"] == PID + 2


def test_two_ranks(tmp_path):
    """The rank that waits least in collectives is waited for; each is told apart."""
    jobs = ranks_of((5 * MS, 25 * MS), (29 * MS, 1 * MS), (6 * MS, 24 * MS))
    file = write_ranks(tmp_path / "x.rec", jobs, range(3))
    found = helpers.report(file, "--steps", "--per-rank")
    assert found["straggler"]["rank"] == 1
    assert found["straggler"]["why"].startswith("it is in collectives for 1 ms of a step, the others for 24.5 ms; it spends 23.5 ms more on the CPU in forward")
    assert [process["rank"] for process in found["processes"]] == [0, 1, 2]
    assert [process["verdict"]["class"] for process in found["processes"]] == ["comm-bound", "unclear", "comm-bound"]
    for process, job in zip(found["processes"], jobs):
        check_steps(process, job)
    check_steps(found, jobs[1])
    text = helpers.report_text(file, "--steps")
    assert "straggler: rank 1: " in text and "pid %d (main, rank 1)" % (PID + 1) in text
    assert "(main, rank 0)" not in text and "(main, rank 0)" in helpers.report_text(file, "--steps", "--per-rank")


def test_merged_ranks_have_their_own_pids(tmp_path):
    """Two hosts gave their rank the same number; the tables say that number, and not the one that tells the processes apart in the file."""
    files = []
    for rank, host in enumerate(("alpha", "beta")):
        job = Job(PID)
        for _ in range(50):
            job.step({"data": 20 * MS, "forward": 10 * MS})
            job.records.append(rec.sample(PID, PID, rec.WAIT, job.now - 12 * MS, 15 * MS, STACK, PATHS["data"], cause="pipe", waker=(PID + 7, PID + 7)))
        targets = [rec.target(PID, rank=rank), rec.target(PID + 7, rec.WORKER, parent=PID)]
        files.append(write(tmp_path / (host + ".rec"), preamble(targets, hostname=host) + job.records))
    merged = tmp_path / "merged.rec"
    assert helpers.stepflame("merge", *files, "-o", merged).returncode == helpers.OK
    text = helpers.report_text(merged, "--steps", "--per-rank")
    assert re.findall(r"^ +(\d+) +[01] +50 ", text, re.M) == [str(PID)] * 2, text
    assert {int(pid) for pid in re.findall(r"\bpid (\d+)", text)} == {PID}, text
    assert not re.search(r"\b%d\b" % (PID + 7 + (1 << 22)), text), text


def test_options(tmp_path):
    job = random_job(3)
    file = write(tmp_path / "x.rec", preamble() + job.records)
    slow = helpers.report(file, "--steps")["slow"]

    def listed(*options):
        lines = helpers.report_text(file, "--steps", *options).splitlines()
        first = next(i for i, line in enumerate(lines) if line.split()[:2] == ["step", "at"])
        rows = []
        for line in lines[first + 1 :]:
            if not line[:9].strip().isdigit():
                break
            rows.append(int(line[:9]))
        return rows

    durations = {step["index"]: step["duration"] for step in job.steps}
    assert listed("--limit", 0) == sorted(slow, key=lambda index: -durations[index])
    assert listed("--limit", 0, "--sort", "index") == slow
    assert listed() == listed("--limit", 0)[:10]
    assert helpers.stepflame("report", file, "--steps", "--sort", "percent").returncode == helpers.USAGE
    assert helpers.stepflame("report", file, "--steps", "--leaf").returncode == helpers.USAGE
