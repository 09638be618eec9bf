# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""lightning_fit.py, which imports Lightning only now that torch is there and somebody records."""

import argparse
import pathlib
import runpy
import sys

import common
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--wait")
args, rest = parser.parse_known_args()
common.wait(args)
assert not any("lightning" in name for name in sys.modules), torch.__file__
script = pathlib.Path(__file__).with_name("lightning_fit.py")
sys.argv = [str(script), *rest]
runpy.run_path(str(script), run_name="__main__")
