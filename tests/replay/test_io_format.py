# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""report --io of recordings made by hand: no root, no BPF, and no job that would have to be lucky."""

import re

import pytest
import recfile as r

import helpers

MS = 1000000
MAIN, PIN = (10, 10), (10, 12)
NAMES = {
    1: "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
    2: "/venv/torch/utils/data/dataloader.py",
    3: "_MultiProcessingDataLoaderIter._try_get_data",
    4: "/venv/torch/utils/data/_utils/worker.py",
    5: "_worker_loop",
    6: "/usr/lib/python3.11/multiprocessing/queues.py",
    7: "Queue.get",
    8: "/job/data.py",
    9: "Rows.__getitem__",
}
LOADS, WORKS, IDLE, TAKES = 1, 2, 3, 4  # stacks
LINE = {"file": "/job/data.py", "line": 77, "name": "Rows.__getitem__"}  # of WORKS


def head(workers, batches=100, end_ms=1000, cpus=64):
    """A main process, so many workers of it, and the stacks that they are met in."""
    yield r.host(cpus=cpus)
    yield r.window(0, end_ms * MS)
    yield r.target(10)
    for pid in range(100, 100 + workers):
        yield r.target(pid, role=r.WORKER, parent=10)
    for ident, text in NAMES.items():
        yield r.name(ident, text)
    yield r.agg(10, r.LABEL, 1, batches, 500 * MS)
    yield r.code(1, 2, 3)
    yield r.code(2, 4, 5)
    yield r.code(3, 6, 7)
    yield r.code(4, 8, 9, lines=[(0, 77)])
    yield r.stack(LOADS, [(1, 0)])
    yield r.stack(WORKS, [(4, 0), (2, 0)])
    yield r.stack(IDLE, [(3, 0), (2, 0)])


def wait(thread, start_ms, end_ms, stack, cause="poll", waker=(0, 0), file=0):
    return r.sample(*thread, r.WAIT, end_ms * MS, (end_ms - start_ms) * MS, stack, cause=cause, waker=waker, file_id=file)


def stack_of(ident, *functions):
    """The records of a stack of (file, function), or (file, function, its first line), the innermost first."""
    codes = range(1000 * ident, 1000 * ident + 2 * len(functions), 2)
    for code, (file, function, *first) in zip(codes, functions):
        yield from (r.name(code, file), r.name(code + 1, function), r.code(code, code, code + 1, *first, lines=[(0, 77)]))
    yield r.stack(ident, [(code, 0) for code in codes])


@pytest.fixture
def report(tmp_path):
    def made(*records):
        path = tmp_path / "made.rec"
        path.write_bytes(r.recording(records))
        made.text = helpers.report_text(path, "--io")
        return helpers.report(path, "--io")

    return made


def step(i, worker, start, end):
    """The main process waits for a worker, which sleeps in its dataset, and computes then; the others are idle."""
    yield wait(MAIN, start, end, LOADS, waker=(worker, worker + 1000))
    yield wait((worker, worker), start, end, WORKS, cause="sleep")
    yield r.sample(*MAIN, r.CPU, (end + 1) * MS, MS)


