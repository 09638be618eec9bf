# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Copies of an interpreter that say they are of a version that does not exist: what they run is the same."""

import os
import shutil
import struct
import subprocess
from pathlib import Path

UNKNOWN = 0x036300F0  # 3.99.0
COOKIE = b"xdebugpy"  # how _Py_DebugOffsets begins, in CPython 3.13 and later


def symbol_offsets(file):
    """{name: offset in the file} of the data that an ELF file for x86-64 exports."""
    data = file.read_bytes()
    (table,) = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * size) for i in range(count)]
    found = {}
    for _, kind, _, _, at, length, link, *_ in sections:
        if kind != 11:  # SHT_DYNSYM
            continue
        names = sections[link][4]
        for i in range(length // 24):
            name, _, _, section, address, _ = struct.unpack_from("<IBBHQQ", data, at + i * 24)
            if 0 < section < count:
                end = data.index(b"\0", names + name)
                found[data[names + name : end].decode()] = address - sections[section][3] + sections[section][4]
    return found


def file_of(python):
    """The file that defines the interpreter: a libpython, or the executable."""
    code = "import os; print(next((line.split()[-1] for line in open('/proc/self/maps') if '/libpython3.' in line), os.readlink('/proc/self/exe')))"
    file = subprocess.run([python, "-c", code], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True).stdout.strip()
    return Path(file), "/libpython3." in file


def patched(python, directory, change=None):
    """(command, environment) of a copy that says that it is 3.99. change(bytearray, offset of _PyRuntime): what else is changed in it."""
    original, is_library = file_of(python)
    copy = directory / original.name
    shutil.copy(original, copy)
    data, at = bytearray(copy.read_bytes()), symbol_offsets(original)
    struct.pack_into("<Q", data, at["Py_Version"], UNKNOWN)
    runtime = at["_PyRuntime"]
    if data[runtime : runtime + len(COOKIE)] == COOKIE:
        struct.pack_into("<Q", data, runtime + 8, UNKNOWN)
    if change:
        change(data, runtime)
    copy.write_bytes(data)
    if is_library:
        return [python], {"LD_PRELOAD": str(copy)}
    code = "import sys, sysconfig; print(sys.base_prefix, sysconfig.get_path('purelib'))"
    home, packages = subprocess.run([python, "-c", code], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True).stdout.split()
    environment = {"PYTHONHOME": home, "PYTHONPATH": packages}
    main = original.with_name("python_main.so")  # tools/setup.sh python --free-threaded
    return [str(copy)], {**environment, "LD_PRELOAD": str(main)} if main.exists() else environment


def break_table(data, runtime):
    """Nor can it be read by its own table then."""
    if data[runtime : runtime + len(COOKIE)] == COOKIE:
        data[runtime : runtime + len(COOKIE)] = b"no table"
