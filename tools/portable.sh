#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# portable.sh PROGRAM: copies the libraries that a program is linked with, but for those of glibc, to lib/ beside it: so that it runs
# where they are not installed, and glibc is as old as here or newer. The program was linked to look there first. Their licences, as
# Debian has them, go to licenses/.
set -eu

STATIC=libiberty-dev # linked into the program itself

program=$1
lib=$(dirname "$program")/lib
licenses=$(dirname "$program")/licenses
rm -rf "$lib" "$licenses"
mkdir -p "$lib" "$licenses"

# The licence of package $1.
copy_license() {
	if [ -r "/usr/share/doc/$1/copyright" ]; then
		cp -L "/usr/share/doc/$1/copyright" "$licenses/$1"
	else
		echo "portable.sh: /usr/share/doc/$1/copyright is not there" >&2
		exit 1
	fi
}

# The package that has file $1, which its list may call by the name from before /lib moved to /usr/lib.
package_of() {
	for file in "$1" "/usr$1" "${1#/usr}"; do
		owner=$(dpkg-query -S "$file" 2>/dev/null | head -n 1) || :
		[ -z "$owner" ] || break
	done
	[ -n "$owner" ] || {
		echo "portable.sh: no package has $1" >&2
		exit 1
	}
	printf '%s\n' "${owner%%:*}"
}

libraries=$(ldd "$program")
printf '%s\n' "$libraries" | while read -r name arrow path _; do
	case $name in
	linux-vdso.* | /* | libc.so.* | libm.so.* | libpthread.* | libdl.* | librt.*) continue ;;
	esac
	if [ "$arrow" != '=>' ] || [ ! -r "$path" ]; then
		echo "portable.sh: $name is not there" >&2
		exit 1
	fi
	cp -L "$path" "$lib/$name"
	package=$(package_of "$(readlink -f "$path")")
	copy_license "$package"
done
copy_license "$STATIC"
