#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# The comparison with Lightning, with plain loops and with Python functions on every other interpreter that is installed: `make test-matrix`.
# MINORS="3.10 3.12" chooses; arguments go to pytest. Environments are made once, some 6 GB each.
set -eu

cd "$(dirname "$0")/../.."
runner=$(tools/setup.sh python)
status=0
for minor in ${MINORS:-3.10 3.12 3.13}; do
	if ! python=$(tools/setup.sh python --minor "$minor"); then
		echo "matrix: $minor skipped: no such environment can be had here (see above)"
		continue
	fi
	echo "matrix: $minor ($python)"
	STEPFLAME=${STEPFLAME:-build/stepflame} STEPFLAME_PYTHON=$python \
		"$runner" -m pytest -q tests/e2e/test_lightning.py tests/e2e/test_plain.py tests/e2e/test_pyaction.py "$@" || status=1
done
exit $status
