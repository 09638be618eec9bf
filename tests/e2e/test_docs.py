# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Every command that the README and docs/ show for a job that runs: it runs as it stands there, and prints what they show, but for the figures."""

import shlex

import helpers
from documented import commands, samples, shapes
from namespace import Host, needs_namespace
from replay.test_docs import is_live

SHORT = {"-d": "200ms", "--steps": "2", "-i": "200ms", "-n": "1"}  # instead of what the texts say


@needs_namespace
@helpers.needs_bpf
def test_live_commands(bench):
    """One after another, in little time each. Where a GPU is asked for, there may be none."""
    host = Host(bench, "TORCHELASTIC_RUN_ID=NAME")
    (pid,) = host.pids
    (bench.directory / "train.py").write_text("")
    live = [command for command in commands() if is_live(command)]
    assert len(live) > 30
    for command in live:
        words = [str(pid) if word.rstrip("2") in ("PID", "PID[,PID...]") else word for word in shlex.split(command)]
        words = [SHORT.get(before, word) for before, word in zip(["", *words], words)]
        words = [str(helpers.PYTHON) if word == "python" else word for word in words]
        if words[0] == "record" and "-d" not in words and "--" not in words:
            words += ["-d", SHORT["-d"]]
        if words[0] == "top" and not {"--once", "--batch"} & set(words):
            words += ["--once", "-i", SHORT["-i"]]
        if words[0] == "watch":
            words += ["-d", SHORT["-d"], "--state", str(bench.directory / "state")]
        asks = words[0] == "watch" and not words[1].startswith("-")
        result = host.run(*words)
        if asks:  # tests/e2e/test_watch.py has one that answers
            assert result.returncode == helpers.ERROR and "nobody watches" in result.stderr, (command, result)
            continue
        allowed = {helpers.OK}
        if "--gpu" in words or "--inject" in words:
            allowed |= {helpers.TARGET, helpers.UNSUPPORTED}
        assert result.returncode in allowed, (command, result)
        if words[0] == "restore":  # nothing was left; in test_restore.py something is
            continue
        for page, _, lines in (sample for sample in samples() if sample[1] == "stepflame " + command and not sample[0].startswith("walk-")):
            missing = {shape for shape in shapes(lines) - shapes((result.stdout + result.stderr).splitlines()) if not shape.startswith("lost ")}
            assert not missing, (page, command, missing, result)
    host.end()
