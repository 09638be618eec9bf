#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# The end-to-end tests, two at a time, and then those that want the machine to themselves: `make e2e`. Arguments go to pytest.
# Tests beside each other take each other's time: what fails so runs once more, alone, and only that counts, unless it is too many.
# With CI set, a skip that skips.py does not allow fails the run.
# Those that are marked long run when STEPFLAME_LONG is set. STEPFLAME_PYTHON runs them; without pytest-xdist in it, all run one after another.
set -eu

cd "$(dirname "$0")/../.."

SOME_FAILED=1 NONE_CHOSEN=5 # pytest's exit codes
SKIPPED=8                    # skips.py's bit in them
RERUN_MAX=3

short=${STEPFLAME_LONG:+long or}
short="($short not long)"

cache=$(mktemp -d)
trap 'rm -r "$cache"' EXIT

run() {
	"$STEPFLAME_PYTHON" -m pytest -q -o addopts=-ra -o cache_dir="$cache" tests/vm tests/e2e "$@"
}

if ! "$STEPFLAME_PYTHON" -c 'import xdist' 2>/dev/null; then
	run -m "$short" "$@"
	exit
fi
failed() {
	"$STEPFLAME_PYTHON" -c 'import json, sys; print(*json.load(open(sys.argv[1])), sep="\n")' "$cache/v/cache/lastfailed"
}

together=0 again=0 alone=0 too_many=0
run -n 2 --dist worksteal -m "not alone and $short" "$@" || together=$?
skipped=$((together & SKIPPED))
together=$((together & ~SKIPPED))
if [ $together -eq $SOME_FAILED ]; then
	rerun=$(failed)
	count=$(echo "$rerun" | wc -l)
	echo "$count failed beside another test, and run once more, alone:"
	echo "$rerun"
	run --last-failed --last-failed-no-failures none --maxfail 3 -m "not alone and $short" "$@" || again=$?
	together=$((again & ~SKIPPED))
	[ "$count" -le $RERUN_MAX ] || too_many=1
fi
run -m "alone and $short" "$@" || alone=$?
skipped=$((skipped | again & SKIPPED | alone & SKIPPED))
alone=$((alone & ~SKIPPED))
if [ $too_many -ne 0 ]; then
	echo "failed: more than $RERUN_MAX tests had to run once more:"
	echo "$rerun"
fi
[ $skipped -eq 0 ] || echo "failed: tests were skipped that may not be (see above)"
[ $too_many -eq 0 ] && [ $skipped -eq 0 ] || exit 1
[ $alone -ne $NONE_CHOSEN ] || exit $together
[ $together -ne $NONE_CHOSEN ] || exit $alone
exit $((together | alone))
