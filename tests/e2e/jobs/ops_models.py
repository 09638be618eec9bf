# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The models of ops.py: a function of its arguments that makes one and returns its training step.

A step does the same each time, so that N steps have N times the operators of one.
"""

import os
import threading

import torch
from torch import nn
from torch.nn import functional as F

MODELS = {}


def model(function):
    MODELS[function.__name__] = function
    return function


def training_step(net, loss, optimizer, clip=None):
    def step():
        optimizer.zero_grad()
        loss().backward()
        if clip:
            nn.utils.clip_grad_norm_(net.parameters(), clip)
        optimizer.step()

    return step


def sgd(net):
    return torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)


def perceptron(width):
    return nn.Sequential(nn.Linear(32, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))


@model
def mlp(args):
    net, x, y = perceptron(args.work), torch.randn(64, 32), torch.randint(0, 10, (64,))
    return training_step(net, lambda: F.cross_entropy(net(x), y), torch.optim.SGD(net.parameters(), lr=1e-3))


@model
def conv(args):
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, groups=2),
        nn.BatchNorm2d(16),
        nn.MaxPool2d(2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 10),
    )
    x, y = torch.randn(args.work // 8, 3, 32, 32), torch.randint(0, 10, (args.work // 8,))
    return training_step(net, lambda: F.cross_entropy(net(x), y), sgd(net))


@model
def transformer(args):
    """Lists of tensors too: the optimizer's foreach operators, and the norms."""
    layer = nn.TransformerEncoderLayer(args.work, 4, 2 * args.work, batch_first=True)
    net = nn.Sequential(nn.TransformerEncoder(layer, 2), nn.Linear(args.work, 10))
    x, y = torch.randn(8, 16, args.work), torch.randint(0, 10, (8, 16))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, foreach=True)
    return training_step(net, lambda: F.cross_entropy(net(x).transpose(1, 2), y), optimizer, clip=0.5)


@model
def lstm(args):
    net = nn.LSTM(16, args.work, num_layers=2, batch_first=True, bidirectional=True)
    x = torch.randn(4, 12, 16)
    return training_step(net, lambda: net(x)[0].square().mean(), torch.optim.RMSprop(net.parameters()))


@model
def embedding(args):
    net = nn.Embedding(1000, 16, sparse=True)
    x = torch.randint(0, 1000, (8, 20))
    return training_step(net, lambda: net(x).sum(1).square().mean(), torch.optim.SparseAdam(net.parameters()))


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 3 * x.pow(2) * grad


@model
def function(args):
    net, x = nn.Linear(32, 8), torch.randn(16, 32)
    return training_step(net, lambda: Cube.apply(net(x)).mean(), sgd(net))


@model
def custom_op(args):
    """An operator of the job's own, and operators called by their name, through the boxed dispatcher."""

    @torch.library.custom_op("stepflame_job::scaled", mutates_args=())
    def scaled(x: torch.Tensor, by: float) -> torch.Tensor:
        return x * by

    scaled.register_autograd(
        lambda ctx, grad: (grad * ctx.by, None),
        setup_context=lambda ctx, inputs, output: setattr(ctx, "by", inputs[1]),
    )
    net, x = nn.Linear(32, 8), torch.randn(16, 32)

    def loss():
        y = scaled(net(x), 0.5)
        y = torch.ops.aten.add.Tensor(y, y, alpha=2)
        return torch.ops.aten.mm.default(y, y.t()).mean()

    return training_step(net, loss, sgd(net))


@model
def library(args):
    """An operator of the job's own, as torch.library makes them since 1.13, and one called by its name."""
    own = torch.library.Library("stepflame_library", "DEF")
    own.define("scaled(Tensor x, float by) -> Tensor")
    own.impl("scaled", lambda x, by: x * by, "CompositeImplicitAutograd")
    net, x = nn.Linear(32, 8), torch.randn(16, 32)

    def loss(keep=own):
        y = torch.ops.stepflame_library.scaled(net(x), 0.5)
        return torch.ops.aten.add(y, y, alpha=2).mean()

    return training_step(net, loss, sgd(net))


