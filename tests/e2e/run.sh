#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# The end-to-end tests, two at a time, and then those that want the machine to themselves: `make e2e`. Arguments go to pytest.
# Tests beside each other take each other's time: what fails so runs once more, alone, and only that counts.
# Those that are marked long run when STEPFLAME_LONG is set. STEPFLAME_PYTHON runs them; without pytest-xdist in it, all run one after another.
set -eu

cd "$(dirname "$0")/../.."

SOME_FAILED=1 NONE_CHOSEN=5 # pytest's exit codes

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
together=0 alone=0
run -n 2 --dist worksteal -m "not alone and $short" "$@" || together=$?
if [ $together -eq $SOME_FAILED ]; then
	echo "once more, alone, what failed beside another test:"
	together=0
	run --last-failed --last-failed-no-failures none --maxfail 3 -m "not alone and $short" "$@" || together=$?
fi
run -m "alone and $short" "$@" || alone=$?
[ $alone -ne $NONE_CHOSEN ] || exit $together
[ $together -ne $NONE_CHOSEN ] || exit $alone
exit $((together | alone))
