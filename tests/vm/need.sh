# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# Sourced by kernel.sh and run.sh: need COMMAND PACKAGE... installs the packages, as root, when the command is missing.

PATH=$PATH:/usr/sbin:/sbin

need()
{
	local command=$1
	shift
	command -v "$command" > /dev/null && return
	if [ "$(id -u)" -ne 0 ]; then
		echo "$(basename "$0"): $command is missing; as root: apt-get install --no-install-recommends $*" >&2
		exit 1
	fi
	echo "$(basename "$0"): installing $*" >&2
	(apt-get -qq update; apt-get -qq install -y --no-install-recommends "$@") < /dev/null > /dev/null 2>&1 && return
	echo "$(basename "$0"): $* cannot be installed (no network?)" >&2
	exit 1
}
