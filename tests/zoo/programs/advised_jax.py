# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
JAX alone, on the CPU: jobs with one fault each, and the same jobs as the report advises. KIND says which; a second word "advised" is the latter.
"""

import os
import sys

os.environ["JAX_PLATFORMS"] = "cpu"

import clock
import jax
import jax.numpy as jnp

ADVISED = "advised" in sys.argv[2:]
WIDTH = 256


def loss_of(params, x):
    for w in params:
        x = jnp.tanh(x @ w)
    return jnp.mean(x**2)


def updated(params, x):
    loss, gradients = jax.value_and_grad(loss_of)(params, x)
    return [w - 0.01 * g for w, g in zip(params, gradients)], loss


def parameters(count):
    return [jax.random.normal(jax.random.key(i), (WIDTH, WIDTH)) / 16 for i in range(count)]


def jax_recompiles():
    """A batch of another length in each 10th step; advised: the same lengths in each call, by padding."""
    step, params, number = jax.jit(updated), parameters(2), 0
    while True:
        number += 1
        rows = 128 if ADVISED else 64 + number // 10 % 500
        params, loss = step(params, jnp.ones((rows, WIDTH)))
        loss.block_until_ready()
        clock.step()


def jax_awaits():
    """Takes the loss to Python in each step, beside other work of Python; advised: in each 50th."""
    step, params, number = jax.jit(updated), parameters(4), 0
    batch = jnp.ones((128, WIDTH))
    while True:
        number += 1
        params, loss = step(params, batch)
        if not ADVISED or number % 50 == 0:
            float(loss)
        sum(len(str(i)) for i in range(8000))
        clock.step()


def jax_in_python():
    """Operators one by one; advised: under jax.jit."""
    step, params, number = jax.jit(updated) if ADVISED else updated, parameters(4), 0
    batch = jnp.ones((16, WIDTH))
    while True:
        number += 1
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            params, loss = step(params, batch)
            loss.block_until_ready()
        clock.step()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
