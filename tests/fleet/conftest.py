# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Fixtures of the tests of `stepflame fleet`: stores that tools/fleet fills, made once for all tests that only ask them."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "user/python"), str(ROOT / "tools"), str(Path(__file__).parent)]

for module in ("pyarrow", "duckdb", "numpy"):
    pytest.importorskip(module, reason="stepflame fleet needs %s" % module)

import generated  # noqa: E402


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    return generated.Stores(tmp_path_factory.mktemp("stores"))