class TestWorkers:
    def test_who_ended_the_wait(self, report):
        found = report(*head(2), *step(0, 100, 10, 40), *step(1, 101, 50, 60), *step(2, 100, 70, 71))["workers"][0]
        assert [(w["pid"], w["number"], w["waits"], w["wait_s"], w["longest_s"]) for w in found["workers"]] == [
            (100, 0, 2, 0.031, 0.03),
            (101, 1, 1, 0.01, 0.01),
        ]
        assert found["workers"][0]["doing"] == [
            {**LINE, "cause": "sleep", "seconds": 0.031, "path": None, "path_s": 0, "path_cnt": 0}
        ]
        assert [w["worker"] for w in found["waits"]] == [0, 1, 0]
        assert (found["wait_s"], found["unknown_wait_s"], found["batches"]) == (0.041, 0, 100)

    def test_the_files_waited_for(self, report):
        records = [r.name(50, "/data/a\x1b"), r.name(51, "/data/b"), r.file(100, 1, 7, 51, reads=1, flags=1)]
        records.append(wait(MAIN, 0, 100, LOADS, waker=(100, 1100)))
        parts = [(0, 20, 50, "disk_read"), (20, 50, 51, "disk_read"), (50, 60, 50, "disk_read"), (60, 90, 51, "disk_read")]
        parts += [(90, 95, 0, "disk_read"), (95, 97, 52, "fsync"), (97, 98, 0, "sleep")]
        records += [wait((100, 100), start, end, WORKS, cause, file=file) for start, end, file, cause in parts]
        doing = report(*head(1), *records)["workers"][0]["workers"][0]["doing"]
        assert doing[:2] == [
            {**LINE, "cause": "disk_read", "seconds": 0.095, "path": "/data/b/*", "path_s": 0.06, "path_cnt": 2},
            {**LINE, "cause": "fsync", "seconds": 0.002, "path": doing[1]["path"], "path_s": 0.002, "path_cnt": 1},
        ]
        assert "/" not in doing[1]["path"]  # its name is lost
        assert "data.py:77 Rows.__getitem__, disk_read: /data/b/* (63.2 %) and 1 other file\n" in report.text

    def test_by_way_of_the_pin_memory_thread(self, report):
        records = [
            wait(PIN, 0, 5, 0, waker=(100, 1100)),  # before the process waits
            wait(PIN, 6, 29, 0, waker=(101, 1101)),
            wait(MAIN, 10, 30, LOADS, cause="lock", waker=PIN),
            r.sample(*MAIN, r.CPU, 31 * MS, MS),
            wait(MAIN, 50, 60, LOADS, cause="lock", waker=PIN),  # whose thread did not wait in that time
        ]
        found = report(*head(2), *records)["workers"][0]
        assert [w["wait_s"] for w in found["workers"]] == [0, 0.02]
        assert found["unknown_wait_s"] == 0.01

    def test_batches_of_others_come_first(self, report):
        parts = [
            wait(MAIN, 10, 20, LOADS, waker=(100, 1100)),
            wait(MAIN, 21, 22, LOADS),
            wait(MAIN, 23, 40, LOADS, waker=(101, 1101)),
        ]
        found = report(*head(2), *parts)["workers"][0]
        assert found["waited"] == 1 and found["waits"][0]["worker"] == 1
        assert found["waits"][0]["wait_s"] == 0.028

    @pytest.mark.parametrize("cpus,advice", [(64, "more"), (0, "cpu_full")])
    def test_more_workers(self, report, cpus, advice):
        # 100 batches in 1 s, 600 ms of it waited: 4 ms a batch are the process's, and 2 busy workers take 20 ms for one
        busy = [wait((pid, pid), 0, 1000, WORKS, cause="sleep") for pid in (100, 101)]
        steps = []
        for i in range(100):
            steps.append(wait(MAIN, i * 10, i * 10 + 6, LOADS, waker=(100 + i % 2, 1)))
            steps.append(r.sample(*MAIN, r.CPU, (i * 10 + 7) * MS, MS))
        found = report(*head(2, cpus=cpus), *steps, *busy)["workers"][0]
        assert (found["produce_s"], found["consume_s"], found["batch_s"]) == (0.02, 0.004, 0.01)
        assert (found["needed"], found["at_once"], found["advice"]) == (5, 2, advice)

    def batches(self, of_step=range(100)):
        for i in of_step:
            yield wait(MAIN, i * 10, i * 10 + 6, LOADS, waker=(100 + i % 2, 1))
            yield r.sample(*MAIN, r.CPU, (i * 10 + 7) * MS, MS)

    @pytest.mark.parametrize("cause,reads,advice", [("disk_read", 0.6, "storage"), ("fsync", 0.6, "storage"), ("disk_read", 0.4, "more")])
    def test_a_disk_may_have_no_more(self, report, cause, reads, advice):
        """Workers that wait for a disk wait no less if there are more of them, unless the disk has more to give: no promise."""
        parts = [(0, 1000 * reads, cause), (1000 * reads, 1000, "sleep")]
        busy = [wait((pid, pid), int(a), int(b), WORKS, cause=why) for pid in (100, 101) for a, b, why in parts]
        found = report(*head(2), *self.batches(), *busy)["workers"][0]
        assert (found["advice"], found["advised"]) == (advice, 5)
        assert ("if the disks have so much more to give" in re.sub(r"\s+", " ", report.text)) == (advice == "storage")

    STREAM, FETCH = ("/job/data.py", "Stream.__iter__"), "/venv/torch/utils/data/_utils/fetch.py"

    def streams(self, fetch="_IterableDatasetFetcher.fetch", first=27):
        """Stack 20, of a worker that goes through a data set; before Python 3.11 the name has no class."""
        return stack_of(20, self.STREAM, (self.FETCH, fetch, first), (NAMES[4], "_worker_loop"))

    @pytest.mark.parametrize(
        "fetch, first, advice",
        [
            ("_IterableDatasetFetcher.fetch", 27, "shards"),
            ("fetch", 26, "shards"),
            ("fetch", 27, "shards"),
            ("_MapDatasetFetcher.fetch", 49, "more"),
            ("fetch", 49, "more"),
            ("fetch", 53, "more"),
        ],
    )
    def test_shards(self, report, fetch, first, advice):
        """A worker of an IterableDataset that has no shard of it makes no batches: it is not known what more workers would win."""
        busy = [wait((pid, pid), 0, 1000, 20, cause="sleep") for pid in (100, 101)]
        found = report(*head(2), *self.streams(fetch, first), *self.batches(), *busy)["workers"][0]
        is_known = advice == "more"
        assert found["advice"] == advice and (found["needed"], found["advised"]) == ((5, 5) if is_known else (None, None))
        text = re.sub(r"\s+", " ", report.text)
        assert ("more workers help only if the data set" in text) != is_known
        assert ("would keep up" in text) == ("would take" in text) == is_known

    @pytest.mark.parametrize("workers, advice", [(1, "one_slow"), (2, "shards")])
    def test_shards_for_some(self, report, workers, advice):
        """Who has a shard is not slower than those who have none, nor do batches differ."""
        busy = [wait((pid, pid), 0, 700, 20, cause="sleep") for pid in (100, 101)[:workers]]
        idle = [wait((pid, pid), 700 if pid < 100 + workers else 0, 1000, IDLE) for pid in (100, 101, 102, 103)]
        waits = []
        for i in range(100):
            waits += [wait(MAIN, i * 10, i * 10 + 6, LOADS, waker=(100 + i % workers, 1)), r.sample(*MAIN, r.CPU, (i * 10 + 7) * MS, MS)]
        found = report(*head(4), *self.streams(), *waits, *busy, *idle)["workers"][0]
        text = re.sub(r"\s+", " ", report.text)
        assert found["advice"] == advice and "slower than the others" not in text and "batches differ" not in text
        assert ("worker 0 (pid 100) has more of the data set's shards than the others, or slower ones" in text) == (advice == "one_slow")

    OTHER, OWN, SERVER, CHILD = (101, 101), (100, 105), (200, 201), (300, 300)

    @pytest.mark.parametrize(
        "cause, waker, share, says",
        [
            ("lock", OTHER, 0.6, "they wait for each other"),
            ("lock", OTHER, 0.4, None),
            ("lock", (0, 0), 0.6, None),  # it is not known whom it waits for
            ("lock", OWN, 0.6, None),  # a thread of its own
            ("socket", SERVER, 0.6, "they wait for process 200"),
            ("pipe", SERVER, 0.6, "they wait for process 200"),
            ("poll", SERVER, 0.6, "they wait for process 200"),
            ("pipe", CHILD, 0.6, None),  # each worker has its own
            ("disk_read", SERVER, 0.6, "storage"),
        ],
    )
    def test_workers_that_wait_for_each_other(self, report, cause, waker, share, says):
        """Or for one process, that all ask: more workers may wait longer, and nothing is promised of them."""
        others = [r.target(200, role=r.CHILD, parent=10), r.target(300, role=r.CHILD, parent=100), r.target(301, role=r.CHILD, parent=101)]
        until, busy = int(1000 * share), []
        for pid in (100, 101):
            by = {self.OTHER: (201 - pid, 201 - pid), self.CHILD: (pid + 200, pid + 200), self.OWN: (pid, 105)}.get(waker, waker)
            begun = 0 if pid == 100 else 1000 - until  # one after the other
            parts = [(0, begun, "sleep", (0, 0)), (begun, begun + until, cause, by), (begun + until, 1000, "sleep", (0, 0))]
            busy += [wait((pid, pid), start, end, WORKS, why, waker=who) for start, end, why, who in parts if start < end]
        found = report(*head(2), *others, *self.batches(), *busy)["workers"][0]
        text = re.sub(r"\s+", " ", report.text)
        assert found["advice"] == {None: "more", "storage": "storage"}.get(says, "turns")
        if found["advice"] == "turns":
            assert "for 60 % of their work " + says in text
            assert found["needed"] is found["advised"] is None and "would keep up" not in text and "would take" not in text

    @pytest.mark.parametrize(
        "pool,python,advice",
        [(7, False, "threads"), (7, True, "cpu_full"), (0, False, "cpu_full")],
    )
    def test_threads_of_workers(self, report, pool, python, advice):
        """Threads that compute for a worker's operators take the CPUs; one that runs Python hands batches over."""
        busy = [x for pid in (100, 101) for x in (r.sample(pid, pid, r.CPU, 300 * MS, 300 * MS, WORKS), wait((pid, pid), 300, 1000, WORKS, cause="run_queue"))]
        for pid in (100, 101):
            for tid in range(pid * 10, pid * 10 + pool):
                busy.append(r.sample(pid, tid, r.CPU, 500 * MS, 100 * MS, WORKS if python else 0))
                busy.append(r.sample(pid, tid, r.WAIT, 900 * MS, 100 * MS, 0, cause="run_queue"))
        found = report(*head(2, cpus=2), *self.batches(), *busy)["workers"][0]
        assert found["advice"] == advice
        assert ("each of which has 8 threads that compute, for 2 CPUs" in re.sub(r"\s+", " ", report.text)) == (advice == "threads")

    def test_idle_workers_keep_up(self, report):
        idle = [wait((pid, pid), 0, 1000, IDLE) for pid in (100, 101)]
        found = report(*head(2), *step(0, 100, 1, 3), *idle)["workers"][0]
        assert found["advice"] in ("keeps_up", "unknown") and found["slow"] is None

    def test_the_first_to_be_waited_for_is_not_slow(self, report):
        lives = [wait((100 + i, 100 + i), 40, 1000, IDLE) for i in range(4)]
        found = report(*head(4), *step(0, 100, 1, 40), *step(1, 100, 50, 55), *lives)["workers"][0]
        assert found["slow"] is None

    def test_which_batches_were_not_there(self, report):
        """A wait for the handing over of a batch that has come, and one for one that has not."""
        records = [r.name(60, "/usr/lib/python3.11/multiprocessing/resource_sharer.py"), r.name(61, "DupFd.detach")]
        records += [r.code(5, 60, 61), r.stack(4, [(5, 0), (1, 0)])]
        steps = [[(10, 12, 4, 1)], [(20, 30, LOADS, 1), (30, 31, 4, 1)], [(40, 41, LOADS, 7)]]  # the last are short ones
        for parts in steps:
            for start, end, stack, waits in parts:
                weight = (end - start) * MS
                records.append(r.sample(*MAIN, r.WAIT, end * MS, weight, stack, cause="poll", waits=waits, waker=(100, 1100)))
            records.append(r.sample(*MAIN, r.CPU, (end + 5) * MS, MS))
        found = report(*head(1), *records)["workers"][0]
        assert (found["waited"], found["late"], found["wait_s"], found["handover_s"]) == (1, 1, 0.011, 0.003)
        assert (found["workers"][0]["waits"], found["workers"][0]["wait_s"]) == (1, 0.011)
        assert [(w["start_s"], w["late"]) for w in found["waits"]] == [(0.02, True), (0.01, False), (0.04, False)]
        text = re.sub(r"\s+", " ", report.text)
        assert "100 batches fetched, with 1 wait: 0.011 s, 1.1 % of 1 s" in text
        assert "0.003 s more were spent on handing over batches that were there" in text

    def test_who_is_idle_as_steps_begin(self, report):
        steps = [r.boundary(10, 10, i, (10 + 20 * i) * MS, (20 * MS, *[0] * 7)) for i in range(6)]  # at 10, 30, ... 110
        waits = [(100, 0, 5, WORKS), (100, 5, 20, IDLE), (100, 20, 40, WORKS), (100, 40, 60, IDLE), (100, 60, 120, WORKS)]
        waits += [(101, 25, 35, IDLE), (101, 35, 75, WORKS), (101, 75, 120, IDLE)]  # began at 25
        records = [wait((pid, pid), start, end, stack) for pid, start, end, stack in waits]
        records.append(r.sample(102, 102, r.WAIT, 120 * MS, 119 * MS, IDLE, cause="poll", waits=2))  # of many short ones
        found = report(*head(3), *steps, *records)["workers"][0]
        # at 10: 100; at 30: 101; at 50: 100; at 70: none; at 90: 101
        assert found["ahead"] == {"steps": 5, "none_idle": 1, "idle_mean": 0.8}
        text = re.sub(r"\s+", " ", report.text)
        assert "on average 0.80 workers were idle when a step began" in text and "in 20.0 % of 5 steps every worker was busy" in text

    def test_a_hundred_workers(self, report):
        records = [x for i in range(100) for x in step(i, 100 + i, i * 10, i * 10 + 5)]
        found = report(*head(100), *records)["workers"][0]
        assert [w["wait_s"] for w in found["workers"]] == [0.005] * 100 and found["at_once"] == 1

    def test_workers_that_end(self, report):
        records = [r.proc(2, 90, 0, 100, status=9), r.proc(3, 35, 0, 101, status=3 << 8), r.proc(3, 60, 0, 102), r.proc(3, 35, 0, 100, status=9)]
        found = report(*head(3), *step(0, 100, 10, 30), *step(1, 100, 31, 40), *step(2, 102, 70, 80), *records)["workers"][0]
        ends = [w["ended"] for w in found["workers"]]
        assert ends == [
            {"at_s": 0.035, "signal": 9, "exit_status": None, "wait_s": 0.009},
            {"at_s": 0.035, "signal": None, "exit_status": 3, "wait_s": 0},
            None,  # as it should
        ]
        assert [(w["waits"], w["wait_s"]) for w in found["workers"]] == [(1, 0.02), (0, 0), (1, 0.01)]
        assert [(w["worker"], w["broken"]) for w in found["waits"]] == [(0, False), (2, False), (0, True)]
        assert (found["wait_s"], found["unknown_wait_s"]) == (0.039, 0)
        assert "ended at 0.035 s: killed by SIGKILL; the process waited for it in vain for 0.009 s\n" in report.text
        assert "ended at 0.035 s: exit status 3\n" in report.text

    def test_nobody_waits_for_a_process_that_is_no_worker(self, report):
        assert report(*head(0), r.target(55, role=r.CHILD, parent=10))["workers"] == []

    def test_a_worker_that_lived_too_short_for_its_name(self, report):
        short = r.target(60, role=r.CHILD, parent=10)
        found = report(*head(0), short, *step(0, 60, 10, 20))["workers"][0]
        assert [w["pid"] for w in found["workers"]] == [60]


