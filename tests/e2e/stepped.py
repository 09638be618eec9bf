# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Recordings of training steps with samples, and what each step's flame is by the rules of docs/flame.md, computed here and not by stepflame."""

import random
from collections import Counter
from dataclasses import dataclass, field

import recfile as rec
import sampled

PID = 4242
START = 1_000_000_000
PERIOD = 10_101_010
PHASES = ["other", "data", "forward", "backward", "optimizer", "comm", "checkpoint", "validation"]
SPANS = {
    "other": (),
    "data": ((rec.LABEL, "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"),),
    "forward": ((rec.FORWARD, "forward"),),
    "backward": ((rec.BACKWARD, "backward"),),
    "optimizer": ((rec.LABEL, "Optimizer.step#AdamW.step"),),
}
SYNCS = ("cudaStreamSynchronize", "cudaDeviceSynchronize")
SYSCALLS = {0: "read", 202: "futex"}
TRAIN = [("/home/me/train.py", "<module>", 210), ("/home/me/train.py", "main", 180), ("/home/me/train.py", "fit", 96)]
TORCH = "/venv/lib/python3.11/site-packages/torch/"


@dataclass(frozen=True)
class Spot:
    """Where a thread is. frames: (file, name, line) from the outermost."""

    phase: str
    frames: tuple
    ops: tuple = ()
    native: str = None
    kernel: str = None
    syscall: int = -1
    cause: str = None

    @property
    def stack(self):
        return self.stack_with(self.native if not self.frames or not sampled.is_interpreter(self.native or "") else None)

    def stack_with(self, native):
        """(text, file, line) as the flame has it, from the phase on."""
        out = [(self.phase, "", 0)]
        out += [(name, file, line) for file, name, line in self.frames] or [("{no Python frames}", "", 0)]
        out += [(op, "", 0) for op in self.ops]
        out += [(native, "", 0)] if native else []
        out += [(f"syscall {SYSCALLS[self.syscall]}", "", 0)] if self.syscall >= 0 else []
        out += [(f"{self.kernel} (kernel)", "", 0)] if self.kernel else []
        return tuple(out + ([(f"{{waiting: {self.cause}}}", "", 0)] if self.cause else []))


def spot(phase, frames, **leaf):
    return Spot(phase, tuple(TRAIN + frames), **leaf)


def module_frames(*names):
    return [frame for line, name in enumerate(names) for frame in ((TORCH + "nn/modules/module.py", "Module._call_impl", 1751), ("/home/me/model.py", name, 40 + 7 * line))]


LOADER = [(TORCH + "utils/data/dataloader.py", name, line) for name, line in (("_BaseDataLoaderIter.__next__", 734), ("_next_data", 1492), ("_get_data", 1444))]
WAIT_DATA = spot("data", LOADER, native="poll (libc.so.6)", syscall=202, kernel="futex_wait_queue", cause="data_wait")
FETCH = (("/usr/lib/python3.11/multiprocessing/spawn.py", "_main", 120), (TORCH + "utils/data/_utils/worker.py", "_worker_loop", 349), (TORCH + "utils/data/_utils/fetch.py", "_MapDatasetFetcher.fetch", 52))
WORKER_CPU = Spot("other", (*FETCH, ("/home/me/data.py", "Shapes.__getitem__", 31), ("/home/me/data.py", "decode", 77)), native="jpeg_idct_islow (libjpeg.so.62)")
WORKER_WAIT = Spot("other", (*FETCH[:2], ("/usr/lib/python3.11/multiprocessing/queues.py", "Queue.get", 113)), native="read (libc.so.6)", syscall=0, kernel="pipe_read", cause="pipe")
SLOW_READ = Spot("other", (*FETCH, ("/home/me/data.py", "Shapes.__getitem__", 29), ("/home/me/data.py", "load", 12)), native="read (libc.so.6)", syscall=0, kernel="filemap_read", cause="disk_read")


