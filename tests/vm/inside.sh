#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# inside.sh TARGETS DOUBLES: what test_kernels.py runs in each machine. TARGETS is the directory of libtarget.so, target and
# throw, DOUBLES that of the doubles of CUDA's libraries, whose log has the true counts.
#
# Prints what the kernel has as `key=value` lines, then a block per run of a target: `== NAME`, the true counts that the
# target prints, its exit status, and where $STEPFLAME is executable also its status and, between `-- report` and `-- end`,
# its report of the same calls as JSON. Messages go to stderr.
set -u

targets=$1
doubles=$2
calls=500
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# wait_for SECONDS COMMAND...: until the command succeeds.
wait_for()
{
	local end=$((SECONDS + $1))
	shift
	until "$@"; do
		[ "$SECONDS" -lt "$end" ] || return 1
		sleep 0.05
	done
}

gone()
{
	! kill -0 "$1" 2> /dev/null
}

armed_or_gone()
{
	grep -q armed "$tmp/stderr" || gone "$recorder"
}

# run NAME PROGRAM ACTION: the target alone where ACTION is empty, otherwise under `stepflame record --action ACTION`.
run()
{
	local name=$1 program=$2 action=$3 start=$tmp/start.$1 recorder="" target

	echo "== $name"
	"$program" "$start" "$calls" > "$tmp/stdout" &
	target=$!
	wait_for 30 grep -q ready "$tmp/stdout"
	if [ -n "$action" ]; then
		: > "$tmp/stderr"
		"$STEPFLAME" record -p "$target" -o "$tmp/$name.rec" --action "$action" 2> "$tmp/stderr" > /dev/null &
		recorder=$!
		wait_for 60 armed_or_gone || echo "inside.sh: $name: not armed after 60 s" >&2
	fi
	touch "$start"
	wait "$target"
	echo "target_status=$?"
	grep '=' "$tmp/stdout"
	[ -n "$recorder" ] || return
	wait_for 60 gone "$recorder" || kill -KILL "$recorder"
	wait "$recorder"
	echo "record_status=$?"
	sed "s/^/$name: /" "$tmp/stderr" >&2
	echo "-- report"
	"$STEPFLAME" report "$tmp/$name.rec" --json
	echo "-- end"
}

# run_gpu NAME OPTION...: a job of the doubles, recorded with these options.
run_gpu()
{
	local name=$1 start=$tmp/start.$1 recorder target
	shift

	echo "== $name"
	GPU_DOUBLE_LOG=$tmp/log "$doubles/train" --steps 30 --threads 2 --nccl 2 --graph 3 --wait "$start" > "$tmp/stdout" &
	target=$!
	wait_for 30 grep -q ready "$tmp/stdout"
	: > "$tmp/stderr"
	"$STEPFLAME" record -p "$target" -o "$tmp/$name.rec" "$@" 2> "$tmp/stderr" > /dev/null &
	recorder=$!
	wait_for 60 armed_or_gone || echo "inside.sh: $name: not armed after 60 s" >&2
	touch "$start"
	wait "$target"
	echo "target_status=$?"
	wait_for 60 gone "$recorder" || kill -KILL "$recorder"
	wait "$recorder"
	echo "record_status=$?"
	# Each of its calls that lies in no other: name, bytes.
	sed -nE 's/.*"call".*"name":"([a-zA-Z0-9]+)(_v[0-9]+|_pts?[dz]s?)*".*"depth":0,.*"bytes":([0-9]+),.*/\1 \3/p' "$tmp/log.$target" |
		awk '{ calls[$1]++; bytes[$1] += $2 } END { for (n in calls) print n "=" calls[n] " " bytes[n] }'
	sed "s/^/$name: /" "$tmp/stderr" >&2
	echo "-- report"
	"$STEPFLAME" report "$tmp/$name.rec" --gpu --json
	echo "-- end"
	echo "events_left=$(grep -c stepflame /sys/kernel/tracing/uprobe_events)"
}

echo "kernel=$(uname -r)"
echo "btf=$([ -r /sys/kernel/btf/vmlinux ] && echo yes)"
for mount in tracefs:/sys/kernel/tracing debugfs:/sys/kernel/debug bpf:/sys/fs/bpf cgroup2:/sys/fs/cgroup; do
	echo "${mount%%:*}=$(grep -q " ${mount#*:} ${mount%%:*} " /proc/mounts && echo yes)"
done
echo "root_read_only=$(touch /etc/stepflame-vm 2> /dev/null || echo yes)"

run plain "$targets/target" ""
run plain_throw "$targets/throw" ""
if [ -x "${STEPFLAME:-}" ]; then
	run work "$targets/target" "$targets/libtarget.so:vm_work"
	run recurse "$targets/target" "$targets/libtarget.so:vm_recurse"
	run throw "$targets/throw" "$targets/throw:vm_pass"
	if [ -x "$doubles/train" ]; then
		run_gpu gpu --gpu uprobe
	fi
fi
