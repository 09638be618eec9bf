#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# Starts a real training run, attaches stepflame to it while it trains, and prints what Lightning's profiler would have
# printed. Used by `make demo`. The run is this script's own child, and is ended at the end.
#
#   tools/demo.sh [--small] [TIME]    how long to record, 10s if not given
#
# --small: a plain loop, on Debian's own torch, instead of a Lightning run.
set -eu

cd "$(dirname "$0")/.."
program=tools/demo_job.py
torch=
if [ "${1:-}" = --small ]; then
	program=tools/demo_plain.py
	torch=--debian-torch
	shift
fi
duration=${1:-10s}
stepflame=build/stepflame
recording=build/demo.rec
log=build/demo.log

[ -x "$stepflame" ] || {
	echo 'demo: build/stepflame is not there; run make first' >&2
	exit 1
}
if [ "$(id -u)" -ne 0 ]; then
	echo 'demo: recording needs root; run: sudo make demo' >&2
	exit 3
fi
# shellcheck disable=SC2086 # an option, or none
python=$(tools/setup.sh python $torch)

job=
stop() {
	[ -n "$job" ] || return 0
	# asked first: Lightning then ends its DataLoader workers and removes its temporary files
	kill -TERM "$job" 2>/dev/null || :
	wait "$job" 2>/dev/null || :
	job=
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

echo "demo: starting a training run: $python $program (its output: $log)"
"$python" "$program" --seconds 120 >"$log" 2>&1 </dev/null &
job=$!

tries=0
until grep -q '^step ' "$log"; do
	if ! kill -0 "$job" 2>/dev/null || [ "$tries" -ge 600 ]; then
		echo "demo: the training run did not start; its output:" >&2
		cat "$log" >&2
		exit 1
	fi
	tries=$((tries + 1))
	sleep 0.2
done

echo "demo: it trains, with no profiler and no knowledge of stepflame. Attaching to process $job for $duration:"
echo "demo: $stepflame record -p $job --syscalls -d $duration -o $recording"
echo
status=0
"$stepflame" record -p "$job" --syscalls -d "$duration" -o "$recording" || status=$?
if ! kill -0 "$job" 2>/dev/null; then
	echo 'demo: the training run has ended; its output:' >&2
	cat "$log" >&2
	exit 1
fi
[ "$status" -eq 0 ] || exit "$status"

cat <<END

demo: the training run went on meanwhile; its last word: $(grep '^step ' "$log" | tail -n 1)
demo: the recording is $recording. Try:
  $stepflame report $recording --simple  Lightning's table of actions
  $stepflame report $recording --leaf    only the actions that contain no other
  $stepflame report $recording --all     also torch's own labels: optimizer, DataLoader, backward
  $stepflame report $recording --json    for programs
  $stepflame ps                              the training runs on this machine
  $stepflame record -p PID                   one of yours
END
