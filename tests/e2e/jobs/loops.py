# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Training loops without Lightning, one of each kind in use.

Its truth is what the loop was doing when: (phase, start, end) by time.perf_counter(), which on Linux is the clock of a recording,
how many iterations it made, when each ended (of some loops; by thread of those with several), and what a label costs there.
"""

import contextlib
import io
import itertools
import os
import queue
import statistics
import threading
import time

import common
import torch
from torch.utils.data import DataLoader, TensorDataset

INPUTS, BATCH = 64, 64


class Loop:
    def __init__(self, args):
        self.args = args
        self.intervals = []
        self.ends = {}
        self.labels = []
        self.model = self.network()
        self.rows = TensorDataset(torch.randn(BATCH * args.batches, INPUTS), torch.randn(BATCH * args.batches, 1))

    def network(self):
        work = self.args.work
        return torch.nn.Sequential(
            torch.nn.Linear(INPUTS, work),
            torch.nn.ReLU(),
            torch.nn.Linear(work, work),
            torch.nn.ReLU(),
            torch.nn.Linear(work, 1),
        )

    @contextlib.contextmanager
    def phase(self, name):
        start = time.perf_counter()
        yield
        self.intervals.append((name, start, time.perf_counter()))

    def batches(self, phase="data"):
        loader = iter(DataLoader(self.rows, batch_size=BATCH))
        while True:
            try:
                with self.phase(phase):
                    batch = next(loader)
            except StopIteration:
                return
            yield batch

    def evaluate(self, loader, limit=None):
        """One loop over a DataLoader with no backward: from before its first fetch to behind the one that finds no batch left."""
        batches, i = iter(loader), 0
        start = time.perf_counter()
        while i != limit:
            try:
                x, y = next(batches)
            except StopIteration:
                break
            with torch.no_grad():
                torch.nn.functional.mse_loss(self.model(x), y)
            i += 1
        self.intervals.append(("validation", start, time.perf_counter()))

    def forward(self, x, y, model=None):
        with self.phase("forward"):
            self.label()
            return torch.nn.functional.mse_loss((model or self.model)(x), y)

    def backward(self, loss):
        """Python before the autograd engine belongs to forward: the engine calls the hook first."""
        entered = []
        loss.register_hook(lambda grad: entered.append(time.perf_counter()))
        start = time.perf_counter()
        loss.backward()
        self.intervals += [("forward", start, entered[0]), ("backward", entered[0], time.perf_counter())]

    def step(self, optimizer):
        with self.phase("optimizer"):
            optimizer.step()
        with self.phase("optimizer"):
            optimizer.zero_grad()

    def sgd(self, model=None):
        return torch.optim.SGD((model or self.model).parameters(), lr=1e-3)

    def end(self):
        """Of an iteration of the current thread."""
        self.ends.setdefault(threading.get_native_id(), []).append(time.perf_counter())

    def label(self):
        """An empty one, timed with its probes: so far a clock beside a label is from the label's own."""
        start = time.perf_counter()
        with torch.profiler.record_function("empty"):
            pass
        self.labels.append(time.perf_counter() - start)

    # ---- the loops; each returns how many iterations it made ----

    def accumulate(self):
        optimizer = self.sgd()
        for i, (x, y) in enumerate(self.batches()):
            self.backward(self.forward(x, y) / 4)
            if i % 4 == 3:
                self.step(optimizer)
        return self.args.batches // 4

    def gan(self):
        critic = self.network()
        optimizers = self.sgd(critic), self.sgd()
        for x, y in self.batches():
            for optimizer, model in zip(optimizers, (critic, self.model)):
                self.backward(self.forward(x, y, model))
                self.step(optimizer)
        return self.args.batches

    def no_loader(self):
        optimizer = torch.optim.Adam(self.model.parameters())
        x, y = self.rows[:BATCH]
        for _ in range(self.args.batches):
            self.backward(self.forward(x, y))
            self.step(optimizer)
        return self.args.batches

    def actor_critic(self):
        """Two optimizers of one class in turn, at lines of their own: an iteration is one step."""
        critic = self.network()
        of_critic, of_actor = self.sgd(critic), self.sgd()
        x, y = self.rows[:BATCH]
        for _ in range(self.args.batches):
            self.backward(self.forward(x, y, critic))
            self.step(of_critic)
            self.backward(self.forward(x, y))
            self.step(of_actor)
        return self.args.batches

    def turns(self):
        """First one optimizer for a while, then the other: each of their updates is a step."""
        critic = self.network()
        of_critic, of_actor = self.sgd(critic), self.sgd()
        x, y = self.rows[:BATCH]
        for _ in range(self.args.batches // 40):
            for _ in range(20):
                self.backward(self.forward(x, y, critic))
                self.step(of_critic)
            for _ in range(20):
                self.backward(self.forward(x, y))
                self.step(of_actor)
        return self.args.batches // 40 * 40

    def another_optimizer(self):
        """One trains for a while, and then one of another class."""
        x, y = self.rows[:BATCH]
        for optimizer in torch.optim.Adam(self.model.parameters()), self.sgd():
            for _ in range(self.args.batches // 2):
                self.backward(self.forward(x, y))
                self.step(optimizer)
        return self.args.batches // 2 * 2

    def inside_backward(self):
        """Each parameter's optimizer steps as soon as there is its gradient, as torchtune does it to need less memory."""
        for parameter in self.model.parameters():
            optimizer = torch.optim.SGD([parameter], lr=1e-3)

            def step(parameter, optimizer=optimizer):
                optimizer.step()
                optimizer.zero_grad()

            parameter.register_post_accumulate_grad_hook(step)
        for x, y in self.batches():
            self.backward(self.forward(x, y))
        return self.args.batches

    def one_batch(self):
        """A batch of a DataLoader, and then nothing but that."""
        optimizer = self.sgd()
        x, y = next(iter(DataLoader(self.rows, batch_size=BATCH)))
        for _ in range(200):
            self.backward(self.forward(x, y))
            self.step(optimizer)
        return 200

    def looks(self):
        """Tensors at hand; now and then, one batch of a DataLoader to look at what was learned."""
        optimizer = self.sgd()
        x, y = self.rows[:BATCH]
        for i in range(400):
            self.backward(self.forward(x, y))
            self.step(optimizer)
            if i % 100 == 50:
                self.model(next(iter(DataLoader(self.rows, batch_size=BATCH)))[0])
        return 400

    def validation_alone(self):
        """The only one with a DataLoader: before the first batch, which is made by hand as all are, and now and then."""
        optimizer = self.sgd()
        x, y = self.rows[:BATCH]
        for i in range(self.args.batches):
            if i % 20 == 0:
                self.evaluate(DataLoader(self.rows, batch_size=BATCH))
            self.backward(self.forward(x, y))
            self.step(optimizer)
        return self.args.batches

    def validation(self):
        """With a DataLoader of its own, in the middle of an epoch."""
        optimizer = self.sgd()
        for i, (x, y) in enumerate(self.batches()):
            self.backward(self.forward(x, y))
            self.step(optimizer)
            if i % 20 == 10:
                self.evaluate(DataLoader(self.rows, batch_size=BATCH))
        return self.args.batches

    def validation_first(self):
        """Before the batch at hand is used, at the beginning of each epoch, too."""
        optimizer = self.sgd()
        for _ in range(2):
            for i, (x, y) in enumerate(self.batches()):
                if i % 20 == 0:
                    self.evaluate(DataLoader(self.rows, batch_size=BATCH))
                self.backward(self.forward(x, y))
                self.step(optimizer)
        return 2 * self.args.batches

    def validation_workers(self):
        optimizer = self.sgd()
        loader = DataLoader(self.rows, batch_size=BATCH, num_workers=2, persistent_workers=True)
        for i, (x, y) in enumerate(self.batches()):
            self.backward(self.forward(x, y))
            self.step(optimizer)
            if i % 20 == 10:
                self.evaluate(loader)
        return self.args.batches

    def validation_part(self):
        """It ends before its loader does."""
        optimizer = self.sgd()
        for _ in range(3):
            for i, (x, y) in enumerate(self.batches()):
                self.backward(self.forward(x, y))
                self.step(optimizer)
                if i == 10:
                    break
            self.evaluate(DataLoader(self.rows, batch_size=BATCH), 60)
        return 3 * 11

    def one_loop(self):
        """The same lines train and evaluate."""
        optimizer = self.sgd()
        for train in (True, False, True, False, True):
            batches = self.batches("data" if train else "validation_data")
            start = time.perf_counter()
            for x, y in batches:
                if train:
                    self.backward(self.forward(x, y))
                    self.step(optimizer)
                else:
                    with torch.no_grad():
                        self.model(x)
            if not train:
                self.intervals.append(("validation", start, time.perf_counter()))
        return 3 * self.args.batches

    def zipped(self):
        """Two loaders, of which each step has a batch, and some pairs are skipped."""
        optimizer = self.sgd()
        for i, ((x, y), _) in enumerate(zip(self.batches(), self.batches())):
            if i % 5 == 2:
                continue
            self.backward(self.forward(x, y))
            self.step(optimizer)
        return self.args.batches - self.args.batches // 5

    def two_iterators(self):
        """Likewise, each fetched by a line of its own, and the second begun anew when it is empty."""
        optimizer = self.sgd()
        other = self.batches()
        for i, (x, y) in enumerate(self.batches()):
            if i == self.args.batches // 2:
                other = self.batches()
            next(other)
            self.backward(self.forward(x, y))
            self.step(optimizer)
        return self.args.batches

    def skips(self):
        """Some batches are not used, one is after its forward."""
        optimizer = self.sgd()
        steps = 0
        for i, (x, y) in enumerate(self.batches()):
            if i % 10 in (4, 5, 6):
                continue
            if i % 10 == 8:
                self.model(x)
                continue
            self.backward(self.forward(x, y))
            self.step(optimizer)
            steps += 1
        return steps

    def fetches_ahead(self):
        """All batches of a step are fetched before the first is used, as some trainers do to accumulate gradients."""
        optimizer = self.sgd()
        for _ in range(2):
            batches = self.batches()
            while group := list(itertools.islice(batches, 4)):
                for x, y in group:
                    self.backward(self.forward(x, y) / 4)
                self.step(optimizer)
        return 2 * self.args.batches // 4

    def one_ahead(self):
        """The next batch is fetched before the one at hand is used, as the loaders of accelerate and timm do it."""
        optimizer = self.sgd()
        for _ in range(4):
            batches = self.batches()
            at_hand = next(batches)
            while at_hand:
                x, y = at_hand
                at_hand = next(batches, None)
                self.backward(self.forward(x, y))
                self.step(optimizer)
        return 4 * self.args.batches

    def bursts(self):
        """A thread fetches four batches at a time, and hands them over together."""
        optimizer, batches, room = self.sgd(), queue.Queue(), threading.Semaphore(1)

        def fetch():
            loader = iter(DataLoader(self.rows, batch_size=BATCH))
            while group := list(itertools.islice(loader, 4)):
                room.acquire()
                for batch in group:
                    batches.put(batch)

        threading.Thread(target=fetch, daemon=True).start()
        for i in range(self.args.batches):
            with self.phase("forward"):  # what lies in front of the model counts as that
                x, y = batches.get()
            self.backward(self.forward(x, y))
            self.step(optimizer)
            if i % 4 == 3:
                room.release()
        return self.args.batches

    def lbfgs(self):
        optimizer = torch.optim.LBFGS(self.model.parameters(), max_iter=3, history_size=3)
        for x, y in self.batches():

            def closure():
                with self.phase("optimizer"):
                    optimizer.zero_grad()
                loss = self.forward(x, y)
                self.backward(loss)
                return loss

            with self.phase("closures"):
                optimizer.step(closure)
        return self.args.batches

    def update(self):
        time.sleep(self.args.pause)
        with torch.no_grad():
            for p in self.model.parameters():
                p -= 1e-3 * p.grad
                p.grad = None

    def manual(self):
        """No DataLoader, no optimizer."""
        x, y = self.rows[:BATCH]
        for _ in range(self.args.batches):
            self.backward(self.forward(x, y))
            self.end()
            with self.phase("forward"):  # what lies between two backwards counts as that
                self.update()
        return self.args.batches

    def manual_loader(self):
        """A DataLoader, no optimizer, and two backwards a batch."""
        for x, y in self.batches():
            self.backward(self.forward(x, y))
            self.end()
            self.backward(self.forward(x, y))
            self.update()
        return self.args.batches

    def inference(self):
        with torch.no_grad():
            for x, _ in self.batches():
                with self.phase("forward"):
                    time.sleep(self.args.pause)
                    self.label()  # which no cache holds behind a pause, as little as what follows
                    self.model(x)
                self.end()
        return self.args.batches

    def late_optimizer(self):
        """Twenty backwards before the first optimizer's step is seen."""
        optimizer = self.sgd()
        for i, (x, y) in enumerate(self.batches()):
            self.backward(self.forward(x, y) / 20)
            if i % 20 == 19:
                self.step(optimizer)
                self.end()
        return self.args.batches // 20

    def late_optimizer_no_loader(self):
        optimizer = self.sgd()
        x, y = self.rows[:BATCH]
        for i in range(self.args.batches):
            self.backward(self.forward(x, y) / 20)
            if i % 20 == 19:
                with self.phase("optimizer"):
                    optimizer.step()
                self.end()
                with self.phase("optimizer"):
                    optimizer.zero_grad()
        return self.args.batches // 20

    def infers_then_trains(self):
        self.inference()
        self.ends.clear()
        self.intervals.clear()
        return self.accumulate()

    def infers_long(self):
        """And trains a little behind it."""
        self.inference()
        optimizer = self.sgd()
        for i, (x, y) in enumerate(self.batches()):
            if i == 3:
                break
            self.backward(self.forward(x, y))
            optimizer.step()
        return self.args.batches

    def two_models(self):
        """One after the other: updates by hand, then an optimizer's, of another model."""
        self.manual()
        self.ends.clear()
        self.intervals.clear()
        self.model = self.network()
        return self.no_loader()

    def changing(self):
        """Steps by hand, of 5, 50 and 5 ms."""
        for self.args.pause in (0.005, 0.05, 0.005):
            self.manual()
        return 3 * self.args.batches

    def train_alone(self, with_loader, pause):
        model = self.network()
        optimizer = self.sgd(model)
        batches = self.args.batches
        for x, y in DataLoader(self.rows, batch_size=BATCH) if with_loader else [self.rows[:BATCH]] * batches:
            time.sleep(pause)
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
            self.end()

    def in_threads(self, *threads):
        threads = [threading.Thread(target=self.train_alone, args=args) for args in threads]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.label()
        return self.args.batches

    def threads(self):
        """Two of them, each with a model, an optimizer, and steps of another length."""
        return self.in_threads((False, 0.02), (False, 0.03))

    def threads_loader(self):
        """Likewise, each with a DataLoader of its own."""
        return self.in_threads((True, 0.02), (True, 0.03))

    def save(self):
        """A checkpoint every tenth step; and zero_grad is between forward and backward."""
        torch.save({}, io.BytesIO())  # the first one of a process imports modules, before it opens a file
        optimizer = self.sgd()
        path = self.args.out + ".pt"
        state = {"model": self.model.state_dict(), "more": torch.zeros(1 << 20)}
        for i, (x, y) in enumerate(self.batches()):
            loss = self.forward(x, y)
            with self.phase("optimizer"):
                optimizer.zero_grad()
            self.backward(loss)
            with self.phase("optimizer"):
                optimizer.step()
            if i % 10 == 5:
                with self.phase("checkpoint"):
                    torch.save(state, path)
        os.unlink(path)
        return self.args.batches


def main():
    p = common.parser(__doc__, batches=80, work=256)
    p.add_argument("--pause", type=float, default=0, help="of updates by hand and of inferences, in seconds")
    p.add_argument("loop")
    args = p.parse_args()
    common.prepare(args)
    loop = Loop(args)
    common.wait(args)
    steps = getattr(loop, args.loop)()
    common.write(args, {"steps": steps, "intervals": loop.intervals, "ends": loop.ends, "label": statistics.median(loop.labels)})


if __name__ == "__main__":
    main()
