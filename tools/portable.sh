#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# portable.sh PROGRAM: copies the libraries that a program is linked with, but for those of glibc, to lib/ beside it: so that it runs
# where they are not installed, and glibc is as old as here or newer. The program was linked to look there first.
set -eu

program=$1
lib=$(dirname "$program")/lib
mkdir -p "$lib"
ldd "$program" | while read -r name arrow path _; do
	case $name in
	linux-vdso.* | /* | libc.so.* | libm.so.* | libpthread.* | libdl.* | librt.*) continue ;;
	esac
	if [ "$arrow" != '=>' ] || [ ! -r "$path" ]; then
		echo "portable.sh: $name is not there" >&2
		exit 1
	fi
	cp -Lu "$path" "$lib/$name"
done
