# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Steps of an optimizer beside --others threads, which mostly sleep: each calls turn() again and again, that is one operator of torch, some Python, and a
rest. Its truth: steps, turns, those of each thread, the sum that the threads made, and what it has to be.
"""

import sys
import threading
import time

import common
import torch

REST_SECONDS = 0.5


def turn(x):
    total = 0
    for i in range(20):
        total += i
    return total + int(torch.sigmoid(x).sum() * 0)


def turns(over, sums, number):
    x, made = torch.zeros(2), 0
    while not over.is_set():
        sums[number] += turn(x)
        made += 1
        over.wait(REST_SECONDS)
    return made


def main():
    p = common.parser(__doc__, batches=400)
    p.add_argument("--others", type=int, default=1000)
    args = p.parse_args()
    common.prepare(args)
    threading.stack_size(256 << 10)
    over, sums, made = threading.Event(), [0] * args.others, [0] * args.others
    begin = threading.Event()

    def other(number):
        begin.wait()
        made[number] = turns(over, sums, number)

    threads = [threading.Thread(target=other, args=(number,)) for number in range(args.others)]
    for thread in threads:
        thread.start()
    parameter = torch.nn.Parameter(torch.zeros(1))
    parameter.grad = torch.ones(1)
    optimizer = torch.optim.SGD([parameter], lr=0.5)
    common.wait(args)
    begin.set()
    start = time.monotonic()
    for _ in range(args.batches):
        optimizer.step()
        time.sleep(0.01)
    seconds = time.monotonic() - start
    over.set()
    for thread in threads:
        thread.join()
    truth = {"steps": args.batches, "turns": sum(made), "made": made, "sum": sum(sums), "seconds": seconds}
    truth.update(right_sum=sum(made) * sum(range(20)), parameter=parameter.item(), right_parameter=-0.5 * args.batches)
    common.write(args, truth)


if __name__ == "__main__":
    sys.setswitchinterval(0.001)
    main()
