# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
def pytest_configure(config):
    config.addinivalue_line("markers", "vm: boots other kernels under qemu; takes minutes")
