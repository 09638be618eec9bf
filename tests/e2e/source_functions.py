# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What functions a Python file has, by its own text. As a program it prints that, for a reader of an older Python than the file's."""

import ast
import sys

SPECIAL = {
    "<lambda>": ast.Lambda,
    "<listcomp>": ast.ListComp,
    "<setcomp>": ast.SetComp,
    "<dictcomp>": ast.DictComp,
    "<genexpr>": ast.GeneratorExp,
}
NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def functions(file):
    """{(name, first line): last line} of all code of a source file."""
    with open(file, "rb") as source:
        text = source.read()
    found = {("<module>", 0): text.count(b"\n") + 1}
    for node in ast.walk(ast.parse(text)):
        first = getattr(node, "lineno", 0)
        for name, kind in SPECIAL.items():
            if isinstance(node, kind):
                found[name, first] = max(node.end_lineno, found.get((name, first), 0))
        if isinstance(node, NAMED):
            first = min([first] + [d.lineno for d in node.decorator_list])
            names = [node.name] + ["<generic parameters of %s>" % node.name] * bool(getattr(node, "type_params", []))
            for name in names:
                found[name, first] = max(node.end_lineno, found.get((name, first), 0))
    return found


if __name__ == "__main__":
    print(functions(sys.argv[1]))