@model
def autocast(args):
    net, x, y = perceptron(64), torch.randn(64, 32), torch.randint(0, 10, (64,))

    def loss():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return F.cross_entropy(net(x), y)

    return training_step(net, loss, sgd(net))


def compiled(backend):
    net, x, y = perceptron(64), torch.randn(64, 32), torch.randint(0, 10, (64,))
    fast = torch.compile(net, backend=backend)
    return training_step(net, lambda: F.cross_entropy(fast(x), y), sgd(net))


@model
def compiled_aot(args):
    return compiled("aot_eager")


@model
def compiled_inductor(args):
    return compiled("inductor")


@model
def checkpoint(args):
    from torch.utils.checkpoint import checkpoint as again

    inner, outer = perceptron(32), nn.Linear(10, 1)
    net, x = nn.ModuleList([inner, outer]), torch.randn(16, 32)

    def loss():
        kept = again(inner, x, use_reentrant=False)
        # the old way, which runs the engine inside of the engine
        return outer(again(inner, x.clone().requires_grad_(), use_reentrant=True) + kept).mean()

    return training_step(net, loss, sgd(net))


@model
def threads(args):
    """Two threads in inference at once, and no optimizer."""
    net, x = perceptron(64).eval(), torch.randn(64, 32)

    def infer():
        with torch.inference_mode():
            for _ in range(5):
                net(x).softmax(-1)

    def step():
        both = [threading.Thread(target=infer) for _ in range(2)]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join()

    return step


@model
def trainers(args):
    """Two threads that train at once, each with sequence numbers of its own, new threads in each step."""
    nets = [perceptron(64), nn.Sequential(nn.Linear(32, 8), nn.Tanh())]
    x = torch.randn(64, 32)
    steps = [training_step(net, lambda net=net: net(x).square().mean(), sgd(net)) for net in nets]

    def step():
        both = [threading.Thread(target=one) for one in steps]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join()

    return step


@model
def scripted(args):
    """TorchScript's interpreter calls operators by their boxed kernels."""
    net, x = torch.jit.script(perceptron(64)), torch.randn(64, 32)
    return training_step(net, lambda: net(x).square().mean(), sgd(net))


@model
def labels(args):
    """Labels around operators; one that has its only child's name is one with it, operator or label."""
    x = torch.randn(8, 8)

    def step():
        with torch.profiler.record_function("aten::relu"):
            x.relu()
        with torch.profiler.record_function("twice"), torch.profiler.record_function("twice"):
            x.sin()
        with torch.profiler.record_function("twice"):
            with torch.profiler.record_function("twice"):
                x.sin()
            x.cos()

    return step


@model
def unobserved(args):
    """Operators that torch's dispatcher hides from every profiler, and one that it does not."""
    x = torch.randn(8, 8)
    hidden = torch.ops.aten

    def step():
        hidden.size.int(x, 0), hidden.is_leaf(x), hidden.output_nr(x), hidden._version(x), hidden.is_complex(x)
        hidden.stride.int(x, 0)

    return step


class Fails(torch.autograd.Function):
    """Raises in one direction or the other, after an operator of its own."""

    @staticmethod
    def forward(ctx, x, where):
        ctx.where = where
        y = x * 2
        if where == "forward":
            raise ValueError(where)
        return y

    @staticmethod
    def backward(ctx, grad):
        return grad.mm(grad) if ctx.where == "op" else fail(grad.neg())


def fail(_):
    raise ValueError("hook")


def expect(exceptions, call, *args):
    try:
        call(*args)
    except exceptions:
        return
    raise SystemExit("%s%s did not raise" % (call, args))


def throw_all(x, raises_in_hook):
    """Each way for an exception to leave an operator; RuntimeErrors are C++ exceptions all through."""
    error = (RuntimeError, ValueError)
    expect(error, torch.mm, x, x)
    expect(error, F.linear, x, x.t())
    expect(error, F.conv2d, x, x)
    expect(error, torch.cat, [x, x.t()])
    expect(error, x.view, 7, 7)
    expect(error, Fails.apply, x, "forward")
    expect(error, Fails.apply(x, "backward").sum().backward)
    expect(error, Fails.apply(x, "op").sum().backward)
    expect(error, (raises_in_hook * 2).sum().backward)


