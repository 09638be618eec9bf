#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# The end-to-end tests, two at a time, and then those that want the machine to themselves: `make e2e`. Arguments go to pytest.
# What fails, for tests beside each other take each other's time and a machine may be busy, runs once more, alone: only that counts, unless
# too many had to.
# With CI set, a skip that skips.py does not allow fails the run.
# Those that are marked long run when STEPFLAME_LONG is set, and those in tests/vm. STEPFLAME_PYTHON runs them; without pytest-xdist in it, all run one after another.
set -eu

cd "$(dirname "$0")/../.."

SOME_FAILED=1 NONE_CHOSEN=5 # pytest's exit codes
SKIPPED=8                    # skips.py's bit in them
RERUN_MAX=3                  # of those beside each other, and of those alone

short=${STEPFLAME_LONG:+long or}
short="($short not long)"
tests="${STEPFLAME_LONG:+tests/vm} tests/e2e"

cache=$(mktemp -d)
trap 'rm -r "$cache"' EXIT

run() {
	# shellcheck disable=SC2086 # one folder or two
	"$STEPFLAME_PYTHON" -m pytest -q -o addopts=-ra -o cache_dir="$cache" $tests "$@"
}

failed() {
	"$STEPFLAME_PYTHON" -c 'import json, sys; print(*json.load(open(sys.argv[1])), sep="\n")' "$cache/v/cache/lastfailed"
}

skipped=0
too_many=

# part HOW WORKERS MARK ARGS...: runs tests, and once more what failed of them. status: pytest's exit code, without skips.py's bit.
part() {
	how=$1 workers=$2 mark=$3
	shift 3
	rm -rf "$cache/v"
	status=0
	# shellcheck disable=SC2086 # several options, or none
	run $workers -m "$mark" "$@" || status=$?
	skipped=$((skipped | status & SKIPPED))
	status=$((status & ~SKIPPED))
	[ $status -eq $SOME_FAILED ] || return 0
	rerun=$(failed)
	count=$(echo "$rerun" | wc -l)
	echo "$count failed $how, and run once more, alone:"
	echo "$rerun"
	[ "$count" -le $RERUN_MAX ] || too_many=$rerun
	status=0
	run --last-failed --last-failed-no-failures none --maxfail 3 -m "$mark" "$@" || status=$?
	skipped=$((skipped | status & SKIPPED))
	status=$((status & ~SKIPPED))
}

if "$STEPFLAME_PYTHON" -c 'import xdist' 2>/dev/null; then
	part "beside another test" "-n 2 --dist worksteal" "not alone and $short" "$@"
	together=$status
	part "alone" "" "alone and $short" "$@"
else
	together=$NONE_CHOSEN
	part "alone" "" "$short" "$@"
fi
if [ -n "$too_many" ]; then
	echo "failed: more than $RERUN_MAX tests had to run once more:"
	echo "$too_many"
fi
[ $skipped -eq 0 ] || echo "failed: tests were skipped that may not be (see above)"
[ -z "$too_many" ] && [ $skipped -eq 0 ] || exit 1
[ $status -ne $NONE_CHOSEN ] || exit $together
[ $together -ne $NONE_CHOSEN ] || exit $status
exit $((together | status))
