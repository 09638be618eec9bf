#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# kernel.sh VERSION_PREFIX: prints a directory with a Debian kernel of that version, unpacked: vmlinuz and modules/.
#
# "6.1" takes the newest 6.1.x, never 6.12. Packages come by apt from the mirror that this machine already uses, with
# apt state of our own, so that the machine's apt configuration stays as it is. Kept in the user's cache; no root needed.
set -euo pipefail
. "$(dirname "$0")/need.sh"

if [ $# -ne 1 ]; then
	echo "usage: kernel.sh VERSION_PREFIX" >&2
	exit 2
fi
prefix=$1
cache=${XDG_CACHE_HOME:-$HOME/.cache}/stepflame/kernels
# Between them these have 6.1, 6.12 and each stable release since; the cloud kernels have no 9p, so they are left out.
suites="bookworm bookworm-backports trixie trixie-backports"
name="linux-image-${prefix//./\\.}[.+-].*-amd64"
flavours='-(cloud|rt)-amd64$|-unsigned$'

newest()
{
	grep -Ex "$name" | grep -Ev -e "$flavours" | sort -V | tail -1
}

fail()
{
	echo "kernel.sh: $*" >&2
	exit 1
}

mkdir -p "$cache"
have=$(find "$cache" -mindepth 1 -maxdepth 1 -printf '%f\n' | newest || true)
if [ -n "$have" ]; then
	echo "$cache/$have"
	exit
fi

need depmod kmod
work=$(mktemp -d "$cache/.new-XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{apt/lists/partial,apt/archives/partial,debs,root}

mirror=$(grep -rhoE '(https?|file)://[^ ]+/debian/?( |$)' /etc/apt --include='*.list' --include='*.sources' |
	sed -n 1p)
[ -n "$mirror" ] || fail "no Debian mirror in /etc/apt; kernels come from one"
for suite in $suites; do
	echo "deb $mirror $suite main"
done > "$work/apt/sources.list"
options=(-qq -o "Dir::Etc::sourcelist=$work/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null
	-o "Dir::State::Lists=$work/apt/lists" -o "Dir::Cache=$work/apt" -o APT::Sandbox::User=root
	-o Acquire::Languages=none)

apt-get "${options[@]}" update >&2 || fail "the package lists cannot be had (no network?)"
image=$(apt-cache "${options[@]}" pkgnames linux-image- | newest) || fail "no kernel $prefix in: $suites"
release=${image#linux-image-}
# From 7.2 on the image is an empty package, and what it depends on has the kernel and its modules.
parts=$(apt-cache "${options[@]}" depends "$image" |
	grep -oFe "linux-base-$release" -e "linux-binary-$release" -e "linux-modules-$release" || true)
# shellcheck disable=SC2086 # several names
(cd "$work/debs" && apt-get "${options[@]}" download "$image" $parts >&2) || fail "$image cannot be downloaded"

for deb in "$work"/debs/*.deb; do
	dpkg-deb -x "$deb" "$work/root"
done
kernel=$work/kernel
mkdir -p "$kernel/lib/modules"
mv "$(find "$work/root" -type f -name 'vmlinuz*')" "$kernel/vmlinuz"
mv "$(find "$work/root" -type d -path "*/lib/modules/$release")" "$kernel/lib/modules/"
ln -s "lib/modules/$release" "$kernel/modules"
# modules.dep is written when a package is installed, and this one is not.
depmod -b "$kernel" "$release"
# Another run may have been first; its kernel is as good.
mv -T "$kernel" "$cache/$image" 2> /dev/null || [ -e "$cache/$image/vmlinuz" ] || fail "cannot write $cache/$image"
echo "$cache/$image"
