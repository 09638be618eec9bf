#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# guards.sh: says which headers have another guard than the one made of their path (user/model/ops.h: STEPFLAME_USER_MODEL_OPS_H), or one that
# another header has, too. Of two headers with one guard, a file that includes both gets only the first. Status 1: there are such.
# guards.sh --fix: gives those the guard of their path.
cd "$(dirname "$0")/.." || exit 2
headers=$(find include bpf user tests tools -name '*.h' | sort)

guard_of() { printf 'STEPFLAME_%s' "$1" | tr 'a-z./-' 'A-Z___'; }

status=0
for header in $headers; do
	guard=$(guard_of "$header")
	[ "$1" != --fix ] || sed -i "s/^#\\(ifndef\\|define\\) [A-Z0-9_]*_H\$/#\\1 $guard/" "$header"
	if ! sed -n '/^#ifndef/,+1p' "$header" | head -n 2 | tr '\n' ' ' | grep -qx "#ifndef $guard #define $guard "; then
		echo "$header: its guard must be $guard" >&2
		status=1
	fi
done
for guard in $(for header in $headers; do guard_of "$header" && echo; done | sort | uniq -d); do
	echo "$guard: two headers have paths that make this guard" >&2
	status=1
done
exit $status