def random_spots(rng, count):
    """What the main thread does on the CPU, some of it more often than the rest."""
    layers = ["Net.forward", "Encoder.forward", "Block.forward", "Attention.forward", "MLP.forward", "Norm.forward"]
    ops = ["aten::linear", "aten::addmm", "aten::native_layer_norm", "aten::gelu", "aten::softmax", "aten::bmm", "aten::copy_"]
    natives = ["mkl_blas_avx512_sgemm_kernel (libtorch_cpu.so)", "at::native::vec_log_softmax (libtorch_cpu.so)", "_PyEval_EvalFrameDefault (python3.11)", "memcpy (libc.so.6)", None]
    out = [spot("other", [("/home/me/train.py", "log_metrics", 131)], native="_PyEval_EvalFrameDefault (python3.11)")]
    while len(out) < count:
        phase = rng.choice(["forward"] * 4 + ["backward"] * 3 + ["optimizer"] * 2 + ["data"])
        if phase == "forward":
            frames = module_frames("Net.forward", *rng.choices(layers, k=rng.randrange(1, 7)))
        elif phase == "backward":
            frames = [(TORCH + "_tensor.py", "Tensor.backward", 648), (TORCH + "autograd/graph.py", "_engine_run_backward", 829)]
        elif phase == "optimizer":
            frames = [(TORCH + "optim/optimizer.py", "profile_hook_step.<locals>.wrapper", 493), (TORCH + "optim/adam.py", "Adam.step", rng.randrange(200, 260)), (TORCH + "optim/adam.py", "_single_tensor_adam", rng.randrange(330, 460))]
        else:
            frames = [*LOADER[:2], (TORCH + "utils/data/_utils/collate.py", "default_collate", rng.randrange(100, 160))]
        spot_ops = tuple(rng.sample(ops, rng.randrange(0, 3)))
        if phase == "backward":
            spot_ops = (rng.choice(["AddmmBackward0", "NativeLayerNormBackward0", "GeluBackward0"]), *spot_ops)
        kernel = rng.choice([None] * 5 + ["clear_page_erms", "asm_exc_page_fault"])
        out.append(spot(phase, frames + [("/home/me/model.py", f"helper_{rng.randrange(max(4, count // 8))}", rng.randrange(1, 400))] * rng.randrange(2), ops=spot_ops, native=rng.choice(natives), kernel=kernel))
    return out


@dataclass
class Row:
    tid: int
    time: int  # ns from START
    weight: int
    spot: Spot
    pid: int = PID
    waits: int = 1
    waker: tuple = (0, 0)  # pid, tid

    @property
    def stack(self):
        pid, tid = self.waker
        by = f"thread {tid}" if pid == self.pid else f"pid {pid} (worker)"
        return (*self.spot.stack, (f"ended by {by}", "", 0)) if pid else self.spot.stack

    @property
    def span(self):
        return self.weight // 1000 if self.spot.cause and self.waits <= 1 else 0


