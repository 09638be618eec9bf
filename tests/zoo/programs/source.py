# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Runs a script of somebody else's, unchanged, under the zoo's clock and faults: source.py [--forward] SCRIPT [ARG...].

--forward: a step ends where the model's next forward for training begins, for a script that has no optimizer of torch's.
"""

import os
import runpy
import sys

import clock
import faults


def by_forward():
    """By torch's hook of all modules, which is on no stack while the model computes, as a function around its would be."""
    from torch.nn.modules import module

    outermost = []

    def begins(which, inputs):
        if not which.training:
            return
        if not outermost:
            outermost.append(id(which))
        if id(which) == outermost[0]:
            clock.step()

    module.register_module_forward_pre_hook(begins)


def main():
    sys.argv.pop(0)
    if sys.argv[0] == "--forward":
        by_forward()
        sys.argv.pop(0)
    else:
        clock.by_optimizer()
    faults.arm()
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")


main()
