#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# tools/tidy.sh FILE FLAG...: clang-tidy on a file, compiled with these flags, if it has not passed before. A file that passed leaves an empty file in
# the user's cache, whose name is a hash of all that counts: the version, the checks, the flags, and the source with its headers, comments (NOLINT)
# and macros. So another clone does not check it again.
set -euo pipefail

file=$1
shift
kept=${XDG_CACHE_HOME:-$HOME/.cache}/stepflame/tidy
key=$({
	clang-tidy --version
	cat .clang-tidy
	echo "$@"
	clang -E -dD -CC -w "$@" "$file"
} | sha256sum | cut -d' ' -f1)
if [ ! -e "$kept/$key" ]; then
	echo "  TIDY  $file"
	clang-tidy --quiet "$file" -- "$@"
	mkdir -p "$kept"
fi
touch "$kept/$key"
