# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A small MLP in JAX, on the CPU, with no torch: jitted steps, an eager loop's calls around them, and what it counts and clocks of itself.

Its truth: {part: [calls, seconds]}, by perf_counter and by jax.monitoring, and {event: count} of jax.profiler's own trace.
"""

import glob
import gzip
import json
import os
import tempfile
import time

os.environ["JAX_PLATFORMS"] = "cpu"

import common
import jax
import jax.numpy as jnp
import numpy as np

COMPILED = "/jax/core/compile/backend_compile_duration"
SIZES = [32, 64, 64, 4]


class Clock:
    def __init__(self):
        self.parts = {}

    def add(self, part, seconds):
        entry = self.parts.setdefault(part, [0, 0.0])
        entry[0] += 1
        entry[1] += seconds

    def run(self, part, function, *args):
        start = time.perf_counter()
        result = function(*args)
        self.add(part, time.perf_counter() - start)
        return result


def predict(params, x):
    for w, b in params[:-1]:
        x = jnp.tanh(x @ w + b)
    w, b = params[-1]
    return x @ w + b


def loss_of(params, x, y):
    return jnp.mean((predict(params, x) - y) ** 2)


@jax.jit
def train_step(params, x, y):
    loss, gradients = jax.value_and_grad(loss_of)(params, x, y)
    return jax.tree.map(lambda p, g: p - 0.01 * g, params, gradients), loss


@jax.jit
def eval_step(params, x, y):
    return loss_of(params, x, y)


def make_params(rng):
    shapes = zip(SIZES, SIZES[1:])
    return [(jnp.asarray(rng.normal(size=s, scale=0.1), dtype=jnp.float32), jnp.zeros(s[1])) for s in shapes]


def traced(directory):
    """{name: count} of the events of jax.profiler's trace, without those in one of the same name: a call has two."""
    (path,) = glob.glob(directory + "/**/*.trace.json.gz", recursive=True)
    with gzip.open(path) as f:
        events = [e for e in json.load(f)["traceEvents"] if e.get("ph") == "X"]
    counts, ends = {}, {}
    for event in sorted(events, key=lambda e: (e["ts"], -e["dur"])):
        key = (event["tid"], event["name"])
        if event["ts"] >= ends.get(key, 0):
            counts[event["name"]] = counts.get(event["name"], 0) + 1
            ends[key] = event["ts"] + event["dur"]
    return counts


def batch(rng, size):
    return rng.standard_normal((size, SIZES[0]), dtype=np.float32), rng.standard_normal((size, SIZES[-1]), dtype=np.float32)


def train(args, rng, params, clock):
    for n in range(args.batches):
        if args.sleep:
            time.sleep(args.sleep)
        size = args.size + (n // args.recompile if args.recompile else 0)
        x, y = (clock.run("put", jax.device_put, a) for a in batch(rng, size))
        step = jax.profiler.StepTraceAnnotation("train", step_num=n) if args.annotate else None
        if step:
            step.__enter__()
        if args.fail_every and n % args.fail_every == 0:
            try:
                train_step(params, x, y[:-1])
            except TypeError:
                clock.add("failed", 0)
        params, loss = clock.run("train_step", train_step, params, x, y)
        clock.run("wait", loss.block_until_ready)
        if step:
            step.__exit__(None, None, None)
        if n % 5 == 0:
            clock.run("to host", float, loss)  # np.asarray takes the buffer as it is
        if args.labels:
            with jax.profiler.TraceAnnotation("mein Étikett"):
                clock.add("label", 0)
    for _ in range(args.evaluate):
        x, y = batch(rng, args.size)
        clock.run("eval_step", eval_step, params, x, y).block_until_ready()
    return params


def main():
    p = common.parser(__doc__)
    p.add_argument("--size", type=int, default=64, help="of a batch")
    p.add_argument("--sleep", type=float, default=0, help="seconds before each step")
    p.add_argument("--annotate", action="store_true", help="StepTraceAnnotation around each step")
    p.add_argument("--labels", action="store_true")
    p.add_argument("--recompile", type=int, default=0, help="another shape after so many steps")
    p.add_argument("--evaluate", type=int, default=0, help="calls of eval_step at the end")
    p.add_argument("--fail-every", type=int, default=0, help="a call that raises while it is traced")
    p.add_argument("--profile", action="store_true", help="under jax.profiler's trace")
    args = p.parse_args()
    rng = np.random.default_rng(args.seed)
    params = make_params(rng)
    clock = Clock()
    x, y = batch(rng, args.size)
    if not args.recompile:
        train_step(params, jax.device_put(x), jax.device_put(y))[1].block_until_ready()
        eval_step(params, x, y).block_until_ready()
    float(jnp.zeros(()))
    jax.monitoring.register_event_duration_secs_listener(lambda event, seconds, **_: clock.add(event, seconds))
    events = {}
    common.wait(args)
    start = time.perf_counter()
    if args.profile:
        with tempfile.TemporaryDirectory() as directory:
            with jax.profiler.trace(directory):
                train(args, rng, params, clock)
            events = traced(directory)
    else:
        train(args, rng, params, clock)
    seconds = time.perf_counter() - start
    compiled = clock.parts.get(COMPILED, [0, 0.0])
    common.write(args, {"parts": clock.parts, "compiled": compiled, "events": events, "seconds": seconds, "steps": args.batches})


if __name__ == "__main__":
    main()