def known_sequence(x):
    """What follows the exceptions: were a span left open, these would count into it."""
    for _ in range(10):
        torch.addmm(x, x.mm(x.t()), x).relu().sum()


@model
def storm(args):
    """Exceptions through operators, autograd nodes and hooks, 25 times each a step."""
    x = torch.randn(4, 8, requires_grad=True)
    raises_in_hook = (x * 1).detach().requires_grad_()
    raises_in_hook.register_hook(fail)

    def step():
        for _ in range(25):
            throw_all(x, raises_in_hook)
        with torch.no_grad():
            known_sequence(x)

    return step


class Forks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x * 2
        pid = os.fork()
        if pid == 0:
            # an operator that nobody else calls: whose it is can be told
            y.erfinv()
            os._exit(0)
        os.waitpid(pid, 0)
        return y.sin()

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


def forks_in_operator():
    """An operator whose kernel forks: the child is born inside of a span."""
    library = torch.library.Library("stepflame_forks", "DEF")
    library.define("forks(Tensor x) -> Tensor")
    library.impl("forks", lambda x: Forks.apply(x), "CompositeImplicitAutograd")
    return library


@model
def forking(args):
    library = forks_in_operator()
    x = torch.randn(4, 8)

    def step(keep=library):
        Forks.apply(x).cos()
        torch.ops.stepflame_forks.forks(x).cos()

    return step


odd_names = []  # those of odd_tensors() that this torch can do


def odd_tensors():
    """{name: call} of operators on tensors that are more than sizes and strides."""
    dense = torch.randn(4, 6)
    sparse = dense.relu().to_sparse()
    rows = dense.relu().to_sparse_csr()
    meta = torch.empty(3, 5, device="meta")
    strided, scalar, empty = dense.t()[::2, 1:], torch.tensor(2.0), torch.empty(0, 4)
    weight = torch.randn(2, 3, 3, 3)
    image = torch.randn(1, 3, 8, 8)
    quantized = torch.quantize_per_tensor(dense, 0.1, 0, torch.qint8)
    deep = torch.randn(1, 2, 1, 2, 1, 2, 1, 2, 1, 2)  # more sizes than are kept inline in a TensorImpl
    complex_ = torch.randn(3, 3, dtype=torch.complex64)
    half = dense.to(torch.float16)
    conjugate = complex_.conj()
    deep_rows = torch.randn(3, 4, 5)
    return {
        "sparse": lambda: (sparse + sparse, torch.sparse.mm(sparse, dense.t()), sparse.coalesce()),
        "csr": lambda: rows.mm(dense.t()),
        "meta": lambda: meta.mm(meta.t()).relu(),
        "undefined": lambda: F.conv2d(image, weight, None),
        "optional": lambda: F.batch_norm(image, None, None, training=True),
        "strided": lambda: (strided + 1, strided.contiguous(), scalar * dense, empty.sum(0)),
        "quantized": lambda: quantized.dequantize(),
        "deep": lambda: deep.neg(),
        "complex": lambda: (complex_.mm(conjugate), torch.view_as_real(complex_)),
        "half": lambda: half.add(1),
        "indices": lambda: (dense[torch.tensor([1, 2])], dense[:, torch.tensor([0])], torch.cat([dense, dense.neg()])),
        "index_none": lambda: torch.ops.aten.index.Tensor(deep_rows, [None, torch.tensor([1])]),
        "einsum": lambda: torch.einsum("ij,kj->ik", dense, dense),
    }


@model
def odd(args):
    calls = odd_tensors()
    if hasattr(torch, "nested"):
        ragged = torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(4, 3)])
        calls["nested"] = lambda: ragged.neg()
    usable = []
    for name, call in calls.items():
        try:
            call()
        except (RuntimeError, TypeError):
            continue
        usable.append(call)
        odd_names.append(name)

    def step():
        for call in usable:
            call()

    return step
