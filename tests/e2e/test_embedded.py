# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""An interpreter in another program, which is recorded from before its start, through its end, and its next start."""

import os
import subprocess

import dumped_samples
import helpers
import pytest
import pythons
from test_samples import check_lost

pytestmark = helpers.needs_bpf

ROUNDS = 2
WHERE = "import sys, sysconfig; print(sysconfig.get_config_var('LIBDIR'), sysconfig.get_config_var('INSTSONAME'), sys.prefix)"


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    out = tmp_path_factory.mktemp("embedded") / "embedded"
    return helpers.compiled(out, helpers.JOBS / "embedded.c", "-O2", "-ldl", "-lpthread")


@pythons.parametrize(pythons.of_minor(8, 11, 13, 15), long=(11,))
def test_embedded(bench, program, python):
    folder, library, home = subprocess.run([python, "-c", WHERE], check=True, capture_output=True, text=True).stdout.split()
    go = bench.directory / "go"
    arguments = [os.path.join(folder, library), helpers.JOBS / "embedded.py", ROUNDS, go]
    job = bench.process(program, *arguments, env=dict(os.environ, PYTHONHOME=home)).until_ready()
    record = bench.record("-p", job.pid).until_armed()
    go.touch()
    assert job.wait() == 0, job.what()
    assert record.wait() == helpers.OK, record.what()
    samples, found = dumped_samples.Samples(record.file), helpers.report(record.file)
    dumped_samples.check_frames(samples, found["lost"])
    check_lost(samples, found["lost"])
    mine = [s for s in samples if s.tid == job.pid and any(f.name == "work" for f in s.stack)]
    assert sum(s.seconds for s in mine) > 0.7 * 0.5 * ROUNDS
    assert all([f.name for f in s.stack][-1] == "<module>" and s.stack[-1].file == "<string>" for s in mine)
    others = {s.tid for s in samples} - {job.pid}
    with_python = {s.tid for s in samples if s.stack} - {job.pid}
    assert len(others) == len(with_python) + 1 == ROUNDS + 1, (others, with_python)
