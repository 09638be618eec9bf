# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""System calls and files against strace, /proc/PID/io and what the job knows; DataLoader workers against the job's own log."""

import re
import shutil

import helpers
import pytest

COUNTED = {"read", "pread64", "preadv2", "write", "pwrite64", "writev", "openat", "close", "lseek", "fsync", "sendfile"}
COUNTED |= {"pipe2", "clone", "wait4"}


PREFETCH = 2  # batches that a DataLoader's worker may be ahead


def processes(found):
    return {row["pid"]: row for row in found["processes"]}


def calls(process):
    return {row["name"]: row for row in process["syscalls"]}


def strace_counts(text):
    """{name: (calls, errors)} of strace -c's table."""
    rows = {}
    for line in text.splitlines():
        found = re.match(r"\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(\d+)?\s*(\w+)$", line)
        if found and found[3] != "total":
            rows[found[3]] = int(found[1]), int(found[2] or 0)
    return rows


@pytest.fixture(scope="module")
def fixed(tmp_path_factory):
    """A recorded run of io_calls.py: (report, truth, record)."""
    bench = helpers.Bench(tmp_path_factory.mktemp("io"))
    files = bench.directory / "files"
    files.mkdir()
    record, truth = bench.recorded("io_calls.py", "--directory", files, options=["--syscalls"])
    yield helpers.report(record.file, "--io"), truth, record
    bench.close()


@helpers.needs_bpf
class TestSyscalls:
    def test_counts_are_those_of_strace(self, fixed, bench):
        if not shutil.which("strace"):
            pytest.skip("no strace")
        files = bench.directory / "files"
        files.mkdir()
        job = bench.job("io_calls.py", "--directory", files).until_ready()
        strace = bench.process("strace", "-f", "-c", "-p", job.pid)
        strace.until_says("attached", 30, "stderr")
        job.release()
        job.truth()
        strace.wait()
        truth = strace_counts(strace.stderr)
        got = {}
        for process in fixed[0]["processes"]:
            for row in process["syscalls"]:
                count, errors = got.get(row["name"], (0, 0))
                got[row["name"]] = count + row["count"], errors + row["errors"]
        assert COUNTED <= set(truth), "not what Python calls"
        assert {n: got.get(n) for n in COUNTED} == {n: truth.get(n) for n in COUNTED}

    def test_a_child_agrees_with_its_proc_io(self, fixed):
        report, truth, _ = fixed
        child, said = truth["child"], truth["child"]["io"]
        rows = calls(processes(report)[child["pid"]])
        reads = [rows[n] for n in ("read", "pread64", "preadv2")]
        writes = [rows[n] for n in ("write", "pwrite64", "writev")]
        # asked in a read, and said in a write, which come on top
        assert sum(r["bytes"] for r in reads) == said["rchar"] + child["said_bytes"]
        assert sum(r["count"] for r in reads) == said["syscr"] + 1
        assert sum(r["bytes"] for r in writes) == said["wchar"] + child["said_bytes"]
        assert sum(r["count"] for r in writes) == said["syscw"] + 1

    def test_times_fit_into_the_run(self, fixed):
        report, truth, _ = fixed
        rows = calls(processes(report)[truth["pid"]])
        assert 0 < rows["pread64"]["total_s"] < report["window"]["seconds"]
        assert rows["fsync"]["total_s"] > 0

    def test_off(self, bench):
        files = bench.directory / "files"
        files.mkdir()
        record, _ = bench.recorded("io_calls.py", "--directory", files)
        assert not any(row["syscalls"] for row in helpers.report(record.file, "--io")["processes"])
        assert "no system calls" in helpers.report_text(record.file, "--io")


@helpers.needs_bpf
class TestFiles:
    def test_bytes_by_path(self, fixed):
        report, truth, _ = fixed
        rows = {row["path"]: row for row in processes(report)[truth["pid"]]["files"]}
        got = {
            path: [rows[path][k] for k in ("reads", "read_bytes", "writes", "written_bytes")]
            for path in truth["files"]
            if path in rows
        }
        assert got == truth["files"]

    def test_what_came_from_disk(self, fixed):
        report, truth, _ = fixed
        rows = {row["path"]: row for row in processes(report)[truth["pid"]]["files"]}
        cold, mapped, plain = (rows[truth["path"] + name] for name in ("cold", "mapped", "plain"))
        if not truth["disk"]["read"]:
            pytest.skip("no disk under %s" % truth["path"])
        assert cold["disk_bytes"] == truth["disk"]["read"] == truth["disk"]["size"]
        assert 0 < cold["disk_reads"] < cold["reads"]
        assert mapped["disk_bytes"] == truth["disk"]["mapped"]
        assert mapped["disk_faults"] > 0 and mapped["reads"] == 0
        assert plain["disk_bytes"] == 0

    def test_terminals_are_safe(self, fixed):
        text = helpers.report_text(fixed[2].file, "--io", "--limit", "0")
        assert r"new\x0aline <b>\u00e4\x1b[31m".encode().decode("unicode_escape") not in text
        assert "new\\x0aline <b>\u00e4\\x1b[31m" in text


