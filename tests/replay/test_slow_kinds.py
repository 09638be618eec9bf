# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Slow steps that are no fault, or one fault in two groups: recordings made here."""

import helpers
import pytest
import recfile as rec
from .loops import BACKWARD, FORWARD, MS, PID, START, preamble

OPTIMIZER, UPDATE = 102, "Optimizer.step#SGD.step"
EVALUATE, EVALUATES, SCORES = 68, 220, 221


def track(tmp_path, records):
    file = tmp_path / "a.rec"
    file.write_bytes(rec.recording(records))
    return helpers.report(file, "--steps"), helpers.report_text(file)


def iterations(count, skipped, longer=1.0, other=0):
    """Steps of 4 ms forward, 5 backward, 1 optimizer; every 19th is of two iterations, or of a batch `longer` times as long. other: in no phase, of each."""
    yield from preamble()
    yield rec.name(OPTIMIZER, UPDATE)
    yield rec.boundary(PID, PID, 0, START, rule=3)
    at, backwards = START, 0
    for index in range(1, count + 1):
        odd = index % 19 == 0
        times = 2 if odd and skipped else longer if odd else 1
        phases = [other, 0, round(4 * MS * times), round(5 * MS * times), MS]
        backwards += 2 if odd and skipped else 1
        at += sum(phases)
        yield rec.sample(PID, PID, rec.CPU, at - 2 * MS, 3 * MS, 212, BACKWARD)
        yield rec.boundary(PID, PID, index, at, phases, 3)
    yield rec.agg(PID, rec.BACKWARD, BACKWARD, backwards, 5 * MS * backwards, first_ns=START)
    yield rec.agg(PID, rec.LABEL, OPTIMIZER, count, MS * count, first_ns=START)


@pytest.mark.parametrize("other", [0, MS])
def test_skipped_updates(tmp_path, other):
    """Two iterations in one step are no slow step that needs a cause, whatever a scaler does beside the update."""
    found, text = track(tmp_path, iterations(190, True, other=other))
    (group,) = found["causes"]
    assert (group["cause"], group["count"], group["where"]) == ("skipped_update", 10, [])
    assert group["rhythm"] == {"shortest": 19, "longest": 19, "matched": 10}
    assert found["verdict"]["cause"] != "skipped_update"
    assert "an update was left out" in " ".join(text.split())


def test_long_batches(tmp_path):
    """Every 19th batch is twice as long: as slow, but no update is missing."""
    found, _ = track(tmp_path, iterations(190, False, longer=2))
    assert [group["cause"] for group in found["causes"]] and "skipped_update" not in [group["cause"] for group in found["causes"]]


CHANCE = [3, 11, 14, 29, 37, 43, 58, 61, 70, 77, 95, 101, 118, 127, 131, 150, 155, 163, 187]


def longer_steps(which, factors, others=(), of_others=()):
    """Steps of 4 ms forward, 5 backward, 1 optimizer; which of them take `factors` times as long, and which others `of_others` times."""
    yield from preamble()
    yield rec.boundary(PID, PID, 0, START, rule=3)
    at = START
    for index in range(1, 191):
        begin = at
        times = factors if index in which else of_others if index in others else (1, 1, 1)
        phases = [0, 0, *(round(ms * MS * one) for ms, one in zip((4, 5, 1), times))]
        at += sum(phases)
        for end in range(begin + 2 * MS, at, 2 * MS):
            yield rec.sample(PID, PID, rec.CPU, end, 2 * MS, 212, BACKWARD)
        yield rec.boundary(PID, PID, index, at, phases, 3)


@pytest.mark.parametrize("factors", [(1.8, 1.8, 1.8), (1.7, 1.9, 1.6)])
def test_slower_cpu(tmp_path, factors):
    """Every phase takes longer, the optimizer's too, in no rhythm: the CPU was slower. Nothing of what the steps do is to blame."""
    found, _ = track(tmp_path, longer_steps(CHANCE, factors))
    (group,) = found["causes"]
    assert (group["cause"], group["phase"], group["count"], group["where"]) == ("unknown", None, len(CHANCE), [])


def test_slower_cpu_beside(tmp_path):
    """Slow steps of one phase do not hide that others were slow in all."""
    found, _ = track(tmp_path, longer_steps(CHANCE, (1.8, 1.8, 1.8), range(5, 191, 20), (6, 1, 1)))
    groups = {group["phase"]: group for group in found["causes"]}
    assert (groups[None]["cause"], groups[None]["count"], groups[None]["where"]) == ("unknown", len(CHANCE), []), groups
    assert (groups["forward"]["count"], groups["forward"]["rhythm"]["shortest"]) == (10, 20), groups


