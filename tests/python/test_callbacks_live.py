# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The callbacks in real trainings: what they record, where the page goes, and that no training notices when they cannot."""

import json
import os
from pathlib import Path

import helpers
import pytest

import stepflame

pytestmark = helpers.needs_bpf
SCRIPT = Path(__file__).parent / "jobs/callbacks.py"
STEPS, HELD = 150, 10  # of the script: its steps, and the one in which the recording begins
LIBRARIES = ["lightning.pytorch", "pytorch_lightning", "transformers"]


@pytest.fixture
def trained(bench, tmp_path):
    def run(library, logger="none", *options, **env):
        for module in (library.partition(".")[0], *([logger] if logger in ("tensorboard", "wandb", "mlflow") else [])):
            pytest.importorskip(module, reason="no %s" % module)
        options = options or ["first_after=5", "duration=600"]
        job = bench.process(helpers.PYTHON, SCRIPT, library, tmp_path, logger, *options, cwd=tmp_path, env={**os.environ, **env})
        assert job.wait(helpers.READY_SECONDS) == 0, job.what()
        said = json.loads(job.stdout.splitlines()[-1])
        return said, sorted((tmp_path / "stepflame").glob("*.rec")), sorted(tmp_path.rglob("*.html"))

    return run


@pytest.mark.parametrize("library", LIBRARIES)
def test_recorded(trained, library):
    """Steps behind the fifth, up to the end, where the recording ends with the training; with its page, and a line in the log."""
    said, (file,), (page,) = trained(library)
    assert said["steps"] == STEPS and file.name.startswith("rank0-step5-") and page == file.with_suffix(".html")
    summary = stepflame.load(file).summary
    assert summary["target"] == [{**summary["target"][0], "pid": said["pid"], "role": "main"}]
    assert abs(summary["window"]["steps"] - (STEPS - HELD)) <= 1
    assert said["logged"] == ["stepflame: recorded 600 s at step 5: %s" % page]
    assert "<!doctype html>" in page.read_text()


@pytest.mark.long
@pytest.mark.parametrize("library", ["lightning.pytorch", "transformers"])
@pytest.mark.parametrize("logger", ["csv", "tensorboard", "wandb", "mlflow"])
def test_loggers(trained, library, logger, tmp_path):
    """The page is where the logger keeps its files, and TensorBoard's text is the summary."""
    said, (file,), pages = trained(library, logger)
    (own,) = [page for page in pages if page.parent == file.parent]
    if logger == "csv":
        assert pages == [own]
        return
    (shown,) = [page for page in pages if page.parent != file.parent]
    assert shown.read_bytes() == own.read_bytes() and len(said["logged"]) == 1
    if logger == "tensorboard":
        accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
        events = accumulator.EventAccumulator(str(shown.parent))
        events.Reload()
        (event,) = events.Tensors("stepflame/text_summary")
        assert event.step == 5
        assert event.tensor_proto.string_val[0].decode() == "".join("    %s\n" % line for line in stepflame.load(file).report().splitlines())


@pytest.mark.long
@pytest.mark.parametrize("library", ["lightning.pytorch", "transformers"])
def test_not_recorded(trained, library):
    """The training is as without it, and that is logged once, though it is tried again and again."""
    said, files, pages = trained(library, "none", "first_after=1", "every_hours=0", "no_such_option=true")
    assert said["steps"] == STEPS and not files and not pages
    assert said["logged"] == ["stepflame: nothing is recorded, or shown: unrecognized option '--no-such-option'\n  fix: stepflame help record lists the options"]


@pytest.mark.long
def test_every(trained):
    """Again and again, for some seconds; of other ranks nothing."""
    said, files, pages = trained("lightning.pytorch", "none", "first_after=1", "every_hours=0", "duration=0.2")
    assert said["steps"] == STEPS and len(files) == len(pages) > 1
    assert [stepflame.load(file).summary["window"]["seconds"] < 2 for file in files] == [True] * len(files)
    said, again, _ = trained("lightning.pytorch", "none", "first_after=1", "every_hours=0", "ranks=[1]")
    assert again == files and not said["logged"]


@pytest.mark.long
def test_training_fails(trained):
    """By its own error, and there is a page."""
    said, (file,), (page,) = trained("lightning.pytorch", "csv", "first_after=5", "duration=600", "fails=true")
    assert said["ended_by"] == "of the job" and said["steps"] == STEPS // 2
    assert abs(stepflame.load(file).summary["window"]["steps"] - (STEPS // 2 - HELD)) <= 1
