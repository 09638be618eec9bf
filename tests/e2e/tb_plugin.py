# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Reads a trace as TensorBoard's plugin for torch.profiler (torch-tb-profiler) does, by the plugin's own code, without TensorBoard."""

import contextlib
import io
import os

import pytest


class Read:
    """What the plugin has of a worker."""

    def __init__(self, data, complaints):
        from torch_tb_profiler.profiler.event_parser import ProfileRole

        self.rank = (data.distributed_info or {}).get("rank")
        self.steps = {name: costs.costs[ProfileRole.Total] for name, costs in zip(data.steps_names, data.steps_costs)}
        self.operators = {row.name: row.calls for row in data.op_list_groupby_name}
        self.complaints = complaints


def read(directory, worker):
    """Of the one file of a worker in a folder, which its name has to tell."""
    module = pytest.importorskip("torch_tb_profiler.profiler.data", reason="tools/setup.sh python --readers installs torch-tb-profiler")
    from torch_tb_profiler import consts
    from torch_tb_profiler.profiler.run_generator import RunGenerator

    matches = [m for m in map(consts.WORKER_PATTERN.match, os.listdir(directory)) if m and m.group(1) == worker]
    (match,) = matches
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        data = module.RunProfileData.parse(worker, match.group(2), os.path.join(directory, match.group(0)), None)
        assert RunGenerator(worker, 1, data).generate_run_profile().views
    return Read(data, printed.getvalue())
