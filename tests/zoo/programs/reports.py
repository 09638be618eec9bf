# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
torch and little else: what people report in public of slow trainings, rebuilt in a few lines each. KIND says which; what each does, and
reports of it on GitHub that were at hand, is its function's first line.
"""

import copy
import ctypes
import gc
import http.client
import http.server
import os
import pickle
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import clock
import torch
from kinds import ROWS, WIDTH, Trainer, parse
from torch.utils.data import DataLoader, Dataset, Sampler


def path_of(name):
    return os.environ["ZOO_TRUTH"] + "." + name


def die_with_parent():
    ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG


class Sentences(Dataset):
    def __init__(self):
        self.texts = ["%d times %d is what the %dth sentence of them says of it" % (i, 7 * i, i % 97) for i in range(5000)]

    def __len__(self):
        return 1 << 24

    def __getitem__(self, i):
        return " ".join(self.texts[(i + k) % len(self.texts)] for k in range(6))


def make_tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE(unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator(Sentences().texts[:500], trainers.BpeTrainer(vocab_size=300, special_tokens=["?"], show_progress=False))
    return tokenizer


def tokenizes_in_collate(trainer):
    """A collate_fn asks a tokenizer, in a DataLoader without workers (huggingface/transformers 34059, 14428)."""
    tokenizer = make_tokenizer()

    def collate_texts(texts):
        ids = [(row.ids * 8)[:WIDTH] for row in tokenizer.encode_batch(texts)]
        return torch.tensor(ids).float() / 300

    trainer.run(DataLoader(Sentences(), batch_size=ROWS, collate_fn=collate_texts))


class Numbers(Dataset):
    def __len__(self):
        return 1 << 24

    def __getitem__(self, i):
        return torch.full((WIDTH,), float(i % 7))


class Balanced(Sampler):
    """Chooses rows such that all classes are as frequent, in Python."""

    def __iter__(self):
        number = 0
        while True:
            parse(1500)
            number += 1
            yield number


def samples_slowly(trainer):
    """Two workers, for which the training process chooses the rows too slowly."""
    trainer.run(DataLoader(Numbers(), batch_size=8, sampler=Balanced(), num_workers=2))


class Boxes(Dataset):
    """What detection has for each image: boxes, as Python objects."""

    made = [{"box": [i, i + 1, i + 2.5, i + 3.5], "name": "box %d" % i} for i in range(600)]

    def __len__(self):
        return 1 << 24

    def __getitem__(self, i):
        return self.made


def keep_rows(rows):
    return [[dict(box) for box in row] for row in rows]


def unpickles_batches(trainer):
    """Two workers send batches of Python objects, which the training process has to unpickle."""
    batch = torch.randn(ROWS, WIDTH)
    for rows in DataLoader(Boxes(), batch_size=16, collate_fn=keep_rows, num_workers=2):
        trainer.update(batch * len(rows) / 16)


def averages_weights(trainer):
    """A moving average of each of many small weights, one after the other, in each step (lucidrains/ema-pytorch 5, open-mmlab/mmengine 281)."""
    torch.set_num_threads(1)
    layers = [torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.LayerNorm(32)) for _ in range(60)]
    net = torch.nn.Sequential(torch.nn.Linear(WIDTH, 32), *layers)
    shadow = copy.deepcopy(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, foreach=True)

    def update_average():
        with torch.no_grad():
            old, new = dict(shadow.named_parameters()), dict(net.named_parameters())
            for name in new:
                for _ in range(3):  # as many averages of their own speed
                    old[name].copy_(old[name] * 0.999 + new[name] * 0.001)

    batch = torch.randn(ROWS, WIDTH)
    while True:
        loss = net(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        clock.step()
        update_average()


def flushes_each_step(trainer):
    """A logger forces the rows of its files to the disk behind each step (EleutherAI/nanoGPT-mup 5, fastai/fastai 2313)."""
    batch = torch.randn(ROWS, WIDTH)
    files = [open(path_of("log%d" % i), "w") for i in range(12)]

    def log_row(number):
        for file in files:
            file.write("%d,%g\n" % (number, 0.5))
            file.flush()
            os.fsync(file.fileno())

    number = 0
    while True:
        trainer.update(batch)
        number += 1
        log_row(number)


def spawns_workers(trainer):
    """A DataLoader that is made for each epoch, whose workers are spawned, and import torch (pytorch/pytorch 153594, 12831)."""
    while True:
        loader = DataLoader(Some(), batch_size=8, num_workers=2, multiprocessing_context="spawn")
        trainer.run(loader)


class Some(Dataset):
    def __len__(self):
        return 800

    def __getitem__(self, i):
        return torch.full((WIDTH,), float(i % 7))


def scores_by_sklearn(trainer):
    """A metric of scikit-learn on what each step predicts (ViTAE-Transformer/RSP 20, Lightning-AI/pytorch-lightning 1429)."""
    from sklearn.metrics import roc_auc_score

    batch = torch.randn(ROWS, WIDTH)
    truth = (torch.arange(ROWS) % 2).numpy()

    def score_batch():
        with torch.no_grad():
            predicted = trainer.net(batch)
        return [roc_auc_score(truth, predicted[:, i].numpy()) for i in range(4)]

    while True:
        trainer.update(batch)
        score_batch()


def keeps_best(trainer):
    """Every 10th step finds that the model is the best so far, and copies it (WenjieDu/PyPOTS 667 has why it is a deepcopy)."""
    trainer.net.append(torch.nn.Sequential(torch.nn.Linear(WIDTH, 1 << 14), torch.nn.Linear(1 << 14, WIDTH)))  # not trained
    for p in trainer.net[-1].parameters():
        p.requires_grad_(False)
    small, batch, number = trainer.net[:-1], torch.randn(8 * ROWS, WIDTH), 0
    optimizer = torch.optim.AdamW(small.parameters(), lr=1e-3)

    def keep_best():
        return [copy.deepcopy(trainer.net.state_dict()) for _ in range(2)]

    while True:
        loss = (small(batch) - batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        clock.step()
        number += 1
        if number % 10 == 0:
            with clock.event("planted"):
                keep_best()


class Store:
    """One file, of which one thread at a time may read, as of HDF5."""

    def __init__(self):
        self.lock = threading.Lock()

    def read_rows(self, number):
        with self.lock:
            time.sleep(0.004)
            return torch.full((ROWS, WIDTH), float(number % 7))


def reads_under_lock(trainer):
    """Four threads read ahead from a file that has one lock for all (numenta/nupic.research 163, maskrcnn-benchmark 1195: HDF5's lock)."""
    store = Store()
    with ThreadPoolExecutor(4) as pool:
        ahead = [pool.submit(store.read_rows, number) for number in range(8)]
        number = 8
        while True:
            batch = ahead.pop(0).result()
            ahead.append(pool.submit(store.read_rows, number))
            number += 1
            trainer.update(batch)


def validates_often(trainer):
    """Every 10th step evaluates the model, for longer than the ten took (FunctionLab/sei-framework 30)."""
    batch, number = torch.randn(ROWS, WIDTH), 0
    held_out = [torch.randn(4 * ROWS, WIDTH) for _ in range(20)]

    @torch.no_grad()
    def evaluate_model():
        trainer.net.eval()
        total = sum((trainer.net(each) - each).square().mean().item() for each in held_out)
        trainer.net.train()
        return total

    while True:
        trainer.update(batch)
        number += 1
        if number % 10 == 0:
            with clock.event("planted"):
                evaluate_model()


class Filtered(Dataset):
    """Rows that torch's operators filter."""

    def __init__(self):
        self.large = torch.randn(300, 300)

    def __len__(self):
        return 1 << 24

    def __getitem__(self, i):
        return self.filter_row(i)

    def filter_row(self, i):
        for _ in range(3):
            self.large @ self.large
        return torch.full((WIDTH,), float(i % 7))


def take_many_threads(worker):
    torch.set_num_threads(8)


def workers_of_many_threads(trainer):
    """Two workers, whose operators have eight threads each, on fewer CPUs (eduardoAcunaEspinoza/Hy2DL 48, pytorch/pytorch 85631)."""
    trainer.run(DataLoader(Filtered(), batch_size=8, num_workers=2, worker_init_fn=take_many_threads))


def read_slowly(ours):
    die_with_parent()
    while True:
        os.read(ours, 4096)
        time.sleep(0.006)


def prints_to_slow_reader(trainer):
    """What each step prints goes into a pipe that is full, since who reads it, a terminal or a log collector, is slow."""
    ours, theirs = os.pipe()
    if os.fork() == 0:
        read_slowly(ours)
    out, batch = open(theirs, "w"), torch.randn(ROWS, WIDTH)

    def print_progress():
        print("loss %g" % 0.5, "." * 4000, file=out, flush=True)

    while True:
        trainer.update(batch)
        print_progress()


class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(0.006)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args):
        pass