ALONE = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


class TestVerdict:
    """What `report --steps` makes of it: 100 steps of 10 ms, of which getting data takes 8."""

    FETCHING = 1  # path

    def found(self, tmp_path, parts, busy, cpus=64, batches=100, label=1):
        """parts: (ms, stack, cause, worker) of each step's data; without a cause on the CPU."""
        records = [*head(2, batches, cpus=cpus), r.name(50, ALONE), r.path(self.FETCHING, [(r.LABEL, label)])]
        for i in range(101):
            records.append(r.boundary(10, 10, i, 10 * i * MS, [0, 8 * MS, 0, 2 * MS], 2))
            at = 10 * i
            for ms, stack, cause, worker in parts if i < 100 else ():
                at += ms
                kind = r.WAIT if cause else r.CPU
                records.append(r.sample(*MAIN, kind, int(at * MS), int(ms * MS), stack, self.FETCHING, cause=cause, waker=(worker, worker) if worker else (0, 0)))
            if i < 100:
                records.append(r.sample(*MAIN, r.CPU, (10 * i + 9) * MS, 2 * MS, 0))
        path = tmp_path / "made.rec"
        path.write_bytes(r.recording([*records, *busy]))
        return helpers.report(path, "--steps")["verdict"]

    def test_workers_that_other_load_hides(self, tmp_path):
        """A wait for a CPU is no part of getting data: 3 ms of it wait for workers, 2 are work, whatever 3 more wait for a CPU."""
        parts = [(3, LOADS, "poll", 100), (2, LOADS, None, 0), (3, LOADS, "run_queue", 0)]
        busy = [wait((pid, pid), 0, 1000, WORKS, cause="sleep") for pid in (100, 101)]
        found = self.found(tmp_path, parts, busy)
        assert found["class"] == "input-bound" and found["place"] == "data.py:77 Rows.__getitem__, in its workers"

    def test_batches_that_are_there(self, tmp_path):
        """The worker idles before the process asks: what takes the time is to hand a batch over, and no work of the workers."""
        busy = []
        for i in range(100):
            busy += [wait((100, 100), 10 * i - 4, 10 * i, IDLE), wait((100, 100), 10 * i, 10 * i + 6, WORKS, cause="run_queue")]
        busy += [r.name(60, "/usr/lib/python3.11/multiprocessing/resource_sharer.py"), r.name(61, "DupFd.detach"), r.code(6, 60, 61), r.stack(TAKES, [(6, 0), (1, 0)])]
        found = self.found(tmp_path, [(6, TAKES, "socket", 100), (2, LOADS, None, 0)], busy)
        assert found["class"] == "input-bound"
        assert found["place"] is None or "workers" not in found["place"]
        assert "the workers keep up" in found["next"][0] and "more DataLoader workers" not in found["next"][0]

    def test_batches_whose_worker_is_at_work(self, tmp_path):
        """The batch is there, but the thread of the worker that hands it over waits for the GIL, which its work on the next one has."""
        busy = []
        for i in range(100):
            busy += [r.sample(100, 100, r.CPU, (10 * i + 9) * MS, 10 * MS, WORKS), wait((100, 101), 10 * i, 10 * i + 5, 0, cause="gil")]
        busy += [r.name(60, "/usr/lib/python3.11/multiprocessing/resource_sharer.py"), r.name(61, "DupFd.detach"), r.code(6, 60, 61), r.stack(TAKES, [(6, 0), (1, 0)])]
        found = self.found(tmp_path, [(6, TAKES, "socket", 100), (2, LOADS, None, 0)], busy)
        assert found["class"] == "input-bound" and found["place"] == "data.py:77 Rows.__getitem__, in its workers"
        assert "the workers keep up" not in found["next"][0]
        text = helpers.report_text(tmp_path / "made.rec", "--io")
        assert "0.600 s more were spent on handing over" in text and "in 0.500 s of these the worker's Python had its GIL" in text

    def test_a_worker_that_has_its_gil_while_another_hands_over(self, tmp_path):
        busy = []
        for i in range(100):
            busy += [wait((100, 100), 10 * i - 4, 10 * i + 6, IDLE), wait((101, 102), 10 * i, 10 * i + 5, 0, cause="gil")]
        busy += [r.name(60, "/usr/lib/python3.11/multiprocessing/resource_sharer.py"), r.name(61, "DupFd.detach"), r.code(6, 60, 61), r.stack(TAKES, [(6, 0), (1, 0)])]
        self.found(tmp_path, [(6, TAKES, "socket", 100), (2, LOADS, None, 0)], busy)
        text = helpers.report_text(tmp_path / "made.rec", "--io")
        assert "0.600 s more were spent on handing over" in text and "had its GIL" not in text

    def test_threads_of_workers(self, tmp_path):
        busy = [wait((pid, pid), 0, 1000, WORKS, cause="run_queue") for pid in (100, 101)]
        for pid in (100, 101):
            for tid in range(pid * 10, pid * 10 + 3):
                busy += [r.sample(pid, tid, r.CPU, 500 * MS, 300 * MS, 0), r.sample(pid, tid, r.WAIT, 900 * MS, 300 * MS, 0, cause="run_queue")]
        found = self.found(tmp_path, [(7, LOADS, "poll", 100), (1, LOADS, None, 0)], busy, cpus=2)
        assert "torch.set_num_threads(1)" in found["next"][0] and "each has 4 threads that compute, for 2 CPUs" in found["next"][0]

    @pytest.mark.parametrize(
        "busy_ms, batches, advice, says",
        [
            ((1000, 1000), 100, "more", "more DataLoader workers: with 7 a batch would take 3 ms, not 10"),
            ((300, 300), 100, "uneven", "prefetch_factor in the DataLoader: there are enough workers on average, but batches differ in duration"),
            ((1000, 10), 100, "one_slow", "find out why worker 0 (process 100) is slower than the other DataLoader workers before you add some"),
            ((1000, 1000), 5, "unknown", "more DataLoader workers, perhaps: the recording has too few batches"),
        ],
    )
    def test_as_io_says(self, tmp_path, busy_ms, batches, advice, says):
        """Both reports say the same of the workers: the process waits 7 ms of each step for the first one."""
        busy = []
        for pid, ms in zip((100, 101), busy_ms):
            busy += [wait((pid, pid), 0, ms, WORKS, cause="sleep"), wait((pid, pid), ms, 1000, IDLE)][: 1 if ms == 1000 else 2]
        found = self.found(tmp_path, [(7, LOADS, "poll", 100), (1, LOADS, None, 0)], busy, batches=batches)
        assert helpers.report(tmp_path / "made.rec", "--io")["workers"][0]["advice"] == advice
        assert found["next"][0].startswith(says), found["next"]

    STREAMS = [*stack_of(20, ("/job/data.py", "Stream.__iter__"), ("/venv/torch/utils/data/_utils/fetch.py", "_IterableDatasetFetcher.fetch"), (NAMES[4], NAMES[5]))]
    SERVER = [r.target(200, role=r.CHILD, parent=10)]

    @pytest.mark.parametrize(
        "records, stack, cause, waker, says",
        [
            (STREAMS, 20, "sleep", 0, "only if its data set has as many shards"),
            (SERVER, WORKS, "socket", 200, "less to ask of process 200, for which its DataLoader workers wait for 100 % of their work"),
            (SERVER, WORKS, "lock", 100, "a lock, a file or a connection of its own for each DataLoader worker"),
        ],
        ids=["shards", "server", "lock"],
    )
    def test_no_promise(self, tmp_path, records, stack, cause, waker, says):
        """Of workers that have no more shards, or wait for each other, nobody knows what more of them would win."""
        busy = []
        for pid in (100, 101):
            by = 201 - pid if waker == 100 else waker
            busy += [wait((pid, pid), 10 * i, 10 * i + 10, stack, cause=cause, waker=(by, by)) for i in range(100)]
        found = self.found(tmp_path, [(7, LOADS, "poll", 100), (1, LOADS, None, 0)], [*records, *busy])
        assert says in found["next"][0] and "would take" not in found["next"][0], found["next"]
        assert "would take" not in helpers.stepflame("report", tmp_path / "made.rec").stdout

    @pytest.mark.parametrize("cause", [None, "sleep"])
    @pytest.mark.parametrize("label, says", [(1, "in the training process itself"), (50, "set num_workers in the DataLoader")])
    def test_the_loader_that_trains(self, tmp_path, label, says, cause):
        """The workers are of an evaluation, for which the job waits now and then; what trains has a DataLoader of its own, with workers or without."""
        lines = [*stack_of(20, ("/job/data.py", "Rows.__getitem__"), LOOP), r.path(2, [(r.VALIDATION, 51), (r.LABEL, 1)]), r.name(51, "evaluate_model")]
        evaluation = [r.sample(*MAIN, r.WAIT, (100 * i + 99) * MS, 9 * MS // 10, LOADS, 2, cause="poll", waker=(100, 100)) for i in range(10)]
        found = self.found(tmp_path, [(8, 20, cause, 0)], [*lines, *evaluation, wait((100, 100), 0, 1000, IDLE)], label=label)
        assert found["class"] == "input-bound", found
        if label == 50 or not cause:
            assert says in found["next"][0]

    def test_the_workers_that_train(self, tmp_path):
        """An evaluation behind the steps waits longer for workers of its own, of which nothing is known."""
        pipes = [r.target(102, role=r.WORKER, parent=10), r.pipe(100, 7, writes=50), r.pipe(101, 7, writes=50), r.pipe(102, 8, writes=5)]
        pipes += [r.pipe(10, 7, messages=100, first_ns=7 * MS, last_ns=997 * MS, active=(990 * MS, 99)), r.pipe(10, 8, messages=5, first_ns=1900 * MS, last_ns=1950 * MS)]
        evaluation = [r.name(51, "evaluate_model"), r.path(2, [(r.VALIDATION, 51), (r.LABEL, 1)]), wait((102, 102), 1000, 1900, WORKS, cause="sleep")]
        evaluation += [r.sample(*MAIN, r.WAIT, 1900 * MS, 890 * MS, LOADS, 2, cause="poll", waker=(102, 102))]
        busy = [wait((pid, pid), 0, 1000, WORKS, cause="sleep") for pid in (100, 101)]
        found = self.found(tmp_path, [(7, LOADS, "poll", 100), (1, LOADS, None, 0)], [*pipes, *busy, *evaluation])
        assert [x["wait_s"] for x in helpers.report(tmp_path / "made.rec", "--io")["workers"]] == [0.7, 0.89]
        assert found["next"][0].startswith("more DataLoader workers: with 7 "), found["next"]

    def test_workers_that_wait_for_a_disk(self, tmp_path):
        busy = [wait((pid, pid), 0, 1000, WORKS, cause="disk_read") for pid in (100, 101)]
        found = self.found(tmp_path, [(7, LOADS, "poll", 100), (1, LOADS, None, 0)], busy)
        assert "faster storage" in found["next"][0] and "would take" not in found["next"][0]


LOOP, SORTS = ("/job/train.py", "main"), ("/job/samplers.py", "Buckets.__iter__")
BASE, OWN, MANY = [(NAMES[2], "_%sIter.__init__" % kind) for kind in ("BaseDataLoader", "SingleProcessDataLoader", "MultiProcessingDataLoader")]
RESETS, PUTS = [(NAMES[2], "_MultiProcessingDataLoaderIter." + name) for name in ("_reset", "_try_put_index")]
FORKS, STARTS, DUMPS, CALLS, JOINS = [
    ("/usr/lib/python3.11/multiprocessing/" + file, name)
    for file, name in (
        ("popen_fork.py", "Popen._launch"),
        ("process.py", "BaseProcess.start"),
        ("reduction.py", "dump"),
        ("managers.py", "BaseProxy._callmethod"),
        ("process.py", "BaseProcess.join"),
    )
]
ENDS = (NAMES[2], "_MultiProcessingDataLoaderIter._shutdown_workers")


class TestStarts:
    """What iter(loader) takes is the start of workers where it starts some; what a sampler or a data set does there is work of its own."""

    OF_WORKERS = {
        "forks": (FORKS, STARTS, MANY, LOOP),
        "pickles": (("/job/data.py", "Rows.__getstate__"), DUMPS, STARTS, MANY, LOOP),
        "joins": (JOINS, ENDS, LOOP),
    }
    OF_OTHERS = {
        "sorts without workers": (SORTS, BASE, OWN, LOOP),
        "sorts": (SORTS, BASE, MANY, LOOP),
        "chooses the first items": (SORTS, PUTS, RESETS, MANY, LOOP),
        "asks a manager": (CALLS, SORTS, BASE, MANY, LOOP),
        "begins a data set": (("/job/samplers.py", "Buckets.__iter__"), ("/venv/torch/utils/data/_utils/fetch.py", "_IterableDatasetFetcher.__init__"), OWN, LOOP),
    }
    KINDS = [*[(functions, True) for functions in OF_WORKERS.values()], *[(functions, False) for functions in OF_OTHERS.values()]]

    @pytest.mark.parametrize("functions, starts", KINDS, ids=[*OF_WORKERS, *OF_OTHERS])
    def test_slow_steps(self, tmp_path, functions, starts):
        """Every 20th step takes 40 ms more."""
        records, at = [*head(0, end_ms=2400), *stack_of(20, *functions), *stack_of(21, LOOP)], 0
        records.append(r.boundary(10, 10, 0, 0, rule=2))
        for i in range(200):
            extra = 40 if i % 20 == 19 else 0
            records += [r.sample(*MAIN, r.CPU, (at + ms) * MS, 5 * MS, 20) for ms in range(5, extra + 1, 5)]
            records += [r.sample(*MAIN, r.CPU, (at + extra + ms) * MS, 5 * MS, 21) for ms in (5, 9)]
            at += 10 + extra
            records.append(r.boundary(10, 10, i + 1, at * MS, [extra * MS, 0, 8 * MS, 2 * MS], 2))
        path = tmp_path / "made.rec"
        path.write_bytes(r.recording(records))
        found = helpers.report(path, "--steps")["verdict"]
        assert found["class"] == ("input-bound" if starts else "extra-work"), found
        assert found["next"][0].startswith("make the DataLoader once, with persistent_workers=True: it starts") == starts
        assert ("persistent_workers" in " ".join(found["next"])) == starts
        assert starts or "Buckets.__iter__" in found["place"]

    @pytest.mark.parametrize("functions, starts", KINDS, ids=[*OF_WORKERS, *OF_OTHERS])
    def test_workers_that_replace_others(self, report, functions, starts):
        """For 300 ms of a second, between the batches of a worker and those of the one that replaces it."""
        records = [*stack_of(20, *functions)]
        for pid, start in ((100, 0), (101, 700)):
            records += [wait((pid, pid), start + 30 * i, start + 30 * i + 30, WORKS, cause="sleep") for i in range(10)]
            records += [wait(MAIN, start + 10, start + 12, LOADS, waker=(pid, pid)), r.sample(*MAIN, r.CPU, (start + 300) * MS, 100 * MS)]
            records += [r.sample(*MAIN, r.CPU, 600 * MS, 300 * MS, 20)] if not start else []
        found = report(*head(2), *records)["workers"][0]
        assert (found["advice"] == "restarts") == starts, found["advice"]
        text = re.sub(r"\s+", " ", report.text)
        assert ("advice: make the DataLoader once, with persistent_workers=True: the workers start anew for each epoch" in text) == starts


class TestLoaders:
    """Workers 100, 101 write pipe 7, 102 pipe 8, and the main process, which waits for all at two places, reads both."""

    PIPES = [r.pipe(100, 7, writes=20), r.pipe(101, 7, writes=20), r.pipe(102, 8, writes=9), r.pipe(102, 9, writes=5)]
    ELSEWHERE = [r.code(6, 8, 9, lines=[(0, 50), (10, 60)]), r.stack(11, [(1, 0), (6, 0)]), r.stack(12, [(1, 0), (6, 10)])]

    def waits(self):
        for i in range(4):
            yield wait(MAIN, 100 * i + 50, 100 * i + 54, 11, waker=(100 + i % 2, 1))
            yield r.sample(*MAIN, r.CPU, (100 * i + 55) * MS, MS)
        yield wait(MAIN, 500, 507, 12, waker=(102, 1))
        yield r.sample(*MAIN, r.CPU, 508 * MS, MS)

    def test_each_has_its_workers(self, report):
        reads = [r.pipe(10, 7, messages=40, first_ns=52 * MS, last_ns=400 * MS, active=(390 * MS, 39))]
        reads.append(r.pipe(10, 8, messages=9, first_ns=507 * MS, last_ns=600 * MS, active=(80 * MS, 8)))
        train, val = report(*head(3), *self.ELSEWHERE, *self.PIPES, *reads, *self.waits())["workers"]
        assert [[w["pid"] for w in loader["workers"]] for loader in (train, val)] == [[100, 101], [102]]
        assert [w["number"] for w in train["workers"]] == [0, 1] and val["workers"][0]["number"] == 0
        assert [(x["loader"], x["loaders"], x["batches"], x["waited"], x["wait_s"]) for x in (train, val)] == [(0, 2, 40, 4, 0.016), (1, 2, 9, 1, 0.007)]
        assert [x["place"]["line"] for x in (train, val)] == [50, 60]
        # the first wait, for the start of the workers, is in no time between batches
        assert train["observed_s"] == 0.394 and train["batch_s"] == 0.01
        assert train["consume_s"] == pytest.approx((0.390 - 0.012) / 39, abs=1e-6)
        assert "loader 1 of 2: fetched at data.py:50 Rows.__getitem__\n" in report.text

    def test_iterators_that_follow_each_other_are_of_one(self, report):
        reads = [r.pipe(10, 7, messages=40, first_ns=52 * MS, last_ns=400 * MS, active=(390 * MS, 39))]
        again = [r.pipe(10, 8, messages=40, first_ns=507 * MS, last_ns=600 * MS, active=(80 * MS, 39))]
        pipes = [r.pipe(pid, 7 + (pid > 101), writes=20) for pid in range(100, 104)]
        same = [wait(MAIN, 500, 507, 11, waker=(102, 1)), r.sample(*MAIN, r.CPU, 508 * MS, MS)]
        records = [*list(self.waits())[:8], *same]
        (found,) = report(*head(4), *self.ELSEWHERE, *pipes, *reads, *again, *records)["workers"]
        assert found["loaders"] == 1 and len(found["workers"]) == 4 and found["batches"] == 100

    def test_loaders_that_are_zipped(self, report):
        """Both at one place, and at the same time."""
        reads = [r.pipe(10, inode, messages=40, first_ns=52 * MS, last_ns=400 * MS) for inode in (7, 8)]
        parts = [wait(MAIN, 50, 54, 11, waker=(100, 1)), wait(MAIN, 54, 60, 11, waker=(102, 1))]
        both = report(*head(3), *self.ELSEWHERE, *self.PIPES, *reads, *parts)["workers"]
        assert sorted((x["waited"], x["wait_s"], len(x["workers"])) for x in both) == [(1, 0.004, 2), (1, 0.006, 1)]

    def test_workers_without_a_batch(self, report):
        """They are of the iterator of those before them."""
        reads = [r.pipe(10, 7, messages=40, first_ns=52 * MS, last_ns=400 * MS), r.pipe(10, 8, messages=9, first_ns=507 * MS, last_ns=600 * MS)]
        pipes = [r.pipe(100, 7, writes=20), r.pipe(102, 8, writes=9)]
        found = report(*head(3), *self.ELSEWHERE, *pipes, *reads, *self.waits())["workers"]
        assert [[w["pid"] for w in loader["workers"]] for loader in found] == [[100, 101], [102]]

    def test_without_pipes(self, report):
        (found,) = report(*head(3), *self.ELSEWHERE, *self.waits())["workers"]
        assert found["loaders"] == 1 and len(found["workers"]) == 3 and found["waited"] == 5

    def test_nonsense(self, report):
        found = report(*head(3), *self.ELSEWHERE, *self.PIPES, r.pipe(10, 7, messages=1, active=(5, 9)), *self.waits())
        assert found["lost"]["malformed_records"] == 1 and len(found["workers"]) == 1


class TestTables:
    def test_files_of_a_kind(self, report):
        names = ["/dev/shm/torch_100_%d_0" % i for i in range(30)] + ["/tmp/tmp%08d/a" % i for i in range(3)] + ["/x/%d (deleted)" % i for i in range(4)]
        names += ["/data/shard-1", "/data/shard-2", "/tmp/tmpabcdefgh/one"]
        files = [r.name(100 + i, text) for i, text in enumerate(names)]
        files += [r.file(10, 1, 100 + i, 100 + i, writes=1, written_bytes=i, total_ns=1000 * i) for i in range(len(names))]
        files.append(r.file(10, 254 << 20, 0, 0, disk=(0, 3, 8192), flags=4))
        found = report(*head(0), r.syscall(10, 0, 1), *files)["processes"][0]["files"]
        assert len(found) == len(names) + 1
        rows = dict(reversed(re.match(r"\s*(?:[\d.]+ +){5}(\d+) +\d+ (/.*|\(.*)$", line).groups()) for line in report.text.splitlines() if re.search(r"\d [/(]\S* ?.*$", line) and re.match(r"\s*0\.\d{6} ", line) and ("/" in line or "(disk" in line))
        assert rows == {
            "/dev/shm/torch_* (30 files)": "30",
            "/tmp/tmp*/a (3 files)": "3",
            "/x/* (deleted) (4 files)": "4",
            "/data/shard-1": "1",
            "/data/shard-2": "1",
            "/tmp/tmpabcdefgh/one": "1",
            "(disk 254:0, beside files: its file system's own)": "0",
        }


    def test_rows(self, report):
        records = [
            r.syscall(10, 0, 5, errors=1, total_ns=2500, size=70),
            r.syscall(10, 999, 1),
            r.syscall(10, 0xFFFFFFFF, 2, 2, 10**9, unfinished=3),
            r.syscall(100, 0, 6, total_ns=MS),
            r.syscall(100, 0, 7, total_ns=MS),  # cumulative
            r.name(50, "/data/<b>\n\x1b[31m"),
            r.file(10, 8 << 20 | 1, 7, 50, reads=4, read_bytes=4096, total_ns=MS, disk=(1, 2, 8192)),
            r.file(10, 8 << 20 | 1, 8, 50, flags=1),
            r.file(10, 8 << 20 | 1, 9, 50, flags=2),
            r.file(10, 8 << 20 | 1, 10, 51),
        ]
        found = report(*head(1), *records)
        main, worker = found["processes"]
        assert [(c["name"], c["count"], c["errors"], c["bytes"], c["unfinished"]) for c in main["syscalls"]] == [
            ("unknown", 2, 2, 0, 3),
            ("read", 5, 1, 70, 0),
            ("syscall 999", 1, 0, 0, 0),
        ]
        assert worker["role"] == "worker" and worker["syscalls"][0]["count"] == 7
        assert [f["path"] for f in main["files"]] == [
            "/data/<b>\n\x1b[31m",
            "(path not known: device 8:1, inode 10)",
            "/data/<b>\n\x1b[31m/*",
            "(device 8:1)/data/<b>\n\x1b[31m",
        ]
        assert main["files"][0] == {
            **{"path": "/data/<b>\n\x1b[31m", "path_known": True, "bytes": 4096, "reads": 4, "read_bytes": 4096, "writes": 0},
            **{"written_bytes": 0, "total_s": 0.001, "disk_reads": 1, "disk_faults": 2, "disk_bytes": 8192},
        }
        assert "/data/<b>\\x0a\\x1b[31m" in report.text and "\x1b" not in report.text

    def test_five_thousand_files(self, report):
        files = [r.file(10, 1, i, 0, reads=i, read_bytes=i, total_ns=i) for i in range(1, 5001)]
        found = report(*head(0), r.syscall(10, 0, 1), *files)["processes"][0]["files"]
        assert len(found) == 5000 and found[0]["reads"] == 5000
        assert "4980 more files" in report.text

    def test_nonsense_is_counted(self, report):
        found = report(*head(0), r.syscall(10, 0, 1, errors=2), r.file(10, 1, 1, 0, reads=1, disk=(2, 0, 0)))
        assert found["lost"]["malformed_records"] == 2
        assert found["processes"][0]["syscalls"] == []

    def test_sums_do_not_wrap(self, report):
        top = 2**63 - 1
        report(*head(1), r.syscall(10, 0, 1, total_ns=2**64 - 1, size=2**64 - 1), r.syscall(10, 1, 1, total_ns=5, size=top))
        assert "18446744073709551615 total" in report.text

    def test_nothing_recorded(self, report):
        report(*head(0))
        assert "no system calls" in report.text
