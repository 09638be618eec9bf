#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# run.sh VERSION_PREFIX COMMAND...: runs the command as root under another kernel, and exits with its exit status.
#
# The machine boots in qemu without KVM, in some seconds. Inside, this host's root file system is there by 9p, read-only,
# with the same current directory; /tmp shows the host's, and what is written there is gone afterwards, as is /run.
# Only /run/share is kept: it is the host's $VM_SHARE, if that is set.
#   VM_TIMEOUT  seconds for boot and command together (default 300; then status 124)
#   VM_MEMORY   as qemu takes it (default 2G)
#   VM_APPEND   more words of the kernel's command line
#   VM_CONSOLE  1 prints the kernel's messages too
# Status 125: the machine ended before the command did; its last messages are on stderr.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/need.sh"

if [ $# -lt 2 ]; then
	echo "usage: run.sh VERSION_PREFIX COMMAND..." >&2
	exit 2
fi
need qemu-system-x86_64 qemu-system-x86
need busybox busybox-static
need cpio cpio
kernel=$("$here/kernel.sh" "$1")
shift

work=$(mktemp -d)
vm=
trap '[ -z "$vm" ] || { kill "$vm" && wait "$vm"; }; rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# make_initramfs: busybox, tests/vm/init, and the modules without which the host's files cannot be seen. The file
# modules.dep says "module: what it needs, last first"; a module that it does not have is built in.
make_initramfs()
{
	local root=$work/initramfs module path file
	mkdir -p "$root"/{bin,modules,proc,sys,dev,host}
	cp "$(command -v busybox)" "$root/bin/busybox"
	cp "$here/init" "$root/init"
	for module in virtio_pci 9pnet_virtio 9p overlay; do
		for path in $(sed -nE "s,^([^:]*/$module\.ko[^:]*): ?(.*),\1 \2,p" "$kernel/modules/modules.dep" |
			tr ' ' '\n' | tac); do
			file=$(basename "$path")
			[ -e "$root/modules/${file%%.ko*}.ko" ] && continue
			case $file in
			*.xz) xz -dc "$kernel/modules/$path" ;;
			*.zst) zstd -dqc "$kernel/modules/$path" ;;
			*) cat "$kernel/modules/$path" ;;
			esac > "$root/modules/${file%%.ko*}.ko"
			echo "${file%%.ko*}" >> "$root/modules/order"
		done
	done
	(cd "$root" && find . | cpio -o -H newc --quiet) > "$work/initramfs.cpio"
}

make_initramfs
mkdir "$work/control"
{
	printf 'cd %q && exec' "$PWD"
	printf ' %q' "$@"
	echo
} > "$work/control/command"

share=()
if [ -n "${VM_SHARE:-}" ]; then
	share=(-virtfs "local,path=$VM_SHARE,mount_tag=share,security_model=none,multidevs=remap")
fi
# Killed by SIGKILL, this script takes timeout with it, and timeout takes qemu: none is left behind.
with_parent=(setpriv --pdeathsig KILL)
# One thread for both CPUs: with one each, a 7.3 was seen to die of an int3 that it had just patched out of its own code.
"${with_parent[@]}" timeout -k 5 "${VM_TIMEOUT:-300}" "${with_parent[@]}" qemu-system-x86_64 \
	-accel tcg,thread=single -cpu max -smp 2 -m "${VM_MEMORY:-2G}" -nodefaults -no-user-config -display none \
	-no-reboot -kernel "$kernel/vmlinuz" -initrd "$work/initramfs.cpio" \
	-append "console=ttyS0 panic=-1 mitigations=off ${VM_CONSOLE:+ignore_loglevel} ${VM_APPEND:-}" -serial file:"$work/console" \
	-virtfs local,path=/,mount_tag=root,security_model=none,readonly=on,multidevs=remap \
	-virtfs local,path="$work/control",mount_tag=control,security_model=none "${share[@]}" \
	< /dev/null > "$work/qemu" 2>&1 &
vm=$!
ended=0
wait "$vm" || ended=$?
vm=

if [ -n "${VM_CONSOLE:-}" ]; then
	cat "$work/console" >&2
fi
if [ -e "$work/control/stdout" ]; then
	cat "$work/control/stdout"
	cat "$work/control/stderr" >&2
fi
if [ -e "$work/control/status" ]; then
	exit "$(cat "$work/control/status")"
fi
if [ "$ended" -eq 124 ]; then
	echo "run.sh: stopped after ${VM_TIMEOUT:-300} s" >&2
	exit 124
fi
echo "run.sh: the machine ended before the command did; its last messages:" >&2
tail -q -n 20 "$work/qemu" "$work/console" >&2 || true
exit 125
