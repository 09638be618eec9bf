# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
import sys

from .cli import main

sys.exit(main())
