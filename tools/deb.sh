#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# deb.sh ROOT VERSION OUT: makes the package OUT of what `make install` has put below ROOT. Used by `make deb`.
# With dpkg's own tools, not debhelper: so it wants nothing that building stepflame does not.
set -eu

root=$1
version=$2
out=$3
revision=$version-1
maintainer="${DEBFULLNAME:-stepflame developers} <${DEBEMAIL:-maintainers@stepflame.invalid}>"
date=$(date -u -R -d "@$SOURCE_DATE_EPOCH")
doc=$root/usr/share/doc/stepflame

work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

gzip -9n "$root"/usr/share/man/man1/*.1
mv "$doc/CHANGELOG.md" "$doc/changelog"
cat >"$doc/changelog.Debian" <<END
stepflame ($revision) unstable; urgency=medium

  * Made by make deb; changelog.gz beside this file says what is new.

 -- $maintainer  $date
END
gzip -9n "$doc/changelog" "$doc/changelog.Debian"
{
	printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: stepflame\n\n'
	printf 'Files: *\nCopyright: 2026, the stepflame authors\nLicense: GPL-2.0-only or BSD-2-Clause\n\n'
	printf "License: GPL-2.0-only\n On Debian systems, the GNU General Public License, version 2, is in\n /usr/share/common-licenses/GPL-2.\n\n"
	printf 'License: BSD-2-Clause\n'
	sed -n '/^1\. Redistributions/,/POSSIBILITY OF SUCH DAMAGE/p' "$doc/LICENSE" | sed 's/^$/./; s/^/ /'
	printf '\nFiles: usr/bin/stepflame\nCopyright: 2026, the stepflame authors\n 2015-2024, the libbpf authors\n 1988-2024, Free Software Foundation (libiberty)\n'
	printf 'License: GPL-2.0-only or BSD-2-Clause\nComment: It has libbpf (LGPL-2.1 or BSD-2-Clause) and libiberty (LGPL-2.1 or later) linked into it.\n'
} >"$doc/copyright"
rm "$doc/LICENSE"

install -D -m 644 "$doc/watch.conf" "$root/etc/stepflame/watch.conf"
rm "$doc/watch.conf"

mkdir "$root/DEBIAN"
echo /etc/stepflame/watch.conf >"$root/DEBIAN/conffiles"
install -m 755 "$(dirname "$0")/service/postinst" "$(dirname "$0")/service/prerm" "$(dirname "$0")/service/postrm" "$root/DEBIAN"
# dpkg-shlibdeps reads the control file of a source package.
mkdir "$work/debian"
printf 'Source: stepflame\n\nPackage: stepflame\nArchitecture: amd64\n' >"$work/debian/control"
top=$(realpath "$root")
program=$top/usr/bin/stepflame
library=$top/usr/lib/stepflame/libstepflame-inject.so
depends=$(cd "$work" && dpkg-shlibdeps -O -S"$top" "$program" "$library" | sed -n "s,^shlibs:Depends=,,p")
[ -n "$depends" ]

(cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
cat >"$root/DEBIAN/control" <<END
Package: stepflame
Version: $revision
Architecture: amd64
Maintainer: $maintainer
Installed-Size: $(du -sk --apparent-size "$root/usr" | cut -f1)
Depends: $depends
Suggests: libevent-openssl-2.1-7, libcurl4
Section: devel
Priority: optional
Description: watches running PyTorch and Lightning training jobs from outside
 stepflame attaches to a training job that runs already, with eBPF: no restart,
 no change of its code. It prints the tables that Lightning's profilers and
 torch.profiler would have printed, says which steps were slow and why, and
 draws where the time of each step went.
 .
 It needs Linux 6.1 or later with type information (BTF), and root or some
 capabilities.
END
find "$root" -newermt "@$SOURCE_DATE_EPOCH" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
chmod -R u=rwX,go=rX "$root"
dpkg-deb --root-owner-group -Zxz --build "$root" "$out" >/dev/null
