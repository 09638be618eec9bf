# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Recordings of jobs that use a GPU: a tree of labels, operators, nodes and calls of CUDA on the threads of a process, and
what the GPU did for them, as the records that would have told of it.
"""

from dataclasses import dataclass, field

import recfile as rec

PID = 4242
START = 1_000_000_000
PREFIX = "autograd::engine::evaluate_function: "
NAMES = {
    rec.COPY: {rec.HTOD: "Memcpy HtoD", rec.DTOH: "Memcpy DtoH", rec.DTOD: "Memcpy DtoD"},
    rec.SET: {rec.NO_DIRECTION: "Memset (Device)"},
}
APIS = {rec.KERNEL: "cudaLaunchKernel", rec.COPY: "cudaMemcpyAsync", rec.SET: "cudaMemsetAsync", rec.GPU_SYNC: "cudaStreamSynchronize"}


@dataclass
class Work:
    """On the GPU. name: of a kernel."""

    kind: int
    start: int  # ns
    duration: int
    correlation: int
    name: str = None
    direction: int = rec.NO_DIRECTION
    size: int = 0
    device: int = 0
    context: int = 1
    stream: int = 7
    detail: tuple = (0,) * 8

    @property
    def text(self):
        return self.name or NAMES[self.kind][self.direction]


@dataclass
class Span:
    """On the CPU. kind: of recfile; a call of CUDA: IS_CALL, and `asks` is what it asks the GPU for."""

    kind: object
    name: str
    start: int
    duration: int
    inside: list = field(default_factory=list)
    asks: list = field(default_factory=list)
    correlation: int = 0
    tid: int = PID
    sequence: int = -1
    inherited: str = None  # on a thread of the engine: the action that backward was called in
    shapes: tuple = ()  # of an operator: (dims, ...) of its tensors

    @property
    def text(self):
        """As torch has it."""
        return PREFIX + self.name if self.kind == rec.EVALUATE else self.name.split(".")[0] if self.kind == rec.SPAN_OP else self.name

    @property
    def end(self):
        return self.start + self.duration

    def walk(self, around=()):
        yield self, around
        for span in self.inside:
            yield from span.walk((*around, self))


IS_CALL = "call"


def action_of(around):
    """What rows of operators say: the innermost action, and backward only where there is none."""
    action = around[0].inherited if around else None
    for span in around:
        if span.kind in (rec.ACTION, rec.USER) or (span.kind == rec.BACKWARD and not action):
            action = span.name
    return action


def is_same(outer, inner):
    """Whatever their overloads."""
    return outer.kind == inner.kind and outer.text == inner.text


class Job:
    """roots: spans that lie in no other; pid's."""

    def __init__(self, roots, pid=PID, rank=-1, tier=2):
        self.roots, self.pid, self.rank, self.tier = roots, pid, rank, tier
        self.ids, self.extra, self.groups = {}, [], {}

    def spans(self):
        for root in self.roots:
            yield from root.walk()

    def works(self):
        for span, _ in self.spans():
            yield from span.asks

    def name(self, text):
        return self.ids.setdefault(text, len(self.ids) + 1 + self.pid * 1000) if text else 0

    def group(self, span):
        """An id, that some records say half of; 0: of no shapes."""
        return self.groups.setdefault(span.shapes, (len(self.groups) + 1) * 0x1_0000_0001) if span.shapes else 0

    def op_rows(self):
        rows = {}
        for span, around in self.spans():
            if span.kind not in (rec.LABEL, rec.SPAN_OP, rec.EVALUATE, rec.NODE):
                continue
            if around and is_same(around[-1], span) and sum(s.kind != IS_CALL for s in around[-1].inside) == 1:
                continue  # one with its caller
            inside = span.inside
            while len(ops := [s for s in inside if s.kind != IS_CALL]) == 1 and is_same(span, ops[0]):
                inside = ops[0].inside
            self_ns = span.duration - sum(s.duration for s in inside if s.kind != IS_CALL)
            action = action_of(around) if around else span.inherited
            row = rows.setdefault((span.kind, span.name, action, self.group(span)), [0, 0, 0])
            row[:] = row[0] + 1, row[1] + span.duration, row[2] + self_ns
        return rows

    def calls_and_works(self, paths=True, calls=True):
        records, of_paths = [], {}
        for span, around in self.spans():
            if span.kind != IS_CALL:
                continue
            shown = tuple((s.kind, self.name(s.name), self.group(s)) for s in around if s.kind != IS_CALL)
            if paths and shown not in of_paths:
                of_paths[shown] = len(of_paths) + 1
                records.append(rec.path(of_paths[shown], shown))
            op = next((s for s in reversed(around) if s.kind in (rec.SPAN_OP, rec.EVALUATE, rec.NODE)), None)
            ids = (self.name(op.name) if op else 0, self.name(action_of(around)))
            if calls:
                key = rec.gpu_key(self.pid, span.name, op=ids[0], action=ids[1])
                records.append(rec.gpu_call(key, span.tid, span.start, span.duration, path_id=of_paths.get(shown, 0)))
            values = {"tid": span.tid, "detail": (0, 211, 0, 0, 0, 0, 0, 0)}
            records.append(rec.gpu_activity(self.pid, rec.GPU_API_CALL, span.start, span.duration, self.name(span.name), span.correlation, **values))
            for work in span.asks:
                values = {key: getattr(work, key) for key in ("direction", "size", "device", "context", "stream", "detail")}
                records.append(rec.gpu_activity(self.pid, work.kind, work.start, work.duration, self.name(work.name), work.correlation, **values))
        return records

    def timeline(self):
        rows, records = {}, []
        for span, around in self.spans():
            if span.kind != IS_CALL:
                rows.setdefault(span.tid, []).append(rec.span(span.kind, self.name(span.name), span.start, span.duration, len(around), span.sequence))
        for tid, of in rows.items():
            of.sort(key=lambda row: (row[2] + row[3], -row[4]))
            records += [rec.spans(self.pid, tid, of[i : i + 1000]) for i in range(0, len(of), 1000)]
        return records

    def records(self, ops=True, timeline=False, **options):
        body = self.extra + self.calls_and_works(**options)
        if timeline:
            body += self.timeline()
        if ops:
            for (kind, name, action, group), (calls, total, self_ns) in self.op_rows().items():
                body.append(rec.op(self.pid, kind, self.name(name), calls, total, self_ns, self.name(action), group))
        for shapes, group in self.groups.items():
            words = b"".join(rec.word(rec.WORD_TENSOR, dims) for dims in shapes)
            body.append(rec.op_group(group, words))
        names = [rec.name(ident, text) for text, ident in self.ids.items()]
        return [rec.target(self.pid, rank=self.rank), rec.gpu(self.pid, self.tier), *names, *body]


