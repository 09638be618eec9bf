# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""record --stacks --modules: the Python line that calls an operator, and the modules around it, against torch.profiler."""

import ast
import re
from pathlib import Path

import helpers
import ops_compare
import pytest

pytestmark = helpers.needs_bpf

SITE_PACKAGES = Path(pytest.__file__).parents[1]
MODULE_INDEX = re.compile(r"_\d+(?=/|$)")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    ops_compare.needs("torch._C._profiler._ExperimentalConfig(verbose=True)")
    bench = helpers.Bench(tmp_path_factory.mktemp("origin"))
    record, truth = bench.recorded("ops_origin.py", options=["--stacks", "--modules", "-F", "0"])
    yield helpers.report(record.file, "--ops", "--stacks", "--modules"), truth
    bench.close()


def test_same_function_and_modules(recorded):
    found, truth = recorded
    expected = {
        (name, Path(file).name, function, modules)
        for name, file, function, modules in truth["origins"]
        if name.startswith("aten::") and function
    }
    ours = set()
    for row in found["ops"]:
        if not row["name"].startswith("aten::") or not row["source"]:
            continue
        file, function = re.fullmatch(r"(.*)\(\d+\): (.*)", row["source"]).groups()
        modules = MODULE_INDEX.sub("", row["module"] or "")
        ours.add((row["name"], Path(file).name, function.rpartition(".")[2], modules))
    assert ours == expected


def test_lines_are_of_their_functions(recorded):
    found, _ = recorded
    sources = {row["source"] for row in found["ops"] if row["source"]}
    assert len(sources) > 5
    for source in sources:
        file, line, function = re.fullmatch(r"(.*)\((\d+)\): (.*)", source).groups()
        path = next(root / file for root in (Path("/"), SITE_PACKAGES) if (root / file).exists())
        nodes = [
            node
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == function.rpartition(".")[2]
        ]
        assert function == "<module>" or any(n.lineno <= int(line) <= n.end_lineno for n in nodes), source


def test_each_module_by_itself(recorded):
    found, _ = recorded
    linear = {row["module"]: row["count"] for row in found["ops"] if row["name"] == "aten::linear"}
    assert sorted(linear) == [
        "Net_0/Block_0/Linear_0",
        "Net_0/Block_0/Sequential_0/Linear_1",
        "Net_0/Block_1/Linear_2",
        "Net_0/Block_1/Sequential_1/Linear_3",
        "Net_0/Linear_4",
    ]
    assert len(set(linear.values())) == 1
    assert found["lost"] == {}
