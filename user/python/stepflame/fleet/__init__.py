# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""stepflame fleet: tables of many hosts' recordings, and questions to them. docs/fleet.md describes it."""
