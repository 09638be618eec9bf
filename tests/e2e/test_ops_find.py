# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
The operators and nodes that are found in a torch library, compared with what that torch says of itself. Needs no root.
"""

import functools
import json
import re
import subprocess
from pathlib import Path

import helpers

OPS = Path(helpers.STEPFLAME).parent / "tools" / "ops"
ARGS_MAX = 24
COLLECTIVES = "c10d::"  # their arguments are not looked for, and some end at a stepped site: there are few calls

# Which kinds an argument of a schema may have. A ScalarType is an int in a schema, and an enum in C++.
KINDS = {
    "Tensor": {"tensor"},
    "Optional[Tensor]": {"optional"},
    "List[Tensor]": {"tensors", "tensors&"},
    "List[Optional[Tensor]]": {"optionals"},
    "List[int]": {"ints"},
    "int": {"int", "int&", "-"},
    "bool": {"int"},
}

# What torch knows: its schemas, where its libraries are, and the names of a few nodes.
SCRIPT = """
import json, os, torch
ops = {}
for s in torch._C._jit_get_all_schemas():
    name = s.name + ("." + s.overload_name if s.overload_name else "")
    ops[name] = [str(a.type) for a in s.arguments]
x = torch.ones(2, 2, requires_grad=True)
w = x.clone()
w[0] = 1
nodes = [n.name() for n in (x.exp().grad_fn, x.mm(x).grad_fn, x.sum().grad_fn, x.relu().grad_fn, w.grad_fn,
                            x.view_as(x).grad_fn.next_functions[0][0], torch.cat([x, x]).grad_fn)]
lib = os.path.join(os.path.dirname(torch.__file__), "lib")
print(json.dumps({"ops": ops, "nodes": nodes, "lib": lib, "version": torch.__version__}))
"""


NO_OPERATORS = ["detach", "detach_"]  # rows of torch's own code for autograd


class Found:
    """The output of tools/ops for one library."""

    def __init__(self, library, *more):
        run = subprocess.run([OPS, library, *more], capture_output=True, text=True, check=True)
        self.summary = run.stderr
        lines = [line.split() for line in run.stdout.splitlines()]
        self.nodes = {" ".join(line[2:-1]): int(line[-1]) for line in lines if line[0] == "node"}  # and where its Python object is
        calls = {line[1]: line for line in lines if line[0] == "call"}
        self.ops = {name: line for name, line in calls.items() if name not in NO_OPERATORS}
        self.others = [line for line in lines if line[0] not in ("node", "call")]
        self.lines = run.stdout

    def args(self, name):
        words = self.ops[name]
        return words[len(words) - words[::-1].index("|") :]


@functools.lru_cache
def truth_of(python):
    run = subprocess.run([python, "-c", SCRIPT], capture_output=True, text=True, check=True)
    return json.loads(run.stdout.splitlines()[-1])


def check(truth, operators):
    found = Found(truth["lib"] + "/libtorch_cpu.so")
    assert len(found.ops) >= operators
    assert ", 0 unnamed, 0 without sites;" in found.summary
    assert [name for name in found.ops if name not in truth["ops"]] == []
    operators = {name: line for name, line in found.ops.items() if not name.startswith(COLLECTIVES)}
    assert len(found.ops) - len(operators) > 8
    for name in operators:
        types, kinds = truth["ops"][name], [arg.partition("@")[0] for arg in found.args(name)]
        assert len(kinds) == min(len(types), ARGS_MAX), name
        wrong = [(t, k) for t, k in zip(types, kinds) if k not in KINDS.get(t, {"-"})]
        assert not wrong, (name, wrong)
    assert set(truth["nodes"]) <= set(found.nodes)
    assert not any("*" in word for line in list(operators.values()) + found.others for word in line), "stepped sites"
    assert {line[0] for line in found.others} >= {"evaluate", "operator()"}
    return found


def test_operators_have_the_names_and_arguments_of_their_schemas():
    found = check(truth_of(helpers.PYTHON), 2900)
    assert any(line[0] == "boxed" for line in found.others)


def test_debians_stripped_torch(debian_python):
    check(truth_of(debian_python), 2900)


def test_libtorch_python():
    truth = truth_of(helpers.PYTHON)
    found = Found(truth["lib"] + "/libtorch_python.so")
    assert list(found.nodes) == [""] and found.nodes[""] > 0
    assert "c10d::allreduce_" in found.ops
    assert set(found.ops) <= set(truth["ops"])


def test_found_once(tmp_path):
    """The second time what the first has kept is read: no search, which takes many times the CPU."""
    library = truth_of(helpers.PYTHON)["lib"] + "/libtorch_cpu.so"
    first, second = Found(library, tmp_path), Found(library, tmp_path)
    assert first.lines == second.lines
    cpu = [float(re.search(r"([0-9.]+) s of CPU", found.summary).group(1)) for found in (first, second)]
    assert cpu[1] < cpu[0] / 4, cpu
