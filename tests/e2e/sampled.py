# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Recordings of samples, and what cProfile would have said of them, computed by the rules of docs/advanced-report.md and
not by stepflame.
"""

import random
import re
from dataclasses import dataclass, field

import recfile as rec

PID = 4242
START = 1_000_000_000
PERIOD = 10_101_010
LOADER = "/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py"
NATIVES = [None, "at::_ops::mm::call (libtorch_cpu.so)", "memcpy (libc.so.6)", "_PyEval_EvalFrameDefault (python3.11)"]
NATIVES += ["dict_get (libpython3.12.so.1.0)", "scan (python_lexer.cpython-311-x86_64-linux-gnu.so)"]
VAGUE = ("lock", "sleep", "pipe", "socket", "poll", "unknown")


@dataclass(frozen=True)
class Function:
    file: str
    line: int
    qualname: str

    @property
    def key(self):
        """As cProfile has it."""
        return self.file, self.line, self.qualname.rpartition(".")[2] or self.qualname


def builtin(text):
    return "~", 0, f"<{text}>"


def is_interpreter(native):
    """The program, or its library; not a module of C."""
    return re.search(r" \((python[0-9.]*[a-z]?|libpython[^/]*)\)$", native) is not None


@dataclass
class Sample:
    tid: int
    weight: int
    frames: list  # of (Function, offset), the innermost first
    spans: list  # of (kind, name), the outermost first
    cause: str = None  # of a wait
    native: str = None
    kernel: str = None
    waits: int = 1
    syscall: int = -1
    pid: int = PID

    @property
    def refined(self):
        if self.cause not in VAGUE:
            return self.cause
        for kind, _ in reversed(self.spans):
            if kind in (rec.COMM, rec.SYNC):
                return "collective" if kind == rec.COMM else "gpu_sync"
        loader = any(f.file.endswith("torch/utils/data/dataloader.py") and f.key[2] in ("_get_data", "_try_get_data") for f, _ in self.frames)
        return "data_wait" if loader else self.cause

    def native_apart(self, native):
        """The native function, unless it is part of the Python function."""
        return None if not native and self.native and self.frames and is_interpreter(self.native) else self.native

    def chain(self, leaf=False, native=False, inside=None):
        """Keys, callers first; of the frames those that are inside, the innermost ones."""
        keys = [function.key for function, _ in reversed(self.frames[:inside])]
        keys = keys or [builtin("directly in the action" if self.frames else "no Python frames")]
        if leaf or native:
            keys += [builtin(text) for text in (self.native_apart(native), self.kernel) if text]
        return keys + ([builtin(f"waiting: {self.refined}")] if self.cause else [])


@dataclass
class Job:
    targets: list = field(default_factory=lambda: [rec.target(PID)])
    samples: list = field(default_factory=list)
    calls: list = field(default_factory=list)  # (Function, spans, calls, primitive calls, self ns, total ns)
    rows: list = field(default_factory=list)  # of the aggregates: (kind, name), in order of first occurrence
    arounds: list = field(default_factory=list)  # (kind, name, frames, nested): as such a span ended

    def inside(self, sample, action):
        """How many of a sample's frames are the action's; None: that is not known."""
        most = 0
        for kind, name, frames, nested in self.arounds:
            if (kind, name) != action or nested:
                continue
            shared = 0
            for (function, at), (other, other_at) in zip(reversed(sample.frames), reversed(frames)):
                if function != other:
                    break
                shared += 1
                if at != other_at:
                    break
            most = max(most, shared)
        return len(sample.frames) - most if most or not sample.frames else None

    def write(self, path):
        records = [rec.host(), *self.targets, rec.window(START, START + 10**10, 10, 1)]

        intern = rec.interned(records)

        def name(text):
            return intern("name", text, rec.name)

        def code(function):
            lines = [(0, function.line), (10, function.line + 1), (30, 0), (40, function.line + 7)]
            return intern("code", function, lambda ident, f: rec.code(ident, name(f.file), name(f.qualname), f.line, lines))

        def stack(frames):
            return intern("stack", tuple(frames), lambda ident, _: rec.stack(ident, [(code(f), offset) for f, offset in frames]))

        def path_of(spans):
            return intern("path", tuple(spans), lambda ident, _: rec.path(ident, [(kind, name(text)) for kind, text in spans]))

        for i, (kind, text) in enumerate(self.rows):
            ident = name(text)
            records.append(rec.agg(PID, kind, ident, 3, 10**6, first_ns=START + i))
        for i, s in enumerate(self.samples):
            ids_of = {"stack_id": stack(s.frames), "path_id": path_of(s.spans), "native": name(s.native), "kernel": name(s.kernel)}
            records.append(
                rec.sample(
                    s.pid, s.tid, rec.WAIT if s.cause else rec.CPU, START + i * 10**6, s.weight, cause=s.cause, waits=s.waits, syscall=s.syscall, **ids_of
                )
            )
        for kind, text, frames, nested in self.arounds:
            records.append(rec.around(kind, name(text), stack(frames), nested))
        for function, spans, *numbers in self.calls:
            ids_of = code(function), path_of(spans)
            records.append(rec.calls(PID, *ids_of, *numbers))
        path.write_bytes(rec.recording(records))
        return path


def random_name(rng):
    kind = rng.random()
    if kind < 0.1:
        return rng.choice(["outer.<locals>.<lambda>", "<module>", "<listcomp>", "C.f.<locals>.<genexpr>"])
    if kind < 0.2:
        return "".join(rng.choice("äé訓練🔥_x") for _ in range(rng.randrange(1, 20)))
    return rng.choice(["", "Net.", "A.B."]) + rng.choice(["forward", "step", "f", "__call__"]) + str(rng.randrange(30))


def random_job(seed, samples=400):
    rng = random.Random(seed)
    files = ["/a/train.py", "/a/b/train.py", "/a/__init__.py", "/b/__init__.py", "relative.py", LOADER, "<frozen importlib._bootstrap>"]
    functions = [Function(rng.choice(files), rng.choice([1, rng.randrange(1, 2000)]), random_name(rng)) for _ in range(30)]
    functions += [Function(LOADER, 100, "_MultiProcessingDataLoaderIter._try_get_data"), Function(LOADER, 90, "_get_data")]
    functions = list({f.key: f for f in functions}.values())
    stacks = [[(f, rng.randrange(50)) for f in rng.choices(functions, k=rng.randrange(0, 12))] for _ in range(60)]
    kinds = [rec.ACTION] * 5 + [rec.LABEL, rec.USER, rec.COMM, rec.SYNC, rec.SPAN_OP, rec.GC]
    spans = [(rng.choice(kinds), f"action {i}") for i in range(12)] + [(rec.LABEL, "Optimizer.step#SGD.step")]
    paths = [rng.choices(spans, k=rng.randrange(0, 5)) for _ in range(30)]
    job = Job(rows=list(dict.fromkeys(rng.choices(spans, k=5))))
    job.rows = [row for row in job.rows if row[0] != rec.SPAN_OP]
    for _ in range(samples):
        job.samples.append(
            Sample(
                rng.choice([PID, PID + 1, PID + 2]),
                PERIOD,
                rng.choice(stacks),
                rng.choice(paths),
                native=rng.choice(NATIVES),
                kernel=rng.choice([None, None, "copy_page"]),
                syscall=rng.choice([-1, 0, 202]),
            )
        )
        if rng.random() < 0.4:
            job.samples[-1].cause = rng.choice(rec.CAUSES[1:])
            job.samples[-1].weight = rng.randrange(10**9)
            job.samples[-1].waits = rng.choice([1, 1, 7])
    job.arounds = random_arounds(rng, job, stacks)
    return job


def random_arounds(rng, job, stacks):
    """Ends of spans: beside the samples in them, at other places, and within themselves; of some spans none."""
    arounds = []
    for kind, name in dict.fromkeys(span for s in job.samples for span in s.spans):
        samples = [s for s in job.samples if (kind, name) in s.spans and s.frames]
        for _ in range(rng.randrange(4) if samples else 0):
            frames = rng.choice(samples).frames
            frames = frames[rng.randrange(len(frames)) :]
            ends = [(frames[0][0], frames[0][1] + rng.choice([0, 1])), *frames[1:]]
            arounds.append((kind, name, rng.choice([[], rng.choice(stacks)[:2]]) + ends, rng.choice([0, 0, 0, 1])))
        if rng.random() < 0.5:
            arounds.append((kind, name, rng.choice(stacks), 0))
    return arounds


def random_calls(seed):
    rng = random.Random(seed)
    job = random_job(seed, 50)
    functions = list({f: 0 for s in job.samples for f, _ in s.frames})
    paths = {tuple(s.spans): 0 for s in job.samples}
    for spans in paths:
        for function in rng.sample(functions, rng.randrange(1, len(functions))):
            calls = rng.randrange(1, 10 ** rng.randrange(1, 7))
            primitive = calls if rng.random() < 0.7 else rng.randrange(0, calls + 1)
            total = rng.randrange(10 ** rng.randrange(3, 12))
            job.calls.append((function, spans, calls, primitive, rng.randrange(total + 1), total))
    return job


class Stats:
    """What pstats.Stats takes: cProfile.Profile's interface."""

    def __init__(self, stats):
        self.stats = stats

    def create_stats(self):
        pass


