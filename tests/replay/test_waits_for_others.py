# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What steps wait for that another thread or process does, and what they do in front of the model: verdicts of recordings made here."""

import helpers
import pytest
import recfile as rec
from .loops import BACKWARD, BARE, CHILD, FORWARD, HANDOVER, HELPER, LOAD, LOCK, LOOP, MS, PID, READ, READING, START, STEP, STEPS, WAIT, preamble

def steps(of_step):
    """of_step(index, start): the samples of one step, which has 17 ms of forward and 3 ms of backward."""
    yield from preamble()
    yield rec.boundary(PID, PID, 0, START, rule=3)
    for index in range(STEPS):
        start = START + index * STEP
        yield from of_step(index, start)
        yield rec.boundary(PID, PID, index + 1, start + STEP, [0, 0, 17 * MS, 3 * MS], 3)


def verdict(tmp_path, of_step):
    file = tmp_path / "a.rec"
    file.write_bytes(rec.recording(steps(of_step)))
    track = helpers.report(file, "--steps")
    return track


def waits(stack, waker, *others):
    """A wait of the loop, and what others did meanwhile: (tid, stack, cause, ns, waker), pid and tid."""

    def of_step(index, start):
        end = start + WAIT
        for (pid, tid), doing, cause, ns, by in others:
            kind = rec.WAIT if cause else rec.CPU
            yield rec.sample(pid, tid, kind, end - MS // 10, ns, doing, cause=cause, waker=by)
        yield rec.sample(PID, PID, rec.WAIT, end, WAIT, stack, FORWARD, cause="lock", waker=waker)
        yield rec.sample(PID, PID, rec.CPU, start + STEP - MS, 3 * MS, 212, BACKWARD)

    return of_step


THREAD, PROCESS = (PID, HELPER), (CHILD, CHILD)
LOST = 1  # a stack without a record

CASES = {
    "sleeps": (waits(HANDOVER, THREAD, (THREAD, READING, "sleep", 13 * MS, (0, 0))), "unclear", "sleep", "in thread %d" % HELPER),
    "reads": (waits(HANDOVER, THREAD, (THREAD, READING, "disk_read", 12 * MS, (0, 0))), "unclear", "disk_read", "train.py:30 read_rows"),
    "runs": (waits(HANDOVER, THREAD, (THREAD, READING, None, 13 * MS, (0, 0))), "thread-bound", "thread_wait", "train.py:30 read_rows"),
    "waits for a process": (
        waits(HANDOVER, THREAD, (PROCESS, READING, "disk_read", 13 * MS, (0, 0)), (THREAD, HANDOVER, "pipe", 13 * MS, PROCESS)),
        "unclear",
        "disk_read",
        "in process %d" % CHILD,
    ),
    "waits for the loop": (waits(HANDOVER, THREAD, (THREAD, HANDOVER, "lock", 13 * MS, (PID, PID))), "thread-bound", "thread_wait", None),
    "waits for itself": (waits(HANDOVER, (PID, PID)), "thread-bound", "thread_wait", None),
    "holds a lock": (waits(LOCK, THREAD, (THREAD, READING, "sleep", 13 * MS, (0, 0))), "lock-bound", "lock", "train.py:20 load"),
    "has no Python": (waits(LOCK, THREAD, (THREAD, BARE, "disk_read", 13 * MS, (0, 0))), "unclear", "disk_read", None),
    # its own samples whose stack was lost (an id without a record) are none of Python
    "has lost a stack": (
        waits(LOCK, THREAD, (THREAD, BARE, "disk_read", 13 * MS, (0, 0)), (THREAD, LOST, "lock", MS // 20, (PID, PID))),
        "unclear",
        "disk_read",
        None,
    ),
    "is not known": (waits(LOCK, (0, 0)), "lock-bound", "lock", "train.py:20 load"),
}


@pytest.mark.parametrize("name", CASES)
def test_other_thread(tmp_path, name):
    """A wait for what another thread hands over has the cause of what that one waits for; only a lock that it holds is a lock."""
    of_step, kind, cause, place = CASES[name]
    found = verdict(tmp_path, of_step)["verdict"]
    assert (found["class"], found["cause"]) == (kind, cause), found
    assert place is None or place in found["place"], found
    assert 0.69 < found["share"] < 0.71, found


def test_place_that_waits_for_a_cpu(tmp_path):
    """Where a thread waits for a CPU is chance: a function of the user's is the place of its work also if it waited there now and then."""

    def of_step(index, start):
        if not index:
            yield rec.name(330, "/site-packages/numpy/shape_base.py")
            yield rec.name(331, "stack")
            yield rec.code(80, 330, 331, 10, [(0, 11)])
            yield rec.stack(230, [(80, 0), (LOAD, 0), (LOOP, 4)])
        yield rec.sample(PID, PID, rec.CPU, start + 4 * MS, 4 * MS, 230, FORWARD)
        yield rec.sample(PID, PID, rec.CPU, start + 8 * MS, 3 * MS, 210, FORWARD)
        yield rec.sample(PID, PID, rec.WAIT, start + 8 * MS + MS // 2, MS // 2, 210, FORWARD, cause="run_queue")
        yield rec.sample(PID, PID, rec.CPU, start + 16 * MS, 8 * MS, 211, FORWARD)
        yield rec.sample(PID, PID, rec.CPU, start + STEP - MS, 3 * MS, 212, BACKWARD)

    found = verdict(tmp_path, of_step)["verdict"]
    assert found["class"] == "input-bound" and found["place"] == "train.py:20 load", found


def test_asks_again(tmp_path):
    """A queue that is asked again and again, each time for a while: what counts is who fills it, and what that one does."""

    def of_step(index, start):
        yield rec.sample(*THREAD, rec.WAIT, start + WAIT - MS // 10, 13 * MS, READING, cause="sleep")
        for part in range(7):
            waker = THREAD if part == 6 else (0, 0)
            yield rec.sample(PID, PID, rec.WAIT, start + (part + 1) * 2 * MS, 2 * MS - MS // 20, HANDOVER, FORWARD, cause="lock", waker=waker)
        yield rec.sample(PID, PID, rec.CPU, start + STEP - MS, 3 * MS, 212, BACKWARD)

    found = verdict(tmp_path, of_step)["verdict"]
    assert found["cause"] == "sleep" and "in thread %d" % HELPER in found["place"], found


@pytest.mark.parametrize("line, call, share", [(211, -1, 0.3), (213, -1, 0.2), (211, 0, 0.2)])
def test_work_for_page_faults(tmp_path, line, call, share):
    """With memory enough the kernel has no work for page faults either: what it does in no call, where page faults are awaited."""

    def of_step(index, start):
        if not index:
            yield rec.name(300, "filemap_fault")
        yield rec.sample(PID, PID, rec.WAIT, start + 4 * MS, 4 * MS, 211, FORWARD, cause="page_fault")
        yield rec.sample(PID, PID, rec.CPU, start + 6 * MS, 2 * MS, line, FORWARD, kernel=300, syscall=call)
        yield rec.sample(PID, PID, rec.CPU, start + STEP - MS, 14 * MS, 212, BACKWARD)

    found = verdict(tmp_path, of_step)["verdict"]
    assert found["class"] == "memory" and found["why"].startswith("20 % of the time")
    assert found["share"] == pytest.approx(share, abs=0.005)


@pytest.mark.parametrize("behind, elsewhere, share", [(2, 0, 0.3), (2, 1.75, 0.2875), (0, 2, 0.2)])
def test_waits_to_go_on(tmp_path, behind, elsewhere, share):
    """Behind each wait the thread waits for a CPU: what it waits there more than where it just runs is won with the wait."""

    def of_step(index, start):
        yield rec.sample(PID, PID, rec.WAIT, start + 4 * MS, 4 * MS, 211, FORWARD, cause="page_fault")
        if behind:
            yield rec.sample(PID, PID, rec.WAIT, start + (4 + behind) * MS, behind * MS, 211, FORWARD, cause="run_queue")
        yield rec.sample(PID, PID, rec.CPU, start + 7 * MS, 1 * MS, 211, FORWARD)
        if elsewhere:
            yield rec.sample(PID, PID, rec.WAIT, start + STEP - 6 * MS, int(elsewhere * MS), 212, BACKWARD, cause="run_queue")
        yield rec.sample(PID, PID, rec.CPU, start + STEP - MS, 7 * MS, 212, BACKWARD)

    found = verdict(tmp_path, of_step)["verdict"]
    assert found["class"] == "memory" and found["share"] == pytest.approx(share, abs=0.003), found


@pytest.mark.parametrize("holder", [(rec.CPU, None, "on the CPU"), (rec.WAIT, "sleep", "waiting: sleep"), None])
def test_gil(tmp_path, holder):
    """Who waits for the GIL reads which thread keeps it, and what that one does; no lock of the program is to blame."""

    def of_step(index, start):
        end = start + WAIT
        if holder:
            yield rec.sample(*THREAD, holder[0], end - MS // 10, 13 * MS, READING, cause=holder[1])
        yield rec.sample(PID, PID, rec.WAIT, end, WAIT, LOCK if index % 2 else 211, FORWARD, cause="gil", waker=THREAD)
        yield rec.sample(PID, PID, rec.CPU, start + STEP - MS, 3 * MS, 212, BACKWARD)

    found = verdict(tmp_path, of_step)["verdict"]
    assert (found["class"], found["cause"]) == ("lock-bound", "gil"), found
    begin = "70 % of the time of a step waits for the GIL (Python's lock); the GIL is kept by "
    if holder:
        assert found["place"] == "train.py:30 read_rows, in thread %d" % HELPER
        assert found["why"] == begin + "%s (%s)" % (found["place"], holder[2])
    else:  # nothing was seen of it
        assert found["why"] == begin + "thread %d" % HELPER
    assert "keep the GIL" in found["next"][0]


@pytest.mark.parametrize(
    "rest, advice, share",
    [
        (("lock", (PID, PID)), "they wait to be asked", 0.3),  # asked earlier, they take as long still: what the steps do meanwhile is won
        (("sleep", (0, 0)), "they work all the time", 0.7),
        (("lock", (0, 0)), "or ask them earlier", 0.7),
        (None, "or ask them earlier", 0.7),
    ],
)
def test_meanwhile(tmp_path, rest, advice, share):
    """What helps depends on what the other thread does while the steps do not wait for it."""
    awaited = waits(HANDOVER, THREAD, (THREAD, READING, None, 13 * MS, (0, 0)))

    def of_step(index, start):
        yield from awaited(index, start)
        if rest:
            yield rec.sample(*THREAD, rec.WAIT, start + STEP - MS // 20, STEP - WAIT - MS // 10, HANDOVER, cause=rest[0], waker=rest[1])

    found = verdict(tmp_path, of_step)["verdict"]
    assert advice in found["next"][0], found
    assert found["share"] == pytest.approx(share, abs=0.01), found


@pytest.mark.parametrize("stack, class_name", [(HANDOVER, "thread-bound"), (214, "input-bound")])
@pytest.mark.parametrize("native, python, advice", [
    ("_PyEval_EvalFrameDefault (python3.11)", "3.11.2", "more processes"),
    ("_PyEval_EvalFrameDefault (python3.14t)", "3.14.2t", "more threads or processes"),  # free-threaded
    ("inflate (libz.so.1)", "3.11.2", "more threads or processes"),
])
def test_busy_in_python(tmp_path, stack, class_name, native, python, advice):
    """Another thread that runs Python takes none of the work of the one that the steps wait for."""

    def of_step(index, start):
        if not index:
            yield rec.name(400, native)
            yield rec.target(PID, python=python)
        yield rec.sample(*THREAD, rec.CPU, start + WAIT - MS // 10, 13 * MS, READING, native=400)
        yield rec.sample(PID, PID, rec.WAIT, start + WAIT, WAIT, stack, FORWARD, cause="lock", waker=THREAD)
        if class_name == "input-bound":  # in front of the model
            yield rec.sample(PID, PID, rec.CPU, start + WAIT + MS, MS, 211, FORWARD)
        yield rec.sample(PID, PID, rec.CPU, start + STEP - MS, 2 * MS, 212, BACKWARD)
        yield rec.sample(*THREAD, rec.CPU, start + STEP - MS // 20, 5 * MS, READING, native=400)

    found = verdict(tmp_path, of_step)["verdict"]
    assert found["class"] == class_name, found
    assert advice in found["next"][0] and ("GIL" in found["next"][0]) == (advice == "more processes"), found["next"]


OTHER, IN_C = 0, 1  # enum awaited_kind


@pytest.mark.parametrize(
    "seen, kind, cause",
    [
        ([(READ, 0, IN_C)], "lock-bound", "lock"),  # of another function
        ([(LOAD, 4, IN_C)], "lock-bound", "lock"),  # of another line
        ([(LOAD, 0, OTHER)], "lock-bound", "lock"),
        ([(LOAD, 0, IN_C), (LOAD, 0, OTHER)], "lock-bound", "lock"),  # the same line waits on both
        ([(LOAD, 0, IN_C)], "unclear", "sleep"),
        ([(LOAD, 0, IN_C), (LOAD, 4, OTHER), (READ, 0, OTHER)], "unclear", "sleep"),
        ([(0, 0, IN_C), (LOAD, 0, 7), (LOAD, 0, IN_C)], "unclear", "sleep"),  # records that make no sense
    ],
)
def test_queue_in_c(tmp_path, seen, kind, cause):
    """A wait in C is for what another thread hands over where it was seen to be on a queue, and on nothing else."""
    of_step = waits(LOCK, THREAD, (THREAD, READING, "sleep", 13 * MS, (0, 0)))
    file = tmp_path / "a.rec"
    awaited = b"".join(rec.record("AWAITED", pid=PID, code=code, offset=offset, on=on) for code, offset, on in seen)
    records = [*steps(of_step)]
    file.write_bytes(rec.recording([*records[:-1], awaited, records[-1]]))
    found = helpers.report(file, "--steps")["verdict"]
    assert (found["class"], found["cause"]) == (kind, cause), found


ACQUIRE = 3  # enum awaited_kind
SIGNALS = ((THREAD, READING, "sleep", 12 * MS, (0, 0)), (THREAD, BARE, "lock", MS // 20, (PID, PID)))  # what the other one waits for in a step


@pytest.mark.parametrize(
    "seen, others, kind, cause",
    [
        ([(LOAD, 0, ACQUIRE)], SIGNALS, "unclear", "sleep"),
        ([(LOAD, 0, ACQUIRE)], SIGNALS[:1], "lock-bound", "lock"),  # the other one does not wait for the loop: it holds a lock
        ([(LOAD, 0, ACQUIRE), (LOAD, 0, OTHER)], SIGNALS, "lock-bound", "lock"),  # both take it
        ([], SIGNALS, "lock-bound", "lock"),
        ([(LOAD, 4, ACQUIRE)], SIGNALS, "lock-bound", "lock"),
    ],
)
def test_signal(tmp_path, seen, others, kind, cause):
    """A lock whose acquire() is called is a signal where the thread that releases it waits for one in turn."""
    of_step = waits(LOCK, THREAD, *others)
    file = tmp_path / "a.rec"
    awaited = b"".join(rec.record("AWAITED", pid=PID, code=code, offset=offset, on=on) for code, offset, on in seen)
    records = [*steps(of_step)]
    file.write_bytes(rec.recording([*records[:-1], awaited, records[-1]]))
    found = helpers.report(file, "--steps")["verdict"]
    assert (found["class"], found["cause"]) == (kind, cause), found


FAR, OPENAT, READ_CALL, SEND = 2, 257, 0, 44  # enum awaited_kind; numbers of calls


@pytest.mark.parametrize(
    "call, cause, seen, found_cause, mount",
    [
        (OPENAT, "unknown", [(LOAD, 0, FAR, 900)], "file_system", "/data (nfs4)"),
        (OPENAT, "disk_read", [(LOAD, 0, FAR, 900)], "file_system", "/data (nfs4)"),
        (OPENAT, "unknown", [(LOAD, 0, FAR, 900), (LOAD, 0, FAR, 901)], "file_system", None),  # of several: none is named
        (OPENAT, "unknown", [(LOAD, 0, FAR, 0)], "file_system", None),
        (OPENAT, "unknown", [(LOAD, 0, FAR, 900), (LOAD, 0, OTHER, 0)], "unknown", None),  # a disk, too
        (OPENAT, "unknown", [(LOAD, 4, FAR, 900)], "unknown", None),
        (READ_CALL, "disk_read", [(LOAD, 0, FAR, 900)], "disk_read", None),  # what a file has, no name
        (OPENAT, "pipe", [(LOAD, 0, FAR, 900)], "pipe", None),
    ],
)
def test_far_files(tmp_path, call, cause, seen, found_cause, mount):
    """A call on names of files that was seen to ask a server waits for that one, which the evidence names."""

    def of_step(index, start):
        yield rec.sample(PID, PID, rec.WAIT, start + WAIT, WAIT, LOCK, FORWARD, cause=cause, syscall=call)
        yield rec.sample(PID, PID, rec.CPU, start + STEP - MS, 3 * MS, 212, BACKWARD)

    awaited = [rec.name(900, "/data (nfs4)"), rec.name(901, "/home (fuse.sshfs)")]
    awaited += [rec.record("AWAITED", pid=PID, code=code, offset=offset, on=on, name=name) for code, offset, on, name in seen]
    file = tmp_path / "a.rec"
    file.write_bytes(rec.recording([*steps(of_step), *awaited]))
    found = helpers.report(file, "--steps")["verdict"]
    assert found["cause"] == found_cause, found
    named = [text for text in found["evidence"] if "to open, look up or list files" in text]
    assert named == (["%s: 2.8 s to open, look up or list files" % mount] if mount else []), found


@pytest.mark.parametrize(
    "ran, call, waker, gap, doing, seen",
    [
        (PID, SEND, (0, 0), MS // 10, READING, "thread_wait"),
        (CHILD, SEND, (0, 0), MS // 10, READING, "run_queue"),  # another process had the CPU
        (PID, -1, (0, 0), MS // 10, READING, "run_queue"),  # it was in no call, and asked nobody
        (PID, SEND, THREAD, MS // 10, READING, "run_queue"),  # it had waited before, and that was over
        (PID, SEND, (0, 0), 4 * MS, READING, "run_queue"),  # it ran in between
        (PID, SEND, (0, 0), MS // 10, BARE, "run_queue"),  # threads of operators share its work
    ],
)
def test_put_off(tmp_path, ran, call, waker, gap, doing, seen):
    """Who loses its CPU to the thread that it asks, and then waits for that one, waits for it all the time."""

    def of_step(index, start):
        end, put_off = start + WAIT, 8 * MS
        yield rec.sample(*THREAD, rec.CPU, end - MS // 10, 13 * MS, doing)
        yield rec.sample(PID, PID, rec.WAIT, start + put_off, put_off, 210, FORWARD, cause="run_queue", syscall=call, waker=waker, ran=ran)
        yield rec.sample(PID, PID, rec.WAIT, end, WAIT - put_off - gap, HANDOVER, FORWARD, cause="lock", waker=THREAD)
        yield rec.sample(PID, PID, rec.CPU, start + STEP - MS, 3 * MS, 212, BACKWARD)

    waited = {}
    for phase in verdict(tmp_path, of_step)["all"]["phases"]:
        for cause, seconds in phase["waits"].items():
            waited[cause] = waited.get(cause, 0) + seconds
    whole = STEPS * 8 * MS / 1e9
    assert (waited.get("run_queue", 0) < 0.1 * whole) == (seen == "thread_wait"), waited


def test_half(tmp_path):
    """A thread that sleeps for less than half of the wait is not what the wait is for."""
    found = verdict(tmp_path, waits(HANDOVER, THREAD, (THREAD, READING, "sleep", 6 * MS, (0, 0))))["verdict"]
    assert (found["class"], found["cause"]) == ("thread-bound", "thread_wait")


def plain(front, rare=1, behind=0):
    """A loop's samples: `front` ns of data in every `rare`th step, 3 ms of the model, `behind` ns of logging, the rest of 17 ms is the model's too."""

    def of_step(index, start):
        at = start
        if index % rare == 0:
            at += front
            yield rec.sample(PID, PID, rec.WAIT, at, front, 210, FORWARD, cause="sleep")
        yield rec.sample(PID, PID, rec.CPU, at + MS, 3 * MS, 211, FORWARD)
        if behind:
            yield rec.sample(PID, PID, rec.WAIT, at + 2 * MS + behind, behind, 213, FORWARD, cause="sleep")
        yield rec.sample(PID, PID, rec.CPU, start + STEP - MS, 3 * MS, 212, BACKWARD)

    return of_step


def phases(track):
    return {row["name"]: row["total_s"] / (STEPS * STEP / 1e9) for row in track["all"]["phases"]}


def test_in_front(tmp_path):
    """What the loop waits for before it calls the model is data."""
    track = verdict(tmp_path, plain(10 * MS))
    found = phases(track)
    assert found["data"] == pytest.approx(0.5, abs=1e-6) and found["forward"] == pytest.approx(0.35, abs=1e-6), found
    assert (track["verdict"]["class"], track["verdict"]["phase"], track["verdict"]["cause"]) == ("input-bound", "data", "sleep")
    assert "num_workers" not in " ".join(track["verdict"]["next"])  # there is no DataLoader


def test_in_front_beside_an_evaluation(tmp_path):
    """A DataLoader that gets data for an evaluation, or in another process, does not get those of the steps."""
    alone, evaluating, reading = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 300, 301

    def of_step(index, start):
        if not index:
            yield rec.name(400, alone)
            yield rec.name(401, "evaluate_model")
            yield rec.path(evaluating, [(rec.VALIDATION, 401), (rec.LABEL, 400)])
            yield rec.path(reading, [(rec.LABEL, 400)])
        yield from plain(10 * MS)(index, start)
        if index % 50 == 0:
            yield rec.sample(PID, PID, rec.CPU, start + 16 * MS, MS // 2, 213, evaluating)
        yield rec.sample(CHILD, CHILD, rec.CPU, start + STEP, STEP, READING, reading)

    found = verdict(tmp_path, of_step)["verdict"]
    assert found["class"] == "input-bound" and "set num_workers" not in " ".join(found["next"]), found


def test_behind(tmp_path):
    """What it does after the step, before the next, is neither."""
    found = phases(verdict(tmp_path, plain(4 * MS, behind=6 * MS)))
    assert found["data"] == pytest.approx(0.2, abs=1e-6) and found["other"] == pytest.approx(0.3, abs=1e-6), found


def longer(index, extra):
    return extra if index % 10 == 0 else 0


def rare(tmp_path, stack, cause, work=0):
    """The report of a loop that waits in every 10th step, and works there for `work` ns."""
    records, at = list(preamble()) + [rec.boundary(PID, PID, 0, START, rule=3)], START
    for index in range(STEPS):
        extra = longer(index, 30 * MS)
        if extra:
            records.append(rec.sample(PID, PID, rec.WAIT, at + extra, extra, stack, FORWARD, cause=cause))
        if extra and work:
            records.append(rec.sample(PID, PID, rec.CPU, at + extra + work, work, stack, FORWARD))
            extra += work
        records.append(rec.sample(PID, PID, rec.CPU, at + extra + MS, 3 * MS, 211, FORWARD))
        records.append(rec.sample(PID, PID, rec.CPU, at + extra + STEP - MS, 3 * MS, 212, BACKWARD))
        at += STEP + extra
        records.append(rec.boundary(PID, PID, index + 1, at, [0, 0, 17 * MS + extra, 3 * MS], 3))
    file = tmp_path / "a.rec"
    file.write_bytes(rec.recording(records))
    return helpers.report(file, "--steps")


@pytest.mark.parametrize("stack, cause, phase", [(210, "sleep", "other"), (214, "lock", "data")], ids=["work", "queue"])
def test_rare(tmp_path, stack, cause, phase):
    """What only slow steps do there is other work, unless it waits for what another thread hands over."""
    track = rare(tmp_path, stack, cause)
    seconds = {row["name"]: row["total_s"] for row in track["all"]["phases"]}
    assert seconds[phase] == pytest.approx(STEPS / 10 * 0.03, abs=1e-6), seconds


@pytest.mark.parametrize(
    "cause, advice",
    [("sleep", "wait for the event itself"), ("child_wait", "look at its end in another thread"), ("pipe", "ask earlier"), ("fsync", None)],
)
def test_rare_wait(tmp_path, cause, advice):
    """Of other work that is a wait, the advice is that of the wait."""
    found = rare(tmp_path, 210, cause, work=5 * MS)["verdict"]
    assert (found["class"] == "extra-work") == bool(advice), found
    assert not advice or advice in found["next"][0], found


@pytest.mark.parametrize(
    "symbol, stack, who",
    [
        ("__pyx_pf_5texts_parse (texts.cpython-311-x86_64-linux-gnu.so)", 210, "Cython"),
        ("impl_texts$$$function__1_parse (texts.cpython-311-x86_64-linux-gnu.so)", 210, "Nuitka"),
        ("parse (texts.cpython-311-x86_64-linux-gnu.so)", 210, None),
        ("impl_parse (libparse.so)", 210, None),
        ("train.cpython-311-x86_64-linux-gnu.so", 210, "Nuitka"),  # without symbols: at the first line of a function of train.py
        ("train.cpython-311-x86_64-linux-gnu.so", 215, None),  # at another line: a function that calls a module of the same name
        ("train.so", 210, None),
    ],
)
def test_compiled(tmp_path, symbol, stack, who):
    """Code that was compiled from Python has no frames, or frames without lines: it is told as such."""

    def of_step(index, start):
        for i in range(3):
            yield rec.sample(PID, PID, rec.CPU, start + i * 4 * MS + MS, 4 * MS, stack, FORWARD, native=950 if i else 0)
        yield rec.sample(PID, PID, rec.CPU, start + STEP - 5 * MS, MS, 211, FORWARD)
        yield rec.sample(PID, PID, rec.CPU, start + STEP - MS, 3 * MS, 212, BACKWARD)

    file = tmp_path / "a.rec"
    records = [*steps(of_step)]
    file.write_bytes(rec.recording([*records[:-1], rec.name(950, symbol), records[-1]]))
    evidence = "; ".join(helpers.report(file, "--steps")["verdict"]["evidence"])
    assert ("code that %s compiled" % who in evidence) if who else ("compiled" not in evidence), evidence
