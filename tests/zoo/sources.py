# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Programs that are taken from a checkout which the user names, ZOO_SOURCES: each function copies what it needs into a folder to run in,
writes tiny data beside it, and gives the words of the command. Nothing of theirs is kept here, and their sources are not changed.
"""

import array
import pickle
import random
import shutil


def nanogpt(checkout, folder):
    for name in ("train.py", "model.py", "configurator.py"):
        shutil.copy(checkout / name, folder)
    data = folder / "data" / "tiny"
    data.mkdir(parents=True)
    for name in ("train.bin", "val.bin"):
        (data / name).write_bytes(array.array("H", random.Random(name).choices(range(64), k=20000)).tobytes())
    (data / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": 64}))
    settings = {
        "dataset": "tiny",
        "device": "cpu",
        "compile": False,
        "eval_interval": 50,
        "eval_iters": 10,
        "log_interval": 10,
        "block_size": 64,
        "batch_size": 8,
        "n_layer": 2,
        "n_head": 4,
        "n_embd": 128,
        "dtype": "float32",
        "max_iters": 10**6,
        "gradient_accumulation_steps": 1,
        "always_save_checkpoint": False,
    }
    return [folder / "train.py", *("--%s=%s" % setting for setting in settings.items())]


def word_lm(checkout, folder):
    for name in ("main.py", "model.py", "data.py"):
        shutil.copy(checkout / "word_language_model" / name, folder)
    data = folder / "data"
    data.mkdir()
    for name, lines in (("train.txt", 3000), ("valid.txt", 300), ("test.txt", 300)):
        chance = random.Random(name)
        with open(data / name, "w") as file:
            for _ in range(lines):
                file.write(" ".join("w%d" % chance.randrange(500) for _ in range(20)) + "\n")
    return [folder / "main.py", "--data", data, "--epochs", 10**6, "--emsize", 64, "--nhid", 64, "--save", folder / "model.pt"]


def mingpt(checkout, folder):
    shutil.copytree(checkout / "mingpt", folder / "mingpt")
    shutil.copy(checkout / "projects" / "adder" / "adder.py", folder)
    settings = {"trainer.num_workers": 0, "trainer.max_iters": 10**6, "model.model_type": "gpt-nano", "system.work_dir": repr(str(folder / "out"))}
    return [folder / "adder.py", *("--%s=%s" % setting for setting in settings.items())]


def dcgan(checkout, folder):
    shutil.copy(checkout / "dcgan" / "main.py", folder)
    words = {"dataset": "fake", "imageSize": 64, "ngf": 8, "ndf": 8, "batchSize": 8, "workers": 0, "niter": 1000, "outf": folder / "out"}
    return [folder / "main.py", *(word for name, value in words.items() for word in ("--" + name, value))]


def reinforce(checkout, folder):
    shutil.copy(checkout / "reinforcement_learning" / "reinforce.py", folder)
    return [folder / "reinforce.py"]


def cleanrl_ppo(checkout, folder):
    shutil.copy(checkout / "cleanrl" / "ppo.py", folder)
    return [folder / "ppo.py", "--total-timesteps", 10**8, "--no-cuda"]
