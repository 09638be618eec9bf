# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
wheel.py PORTABLE VERSION OUT: makes a wheel in folder OUT, of the folder PORTABLE that `make portable` makes. Used by `make wheel`.

The wheel has the program, its libraries and the injection library, and the Python package, whose command, stepflame, becomes the program. Its tag
names the oldest glibc that has all symbols which these files want.
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

PACKAGE = ROOT / "user/python/stepflame"

METADATA = """Metadata-Version: 2.1
Name: stepflame
Version: %s
Summary: Watches a running PyTorch or Lightning training job from outside
License: GPL-2.0-only OR BSD-2-Clause; that of each library in it is in the folder licenses
Requires-Python: >=3.8
Classifier: Environment :: Console
Classifier: Operating System :: POSIX :: Linux
Classifier: Topic :: Software Development :: Debuggers
Classifier: Typing :: Typed
Provides-Extra: tables
Requires-Dist: pyarrow; extra == "tables"
Provides-Extra: fleet
Requires-Dist: pyarrow; extra == "fleet"
Requires-Dist: duckdb; extra == "fleet"
Requires-Dist: numpy; extra == "fleet"
Provides-Extra: spark
Requires-Dist: pyspark; extra == "spark"
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
    executables = {"stepflame/native/" + str(p.relative_to(portable)): p.read_bytes() for p in programs}
    sources = sorted(p for p in PACKAGE.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    files = {
        **{"stepflame/" + str(p.relative_to(PACKAGE)): p.read_bytes() for p in sources},
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