@helpers.needs_bpf
def test_calls_that_cost(bench):
    """The calls whose cost is told are those that the job made; what one costs is measured in tools/bench_io.py."""
    job = bench.job("reads.py", "--seconds", 1).until_ready()
    record = bench.record("-p", job.pid, "--syscalls").until_armed()
    job.release()
    truth = job.truth()
    assert record.wait() == helpers.OK, record.what()
    overhead = helpers.report(record.file)["overhead"]
    reads = calls(processes(helpers.report(record.file, "--io"))[job.pid])
    assert reads["pread64"]["count"] == truth["reads"]
    made = sum(row["count"] for row in reads.values())
    assert overhead["calls"] % 64 == 0 and abs(overhead["calls"] - made) <= 64  # of each thread every 64th stands for all
    share = overhead["calls"] * overhead["call_ns"] / 1e9 / helpers.report(record.file)["window"]["seconds"]
    assert overhead["percent"] == pytest.approx(100 * share, rel=0.2)


@helpers.needs_bpf
class TestLoaders:
    """Of two DataLoaders each has what is its own, and no more."""

    def check(self, bench, *args):
        record, truth = bench.recorded("loaders.py", *args, options=["--syscalls"])
        found = helpers.report(record.file, "--io")["workers"]
        assert len(found) == 2, [(x["place"], len(x["workers"])) for x in found]
        by_pids = {frozenset(w["pid"] for w in x["workers"]): x for x in found}
        loaders = [by_pids.get(frozenset(b["pid"] for b in truth[name])) for name in ("train", "val")]
        assert None not in loaders, (sorted(map(sorted, by_pids)), [{b["pid"] for b in truth[name]} for name in ("train", "val")])
        for loader, name in zip(loaders, ("train", "val")):
            batches = truth[name]
            more = loader["batches"] - len(batches)
            assert more == 0 or ("--persistent" in args or "lightning" in args) and 0 < more < 0.2 * len(batches)
            # what was made before it was asked for may have been under way still, on a busy machine for as long as its next() took;
            # what is made when a wait is over was late
            surely = [b for b in batches if b["made"] > b["start"] + 0.001]
            perhaps = [b for b in batches if b["made"] > b["start"] - 0.005 - truth["delayed"] / 10 or b["waited"] > 0.002]
            assert len(surely) - 2 <= loader["waited"] <= len(perhaps) + 2, (name, len(surely), loader["waited"], len(perhaps))
            unmade = sum(b["made"] - b["start"] for b in surely)  # what is handed over is waited for no more
            assert unmade - 0.02 - truth["delayed"] <= loader["wait_s"] <= sum(b["waited"] for b in perhaps) + 0.02 + truth["delayed"]
        return loaders, truth, record

    def test_a_loop_for_each(self, bench):
        (train, val), truth, record = self.check(bench, "--workers", 1, 3, "--load", 0.012, 0.002, "--step", 0.008)
        assert (train["at_once"], val["at_once"]) == (1, 3)
        assert not train["place"]["validation"] and val["place"]["validation"]
        # each batch of train takes one worker 24 ms, and the loop 8 ms; of val 4 ms
        assert train["produce_s"] > 0.024 and train["needed"] and train["needed"] > 1
        assert train["batch_s"] == pytest.approx(self.batch_s(truth["train"]), rel=0.1)
        assert val["batch_s"] == pytest.approx(self.batch_s(truth["val"]), rel=0.1, abs=0.002)
        assert "loader 1 of 2: fetched at loaders.py:" in helpers.report_text(record.file, "--io")

    @staticmethod
    def batch_s(batches):
        """From one batch to the next of the same iterator, by the job's own clock."""
        ends = [(b["pid"], b["start"] + b["waited"]) for b in batches]
        gaps = [b[1] - a[1] for a, b in zip(ends, ends[1:])]
        gaps = sorted(gaps)[: len(gaps) - 1]  # between the two epochs lies the other loader
        return sum(gaps) / len(gaps)

    def test_one_loop_for_both(self, bench):
        """As in torch's tutorials: the line is the same, and so is the number of workers."""
        (train, val), _, _ = self.check(bench, "--how", "phases", "--workers", 2, 2)
        assert not train["place"]["validation"] and val["place"]["validation"]

    def test_zipped(self, bench):
        self.check(bench, "--how", "zip", "--workers", 1, 2, "--load", 0.006, 0.001)

    @pytest.mark.parametrize("more", [[], ["--persistent"]], ids=["", "persistent"])
    def test_lightning(self, bench, more):
        (train, val), _, record = self.check(bench, "--how", "lightning", "--epochs", 3, *more)
        assert train["place"]["action"].endswith(".train_dataloader_next") and val["place"]["action"].endswith(".val_next")
        assert (train["at_once"], val["at_once"]) == (1, 1)
        text = re.sub(r"\s+", " ", helpers.report_text(record.file, "--io"))
        assert "there are 2" not in text and "fetched in [_EvaluationLoop].val_next" in text

    def test_without_system_calls_they_are_one(self, bench):
        record, truth = bench.recorded("loaders.py")
        (found,) = helpers.report(record.file, "--io")["workers"]
        assert {w["pid"] for w in found["workers"]} == {b["pid"] for name in ("train", "val") for b in truth[name]}


