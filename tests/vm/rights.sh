#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# rights.sh TARGETS: what test_rights.py runs in each machine: recordings by a user who is not root, with each set of capabilities that
# docs/safety.md names, and with that set less each of them.
#
# Prints a block for each recording: `== WAY WHOSE all|CAPABILITY|paranoid`, where the capability is what is missing, the status of `record`, what
# it said, and how many calls it counted. WAY: how probes are attached; one that this kernel does not have is left out. paranoid: all of them,
# with kernel.perf_event_paranoid at 3, where Debian's kernels allow perf events to administrators only.
set -u

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
chmod 777 "$tmp"
cp "$STEPFLAME" "$1"/target "$1"/libtarget.so "$tmp"
calls=100
number=0

# as_user UID CAPABILITIES: sets `as`, the words before a command.
as_user()
{
	local sets=-all,$2
	sets=${sets%,}
	as=(setpriv --reuid "$1" --regid "$1" --clear-groups --inh-caps="$sets" --ambient-caps="$sets" --bounding-set="$sets")
}

# record WAY WHOSE MISSING UID CAPABILITIES: of a new process of user UID, by user 1000.
record()
{
	local start=$tmp/start.$((number += 1)) target recorder status out=$tmp/out.$number

	as_user "$4" ""
	"${as[@]}" "$tmp/target" "$start" $calls > "$out.target" &
	target=$!
	until grep -q ready "$out.target"; do sleep 0.05; done
	as_user 1000 "$5"
	"${as[@]}" env STEPFLAME_PROBES="$1" HOME=/nonexistent "$tmp/stepflame" record -p "$target" -o "$out.rec" \
		--action libtarget.so:vm_work > /dev/null 2> "$out.err" &
	recorder=$!
	until grep -q armed "$out.err" || ! kill -0 $recorder 2> /dev/null; do sleep 0.05; done
	touch "$start"
	wait $target
	status=$?
	wait $recorder
	printf '== %s %s %s\nrecord_status=%s\ntarget_status=%s\n' "$1" "$2" "$3" $? $status
	echo "said=$(tr '\n' ' ' < "$out.err")"
	echo "counted=$("$tmp/stepflame" report "$out.rec" --simple --json 2> /dev/null |
		python3 -c 'import json, sys; print(sum(a["count"] for a in json.load(sys.stdin)["actions"]))' 2> /dev/null)"
}

# without CAPABILITY LIST: the list, +a,+b, without it.
without()
{
	echo "$2" | tr , '\n' | grep -vx "+$1" | paste -sd ,
}

# way NAME LIST ALONE...: LIST is what the user's own processes take, ALONE are those of it that no other one includes.
way()
{
	local name=$1 list=$2 missing rest
	shift 2

	STEPFLAME_PROBES=$name "$tmp/stepflame" doctor | grep -q FAIL && return
	record "$name" own all 1000 "$list"
	for missing; do
		rest=$(without "$missing" "$list")
		record "$name" own "$missing" 1000 "${rest:-+bpf,+perfmon}" # which CAP_SYS_ADMIN includes
	done
	record "$name" others all 1001 "$list,+sys_ptrace"
	record "$name" others sys_ptrace 1001 "$list"
	echo 3 > /proc/sys/kernel/perf_event_paranoid
	[ "$name" = perf ] || record "$name" own paranoid 1000 "$list"
	echo 2 > /proc/sys/kernel/perf_event_paranoid
}

echo 2 > /proc/sys/kernel/perf_event_paranoid
echo 0 > /proc/sys/kernel/yama/ptrace_scope

way multi +bpf,+perfmon bpf perfmon
way events +bpf,+perfmon,+dac_override bpf perfmon dac_override
# perf is for where tracefs is not mounted, nor by debugfs
mount -t tmpfs none /sys/kernel/tracing
mount -t tmpfs none /sys/kernel/debug
way perf +sys_admin sys_admin
