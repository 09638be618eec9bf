# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Calls a PJRT plugin's functions by its table, as XLA does, with no JAX. Its truth: {place in the table: [calls, seconds]}."""

import ctypes
import time

import common

HEAD_WORDS = 5
CALLS = {8: 7, 20: 2, 22: 9, 55: 30, 70: 5}  # place in the table: how often


def main():
    p = common.parser(__doc__)
    p.add_argument("--plugin", required=True)
    p.add_argument("--late", type=float, default=0, metavar="SECONDS", help="ask for the table only when all is there, and wait so long")
    args = p.parse_args()
    library = ctypes.CDLL(args.plugin)
    library.GetPjrtApi.restype = ctypes.c_void_p
    if args.late:
        common.wait(args)
    table = library.GetPjrtApi()
    time.sleep(args.late)
    prototype = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
    truth = {}
    if not args.late:
        common.wait(args)
    for place, cnt in CALLS.items():
        address = ctypes.c_uint64.from_address(table + 8 * (HEAD_WORDS + place)).value
        if not address:
            continue
        function = prototype(address)
        seconds = 0
        for _ in range(cnt):
            start = time.perf_counter()
            function(table)
            seconds += time.perf_counter() - start
        truth[place] = [cnt, seconds]
    common.write(args, {"calls": truth})


if __name__ == "__main__":
    main()
