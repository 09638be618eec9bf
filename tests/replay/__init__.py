# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a recording is made into: no job is started, nothing is attached to, and no clock is read."""
