#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# Writes the table of CPython layouts to standard output: one row per include directory given, each of which holds a
# Python.h and its internal/ folder. Used once per CPython release:
#
#   tools/pylayout/generate.sh ~/.pyenv/versions/*/include/python3.{8,9,1?} > user/runtime/python/pylayout.inc
#
# A directory below 3.8 is left out. For Debian's split headers the parent directory is searched too, and the one of its
# architecture. From 3.13 on each makes two rows: the same headers describe the free-threaded build.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for dir in "$@"; do
	[ -f "$dir/Python.h" ] || { echo "generate.sh: no Python.h in $dir" >&2; exit 1; }
	version=$(sed -n 's/^#define[[:space:]]*PY_VERSION[[:space:]]*"\(.*\)".*/\1/p' "$dir/patchlevel.h")
	minor=$(sed -n 's/^#define[[:space:]]*PY_MINOR_VERSION[[:space:]]*\([0-9]*\).*/\1/p' "$dir/patchlevel.h")
	[ "$minor" -ge 8 ] || continue
	for threads in '' t; do
		[ -z "$threads" ] || [ "$minor" -ge 13 ] || continue
		${CC:-gcc} -w ${threads:+-DPy_GIL_DISABLED=1} -I"$dir" -I"$dir/internal" -I"$dir/internal/mimalloc" -I"$dir/.." \
			-I"$dir/../x86_64-linux-gnu/python3.$minor" -o "$work/pylayout" "$here/pylayout.c"
		{ echo "/* from the headers of CPython $version${threads:+, free-threaded} */"; "$work/pylayout"; } \
			> "$work/$(printf '%04d' "$minor")$threads.row"
	done
done

cat <<HEAD
/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Layouts of CPython for x86-64 Linux, one row per minor version, from 3.13 on two; rows of struct py_internals. Written by
 * tools/pylayout/generate.sh from each version's own headers; do not edit.
 */
/* clang-format off */
HEAD
cat "$work"/*.row
