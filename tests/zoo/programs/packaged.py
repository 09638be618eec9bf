# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
A loop whose batches a function of an own package makes, which has come to the machine in a way of its own: HOW says which. The package is
written into a folder beside the truth, and the program started anew from there.
"""

import os
import subprocess
import sys
import sysconfig
import zipapp
from pathlib import Path

HERE = Path(__file__).resolve().parent
LOADS = '''
def tokenize_text(count):
    total = 0
    for i in range(count):
        total += len(str(i * 7919))
    return total


def next_batch(torch):
    tokenize_text(14000)
    return torch.randn(64, 96)
'''
TRAINS = """
import torch

import clock
import {package}


def main():
    torch.set_num_threads(1)
    net = torch.nn.Sequential(torch.nn.Linear(96, 384), torch.nn.GELU(), torch.nn.Linear(384, 96))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    while True:
        batch = {package}.next_batch(torch)
        optimizer.zero_grad()
        (net(batch) - batch).square().mean().backward()
        optimizer.step()
        clock.step()


if __name__ == "__main__":
    main()
"""
PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "{package}"
version = "1"
[tool.setuptools]
packages = ["{package}"]
package-dir = {{"" = "src"}}
"""


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def project(folder, package):
    """A project with one package, beside which the loop is a script."""
    write(folder / "pyproject.toml", PROJECT.format(package=package))
    write(folder / "src" / package / "__init__.py", LOADS)
    return write(folder / "train.py", TRAINS.format(package=package))


def pip(*words):
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    subprocess.run([*command, *map(str, words)], check=True)


def environment(folder):
    """One of its own, in which the packages of this one are."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    site = subprocess.run(
        [folder / "bin" / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], check=True, capture_output=True, text=True
    ).stdout.strip()
    lines = [sysconfig.get_path("purelib"), *(path for path in sys.path if path.endswith("site-packages"))]
    write(Path(site) / "base.pth", "\n".join(lines))
    return folder / "bin" / "python", site


def editable(folder):
    """pip install -e"""
    script = project(folder / "work", "own_texts")
    python, site = environment(folder / "env")
    pip("--prefix", folder / "env", "-e", folder / "work")
    return [python, script]


def wheel(folder):
    """The package is installed from a folder, and so lies among those of others."""
    script = project(folder / "work", "own_texts")
    python, site = environment(folder / "env")
    pip("--target", site, folder / "work")
    return [python, write(folder / "run" / "train.py", script.read_text())]


def target(folder):
    """Somebody else's package is in a folder made by pip install --target, on PYTHONPATH."""
    project(folder / "theirs", "their_texts")
    pip("--target", folder / "libs", folder / "theirs")
    os.environ["PYTHONPATH"] += ":%s" % (folder / "libs")
    return [sys.executable, write(folder / "run" / "train.py", TRAINS.format(package="their_texts"))]


def inserted(folder):
    """The same, and the program itself puts that folder on sys.path."""
    project(folder / "theirs", "their_texts")
    pip("--target", folder / "libs", folder / "theirs")
    insert = "import sys\n\nsys.path.insert(0, %r)\n" % str(folder / "libs")
    return [sys.executable, write(folder / "run" / "train.py", insert + TRAINS.format(package="their_texts"))]


def zipped(folder):
    """zipapp"""
    write(folder / "app" / "own_texts.py", LOADS)
    write(folder / "app" / "__main__.py", TRAINS.format(package="own_texts"))
    zipapp.create_archive(folder / "app", folder / "train.pyz")
    return [sys.executable, folder / "train.pyz"]


def cython(folder):
    """The function that makes batches is compiled by Cython."""
    write(folder / "own_texts.pyx", LOADS)
    script = write(folder / "train.py", TRAINS.format(package="own_texts"))
    subprocess.run([sys.executable, "-m", "Cython.Build.Cythonize", "-i", "-3", folder / "own_texts.pyx"], check=True, cwd=folder)
    return [sys.executable, script]


def cython_loop(folder):
    """The loop, too, is compiled by Cython."""
    write(folder / "own_texts.py", LOADS)
    write(folder / "own_loop.pyx", TRAINS.format(package="own_texts"))
    subprocess.run([sys.executable, "-m", "Cython.Build.Cythonize", "-i", "-3", folder / "own_loop.pyx"], check=True, cwd=folder)
    return [sys.executable, write(folder / "train.py", "import own_loop\n\nown_loop.main()\n")]


def by_nuitka(folder, name):
    words = ["--module", "--quiet", "--assume-yes-for-downloads", "--jobs=2", "--output-dir=%s" % folder, folder / name]
    subprocess.run([sys.executable, "-m", "nuitka", *words], check=True, cwd=folder)
    (folder / name).rename(folder / (name + ".compiled"))


def nuitka(folder):
    """The function that makes batches is compiled by Nuitka."""
    write(folder / "own_texts.py", LOADS)
    by_nuitka(folder, "own_texts.py")
    return [sys.executable, write(folder / "train.py", TRAINS.format(package="own_texts"))]


def nuitka_loop(folder):
    """The loop, too, is compiled by Nuitka."""
    write(folder / "own_texts.py", LOADS)
    write(folder / "own_loop.py", TRAINS.format(package="own_texts"))
    by_nuitka(folder, "own_loop.py")
    return [sys.executable, write(folder / "train.py", "import own_loop\n\nown_loop.main()\n")]


if __name__ == "__main__":
    place = Path(os.environ["ZOO_TRUTH"]).parent / "packaged"
    place.mkdir()
    os.environ["PYTHONPATH"] = str(HERE)
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    words = [str(word) for word in globals()[sys.argv[1]](place)]
    os.execv(words[0], words)