@pytest.mark.parametrize(
    "which, factors",
    [(CHANCE, (1.8, 1.8, 1)), (CHANCE, (1.1, 2.6, 1.8)), (range(10, 191, 10), (1.8, 1.8, 1.8)), (CHANCE[:6], (1.8, 1.8, 1.8))],
    ids=["the optimizer as before", "backward most", "every 10th", "too few"],
)
def test_more_work(tmp_path, which, factors):
    """A larger batch leaves the optimizer as it is; another model has its turn."""
    found, _ = track(tmp_path, longer_steps(which, factors))
    assert [group["cause"] for group in found["causes"]] == ["op"]


def test_few_of_many(tmp_path):
    """A rhythm is said of the steps that have it: 7 of 40."""
    records, at = [*preamble(), rec.boundary(PID, PID, 0, START, rule=3)], START
    chance = [3, 11, 14, 29, 37, 43, 58, 61, 70, 77, 95, 101, 118, 127, 131, 150, 155, 163, 187, 190, 201, 222, 231, 247, 255, 263, 281, 299, 305, 333, 371, 403, 440]
    for index in range(1, 460):
        slept = 200 * MS if index % 64 == 0 else 12 * MS if index in chance else 0
        if slept:
            records.append(rec.sample(PID, PID, rec.WAIT, at + slept, slept, 210, FORWARD, cause="sleep"))
        at += 10 * MS + slept
        records.append(rec.sample(PID, PID, rec.CPU, at - MS, 3 * MS, 212, BACKWARD))
        records.append(rec.boundary(PID, PID, index, at, [0, 0, 5 * MS + slept, 5 * MS], 3))
    found, text = track(tmp_path, records)
    (group,) = found["causes"]
    assert group["count"] == 7 + len(chance) and group["rhythm"]["matched"] == 7
    assert "7 of them every 64th step" in " ".join(text.split())