@dataclass
class Job:
    steps: list = field(default_factory=list)  # (start, end, {phase: ns}) in ns from START
    rows: list = field(default_factory=list)
    targets: list = field(default_factory=lambda: [rec.target(PID, torch="2.15.0+cpu")])
    extra: list = field(default_factory=list)  # records
    host: str = "host"

    @property
    def end(self):
        return max([end for _, end, _ in self.steps] + [row.time for row in self.rows])

    def write(self, path):
        records = [rec.host(hostname=self.host), *self.targets, rec.window(START, START + self.end, len(self.steps), 1 if self.steps else 0)]

        intern = rec.interned(records)

        def name(text):
            return intern("name", text, rec.name)

        def code(frame):
            return intern("code", frame, lambda ident, f: rec.code(ident, name(f[0]), name(f[1]), 1, [(0, f[2])]))

        def fields(at):
            codes = [(code(frame), 0) for frame in reversed(at.frames)]
            spans = [(kind, name(text)) for kind, text in (*SPANS[at.phase], *((rec.SYNC if op in SYNCS else rec.SPAN_OP, op) for op in at.ops))]
            return {
                "stack_id": intern("stack", at.frames, lambda ident, _: rec.stack(ident, codes)),
                "path_id": intern("path", tuple(spans), lambda ident, _: rec.path(ident, spans)),
                "native": name(at.native),
                "kernel": name(at.kernel),
                "syscall": at.syscall,
                "cause": "poll" if at.cause in ("data_wait", "gpu_sync") else at.cause,
            }

        known = {}
        if self.steps:
            records.append(rec.boundary(PID, PID, 0, START + self.steps[0][0]))
        for i, (_, end, phases) in enumerate(self.steps):
            records.append(rec.boundary(PID, PID, i + 1, START + end, [phases.get(p, 0) for p in PHASES]))
        for row in self.rows:
            if row.spot not in known:
                known[row.spot] = fields(row.spot)
            kind = rec.WAIT if row.spot.cause else rec.CPU
            records.append(rec.sample(row.pid, row.tid, kind, START + row.time, row.weight, waits=row.waits, waker=row.waker, **known[row.spot]))
        records += self.extra
        path.write_bytes(rec.recording(records))
        return path

    def folded(self, steps=None, threads=(PID,)):
        """{stack: ns} of some steps (indexes into self.steps; None: all the time) of some threads."""
        out = Counter()
        for row in self.rows:
            if row.tid not in threads:
                continue
            share = 1 if steps is None else sum(self.overlap(row, i) for i in steps)
            if share:
                out[row.stack] += row.weight * share
        return out

    def overlap(self, row, step):
        """The share of a row that is in a step."""
        start, end = (ns // 1000 for ns in self.steps[step][:2])
        time = row.time // 1000
        if not row.span:
            return 1 if start <= time < end else 0
        first = max(time - row.span, 0)
        return max(0, min(time, end) - max(first, start)) / row.span


def training(steps=200, step_ns=80_000_000, slow=37, spots=60, seed=1, workers=2, other_threads=0, cycle=False):
    """A run of whose steps every 37th waits for data; cycle: so that every spot is met."""
    rng = random.Random(seed)
    job = Job()
    by_phase = {}
    for s in random_spots(rng, spots):
        by_phase.setdefault(s.phase, []).append(s)
    weights = {phase: [1 / (1 + i) ** 0.8 for i in range(len(of))] for phase, of in by_phase.items()}
    now, timer = 3_000_000, PERIOD
    for i in range(steps):
        start = now
        wait = int(rng.uniform(0.5, 1.5) * step_ns * 0.04) + (step_ns * 2 if slow and i % slow == slow - 1 else 0)
        parts = [("data", 0.03), ("forward", 0.34), ("backward", 0.38), ("optimizer", 0.16), ("other", 0.04)]
        job.rows.append(Row(PID, start + wait, wait, WAIT_DATA, waker=(PID + 100 + i % workers,) * 2 if workers else (0, 0)))
        now, phases = start + wait, {"data": wait}
        for phase, share in parts:
            duration = int(step_ns * share * rng.uniform(0.85, 1.2))
            timer = max(timer, now)
            while timer < now + duration:
                of = phase if phase in by_phase else "other"
                choice = by_phase[of][len(job.rows) % len(by_phase[of])] if cycle else rng.choices(by_phase[of], weights[of])[0]
                job.rows.append(Row(PID, timer, PERIOD, choice))
                timer += PERIOD
            phases[phase] = phases.get(phase, 0) + duration
            now += duration
        job.steps.append((start, now, phases))
    for w in range(workers):
        pid = PID + 100 + w
        job.targets.append(rec.target(pid, rec.WORKER, parent=PID))
        at = 0
        while at < now:
            pause = int(rng.uniform(0.5, 3) * step_ns)
            at += pause
            job.rows.append(Row(pid, at, pause, WORKER_WAIT if rng.random() < 0.9 else SLOW_READ, pid=pid))
            for _ in range(rng.randrange(1, 6)):
                at += PERIOD
                job.rows.append(Row(pid, at, PERIOD, WORKER_CPU, pid=pid))
    natives = [s for s in by_phase["backward"]]
    for t in range(other_threads):
        for at in range(t * 1000, now, PERIOD * 18):
            job.rows.append(Row(PID + 1000 + t, at, PERIOD, rng.choice(natives)))
    return job


def in_every_report(other, label="a label", path="/data/shard-0001.tar", action="fit"):
    """A Job with rows in every report, and a second process that has all but steps."""
    ms = 10**6
    job = training(steps=120, slow=11)
    shapes = b"".join(rec.word(rec.WORD_TENSOR, dims) for dims in ((64, 784), ()))
    job.targets.append(rec.target(other, rank=1))
    job.extra = [rec.name(900, label), rec.name(901, path), rec.name(902, "_Z4sgemmPfS_"), rec.name(903, action)]
    for pid in (PID, other):
        job.extra += [
            rec.agg(pid, rec.LABEL, 900, 3, 7 * ms, min_ns=ms, max_ns=5 * ms, first_ns=START + 1),
            rec.agg(pid, rec.ACTION, 902, 1, 123456789),
            rec.agg(pid, rec.ACTION, 903, 1, 987654321),
            rec.op_group(1, shapes),
            rec.op(pid, rec.SPAN_OP, 900, 10, 12345678, 2345678, action=902, group=1),
            rec.op_window(pid, 0, 1, 10, START, START + 10**9),
            rec.syscall(pid, 0, 5, errors=1, total_ns=2500, size=70),
            rec.syscall(pid, 999, 1),
            rec.file(pid, 8 << 20 | 1, 7, 901, reads=4, read_bytes=4096, total_ns=ms),
            rec.gpu(pid, 2, cupti_ns=10**9),
            rec.gpu_activity(pid, rec.KERNEL, START + ms, ms, 902, 1),
            rec.gpu_activity(pid, rec.KERNEL, START + 3 * ms, 2 * ms, 900, 2),
            *(rec.record("RESOURCES", pid=pid, time_ns=START + second * 10**9, known=15, rss_bytes=123456789 << second) for second in range(4)),
            *(rec.record("MACHINE", pid=pid, time_ns=START + second * 10**9, processors=2, busy_ns=second, idle_ns=1) for second in range(4)),
            rec.record("LIMITS", pid=pid, memory_bytes=8 * 10**9, milli_cpus=1500, processors=2),
        ]
    return job
