# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
A small training with stepflame's callback: LIBRARY FOLDER LOGGER [OPTION=VALUE...], of lightning.pytorch, pytorch_lightning or transformers. It writes
what it knows as JSON, as its last line: steps, what was logged.
"""

import json
import logging
import os
import sys
import time

import torch

STEPS, HELD, PAUSE = 150, 10, 0.01


class Logged(logging.Handler):
    def __init__(self):
        super().__init__()
        self.messages = []

    def emit(self, record):
        self.messages.append(record.getMessage())


def hold(steps, callback):
    """One step lasts until the recording has begun, if one shall: how many it has does not depend on how fast the machine is."""
    periodic = callback._periodic
    while steps == HELD and periodic._thread and periodic._thread.is_alive() and not (periodic._child and "stepflame: armed" in periodic._child.said()):
        time.sleep(0.01)
    time.sleep(PAUSE)


def mlflow_store(folder):
    return "file:" + os.path.join(folder, "mlruns")


def logger_of(library, name, folder):
    loggers = __import__(library + ".loggers", fromlist=["loggers"])
    if name == "tensorboard":
        return loggers.TensorBoardLogger(folder)
    if name == "wandb":
        return loggers.WandbLogger(save_dir=folder, offline=True)
    if name == "mlflow":
        return loggers.MLFlowLogger(tracking_uri=mlflow_store(folder))
    if name == "csv":
        return loggers.CSVLogger(folder)
    return False


def lightning(library, folder, name, options):
    pl = __import__(library, fromlist=["Trainer"])
    from stepflame.lightning import StepflameCallback

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net, self.steps = torch.nn.Linear(8, 1), 0

        def training_step(self, batch, index):
            self.steps += 1
            hold(self.steps, callback)
            if options.get("fails") and self.steps == STEPS // 2:
                raise RuntimeError("of the job")
            return self.net(batch).sum()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    module = Module()
    callback = StepflameCallback(**{key: value for key, value in options.items() if key != "fails"})
    assert isinstance(callback, pl.Callback)
    settings = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False, "accelerator": "cpu"}
    trainer = pl.Trainer(max_epochs=1, default_root_dir=folder, logger=logger_of(library, name, folder), callbacks=[callback], **settings)
    try:
        trainer.fit(module, torch.utils.data.DataLoader(torch.ones(STEPS, 8)))
    except RuntimeError as error:
        return {"steps": module.steps, "ended_by": str(error)}
    return {"steps": module.steps, "ended_by": None}


def transformers(library, folder, name, options):
    import transformers

    from stepflame.transformers import StepflameCallback

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.steps = torch.nn.Linear(8, 1), 0

        def forward(self, x):
            self.steps += 1
            hold(self.steps, callback)
            return {"loss": self.net(x).sum()}

    model, callback = Model(), StepflameCallback(**options)
    if name == "mlflow":
        os.environ["MLFLOW_TRACKING_URI"] = mlflow_store(folder)
    settings = transformers.TrainingArguments(
        folder, max_steps=STEPS, per_device_train_batch_size=1, save_strategy="no", use_cpu=True, disable_tqdm=True, report_to=[name] if name in ("tensorboard", "wandb", "mlflow") else []
    )
    rows = [{"x": torch.ones(8)} for _ in range(STEPS)]
    transformers.Trainer(model, settings, train_dataset=rows, callbacks=[callback]).train()
    return {"steps": model.steps, "ended_by": None}


def main():
    library, folder, name, *words = sys.argv[1:]
    os.environ.update(WANDB_MODE="offline", WANDB_DIR=folder, WANDB_SILENT="true", MLFLOW_ALLOW_FILE_STORE="true", CUDA_VISIBLE_DEVICES="", TENSORBOARD_LOGGING_DIR=folder)
    handler = Logged()
    logging.getLogger("stepflame").addHandler(handler)
    logging.getLogger("stepflame").setLevel(logging.INFO)
    options = {key: json.loads(value) for key, value in (word.split("=", 1) for word in words)}
    found = (transformers if library == "transformers" else lightning)(library, folder, name, options)
    print(json.dumps({**found, "pid": os.getpid(), "logged": handler.messages}))


main()
