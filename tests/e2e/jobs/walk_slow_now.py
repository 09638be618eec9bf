# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The job of docs/walk-slow-now.md: now and then it sends its metrics to a server, and waits for the answer in the middle of an epoch."""

import os
import socket
import time

import common
import torch
from torch.utils.data import DataLoader, TensorDataset

EVERY = 40  # steps from one report to the next
ANSWER_SECONDS = 0.15


def serve(listener, job):
    """A tracking server that has much to do, until the job is gone."""
    listener.settimeout(0.5)
    while os.getppid() == job:
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            continue
        with connection:
            connection.recv(4096)
            time.sleep(ANSWER_SECONDS)
            connection.sendall(b"ok")


def log_metrics(address, step, loss):
    with socket.create_connection(address) as server:
        server.sendall(b"step %d loss %f" % (step, loss))
        server.recv(16)


def train(model, loader, address):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, (x, y) in enumerate(loader, 1):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        if step % EVERY == 0:
            log_metrics(address, step, loss.item())


def main():
    args = common.parser(__doc__, batches=600, work=512).parse_args()
    common.prepare(args)
    listener = socket.create_server(("127.0.0.1", 0))
    job = os.getpid()
    if not os.fork():
        serve(listener, job)
        os._exit(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(256, args.work),
        torch.nn.GELU(),
        torch.nn.Linear(args.work, args.work),
        torch.nn.GELU(),
        torch.nn.Linear(args.work, 1),
    )
    rows = TensorDataset(torch.randn(32 * args.batches, 256), torch.randn(32 * args.batches, 1))
    common.wait(args)
    for _ in range(args.epochs):
        train(model, DataLoader(rows, batch_size=32, shuffle=True), listener.getsockname())
    common.write(args, {"steps": args.epochs * args.batches, "every": EVERY, "answer": ANSWER_SECONDS})


if __name__ == "__main__":
    main()