@helpers.needs_bpf
class TestWorkers:
    def run(self, bench, *args):
        record, truth = bench.recorded("workers.py", *args)
        found = helpers.report(record.file, "--io")["workers"]
        assert len(found) == 1 and found[0]["pid"] == truth["pid"]
        return found[0], truth, record

    def test_a_slow_worker_is_named(self, bench):
        found, truth, record = self.run(bench, "--slow-worker", 2)
        pids = {b["worker"]: b["pid"] for b in truth["batches"]}
        assert found["advice"] == "one_slow" and found["slow"] == 2
        workers = found["workers"]
        assert [w["pid"] for w in workers] == [pids[i] for i in range(4)]
        waited = sum(b["waited"] for b in truth["batches"] if b["worker"] == 2)
        assert workers[2]["wait_s"] == pytest.approx(waited, rel=0.15, abs=truth["delayed"])
        assert workers[2]["wait_s"] > 0.5 * found["wait_s"]
        doing = workers[2]["doing"][0]
        assert doing["name"] == "loads_a_row" and doing["cause"] == "sleep"
        assert "worker 2 (pid %d) is slower" % pids[2] in re.sub(r"\s+", " ", helpers.report_text(record.file, "--io"))

    @pytest.mark.parametrize("how,cause", [([], "disk_read"), (["--mapped"], "page_fault")], ids=["read", "mapped"])
    def test_the_file_that_a_worker_waited_for(self, bench, how, cause):
        cold = bench.directory / "cold"
        cold.mkdir()
        found, truth, record = self.run(bench, "--slow-worker", 2, "--cold", cold, *how)
        assert not any(process["files"] for process in helpers.report(record.file, "--io")["processes"])
        path = str(cold / "cold2")
        came = max(b["disk"] for b in truth["batches"] if b["worker"] == 2)
        if not came:
            pytest.skip("no disk under %s" % cold)
        rows = [row for row in found["workers"][2]["doing"] if row["cause"] == cause and (row["name"] or "").startswith("reads_a_file")]
        assert {row["path"] for row in rows} == {path}
        named = sum(row["path_s"] for row in rows)
        assert named >= 0.95 * sum(row["seconds"] for row in rows)
        # of the time for which it was waited for, the share that its reads were blocked: the rest of them is the CPU's, or a wait for it
        waited = sum(b["waited"] for b in truth["batches"] if b["worker"] == 2)
        last = [b for b in truth["batches"] if b["worker"] == 2][-1]
        assert named > 0.5 * waited * last["blocked"] / last["read"] > 0, (named, waited, last)
        if rows[0] in found["workers"][2]["doing"][:2]:  # as many as the text has
            assert "%s: %s" % (cause, path) in helpers.report_text(record.file, "--io")

    def test_the_worker_of_each_long_wait(self, bench):
        found, truth, _ = self.run(bench, "--slow-every", 5, "--slow", "0.04", "--workers", 3, "--batches", 400)
        log = dict(enumerate(truth["batches"], 1))  # step 1 ends behind the first batch
        steps = {wait["step"]: wait for wait in found["waits"] if wait["step"]}
        # where another batch was made at the end of the wait, the loop may have had a CPU only after both
        for step, batch in list(log.items()):
            before_end = [batch["start"] + batch["waited"] - b["made"] for b in truth["batches"] if b is not batch]
            if any(0 < before < 0.02 for before in before_end):
                del log[step]
        named = [(wait["worker"], log[step]["worker"]) for step, wait in steps.items() if step in log and wait["wait_s"] > 0.02]
        assert len(named) > 10 and len({worker for worker, _ in named}) == 3
        wrong = sum(a != b for a, b in named)
        assert wrong <= len(named) // 20, named
        assert found["batches"] == len(truth["batches"]) + 1  # the last one ends the epoch

    def test_a_worker_that_is_killed(self, bench):
        """It is told of by number, time and signal, as torch tells the job; nobody is slow for it."""
        found, truth, record = self.run(bench, "--killed-at", 100, "--workers", 3, "--batches", 120, "--step", 0.01)
        said = truth["killed"]
        pid = int(re.search(r"pid(?:\(s\))? (\d+)", said["message"])[1])
        assert "Killed" in said["message"] or "exited unexpectedly" in said["message"]
        workers = {w["pid"]: w for w in found["workers"]}
        ended = workers[pid]["ended"]
        assert (ended["signal"], ended["exit_status"]) == (9, None)
        assert [w["ended"] for w in found["workers"] if w["pid"] != pid] == [None] * 5
        assert ended["wait_s"] == pytest.approx(said["waited"], abs=0.05 + truth["delayed"])
        (broken,) = [wait for wait in found["waits"] if wait["broken"]]
        assert broken["worker"] == workers[pid]["number"] and broken["wait_s"] == pytest.approx(ended["wait_s"])
        assert ended["at_s"] == pytest.approx(broken["start_s"] + broken["wait_s"], abs=0.05 + truth["delayed"])
        assert found["slow"] is None and found["advice"] != "one_slow"
        assert {b["pid"] for b in truth["batches"]} <= set(workers)
        report = helpers.report(record.file, "--steps")
        assert report["lost"] == {}
        text = re.sub(r"\s+", " ", helpers.report_text(record.file, "--io"))
        assert "ended at %.3f s: killed by SIGKILL; " % ended["at_s"] in text
        verdict = report["verdict"]
        if verdict["class"] == "input-bound":
            assert "process %d, a worker, ended at %.3f s: killed by SIGKILL" % (pid, ended["at_s"]) in verdict["evidence"]

    def test_a_worker_that_is_killed_while_nobody_waits(self, bench):
        """And the job with it, which is told of it by a signal in the midst of a step."""
        job = bench.job("workers.py", "--workers", 3, "--step", 0.03, "--killed-in-step", 50).until_ready()
        record = bench.record("-p", job.pid).until_armed()
        job.release()
        assert job.wait() == 1, job.what()
        assert record.wait() == helpers.OK, record.what()
        workers = re.search("^workers (.*)$", job.stdout, re.M)[1].split()
        found = helpers.report(record.file, "--io")["workers"][0]
        assert [str(w["pid"]) for w in found["workers"]] == workers
        ended = found["workers"][1]["ended"]
        assert ended["signal"] == 9 and ended["wait_s"] < 0.1
        assert found["slow"] is None and found["workers"][1]["seen_s"] > 0
        report = helpers.report(record.file, "--steps")
        assert report["lost"] == {}
        assert any(line.startswith("process %s, a worker, ended at" % workers[1]) for line in report["verdict"]["evidence"])

    @pytest.mark.parametrize("load,step", [("0.012", "0.012"), ("0.001", "0.012"), ("0.02", "0.001")])
    def test_what_lies_ready(self, bench, load, step):
        """Workers that are idle, as the job's own log has it: all that they may make ahead is made."""
        found, truth, _ = self.run(bench, "--load", load, "--step", step, "--batches", 120)
        idle = []
        for n, batch in list(enumerate(truth["batches"]))[1:-8]:  # towards the end there is nothing more to make
            made, fetched = [0] * 4, [0] * 4
            for k, other in enumerate(truth["batches"]):
                made[other["worker"]] += other["made"] < batch["start"]
                fetched[other["worker"]] += k < n
            idle.append(sum(m - f == PREFETCH for m, f in zip(made, fetched)))
        # what was made some time before is there; what was made later than it was asked for, by more than what makes a sample, is not
        late = [sum(b["made"] + more > b["start"] for b in truth["batches"]) for more in (-0.0005, 0.005 + truth["delayed"] / 10)]
        assert late[0] - 5 <= found["late"] <= late[1] + 5
        ahead = found["ahead"]
        # from when the workers are attached to, until they leave
        assert 0.7 * len(idle) <= ahead["steps"] <= len(truth["batches"]) - 1
        delayed = truth["delayed"] / (truth["batches"][-1]["start"] - truth["batches"][0]["start"])
        assert ahead["idle_mean"] == pytest.approx(sum(idle) / len(idle), abs=0.4 + delayed)
        assert ahead["none_idle"] / ahead["steps"] == pytest.approx(idle.count(0) / len(idle), abs=0.15 + delayed)

    def test_nobody_is_blamed(self, bench):
        found, _, _ = self.run(bench, "--load", "0.0005", "--step", "0.01")
        assert found["slow"] is None and found["advice"] != "one_slow"
