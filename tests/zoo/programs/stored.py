# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Data as packages store and read it: datasets, WebDataset, LMDB, HDF5, images. KIND says which; what each does is its function's first line.
"""

import io
import json
import os
import sys
import tarfile

import clock
import numpy
import torch
from kinds import WIDTH, Trainer, parse
from reports import path_of
from torch.utils.data import DataLoader, Dataset

WORDS = ["%d times %d is what the %dth sentence of them says of it" % (i, 7 * i, i % 97) for i in range(2000)]


def datasets_in_workers(trainer):
    """Two workers read rows of datasets' Arrow file, and a transform of ours takes them apart."""
    import datasets

    def tokenize_rows(rows):
        return {"x": [[float(parse(10000) % 7)] * WIDTH for _ in rows["text"]]}

    rows = datasets.Dataset.from_dict({"text": WORDS * 100})
    rows.save_to_disk(path_of("rows"))
    rows = datasets.load_from_disk(path_of("rows")).with_transform(tokenize_rows)
    trainer.run(DataLoader(rows, batch_size=8, num_workers=2, collate_fn=join_rows))


def join_rows(rows):
    return torch.stack([torch.tensor(row["x"]) for row in rows])


def datasets_streamed(trainer):
    """datasets' IterableDataset, whose map takes texts apart in the training process."""
    import datasets

    def generate_texts():
        while True:
            for text in WORDS:
                yield {"text": text}

    def split_text(row):
        parse(800)
        return {"x": [float(len(row["text"]) % 7)] * WIDTH}

    rows = datasets.IterableDataset.from_generator(generate_texts).map(split_text, remove_columns=["text"])
    trainer.run(DataLoader(rows, batch_size=16, collate_fn=join_rows))


def write_shards():
    paths = [path_of("shard-%d.tar" % i) for i in range(4)]
    for path in paths:
        with tarfile.open(path, "w") as archive:
            for i in range(400):
                data = json.dumps({"n": i, "text": WORDS[i] * 40}).encode()
                info = tarfile.TarInfo("%06d.json" % i)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
    return paths


def webdataset_decoded(trainer):
    """Two workers read shards by WebDataset, and a function of ours decodes each sample."""
    import webdataset

    def decode_sample(sample):
        parse(4000)
        return torch.full((WIDTH,), float(json.loads(sample["json"])["n"] % 7))

    samples = webdataset.WebDataset(write_shards(), shardshuffle=False).repeat().map(decode_sample)
    trainer.run(webdataset.WebLoader(samples, batch_size=16, num_workers=2))


class Stored(Dataset):
    """Rows of an LMDB, each of 64 KB."""

    rows = 1500

    def __init__(self):
        import lmdb

        self.path = path_of("lmdb")
        with lmdb.open(self.path, map_size=1 << 28) as store, store.begin(write=True) as transaction:
            for i in range(self.rows):
                transaction.put(b"%08d" % i, os.urandom(64 << 10))
        os.sync()
        self.store = None

    def __len__(self):
        return self.rows

    def __getitem__(self, i):
        if not self.store:
            import lmdb

            self.store = lmdb.open(self.path, readonly=True, lock=False, readahead=False)
        return self.read_row(i)

    def forget(self):
        """Nothing of it is in memory."""
        if self.store:
            self.store.close()
        self.store = None
        file = os.open(self.path + "/data.mdb", os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)

    def read_row(self, i):
        with self.store.begin(buffers=True) as transaction:
            row = numpy.frombuffer(transaction.get(b"%08d" % i), numpy.uint8)
            return torch.full((WIDTH,), float(row[:: 4096 // 8].mean()))


def lmdb_in_process(trainer):
    """The training process reads rows of an LMDB, which are not in memory; with the fault disk the disk is slow, too."""
    rows = Stored()

    def batches():
        while True:
            rows.forget()
            yield from DataLoader(rows, batch_size=4, shuffle=True)

    trainer.run(batches())


class Compressed(Dataset):
    """Rows of compressed HDF5."""

    rows = 512

    def __init__(self):
        import h5py

        self.path = path_of("rows.h5")
        with h5py.File(self.path, "w") as file:
            data = numpy.random.default_rng(1).integers(0, 8, (self.rows, 200000)).astype(numpy.uint8)
            file.create_dataset("rows", data=data, chunks=(1, 200000), compression="gzip")
        self.file = None

    def __len__(self):
        return self.rows

    def __getitem__(self, i):
        if not self.file:
            import h5py

            self.file = h5py.File(self.path)
        return self.read_row(i)

    def read_row(self, i):
        return torch.full((WIDTH,), float(self.file["rows"][i].mean()))


def hdf5_in_process(trainer):
    """The training process reads compressed rows by h5py."""
    rows = Compressed()
    trainer.run(batch for _ in iter(int, 1) for batch in DataLoader(rows, batch_size=4))


class Images(Dataset):
    def __init__(self):
        import cv2

        noise = numpy.random.default_rng(1).integers(0, 255, (360, 480, 3)).astype(numpy.uint8)
        self.image = cv2.imencode(".jpg", noise)[1].tobytes()

    def __len__(self):
        return 1 << 20

    def __getitem__(self, i):
        return self.decode_image(i)

    def decode_image(self, i):
        import cv2

        image = cv2.imdecode(numpy.frombuffer(self.image, numpy.uint8), cv2.IMREAD_COLOR)
        image = cv2.resize(cv2.GaussianBlur(image, (9, 9), 0), (WIDTH, 8))
        return torch.from_numpy(image[0, :, 0].astype(numpy.float32))


def images_by_opencv(trainer):
    """One worker decodes and blurs images by OpenCV."""
    trainer.run(DataLoader(Images(), batch_size=16, num_workers=1))


def adapters(trainer):
    """peft's LoRA adapters of a small transformer: the model itself is what takes the time."""
    import peft
    import transformers

    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=512, n_positions=64, n_embd=128, n_layer=4, n_head=4))
    model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["c_attn"], fan_in_fan_out=True))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
    tokens = torch.randint(0, 512, (8, 64))
    while True:
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        clock.step()


if __name__ == "__main__":
    globals()[sys.argv[1]](Trainer())