def uploads_each_step(trainer):
    """Behind each step its metrics are sent to a server, whose answer is awaited."""
    server = http.server.HTTPServer(("127.0.0.1", 0), Answer)
    if os.fork() == 0:
        die_with_parent()
        server.serve_forever()
    connection, batch = http.client.HTTPConnection("127.0.0.1", server.server_port), torch.randn(ROWS, WIDTH)

    def send_metrics():
        connection.request("POST", "/", b'{"loss": 0.5}')
        connection.getresponse().read()

    while True:
        trainer.update(batch)
        send_metrics()


def saves_in_thread(trainer):
    """A thread pickles a large state now and then, without letting go of the GIL (what is reported of checkpoints in a thread)."""
    state = [{"name": "row %d" % i, "at": [i, i + 0.5]} for i in range(60000)]
    batch = torch.randn(ROWS, WIDTH)

    def pickle_state():
        while True:
            with clock.event("planted"):
                pickle.dumps(state)
            time.sleep(0.1)

    threading.Thread(target=pickle_state, daemon=True).start()
    while True:
        trainer.update(batch)


def logs_norms(trainer):
    """Behind each step the norm of each gradient is asked for, as a number (what is reported of .item() in loops)."""
    torch.set_num_threads(1)
    net = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()) for _ in range(24)])
    optimizer, batch = torch.optim.SGD(net.parameters(), lr=1e-3), torch.randn(ROWS, WIDTH)

    def log_norms():
        out = {}
        for name, p in net.named_parameters():
            for order in (1, 2, float("inf")):
                out[name, order] = p.grad.norm(order).item()
                out[name, -order] = p.norm(order).item()
        return out

    while True:
        loss = net(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        clock.step()
        log_norms()


def collects_each_step(trainer):
    """Behind each step gc.collect() looks at all objects of a program that has many (what is reported of gc.collect and empty_cache in loops)."""
    kept, batch = [[i] for i in range(60000)], torch.randn(ROWS, WIDTH)

    def free_memory():
        gc.collect()

    while kept:
        trainer.update(batch)
        free_memory()


def prints_to_file(trainer):
    """Control: the same prints, into a file that takes them at once."""
    out, batch = open("/dev/null", "w"), torch.randn(8 * ROWS, WIDTH)
    while True:
        trainer.update(batch)
        print("loss %g" % 0.5, "." * 4000, file=out, flush=True)


def samples_quickly(trainer):
    """Control: two workers, which are too slow, and a sampler that is not."""
    trainer.run(DataLoader(Slower(), batch_size=8, num_workers=2))


class Slower(Dataset):
    def __len__(self):
        return 1 << 24

    def __getitem__(self, i):
        time.sleep(0.003)
        return torch.full((WIDTH,), float(i % 7))


if __name__ == "__main__":
    globals()[sys.argv[1]](Trainer())
