# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""torch.compile, with a backend that needs no compiler: it sets an evaluation function of its own in the interpreter.

--when says whether it has done so before the tracer comes, and whether it goes on while the tracer is there.
"""

import common
import torch


def plain(x):
    return x


def main():
    parser = common.parser(__doc__)
    parser.add_argument("--when", choices=["before", "during"], default="during")
    args = parser.parse_args()
    common.prepare(args)
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    compiled = torch.compile(model, backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    if args.when == "before":
        compiled(torch.zeros(4, 16))
    common.wait(args)
    losses = []
    for _ in range(args.batches):
        loss = compiled(torch.ones(4, 16)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(plain(loss.item()))
    common.write(args, {"losses": losses})


if __name__ == "__main__":
    main()
