#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# tests/fuzz/run.sh BUILD SECONDS NAME...: runs these fuzzers, two at a time, for so long each; prints a line for each. What they begin with is in
# tests/data/fuzz/NAME/, or made here of tests/fuzz/seeds/; what they add stays in BUILD/corpus/NAME/ for the next time. An input that crashes, hangs
# (10 s), or takes 2 GB stays in BUILD/NAME-*. With 0 seconds, BUILD/tests/fuzz/NAME-replay runs each input once. Exit: 1 when one failed.
set -euo pipefail

# What argp holds of a command line that is refused (1 KB) is lost: a process that goes on for longer would take 2 GB.
PROCESS_SECONDS=300

make_libraries() {
	mkdir -p "$build/corpus/elf"
	for level in -O0 -Os; do
		"${CC:-clang}" -w -shared -fPIC -nostdlib $level -fexceptions -Wl,-z,noseparate-code,--hash-style=gnu,--build-id \
			tests/fuzz/seeds/library.c -o "$build/corpus/elf/library$level"
	done
	strip -o "$build/corpus/elf/stripped" "$build/corpus/elf/library-Os"
}

# Memory of each version of CPython in which nearly every word is a pointer to another.
make_memory() {
	mkdir -p "$build/corpus/memory"
	for minor in 0 1 2 3 4 5 6; do
		LC_ALL=C awk -v minor=$minor 'BEGIN {
			printf "%c%c", minor, 0
			for (i = 0; i < 500; i++) printf "%c%c%c%c%c%c%c%c", 16 + i * 40 % 111, i * 7 % 15 + (i % 3 == 0), 0, 0, 0, 0, 0, 0
		}' >"$build/corpus/memory/$minor"
	done
}

fuzz_one() {
	name=$1
	said=$build/$name.said
	seeds=tests/data/fuzz/$name
	mkdir -p "$build/corpus/$name"
	[ -d "$seeds" ] || seeds=
	dictionary=tests/data/fuzz/$name.dict
	[ -f "$dictionary" ] || dictionary=
	status=0
	: >"$said"
	for ((left = FUZZ_SECONDS; left > 0 && status == 0; left -= PROCESS_SECONDS)); do
		# shellcheck disable=SC2086 # none, or one word
		"$build/tests/fuzz/$name" -max_total_time=$((left < PROCESS_SECONDS ? left : PROCESS_SECONDS)) -timeout=10 -rss_limit_mb=2048 \
			-close_fd_mask=3 -print_final_stats=1 -len_control=10 -artifact_prefix="$build/$name-" ${dictionary:+-dict=$dictionary} \
			"$build/corpus/$name" $seeds >>"$said" 2>&1 || status=$?
	done
	awk -v name="$name" -v status="$status" '
		/ cov: / { for (i = 1; i < NF; i++) { if ($i == "cov:") coverage = $(i + 1); if ($i == "ft:") features = $(i + 1) } }
		/number_of_executed_units/ { runs += $2 }
		/Test unit written to/ { crash = $NF }
		END {
			printf "%-10s %9d runs, coverage %5d edges, %6d features, %s\n", name, runs, coverage, features,
				status == 0 ? "no crash" : "FAILED: " (crash ? crash : "status " status)
		}' "$said"
	[ "$status" -eq 0 ] || { grep -m 3 -E 'ERROR|SUMMARY|runtime error|fuzz/[a-z]*\.[ch]:' "$said" || tail -n 5 "$said"; }
	return "$status"
}

replay_one() {
	name=$1
	said=$build/$name.said
	folders=()
	for folder in "tests/data/fuzz/$name" "$build/corpus/$name"; do
		[ ! -d "$folder" ] || folders+=("$folder")
	done
	status=0
	ASAN_OPTIONS=hard_rss_limit_mb=2048:max_allocation_size_mb=2048 "$build/tests/fuzz/$name-replay" "${folders[@]}" >"$said" 2>&1 || status=$?
	if [ "$status" -eq 0 ]; then
		printf '%-10s %s\n' "$name" "$(tail -n 1 "$said")"
		return
	fi
	printf '%-10s FAILED: %s, status %d\n' "$name" "$(grep -a '^input ' "$said" | tail -n 1)" "$status"
	grep -a -m 3 -E 'ERROR|SUMMARY|runtime error|fuzz/[a-z]*\.[ch]:' "$said" || tail -n 5 "$said"
	return "$status"
}

# as xargs calls it
if [ "$1" = --one ]; then
	if [ "$FUZZ_SECONDS" -eq 0 ]; then replay_one "$2"; else fuzz_one "$2"; fi
	exit
fi
export build=$1 FUZZ_SECONDS=$2
shift 2
make_libraries
make_memory
status=0
printf '%s\n' "$@" | xargs -n 1 -P 2 "$0" --one || status=1
exit $status