def write(path, *jobs, window=(1, START + 10**10), **options):
    records = [rec.host(monotonic_ns=0, realtime_ns=1_700_000_000_000_000_000), rec.window(*window, 10, 1)]
    path.write_bytes(rec.recording(records + [record for job in jobs for record in job.records(**options)]))
    return path


# ---- random ones ----

KERNELS = ["ampere_sgemm_128x64_tn", "vectorized_elementwise_kernel", "reduce_kernel", "ncclDevKernel_AllReduce_Sum_f32", "softmax_warp_forward"]


class Maker:
    """A training job at random: every instant of a thread is in one place, and streams are in order."""

    def __init__(self, rng, start=START):
        self.rng, self.now, self.correlation = rng, start, 0
        self.stream_free = {}

    def pass_time(self, most=5000):
        self.now += self.rng.randrange(1, most)

    def call(self, kind, tid):
        rng, begin = self.rng, self.now
        self.correlation += 1
        asks = []
        self.pass_time(8000)
        if kind != rec.GPU_SYNC:
            stream = rng.choice([7, 7, 7, 20])
            at = max(self.stream_free.get(stream, 0), begin + rng.randrange(500, 20000))
            work = Work(kind, at, rng.randrange(1000, 60000), self.correlation, stream=stream)
            if kind == rec.KERNEL:
                work.name = rng.choice(KERNELS)
                work.detail = (rng.randrange(1, 2000), 1, 1, 256, 1, 1, rng.randrange(16, 256), 0)
                work.size = rng.choice([0, 49152])
            else:
                work.size = rng.randrange(1, 1 << 24)
                work.direction = rng.choice([rec.HTOD, rec.DTOH, rec.DTOD]) if kind == rec.COPY else rec.NO_DIRECTION
            self.stream_free[stream] = at + work.duration
            asks = [work]
        else:
            self.now = max([self.now, *self.stream_free.values()]) + 100
        return Span(IS_CALL, APIS[kind], begin, self.now - begin, [], asks, self.correlation, tid)

    def span(self, kind, name, tid, inside, sequence=-1):
        """inside: functions that make spans."""
        begin, spans = self.now, []
        self.pass_time()
        for make in inside:
            spans.append(make())
            self.pass_time()
        return Span(kind, name, begin, self.now - begin, spans, tid=tid, sequence=sequence)

    def op(self, tid, depth=0):
        rng = self.rng
        name = rng.choice(["aten::linear", "aten::addmm", "aten::copy_", "aten::sum", "aten::relu"]) + str(depth)
        again = rng.random() < 0.1  # redispatched to an operator of its own name
        inside = [lambda: self.call(rng.choice([rec.KERNEL] * 5 + [rec.COPY, rec.SET]), tid) for _ in range(rng.choice([0, 1, 1, 2]))]
        if depth < 3:
            inside += [lambda: self.op(tid, depth + 1) for _ in range(rng.choice([0, 1, 2]))]
        rng.shuffle(inside)
        if again:
            inner = name + rng.choice(["", ".out"])
            return self.span(rec.SPAN_OP, name, tid, [lambda: self.span(rec.SPAN_OP, inner, tid, inside)])
        return self.span(rec.SPAN_OP, name, tid, inside)

    def node(self, tid):
        name = self.rng.choice(["AddmmBackward0", "ReluBackward0"])
        return self.span(rec.EVALUATE, name, tid, [lambda: self.span(rec.NODE, name, tid, [lambda: self.op(tid)])])

    def step(self, tid=PID):
        ops = lambda: [lambda: self.op(tid) for _ in range(self.rng.randrange(1, 5))]  # noqa: E731
        out = [self.span(rec.ACTION, "training_step", tid, ops())]
        self.pass_time()
        backward = lambda: self.span(rec.BACKWARD, "backward", tid, [lambda: self.node(tid) for _ in range(3)])  # noqa: E731
        out.append(self.span(rec.ACTION, "[Strategy].backward", tid, [backward]) if self.rng.random() < 0.5 else backward())
        for _ in range(2):  # as the engine does for a GPU, on a thread of its own
            self.pass_time()
            out.append(self.node(tid + 1))
            out[-1].inherited = "backward"
        self.pass_time()
        out.append(self.span(rec.LABEL, "Optimizer.step#AdamW.step", tid, ops() + [lambda: self.call(rec.KERNEL, tid)]))
        self.pass_time()
        out.append(self.call(rec.GPU_SYNC, tid))
        self.pass_time()
        return out


def random_job(rng, steps=3, **options):
    maker = Maker(rng)
    return Job([span for _ in range(steps) for span in maker.step()], **options)
