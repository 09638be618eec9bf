# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Ranges of a library that was compiled with NVTX's headers (tests/gpu/nvtx_ranges.c), as extensions of torch are."""

import ctypes

import common


def main():
    p = common.parser(__doc__)
    p.add_argument("--library", required=True)
    p.add_argument("--ns", type=int, default=200000)
    args = p.parse_args()
    common.prepare(args)
    rounds = ctypes.CDLL(args.library).rounds
    rounds.argtypes = [ctypes.c_uint64, ctypes.c_uint64]
    common.wait(args)
    rounds(args.batches, args.ns)
    common.write(args, {"rounds": args.batches})


if __name__ == "__main__":
    main()
