# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
wheel.py PORTABLE VERSION OUT: makes a wheel in folder OUT, of the folder PORTABLE that `make portable` makes. Used by `make wheel`.

The wheel has the program, its libraries and the injection library, and a command, stepflame, that becomes the program. Its tag names the
oldest glibc that has all symbols which these files want.
"""

import base64
import hashlib
import os
import re
import subprocess
import sys
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

LAUNCHER = '''# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The command stepflame, a program of its own that needs no Python."""

import os
import sys


def main():
    program = os.path.join(os.path.dirname(os.path.realpath(__file__)), "program", "stepflame")
    os.execv(program, ["stepflame", *sys.argv[1:]])
'''

METADATA = """Metadata-Version: 2.1
Name: stepflame
Version: %s
Summary: Watches a running PyTorch or Lightning training job from outside
License: GPL-2.0-only OR BSD-2-Clause; that of each library in it is in the folder licenses
Requires-Python: >=3.8
Classifier: Environment :: Console
Classifier: Operating System :: POSIX :: Linux
Classifier: Topic :: Software Development :: Debuggers
Description-Content-Type: text/markdown

"""


def glibc_wanted(files):
    """The newest version of glibc's symbols that ELF files want, as (2, 36)."""
    found = set()
    for file in files:
        shown = subprocess.run(["readelf", "--version-info", "--wide", file], capture_output=True, text=True, check=True, env={**os.environ, "LC_ALL": "C"}).stdout
        wanted = shown.partition("Version needs section")[2]
        found |= {(int(major), int(minor)) for major, minor in re.findall(r"Name: GLIBC_(\d+)\.(\d+)", wanted)}
    return max(found)


def main():
    portable, version, out = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    programs = [portable / "stepflame", portable / "libstepflame-inject.so", *sorted((portable / "lib").iterdir())]
    tag = "py3-none-manylinux_%d_%d_x86_64" % glibc_wanted(programs)
    info = "stepflame-%s.dist-info/" % version
    executables = {"stepflame/program/" + str(p.relative_to(portable)): p.read_bytes() for p in programs}
    files = {
        "stepflame/__init__.py": LAUNCHER.encode(),
        "stepflame/__main__.py": b"from stepflame import main\n\nmain()\n",
        **executables,
        info + "METADATA": (METADATA % version).encode() + (ROOT / "README.md").read_bytes(),
        info + "WHEEL": ("Wheel-Version: 1.0\nGenerator: stepflame's makefile\nRoot-Is-Purelib: false\nTag: %s\n" % tag).encode(),
        info + "entry_points.txt": b"[console_scripts]\nstepflame = stepflame:main\n",
        info + "licenses/LICENSE": (ROOT / "LICENSE").read_bytes(),
        **{info + "licenses/" + p.name: p.read_bytes() for p in sorted((portable / "licenses").iterdir())},
    }
    record = info + "RECORD"
    digest = {name: base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode() for name, data in files.items()}
    files[record] = ("".join("%s,sha256=%s,%d\n" % (name, digest[name], len(data)) for name, data in files.items()) + record + ",,\n").encode()
    date = time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))[:6]
    for old in out.glob("stepflame-*.whl"):
        old.unlink()
    with zipfile.ZipFile(out / ("stepflame-%s-%s.whl" % (version, tag)), "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, date)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if name in executables else 0o100644) << 16
            wheel.writestr(entry, data)


if __name__ == "__main__":
    main()
