# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Each example of docs/python-package.md runs as it stands there, but that recordings are shorter."""

import re
import shutil

import helpers
import pytest
from replay import recordings

import stepflame

PAGE = helpers.ROOT / "docs/python-package.md"


def examples(heading):
    """The code of a section."""
    (section,) = re.findall(r"^## %s\n(.*?)(?=^## |\Z)" % heading, PAGE.read_text(), re.M | re.S)
    return "\n".join(re.findall(r"^    (.*)$", section, re.M)).replace("duration=10)", "duration=1)").replace("pid, 10,", "pid, 1,")


def importorskip(*names):
    for name in names:
        pytest.importorskip(name, reason="no %s" % name)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    shutil.copy(recordings.path("plain"), tmp_path / "x.rec")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_tables(folder, capsys):
    importorskip("pyarrow", "pandas", "polars")
    names = {}
    exec(examples("Tables"), names)
    said = capsys.readouterr().out
    summary = names["run"].summary
    assert said.startswith(names["run"].report()) and "%d steps" % names["run"].steps.num_rows in said and said.endswith("%s\n" % summary["limit"]["class"])
    assert len(names["slowest"]) == 5 and names["slowest"]["duration_ns"].is_monotonic_decreasing
    assert len(names["by_cause"]) == len(set(names["run"].waits["cause"].to_pylist()))
    assert (folder / "x.html").stat().st_size


@helpers.needs_bpf
def test_recordings(folder, bench, capsys):
    job = bench.job("plain_loop.py", "--epochs", 10_000).until_ready()
    job.release()
    names = {"stepflame": stepflame, "pid": job.pid, "rank": 0, "train": lambda: sum(range(10**7))}
    exec(examples("Another process"), names)
    assert names["run"].summary["window"]["steps"] and "aten::" in names["run"].report("ops")
    exec(examples("This process"), names)
    assert "Recorded" in capsys.readouterr().out
    assert all(stepflame.load(name).summary["window"]["seconds"] for name in ("ops.rec", "train.rec", "rank0.rec"))
    assert "<iframe" in eval(examples("In a notebook"), names)._repr_html_()


@pytest.mark.long
def test_lightning(folder):
    importorskip("lightning.pytorch")
    from lightning.pytorch import Trainer

    names = {"Trainer": Trainer}
    exec(examples("Lightning"), names)
    assert any(isinstance(callback, names["StepflameCallback"]) for callback in names["trainer"].callbacks)


@pytest.mark.long
def test_transformers(folder):
    importorskip("transformers")
    import torch
    from transformers import Trainer, TrainingArguments

    names = {"Trainer": Trainer, "model": torch.nn.Linear(1, 1), "settings": TrainingArguments(folder, use_cpu=True), "rows": []}
    exec(examples("transformers"), names)
    assert any(isinstance(callback, names["StepflameCallback"]) for callback in names["trainer"].callback_handler.callbacks)
