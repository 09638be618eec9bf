# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What all steps do alike: verdicts and advice of recordings made here."""

import helpers
import pytest
import recfile as rec

from .loops import BACKWARD, BARE, CHILD, FORWARD, HANDOVER, HELPER, LOCK, MS, PID, READING, START, STEP, STEPS, WAIT, preamble

FETCH, COLLECT, SAVE, BARE_PYTHON = 102, 103, 104, 105
SEND, READ_CALL, FSYNC_CALL = 44, 0, 74
POOL = [(PID, HELPER + i) for i in range(4)]
PROCESS = (CHILD, CHILD)


def report(tmp_path, of_step, phases=(0, 0, 17 * MS, 3 * MS), more=()):
    """Of a recording: of_step(index, start) gives the samples of a step."""
    records = [*preamble(), *more, rec.boundary(PID, PID, 0, START, rule=3)]
    for index in range(STEPS):
        start = START + index * STEP
        records += [*of_step(index, start), rec.boundary(PID, PID, index + 1, start + STEP, phases, 3)]
    file = tmp_path / "a.rec"
    file.write_bytes(rec.recording(records))
    return helpers.report(file, "--steps")["verdict"]


def one_wait(cause, syscall, waker, doing=None):
    """Each step waits for 14 ms, of which `waker` does something for 13: (cause, stack)."""

    def of_step(index, start):
        by = waker(index)
        end = start + WAIT
        if doing:
            yield rec.sample(*by, rec.WAIT if doing[0] else rec.CPU, end - MS // 10, 13 * MS, doing[1], cause=doing[0])
        yield rec.sample(PID, PID, rec.WAIT, end, WAIT, HANDOVER if cause == "lock" else LOCK, FORWARD, cause=cause, syscall=syscall, waker=by)
        yield rec.sample(PID, PID, rec.CPU, start + STEP - MS, 3 * MS, 212, BACKWARD)

    return of_step


def test_pool(tmp_path):
    """Of several threads for which the steps wait in turn is said what they do, and that they wait for each other's lock."""

    def in_turn(cause):
        found = report(tmp_path, one_wait("lock", 202, lambda index: POOL[index % 4], (cause, READING)))
        return "; ".join(found["evidence"]), "; ".join(found["next"]), found

    evidence, _, found = in_turn(None)
    assert "the steps wait for 4 of its threads, which meanwhile are on the CPU, in train.py:30 read_rows" in evidence, found
    evidence, advice, found = in_turn("lock")
    assert "4 of its threads" in evidence and "hold the lock for less" in advice and "more threads or" not in advice, found


def test_two_of_a_pool(tmp_path):
    """One that has half of the waits is told by its number."""
    found = report(tmp_path, one_wait("lock", 202, lambda index: POOL[max(index % 4, 1)], (None, READING)))
    assert any("thread %d" % (HELPER + 1) in text for text in found["evidence"]), found


def test_others_sleep(tmp_path):
    """Steps that wait for one who sleeps do not sleep themselves."""
    found = report(tmp_path, one_wait("socket", 45, lambda index: PROCESS, ("sleep", READING)))
    assert found["cause"] == "sleep" and "is spent sleeping" not in found["why"], found
    assert "waits for other threads or processes, while these wait: sleep" in found["why"], found
    own = report(tmp_path, one_wait("sleep", 230, lambda index: (0, 0)))
    assert "is spent sleeping" in own["why"], own


def test_slow_reader(tmp_path):
    """Who writes to a pipe waits for the one that reads it, and is told to write less; who reads is not."""
    for call, told in ((1, True), (READ_CALL, False)):
        found = report(tmp_path, one_wait("pipe", call, lambda index: PROCESS, ("sleep", READING)))
        assert ("write less there" in "; ".join(found["next"])) == told, found


def gil(parts, last):
    """Each step waits for the GIL for 14 ms, in parts, of which the last one is ended by that thread."""

    def of_step(index, start):
        for part in range(parts):
            waker = last if part == parts - 1 else (0, 0)
            yield rec.sample(PID, PID, rec.WAIT, start + (part + 1) * WAIT // parts, WAIT // parts, LOCK, FORWARD, cause="gil", waker=waker)
        yield rec.sample(*POOL[0], rec.CPU, start + WAIT - MS, 13 * MS, READING)
        yield rec.sample(PID, PID, rec.CPU, start + STEP - MS, 3 * MS, 212, BACKWARD)

    return of_step


def test_gil(tmp_path):
    """A wait for the GIL ends every 5 ms without a waker: who has it is known by the last of these waits."""
    found = report(tmp_path, gil(3, POOL[0]))
    assert (found["class"], found["cause"]) == ("lock-bound", "gil") and "waits for the GIL (Python's lock); the GIL is kept by" in found["why"], found
    assert "the steps wait for thread %d, which meanwhile is on the CPU, in train.py:30 read_rows" % HELPER in found["evidence"], found
    assert "that keep the GIL" in found["next"][0], found
    found = report(tmp_path, gil(3, (0, 0)))  # nobody is known to have had it
    assert not any("the steps wait for" in text for text in found["evidence"]) and "GIL" not in found["next"][0], found


def test_collections(tmp_path):
    """Garbage that each step collects, and not Python's code, is what takes the time."""
    spans = [rec.name(COLLECT, "gc generation 2"), rec.path(COLLECT, [(rec.GC, COLLECT)])]

    def of_step(index, start):
        yield rec.record("INTERVAL", pid=PID, tid=PID, kind=rec.GC, name=COLLECT, start_ns=start + MS, duration_ns=12 * MS, step=index)
        for i in range(3):
            yield rec.sample(PID, PID, rec.CPU, start + (4 * i + 2) * MS, 4 * MS, 213, COLLECT)
        yield rec.sample(PID, PID, rec.CPU, start + STEP - MS, 8 * MS, 212, BACKWARD)

    found = report(tmp_path, of_step, more=spans)
    assert found["class"] == "Python-bound" and found["cause"] == "gc" and "60 % of the time of a step goes into the collection" in found["why"], found
    assert found["place"] == "train.py:80 log" and "gc.collect(), less often" in found["next"][0], found


def test_collections_now_and_then(tmp_path):
    """Where every 10th step collects garbage, these are told, with their rhythm."""
    records = [*preamble(), rec.name(COLLECT, "gc generation 2"), rec.path(COLLECT, [(rec.GC, COLLECT)]), rec.boundary(PID, PID, 0, START, rule=3)]
    at = START
    for index in range(STEPS):
        if index % 10 == 0:
            records.append(rec.record("INTERVAL", pid=PID, tid=PID, kind=rec.GC, name=COLLECT, start_ns=at, duration_ns=36 * MS, step=index))
            records += [rec.sample(PID, PID, rec.CPU, at + 4 * (i + 1) * MS, 4 * MS, 213, COLLECT) for i in range(9)]
            at += 36 * MS
        records.append(rec.sample(PID, PID, rec.CPU, at + 3 * MS, 4 * MS, 212, BACKWARD))
        at += 4 * MS
        records.append(rec.boundary(PID, PID, index + 1, at, [0, 0, 0, 4 * MS], 3))
    file = tmp_path / "a.rec"
    file.write_bytes(rec.recording(records))
    found = helpers.report(file, "--steps")["verdict"]
    assert (found["class"], found["cause"]) == ("Python-bound", "gc") and "slow steps (every 10th step)" in found["why"], found


def test_gets_data_itself(tmp_path):
    """More workers win nothing where the process that trains has the work: they are told only where it waits for them."""
    spans = [
        rec.target(CHILD, role=rec.WORKER, parent=PID),
        rec.name(FETCH, "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"),
        rec.path(FETCH, [(rec.LABEL, FETCH)]),
    ]

    def shared(worked):
        def of_step(index, start):
            if worked < 14:
                yield rec.sample(PID, PID, rec.WAIT, start + (14 - worked) * MS, (14 - worked) * MS, HANDOVER, FETCH, cause="pipe", waker=PROCESS)
            for i in range(worked // 2):
                yield rec.sample(PID, PID, rec.CPU, start + (13 - 2 * i) * MS, 2 * MS, READING, FETCH)
            yield rec.sample(PID, PID, rec.CPU, start + STEP - MS, 3 * MS, 212, BACKWARD)

        return "; ".join(report(tmp_path, of_step, (0, 14 * MS, 3 * MS, 3 * MS), spans)["next"])

    assert "workers, however many, take none of that" in shared(12)
    assert "however many" not in shared(4)


def test_python_place(tmp_path):
    """Where one function has most of Python's time, the verdict says which."""

    def spread(stacks):
        def of_step(index, start):
            yield rec.sample(PID, PID, rec.CPU, start + MS, 14 * MS, stacks[index % len(stacks)], FORWARD, native=960)
            yield rec.sample(PID, PID, rec.CPU, start + STEP - MS, 3 * MS, 212, BACKWARD, native=961)

        symbols = [rec.name(960, "_PyEval_EvalFrameDefault (python3.11)"), rec.name(961, "at::native::mm (libtorch_cpu.so)")]
        return report(tmp_path, of_step, more=symbols)

    found = spread([213])
    assert found["class"] == "Python-bound" and found["place"] == "train.py:80 log", found
    assert spread([213, 211, 212])["place"] is None


def test_nobody(tmp_path):
    """A wait that nobody of the job ended is for nobody that is known."""
    found = report(tmp_path, one_wait("socket", SEND, lambda index: (0, 0), (None, BARE)))
    assert not any("the steps wait for" in text for text in found["evidence"]), found


@pytest.mark.parametrize("collector", [HELPER, PID])
@pytest.mark.parametrize("every", [1, 10])
def test_who_collects(tmp_path, collector, every):
    """Garbage that another thread collects, in all steps or in some: the verdict names that thread, and where it collects."""
    records = [*preamble(), rec.name(COLLECT, "gc generation 2"), rec.path(COLLECT, [(rec.GC, COLLECT)]), rec.boundary(PID, PID, 0, START, rule=3)]
    at = START
    for index in range(STEPS):
        start, collects = at, index % every == 0
        at += 40 * MS if collects else 10 * MS
        if collects:
            records.append(rec.record("INTERVAL", pid=PID, tid=collector, kind=rec.GC, name=COLLECT, start_ns=start + MS, duration_ns=30 * MS, step=index))
            records.append(rec.sample(PID, collector, rec.CPU, start + 30 * MS, 28 * MS, READING if collector == HELPER else 213, COLLECT))
            if collector != PID:
                records.append(rec.sample(PID, PID, rec.WAIT, start + 31 * MS, 30 * MS, LOCK, cause="gil", waker=(PID, HELPER)))
        records.append(rec.sample(PID, PID, rec.CPU, at - MS, 5 * MS, 212))
        records.append(rec.boundary(PID, PID, index + 1, at, [0, 0, at - start - 3 * MS, 3 * MS], 3))
    file = tmp_path / "a.rec"
    file.write_bytes(rec.recording(records))
    found = helpers.report(file, "--steps")["verdict"]
    if found["cause"] == "gc":
        other = "train.py:30 read_rows"
        assert (("thread %d collects: %s" % (HELPER, other)) in found["why"]) == (collector == HELPER), found
        assert (found["place"] == "%s, in thread %d" % (other, HELPER)) == (collector == HELPER), found
    else:  # as true, of all steps: they wait for the GIL that the collector keeps
        assert collector == HELPER and "the GIL is kept by train.py:30 read_rows, in thread %d" % HELPER in found["why"], found


@pytest.mark.parametrize("saved", [0, 12])
def test_forces_others(tmp_path, saved):
    """What is forced to the disk, and is no checkpoint of torch, is advised nothing about checkpoints."""

    def of_step(index, start):
        path = SAVE if saved else 0
        yield rec.sample(PID, PID, rec.WAIT, start + 13 * MS, 12 * MS, 213, path, cause="fsync", syscall=FSYNC_CALL)
        yield rec.sample(PID, PID, rec.CPU, start + STEP - MS, 7 * MS, 212)

    more = [rec.name(SAVE, "save"), rec.path(SAVE, [(rec.SAVE, SAVE)])]
    found = report(tmp_path, of_step, phases=(12 * MS - saved * MS, 0, 5 * MS, 3 * MS, 0, 0, saved * MS, 0), more=more)
    assert found["class"] == "checkpoint" and found["place"] == "train.py:80 log", found
    assert ("async_save" in found["next"][0]) == bool(saved) and ("(fsync, a commit)" in found["next"][0]) == (not saved), found


def test_python_at_a_place(tmp_path):
    """A function in which Python spends most of a step is what to change: no operator's compiler takes it out of the step."""
    more = [rec.name(BARE_PYTHON, "_PyEval_EvalFrameDefault (python3.11)")]

    def of_step(index, start):
        for i in range(4):
            yield rec.sample(PID, PID, rec.CPU, start + 4 * (i + 1) * MS, 4 * MS, 213, native=BARE_PYTHON)
        yield rec.sample(PID, PID, rec.CPU, start + STEP - MS, 4 * MS, 212, BACKWARD)

    found = report(tmp_path, of_step, more=more)
    assert found["class"] == "Python-bound" and found["place"] == "train.py:80 log", found
    assert found["next"][0].startswith("less Python there") and "torch.compile" not in found["next"][0], found