def stats_of_samples(job, choose=lambda sample: True, leaf=False, cpu=False, counts=False, native=False, action=None):
    """
    {key: (0, 0, own time, time, {})} of the chosen ones, in the order in which functions first occur in all; counts:
    samples for calls, and callers. action: what is around it is not in it.
    """
    stats = {}
    samples = [s for s in job.samples if not (cpu and s.cause)]
    for sample in samples:
        for key in sample.chain(leaf, native):
            stats.setdefault(key, [0, 0, 0, {}])
    for sample in filter(choose, samples):
        chain = sample.chain(leaf, native, job.inside(sample, action))
        rows = [stats.setdefault(key, [0, 0, 0, {}]) for key in chain]
        for key in dict.fromkeys(chain):
            stats[key][0] += 1
            stats[key][2] += sample.weight
        rows[-1][1] += sample.weight
        for caller, key in dict.fromkeys(zip(chain, chain[1:])):
            edge = stats[key][3].setdefault(caller, [0, 0, 0])
            edge[0] += 1
            edge[2] += sample.weight
        if len(chain) > 1:
            stats[chain[-1]][3][chain[-2]][1] += sample.weight
    out = {}
    for key, (cnt, own, total, callers) in stats.items():
        if cnt:
            edges = {caller: (n, n, tt / 1e9, ct / 1e9) for caller, (n, tt, ct) in callers.items()}
            n = cnt if counts else 0
            out[key] = (n, n, own / 1e9, total / 1e9, edges if counts else {})
    return out


def stats_of_calls(job, choose=lambda spans: True):
    order = {}
    for sample in job.samples:
        for key in sample.chain():
            order.setdefault(key, len(order))
    stats = {}
    for function, spans, calls, primitive, own, total in job.calls:
        order.setdefault(function.key, len(order))
        if choose(spans):
            row = stats.setdefault(function.key, [0, 0, 0, 0])
            for i, value in enumerate((primitive, calls, own, total)):
                row[i] += value
    return {key: (stats[key][0], stats[key][1], stats[key][2] / 1e9, stats[key][3] / 1e9, {}) for key in sorted(stats, key=order.get)}
