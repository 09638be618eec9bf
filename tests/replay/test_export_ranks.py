# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A trace says of which rank it is, so that Holistic Trace Analysis shows all ranks of a folder; what has no rank gets one, and that is said."""

import gzip
import json
import os

import pytest
import recfile as rec
from helpers import OK, stepflame

DUMMY = [rec.name(1, "aten::add")]


def recording(path, ranks):
    """ranks: {pid: rank}; each has a step of two operators."""
    records = [rec.host(), *DUMMY]
    for pid, rank in ranks.items():
        rows = [rec.span(rec.SPAN_OP, 1, 5 + pid, 3), rec.span(rec.SPAN_OP, 1, 10 + pid, 3), rec.span(rec.STEP, 1, 5 + pid, 9, sequence=0)]
        records += [rec.target(pid, rank=rank), rec.spans(pid, pid, rows)]
    path.write_bytes(rec.recording(records))
    return path


def export(file, *options):
    result = stepflame("export", file, *options)
    assert result.returncode == OK, result
    return result


def ranks_in(folder):
    """{rank in distributedInfo: pids of its operators}"""
    found = {}
    for path in folder.iterdir():
        trace = json.loads(gzip.decompress(path.read_bytes()))
        found[trace["distributedInfo"]["rank"]] = {e["pid"] for e in trace["traceEvents"] if e.get("cat") == "cpu_op"}
    return found


def ranks_of_hta(folder):
    hta = pytest.importorskip("hta.trace_analysis", reason="tools/setup.sh python --readers installs HolisticTraceAnalysis")
    return sorted(hta.TraceAnalysis(trace_dir=str(folder)).t.traces)


def test_ranks_are_kept(tmp_path):
    result = export(recording(tmp_path / "a.rec", {11: 3, 12: 1}), "-f", "tensorboard", "-o", tmp_path / "out")
    assert ranks_in(tmp_path / "out") == {3: {11}, 1: {12}} and not result.stderr, result


def test_without_ranks(tmp_path):
    """By pid, whatever their order in the recording; HTA shows both."""
    result = export(recording(tmp_path / "a.rec", {12: -1, 11: -1}), "-f", "tensorboard", "-o", tmp_path / "out")
    assert ranks_in(tmp_path / "out") == {0: {11}, 1: {12}}
    assert "numbered by their PIDs: 11 is rank 0, 12 is rank 1" in result.stderr, result
    assert ranks_of_hta(tmp_path / "out") == [0, 1]


def test_some_without_ranks(tmp_path):
    file = recording(tmp_path / "a.rec", {11: -1, 12: 0, 13: -1, 14: 2})
    result = export(file, "-f", "tensorboard", "-o", tmp_path / "out")
    assert ranks_in(tmp_path / "out") == {1: {11}, 0: {12}, 3: {13}, 2: {14}}
    assert "11 is rank 1, 13 is rank 3" in result.stderr, result
    trace = json.loads(export(file, "-f", "chrome", "-p", 13).stdout)
    assert trace["distributedInfo"] == {"rank": 3} and trace["numbered_ranks"] == {"11": 1, "13": 3}


def test_one_without_a_rank(tmp_path):
    """A job of one process has no ranks."""
    result = export(recording(tmp_path / "a.rec", {11: -1}), "-f", "chrome")
    assert "distributedInfo" not in json.loads(result.stdout) and not result.stderr, result


def test_one_trace_of_all(tmp_path):
    file = recording(tmp_path / "a.rec", {11: 0, 12: 1})
    assert "one trace with all 2 ranks" in export(file, "-f", "chrome", "-o", tmp_path / "a.json").stderr
    result = export(file, "-f", "chrome")
    assert not result.stderr and json.loads(result.stdout)["distributedInfo"] == {"rank": 0}, result


def test_two_jobs_of_one_host(tmp_path):
    result = export(recording(tmp_path / "a.rec", {11: 0, 12: 0}), "-f", "tensorboard", "-o", tmp_path / "out")
    assert "processes 11 and 12 are both rank 0: Holistic Trace Analysis shows one of them" in " ".join(result.stderr.split()), result


def test_two_recordings_in_one_folder(tmp_path):
    folder = tmp_path / "traces"
    folder.mkdir()
    first, second = (recording(tmp_path / ("%d.rec" % pid), {pid: 0}) for pid in (11, 12))
    assert not export(first, "-f", "chrome", "-o", folder / "a.json.gz").stderr
    assert not export(first, "-f", "chrome", "-o", folder / "a.json.gz").stderr, "again, in its place"
    result = export(second, "-f", "chrome", "-o", folder / "b.json")
    assert "a.json.gz, beside" in result.stderr and "is of rank 0 too" in " ".join(result.stderr.split()), result
    assert not export(recording(tmp_path / "c.rec", {13: 1}), "-f", "chrome", "-o", folder / "c.json").stderr


def test_hostile_folder(tmp_path):
    """What others have put beside it is read as far as a trace's head, and never waited for."""
    folder = tmp_path / "traces"
    folder.mkdir()
    os.mkfifo(folder / "fifo.json")
    (folder / "zero.json").symlink_to("/dev/zero")
    (folder / "folder.json").mkdir()
    (folder / "short.json.gz").write_bytes(b"\x1f\x8b")
    (folder / "bomb.json.gz").write_bytes(gzip.compress(b" " * (1 << 24)))
    (folder / "number.json").write_text('{"distributedInfo": {"rank": 99999999999999999999}}')
    (folder / "none.json").write_text('"distributedInfo": {"rank": ')
    assert not export(recording(tmp_path / "a.rec", {11: 0}), "-f", "chrome", "-o", folder / "a.json").stderr