def test_one_kind(tmp_path):
    """An evaluation that sometimes waits more than it computes is one kind of slow step, with one rhythm."""
    records, at = [*preamble(), rec.boundary(PID, PID, 0, START, rule=3)], START
    records += [rec.name(1068, "evaluate"), rec.code(EVALUATE, 50, 1068, 90, [(0, 90), (4, 94)])]
    records += [rec.stack(EVALUATES, [(EVALUATE, 0), (60, 20)]), rec.stack(SCORES, [(EVALUATE, 4), (60, 20)])]
    for index in range(1, 401):
        extra = 40 * MS if index % 20 == 0 else 0
        if extra:
            waits = 36 * MS if index % 60 == 0 else 4 * MS
            records.append(rec.sample(PID, PID, rec.WAIT, at + waits, waits, EVALUATES, FORWARD, cause="sleep"))
            records += [rec.sample(PID, PID, rec.CPU, at + waits + k * MS, MS, SCORES, FORWARD) for k in range(1, (extra - waits) // MS)]
        at += 10 * MS + extra
        records.append(rec.sample(PID, PID, rec.CPU, at - MS, 3 * MS, 212, BACKWARD))
        records.append(rec.boundary(PID, PID, index, at, [0, 0, 5 * MS + extra, 5 * MS], 3))
    found, _ = track(tmp_path, records)
    (group,) = found["causes"]
    assert group["count"] == 20 and group["rhythm"] == {"shortest": 20, "longest": 20, "matched": 20}, found["causes"]
    assert group["where"][0]["name"] == "evaluate"


def planted(tmp_path, files, slow, installed=()):
    """The place of every 10th step, which sleeps at the innermost of `slow`; files: {function: path}; the first one is where the program was entered."""
    records = [rec.host(), rec.target(PID), rec.window(START, START + 10**10, 100, 3)]
    for number, (function, file) in enumerate(files.items()):
        records += [rec.name(50 + number, file), rec.name(150 + number, function), rec.code(60 + number, 50 + number, 150 + number, 10, [(0, 10)])]
    for number, path in enumerate(installed):
        records += [rec.name(250 + number, path), rec.record("INSTALLED", path=250 + number)]
    numbers = {function: 60 + number for number, function in enumerate(files)}
    records += [rec.stack(200, [(numbers[function], 0) for function in slow]), rec.stack(201, [(60, 0)]), rec.boundary(PID, PID, 0, START, rule=3)]
    records += [rec.name(FORWARD, "forward"), rec.path(FORWARD, [(rec.FORWARD, FORWARD)])]
    at = START
    for index in range(1, 101):
        slept = 50 * MS if index % 10 == 0 else 0
        if slept:
            records.append(rec.sample(PID, PID, rec.WAIT, at + slept, slept, 200, FORWARD, cause="sleep"))
        at += 10 * MS + slept
        records.append(rec.sample(PID, PID, rec.CPU, at - MS, 10 * MS, 201, 0))
        records.append(rec.boundary(PID, PID, index, at, [5 * MS, 0, 5 * MS + slept], 3))
    found, _ = track(tmp_path, records)
    return found["verdict"]["place"].split()[1].rstrip(",")


COMPILER = "/usr/lib/python3.11/site-packages/torch/_inductor/compile_fx.py"
GRAPHS = "/usr/lib/python3.11/site-packages/torch/_inductor/cudagraph_trees.py"


@pytest.mark.parametrize(
    "always, sometimes, cause",
    [
        (["cudagraphify.<locals>.run"], [], "sleep"),  # the replay of a CUDA graph
        (["run"], [], "sleep"),  # of a Python before 3.11
        (["align_inputs_from_check_idxs.<locals>.run", "index_expanded_dims_and_copy_"], [], "sleep"),
        (["fw_compiler_freezing.<locals>.wrapper"], [], "sleep"),
        (["compile_fx_inner"], [], "sleep"),  # whatever compiles in each step is not what makes these longer
        (["cudagraphify.<locals>.run"], ["compile_fx.<locals>.bw_compiler"], "compile"),
        ([], ["compile_fx", "compile_fx_inner"], "compile"),
        (["cudagraphify.<locals>.run"], ["CUDAGraphNode._record"], "compile"),
    ],
    ids=["replay", "replay 3.10", "aligned", "wrapper", "each step", "compiled in it", "compiled", "recorded"],
)
def test_compiled_code_runs(tmp_path, always, sometimes, cause):
    """Frames of the compiler that are around compiled code whenever it runs are no compilation: each step has 7 ms there, every 10th one 8 ms more of something."""
    records = [*preamble(), rec.name(90, COMPILER), rec.name(91, GRAPHS)]
    stacks = {}
    for ident, names in ((300, always), (301, always + sometimes)):
        frames = []
        for name in names:
            if name not in stacks:
                stacks[name] = 310 + len(stacks)
                records += [rec.name(1000 + stacks[name], name), rec.code(stacks[name], 91 if name.startswith("CUDAGraph") else 90, 1000 + stacks[name], 50)]
            frames.insert(0, (stacks[name], 0))
        records.append(rec.stack(ident, [*frames, (66, 0), (65, 0), (60, 8)]))
    records.append(rec.boundary(PID, PID, 0, START, rule=3))
    at = START
    for index in range(1, 201):
        longer = 8 * MS if index % 10 == 0 else 0
        records += [rec.sample(PID, PID, rec.CPU, at + (k + 1) * MS, MS, 300, FORWARD) for k in range(7)]
        if longer and sometimes:
            records += [rec.sample(PID, PID, rec.CPU, at + (k + 8) * MS, MS, 301, FORWARD) for k in range(8)]
        elif longer:
            records.append(rec.sample(PID, PID, rec.WAIT, at + 7 * MS + longer, longer, 211, FORWARD, cause="sleep"))
        at += 10 * MS + longer
        records.append(rec.boundary(PID, PID, index, at, [0, 0, 7 * MS + longer, 3 * MS], 3))
    found, _ = track(tmp_path, records)
    (group,) = found["causes"]
    assert group["cause"] == cause and group["count"] == 20, found["causes"]
    compiles = "compile_fx_inner" in always or sometimes
    assert ("torch.compile" in helpers.report_text(tmp_path / "a.rec", "--steps")) == bool(compiles)


MODULE = "/srv/packages/torch/nn/modules/module.py"
INSTALLED = "/usr/lib/python3.11/site-packages/"


@pytest.mark.parametrize("folder, place", [("/srv/packages/", "load"), ("/home/me/", "work")])
def test_folder_of_packages(tmp_path, folder, place):
    """A function of a library that lies where torch does is not the user's, wherever that is."""
    files = {"<module>": "/home/me/train.py", "load": "/home/me/data.py", "call": MODULE, "work": folder + "lib/core.py"}
    assert planted(tmp_path, files, ["work", "call", "load", "<module>"]) == place


def test_packages_beside_the_program(tmp_path):
    """A program that has torch beside it is the user's own nevertheless."""
    files = {"<module>": "/srv/packages/train.py", "call": MODULE, "load": "/srv/packages/data.py"}
    assert planted(tmp_path, files, ["load", "call", "<module>"]) == "load"


@pytest.mark.parametrize("entry", [INSTALLED + "mine/__main__.py", "/usr/bin/mine"])
def test_program_in_a_package(tmp_path, entry):
    """What was installed and is run as a program, by -m or by its command, is the user's own; the library that it calls is not."""
    files = {"<module>": entry, "main": INSTALLED + "mine/cli.py", "load": INSTALLED + "mine/data.py", "work": INSTALLED + "lib/core.py"}
    assert planted(tmp_path, files, ["work", "load", "main", "<module>"]) == "load"


def test_generated_code(tmp_path):
    """The user's line is the one that calls what torch.compile wrote."""
    files = {"<module>": "/home/me/train.py", "step": "/home/me/train.py", "call": "/tmp/torchinductor_me/ab/cabc.py"}
    assert planted(tmp_path, files, ["call", "step", "<module>"]) == "step"


@pytest.mark.parametrize(
    "installed, place",
    [
        ([], "tokenize"),
        (["/srv/libs/texts/"], "main"),
        (["/srv/libs/text"], "tokenize"),
        (["/srv/libs/tex/", "/srv/libs/texts"], "tokenize"),
        (["/srv/libs/texts/data.py"], "main"),
        (["", "/"] + ["/srv/libs/%d/" % i for i in range(2000)], "tokenize"),
    ],
    ids=["a folder of one's own", "a package", "the begin of a name", "other packages", "a module", "nothing, and too many"],
)
def test_installed_by_target(tmp_path, installed, place):
    """A package in a folder that pip install --target made is not the user's own, a package beside it is."""
    files = {"<module>": "/home/me/train.py", "main": "/home/me/train.py", "tokenize": "/srv/libs/texts/data.py"}
    assert planted(tmp_path, files, ["tokenize", "main", "<module>"], installed) == place


def test_installed_program(tmp_path):
    """`python -m` of a package that was installed outside site-packages: it is the user's own, and the library beside it is not."""
    files = {"<module>": "/app/mine/__main__.py", "load": "/app/mine/data.py", "work": "/app/lib/core.py"}
    assert planted(tmp_path, files, ["work", "load", "<module>"], ["/app/mine/", "/app/lib/"]) == "load"


@pytest.mark.parametrize("entry", ["train.py", "app/train.py"])
def test_frozen_program(tmp_path, entry):
    """PyInstaller takes the folders from all names of files: the script's line counts, whatever library or module it calls."""
    files = {"<module>": entry, "main": entry, "load": "texts/data.py", "call": "torch/nn/modules/module.py", "get": "queue.py", "wait": "threading.py"}
    assert planted(tmp_path, files, ["load", "main", "<module>"]) == "main"
    assert planted(tmp_path, files, ["wait", "get", "load", "main", "<module>"]) == "main"


def test_relative_script(tmp_path):
    """A script of a Python before 3.9 has a name without a folder, too, and is not frozen for that."""
    files = {"<module>": "train.py", "load": "data.py", "call": INSTALLED + "torch/nn/modules/module.py"}
    assert planted(tmp_path, files, ["call", "load", "<module>"]) == "load"


@pytest.mark.parametrize("cell", ["<stdin>", "<stdin>-0", "<ipython-input-7-0a1b2c>", "<command-1234567>", "<console>", "<python-input-3>"])
def test_typed_in(tmp_path, cell):
    """A cell of a notebook, and what is piped into Python, is the user's own; what Python and libraries make of texts is not."""
    files = {"<module>": cell, "load": cell, "fit": INSTALLED + "trainer/fit.py", "__init__": "<string>", "_find": "<frozen importlib._bootstrap>", "work": INSTALLED + "lib/core.py"}
    assert planted(tmp_path, files, ["work", "__init__", "_find", "load", "fit", "<module>"]) == "load"


MACHINE, MEMORY = 64 * 10**9, 1  # bytes; enum resource_known


@pytest.mark.parametrize(
    "shrinks, grows, faults, said",
    [(80, 0, 20000, True), (80, 70, 20000, False), (80, 0, 100, False), (0, 0, 20000, False)],
    ids=["copies", "grows itself", "no faults", "nothing"],
)
def test_copied_pages(tmp_path, shrinks, grows, faults, said):
    """Free memory that workers use up by copying pages, MB and faults a second: their resident memory is as large as before."""
    worker, seconds = PID + 1, 30
    records = [rec.host(), rec.target(PID), rec.target(worker, role=rec.WORKER, parent=PID), rec.window(START, START + seconds * 10**9, 300, 3)]
    records += [rec.boundary(PID, PID, index, START + index * 100 * MS, rule=3) for index in range(seconds * 10)]
    for second in range(seconds):
        at = START + second * 10**9
        left = 40 * 10**9 - shrinks * second * 10**6
        records.append(rec.record("MACHINE", time_ns=at, pid=PID, processors=8, memory_bytes=MACHINE, available_bytes=left))
        for pid in (PID, worker):
            rss = 2 * 10**9 + (grows * second * 10**6 if pid == worker else 0)
            records.append(rec.record("RESOURCES", time_ns=at, pid=pid, known=MEMORY, rss_bytes=rss, minor_faults=faults * second if pid == worker else 0))
    file = tmp_path / "a.rec"
    file.write_bytes(rec.recording(records))
    text = " ".join(helpers.report_text(file).split())
    assert ("shrinks by 4800 MB a minute, though no process grows" in text) == said, text


def copies(pid, seconds, counts, pages=200, each_bytes=4 * 10**6):
    return [
        rec.record("COPIED", time_ns=START + second * 10**9, pid=pid, pages=pages, copied=count, each_bytes=each_bytes)
        for second, count in zip(range(seconds), counts)
    ]


@pytest.mark.parametrize(
    "counts, pages, said",
    [
        (range(30), 200, True),
        ([0] * 30, 200, False),
        ([0, *[25] * 29], 200, False),
        (range(200, 230), 210, False),
        ([*range(15), 10**9, *range(16, 30)], 200, False),
        (range(29, -1, -1), 200, False),
    ],
    ids=["copies", "nothing", "once", "more than there are", "lies once", "fewer"],
)
def test_counted_pages(tmp_path, counts, pages, said, few=False):
    """Pages of a worker that were looked at one by one, while the machine's free memory shrinks for another reason."""
    worker, seconds = PID + 1, 30
    records = [rec.host(), rec.target(PID), rec.target(worker, role=rec.WORKER, parent=PID), rec.window(START, START + seconds * 10**9, 300, 3)]
    records += [rec.boundary(PID, PID, index, START + index * 100 * MS, rule=3) for index in range(seconds * 10)]
    for second in range(seconds):
        at = START + second * 10**9
        left = 40 * 10**9 - 80 * second * 10**6
        records.append(rec.record("MACHINE", time_ns=at, pid=PID, processors=8, memory_bytes=MACHINE, available_bytes=left))
        for pid in (PID, worker):
            faults = 20000 * second if pid == worker else 0
            records.append(rec.record("RESOURCES", time_ns=at, pid=pid, known=MEMORY, rss_bytes=2 * 10**9, minor_faults=faults))
    file = tmp_path / "a.rec"
    file.write_bytes(rec.recording(records + copies(worker, seconds, counts, pages)))
    text = " ".join(helpers.report_text(file).split())
    assert ("workers copy pages that they share with their process (copy on write): 240 MB a minute (+-37 %)" in text) == (said and not few), text
    assert ("copy pages" in text) == said, text
    assert ("not known for sure: record for longer" in text) == few, text


def test_few_counted_pages(tmp_path):
    """Of few pages that were met it is certain that they are copied, and not how many."""
    test_counted_pages(tmp_path, [i // 3 for i in range(30)], 200, True, few=True)


@pytest.mark.parametrize("own, advised", [(0, ["see what else runs"]), (3, ["see what else runs", "fewer threads"]), (8, ["fewer threads"])])
def test_who_has_the_cpu(tmp_path, own, advised):
    """Where its own threads and other programs have the CPU in turn, both are told: of ten waits of a step, its threads end `own`."""
    records, other, seconds = [*preamble(), rec.boundary(PID, PID, 0, START, rule=3)], 777, 12
    for second in range(seconds + 1):
        at = START + second * 10**9
        records.append(rec.record("MACHINE", time_ns=at, pid=PID, processors=2, busy_ns=second * 2 * 10**9, memory_bytes=MACHINE, available_bytes=10**9))
        records.append(rec.record("RESOURCES", time_ns=at, pid=PID, user_ns=second * 10**9))
    for index in range(1, seconds * 100):
        at = START + index * 10 * MS
        for wait in range(10):
            end = at - 9 * MS + wait * MS * 4 // 5
            records.append(rec.sample(PID, PID, rec.WAIT, end, MS // 2, 210, FORWARD, cause="run_queue", ran=PID if wait < own else other))
        records.append(rec.boundary(PID, PID, index, at, [0, 0, 5 * MS, 5 * MS], 3))
    found, _ = track(tmp_path, records)
    assert found["verdict"]["class"] == "CPU-starved"
    assert len(found["verdict"]["next"]) == len(advised), found["verdict"]
    assert all(words in text for words, text in zip(advised, found["verdict"]["next"])), found["verdict"]
