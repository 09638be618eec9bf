#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# cupti_headers.sh OUT DIR...: what CUPTI's headers in one of the folders have, as headers in OUT: cupti_records.h names the newest struct of
# each record, cupti_names.h lists the functions of CUDA, cupti_functions.h those of CUPTI.
set -eu

out=$1
shift
for dir in "$@"; do
	[ ! -r "$dir/cupti_activity.h" ] || break
done

newest() {
	grep -oE "^} CUpti_Activity$2[0-9]*;" "$dir/cupti_activity.h" | tr -d '};' | sort -V | tail -n 1 | sed "s/.*/typedef & $1;/"
}

{
	newest record_kernel Kernel
	newest record_memcpy Memcpy
	newest record_memcpy_peer MemcpyPtoP
	newest record_memset Memset
	newest record_sync Synchronization
	newest record_overhead Overhead
	newest record_graph GraphTrace
	newest record_device Device
} >"$out/cupti_records.h"

names() {
	sed -n "s/^ *CUPTI_${1}_TRACE_CBID_\([A-Za-z_][A-Za-z0-9_]*\) *= \([0-9]*\),.*/$1(\1, \2)/p" "$dir/cupti_$2_cbid.h" | grep -v '(INVALID\|(SIZE\|(FORCE_INT'
}

{
	names RUNTIME runtime
	names DRIVER driver
} >"$out/cupti_names.h"

# Those of CUPTI itself.
grep -hoE 'CUPTIAPI +cupti[A-Za-z0-9_]+ *\(' "$dir"/cupti_*.h | sed 's/.* \(cupti[A-Za-z0-9_]*\) *(/STUB(\1)/' | sort -u >"$out/cupti_functions.h"
