#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# The comparison with Lightning, plain loops, torch.profiler, gc.callbacks and torch.distributed, and Python functions, on every other interpreter that is
# installed, and on a torch of 2024: `make test-matrix`. PYTHONS="3.10 torch2.5" chooses; arguments go to pytest. Environments are made once, some 6 GB
# each; with MADE=1, those that are not there are left out: `make test-all` has no time to make them. Exit: then 77, where there was none.
set -eu

cd "$(dirname "$0")/../.."
runner=$(tools/setup.sh python)
status=${MADE:+77}
environments=${XDG_CACHE_HOME:-$HOME/.cache}/stepflame
for name in ${PYTHONS:-3.10 3.12 3.13 torch2.5}; do
	case $name in
	torch*) set_up="--torch ${name#torch}" ;;
	*) set_up="--minor $name" ;;
	esac
	if [ -n "${MADE:-}" ] && ! [ -e "$environments/venv-$name/.complete" ]; then
		echo "matrix: $name left out: make test-matrix makes its environment"
		continue
	fi
	# shellcheck disable=SC2086 # two words
	if ! python=$(tools/setup.sh python $set_up); then
		echo "matrix: $name skipped: no such environment can be had here (see above)"
		continue
	fi
	echo "matrix: $name ($python)"
	[ "$status" = 1 ] || status=0
	STEPFLAME=${STEPFLAME:-build/stepflame} STEPFLAME_PYTHON=$python \
		"$runner" -m pytest -q tests/e2e/test_lightning.py tests/e2e/test_plain.py tests/e2e/test_landmarks.py tests/e2e/test_ops.py tests/e2e/test_timeline.py \
		tests/e2e/test_pyaction.py "$@" || status=1
done
exit "${status:-0}"
