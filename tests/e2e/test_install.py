# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
The packages of `make packages`, each installed below a root that has nothing but what the package may ask for, and run there.

Such a root has glibc, copied from here. Mounts are in a mount namespace of their own, and end with the command.
"""

import fcntl
import json
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import helpers
import pytest
from namespace import Host

BUILD = helpers.ROOT / "build"
PACKAGE = helpers.ROOT / "user/python/stepflame"
LIBRARIES = Path("lib/x86_64-linux-gnu")
LOADER = Path("lib64/ld-linux-x86-64.so.2")
GLIBC = ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1")
WHEEL_BYTES = 12_000_000
ALONE = ("--no-index", "--no-deps", "--no-compile", "--ignore-installed")

# sh -c INSIDE ROOT MOUNTS COMMAND...: runs the command below ROOT, which sees the folders MOUNTS of here.
INSIDE = 'for folder in $1; do mount --rbind "$folder" "$0$folder" || exit 125; done; shift; exec chroot "$0" "$@"'
# sh -c OVERLAID LOWER ROOT COMMAND...: the command, once ROOT shows the folder LOWER, and keeps what is written.
OVERLAID = 'mkdir "$1/new" "$1/work" "$1/all" && mount -t overlay overlay -o "lowerdir=$0,upperdir=$1/new,workdir=$1/work" "$1/all" || exit 125; shift; exec "$@"'

rooted = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for a root of its own")


def package(pattern):
    found = list(BUILD.glob(pattern))
    assert len(found) == 1, "%s: %s; run make packages" % (BUILD / pattern, found)
    return found[0]


def output_of(*command, **run):
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=helpers.END_SECONDS, **run)
    assert done.returncode == 0, (command, done)
    return done.stdout


class Root:
    """A file system with nothing in it but glibc."""

    def __init__(self, folder):
        self.folder = folder
        self.mounts = []
        for name in ("tmp", LIBRARIES, LOADER.parent):
            (folder / name).mkdir(parents=True)
        for name in ("/proc", "/sys", "/dev"):
            self.mount(name)
        shutil.copy(Path("/", LOADER), folder / LOADER)
        self.add(*(Path("/", LIBRARIES, name) for name in GLIBC))

    def mount(self, name):
        (self.folder / str(name).lstrip("/")).mkdir(parents=True)
        self.mounts.append(str(name))

    def add(self, *libraries):
        for library in libraries:
            shutil.copy(library, self.folder / LIBRARIES)

    def command(self, *command):
        return ["unshare", "-m", "--propagation", "private", "sh", "-c", INSIDE, str(self.folder), " ".join(self.mounts), *map(str, command)]

    def output_of(self, *command, **run):
        return output_of(*self.command(*command), **run)


@pytest.fixture
def root(tmp_path):
    (tmp_path / "root").mkdir()
    return Root(tmp_path / "root")


def verdicts(doctor):
    return {check["name"]: check["verdict"] for check in json.loads(doctor)["checks"]}


def check_runs(root, *program, **run):
    """It starts, and can do all that it can do here."""
    assert root.output_of(*program, "--version", **run) == output_of(helpers.STEPFLAME, "--version")
    assert verdicts(root.output_of(*program, "doctor", "--json", **run)) == verdicts(output_of(helpers.STEPFLAME, "doctor", "--json"))


def check_records(root, program, bench):
    """Counts of a job outside."""
    job = bench.job("plain_loop.py", "--labels").until_ready()
    record = bench.process(*root.command(program, "record", "-p", job.pid, "-o", "/tmp/job.rec"))
    record.until_says("armed", helpers.ARMED_SECONDS, "stderr")
    job.release()
    truth = job.truth()
    assert record.wait() == helpers.OK, record.what()
    found = json.loads(root.output_of(program, "report", "/tmp/job.rec", "--all", "--json"))
    parts = {row["name"]: row["count"] for row in found["actions"]}
    assert parts["backward"] == truth["parts"]["backward"]["count"]
    assert found["window"]["steps"] == truth["steps"]


@rooted
@helpers.needs_bpf
def test_archive(root, bench):
    """It wants glibc alone, and finds the injection library beside it."""
    output_of("tar", "-xzf", package("stepflame-*-x86_64.tar.gz"), "-C", root.folder)
    (folder,) = root.folder.glob("stepflame-*")
    program = "/%s/bin/stepflame" % folder.name
    check_runs(root, program)
    check_records(root, program, bench)
    for name in ("LICENSE", "README.md", "lib/stepflame/libstepflame-inject.so", "share/man/man1/stepflame-record.1", "share/zsh/site-functions/_stepflame"):
        assert (folder / name).stat().st_size, name


@rooted
@helpers.needs_bpf
def test_first_minute(root, bench):
    """What docs/install.md says of the archive, then the README's three commands as they stand there: in a minute the answer is on the screen."""
    host = Host(bench, "NONE=", script=helpers.JOBS / "walk_slow_now.py", args=["--epochs", 1000])
    host.go.touch()
    begin = time.monotonic()
    (unpack,) = re.findall(r"^    (tar xf stepflame.*)$", (helpers.ROOT / "docs/install.md").read_text(), re.M)
    shutil.copy(package("stepflame-*-x86_64.tar.gz"), root.folder)
    output_of("sh", "-c", unpack, cwd=root.folder)
    (program,) = root.folder.glob("stepflame-*/bin/stepflame")
    commands = (helpers.ROOT / "README.md").read_text().partition("## Three commands")[2].partition("##")[0]
    inside = host.command(*root.command("/" / program.relative_to(root.folder)))
    said = [output_of(*inside, *words.split()) for words in re.findall(r"^    stepflame ([^#\n]+)", commands, re.M)]
    seconds = time.monotonic() - begin
    listed, screen, steps = said
    assert re.search(r"^ *%d " % host.pids[0], listed, re.M)
    assert re.search(r"every 40th step: waiting for process \d+ \(sleeping\), at walk_slow_now.py:\d+ log_metrics", " ".join(screen.split())), screen
    assert "Slow steps, by what" in steps and seconds < 60


@rooted
@helpers.needs_bpf
def test_wheel(root, tmp_path):
    """pip takes it, and its command runs with a Python that has nothing else."""
    wheel = package("stepflame-*.whl")
    assert wheel.stat().st_size <= WHEEL_BYTES
    python = os.path.realpath(sys.executable)
    output_of(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *ALONE, "--root", root.folder, "--prefix", "/opt", wheel)
    (launcher,) = (root.folder / "opt").rglob("bin/stepflame")
    (module,) = (root.folder / "opt").rglob("stepflame/__init__.py")
    root.mount(sys.base_prefix)
    root.add(*re.findall(r"=> (/\S+)", output_of("ldd", python)))
    env = {**{name: value for name, value in os.environ.items() if name != "STEPFLAME"}, "PYTHONPATH": "/" + str(module.parent.parent.relative_to(root.folder)), "PYTHONDONTWRITEBYTECODE": "1"}
    check_runs(root, python, "/" + str(launcher.relative_to(root.folder)), env=env)
    # the package finds that program, reads a recording with it, and names what else it can use
    script = "import stepflame, stepflame.program as p, sys; print(p.path()); print(stepflame.load(sys.argv[1]).report('simple', json=True), end='')"
    shutil.copy(helpers.ROOT / "tests/data/recordings/plain.rec", root.folder / "tmp")
    path, _, said = root.output_of(python, "-c", script, "/tmp/plain.rec", env=env).partition("\n")
    assert path == "/%s/native/stepflame" % module.parent.relative_to(root.folder)
    assert said == output_of(helpers.STEPFLAME, "report", root.folder / "tmp/plain.rec", "--simple", "--json")
    packed = {str(file.relative_to(module.parent)) for file in module.parent.rglob("*") if file.is_file() and "native" not in file.parts}
    assert packed == {str(file.relative_to(PACKAGE)) for file in PACKAGE.rglob("*") if file.is_file() and "__pycache__" not in file.parts}
    (metadata,) = (root.folder / "opt").rglob("METADATA")
    assert re.findall("^Provides-Extra: (.*)$", metadata.read_text(), re.M) == ["tables", "fleet", "spark"]
    # the tag says which glibc it wants: the newest version of all symbols, as the dynamic loader is told
    said = tuple(map(int, re.search(r"manylinux_(\d+)_(\d+)_", wheel.name).groups()))
    files = [file for file in module.parent.rglob("*") if ".so" in file.name or file.name == "stepflame"]
    wanted = [tuple(map(int, found)) for file in files if file.is_file() for found in re.findall(r"\(GLIBC_(\d+)\.(\d+)", output_of("objdump", "-T", file))]
    assert said == max(wanted)


def depended_on(names):
    """Files of the shared libraries of packages and of those that they depend on, as they are installed here."""
    known, queue = set(), list(names)
    while queue:
        name = queue.pop()
        if name in known:
            continue
        known.add(name)
        fields = subprocess.run(["dpkg-query", "-W", "-f", "${Depends}, ${Pre-Depends}", name], capture_output=True, text=True)
        if fields.returncode == 0:
            queue += names_of(fields.stdout)
    files = subprocess.run(["dpkg-query", "-L", *sorted(known)], capture_output=True, text=True).stdout.splitlines()
    return [file for file in files if re.search(r"\.so\.[\d.]+$", file) and Path(file).is_file()]


def names_of(depends):
    return [re.match(r"\s*([^\s(:]+)", part)[1] for part in re.split(r"[,|]", depends) if part.strip()]


@rooted
@helpers.needs_bpf
def test_deb(root):
    """It names all packages whose libraries it wants, and Python is none of them."""
    deb = package("stepflame_*.deb")
    depends = names_of(output_of("dpkg-deb", "-f", deb, "Depends"))
    assert not [name for name in depends if "python" in name or "bpf" in name]
    root.add(*depended_on(depends))
    output_of("dpkg-deb", "-x", deb, root.folder)
    check_runs(root, "/usr/bin/stepflame")
    share = root.folder / "usr/share"
    pages = {page.name for page in (share / "man/man1").iterdir()}
    assert pages == {"stepflame.1.gz", *("stepflame-%s.1.gz" % name for name in commands())}
    for name in ("bash-completion/completions/stepflame", "zsh/vendor-completions/_stepflame", "fish/vendor_completions.d/stepflame.fish", "doc/stepflame/copyright"):
        assert (share / name).stat().st_size, name
    assert (root.folder / "usr/lib/stepflame/libstepflame-inject.so").stat().st_size
    assert output_of("dpkg-deb", "-I", deb, "conffiles") == "/etc/stepflame/watch.conf\n"
    settings = root.folder / "etc/stepflame/watch.conf"
    settings.write_text(settings.read_text() + "state = /tmp/elsewhere\n")
    done = subprocess.run(root.command("/usr/bin/stepflame", "watch", "status"), capture_output=True, text=True)
    assert done.returncode == helpers.ERROR and "nobody watches with the folder /tmp/elsewhere" in done.stderr, done


def test_containerfile():
    """What it calls exists: make's targets, and the stages of set-up."""
    runs = re.findall(r"^RUN (.*)$", (helpers.ROOT / "Containerfile").read_text(), re.M)
    targets = [word for run in runs for command in re.findall(r"\bmake (-j \S+ )?([^&|;]*)", run) if "apt-get install" not in run for word in command[1].split()]
    stages = [stage for run in runs for stage in re.findall(r"tools/setup.sh (\w+)", run)]
    assert targets and stages
    usage = subprocess.run([helpers.ROOT / "tools/setup.sh"], capture_output=True, text=True).stderr
    for stage in stages:
        assert re.search(r"tools/setup\.sh %s\b" % stage, usage), stage
    for target in targets:
        tried = subprocess.run(["make", "-C", helpers.ROOT, "--dry-run", target], capture_output=True, text=True)
        assert tried.returncode == 0, (target, tried.stderr)


# ---- completions ----


def commands():
    return re.findall(r"^  (\w+)  ", helpers.stepflame("--help").stdout, re.M)


def options(command):
    return set(re.findall(r"^ *(?:-\w, )?(--[\w-]+)", helpers.stepflame("help", command).stdout, re.M))


def bash(*words):
    """What bash offers for the last of the words."""
    script = 'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _stepflame stepflame "${!#}" "${COMP_WORDS[$# - 2]}"; printf "%s\\n" "${COMPREPLY[@]}"'
    return set(output_of("bash", "-c", script, BUILD / "completion/bash", *words).split())


def test_completion_of_bash():
    assert bash("stepflame", "") == {*commands(), "help", "--help", "--version"}
    assert bash("stepflame", "help", "") == set(commands())
    for command in commands():
        assert bash("stepflame", command, "--") == options(command)
    assert bash("stepflame", "record", "--children", "") == bash("stepflame", "record", "--children", "=", "") == {"all", "workers", "none"}
    assert bash("stepflame", "record", "--gpu", "c") == {"cupti"}
    formats = {"arrow", "chrome", "perfetto", "tensorboard", "speedscope", "pprof", "folded", "pstats"}
    assert bash("stepflame", "export", "--format", "") == bash("stepflame", "export", "-f", "") == formats
    assert bash("stepflame", "top", "--view", "") == {"actions", "functions", "waits", "threads", "steps", "processes"}
    keys = bash("stepflame", "report", "--sort", "")
    assert keys > {"percent", "tottime", "cpu_time_total", "duration", "index", "time", "avg"}
    refused = helpers.stepflame("report", "--sort", "nosuch").stderr
    assert keys > set(re.findall(r"[a-z_]+", refused.partition("it has: ")[2].splitlines()[0]))


@pytest.fixture(scope="module")
def bare_debian():
    """The folder of a bare Debian 12. With it there are zsh and fish."""
    made = subprocess.run([helpers.ROOT / "tools/setup.sh", "packaging"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    if made.returncode != 0:
        pytest.skip("tools/setup.sh packaging: exit %d" % made.returncode)
    return Path(made.stdout.strip())


@pytest.mark.long
def test_completion_of_fish(bare_debian):
    def fish(line):
        return {offer.split("\t")[0].rstrip("=") for offer in output_of("fish", "--no-config", "-c", "source $argv[1]; complete -C $argv[2]", BUILD / "completion/fish", line).splitlines()}

    assert fish("stepflame ") == {*commands(), "help"}
    assert fish("stepflame help ") >= set(commands())
    for command in commands():
        assert fish("stepflame %s --" % command) == options(command)
    assert fish("stepflame record --children ") == {"all", "workers", "none"}
    assert fish("stepflame export --format p") == {"perfetto", "pprof", "pstats"}


# Without what explains the offers, which may name others.
ZSH = "fpath=(%s $fpath); autoload -Uz compinit; compinit -u -D; zstyle ':completion:*' verbose no; LISTMAX=1000; print rea''dy\n"


class Zsh:
    """A shell at a terminal: zsh makes its offers only there."""

    def __init__(self, functions):
        self.terminal, its = pty.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 100, 200, 0, 0))
        self.process = subprocess.Popen(["zsh", "-f", "-i"], stdin=its, stdout=its, stderr=its, start_new_session=True, env={**os.environ, "TERM": "xterm", "PS1": "> "})
        os.close(its)
        self.read_until(r"> ")
        self.write(ZSH % functions)
        self.read_until(r"ready\r")

    def write(self, text):
        os.write(self.terminal, text.encode())

    def read(self, seconds):
        text = b""
        while select.select([self.terminal], [], [], seconds)[0]:
            text += os.read(self.terminal, 65536)
        return text.decode(errors="replace")

    def read_until(self, pattern):
        text = ""

        def look():
            nonlocal text
            text += self.read(0.1)
            return re.search(pattern, text)

        helpers.until(helpers.END_SECONDS, look, lambda: "zsh wrote %r" % text)
        return text

    def offers(self, line, expected, pattern=r"--[\w-]+"):
        """What it offers for a line: until all of that has come, and for a moment more."""
        self.write(line + "\t")
        text = "".join(self.read_until(r"(?<![\w-])%s(?![\w-])" % re.escape(word)) for word in sorted(expected)[-1:]) + self.read(1)
        self.write("\x15")  # Ctrl-U: an empty line again
        self.read(0.2)
        plain = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", " ", text).partition("\n")[2]
        return set(re.findall(pattern, plain.replace(line.strip(), "")))  # the line is shown again below the offers

    def close(self):
        os.close(self.terminal)
        self.process.kill()
        self.process.wait()


@pytest.mark.long
def test_completion_of_zsh(bare_debian, tmp_path):
    shutil.copy(BUILD / "completion/zsh", tmp_path / "_stepflame")
    zsh = Zsh(tmp_path)
    try:
        words = {*commands(), "help"}
        assert zsh.offers("stepflame ", words, r"(?<![\w-])[a-z]\w+(?![\w-])") == words
        for command in commands():
            assert zsh.offers("stepflame %s --" % command, options(command)) == options(command)
        words = {"all", "workers", "none"}
        assert zsh.offers("stepflame record --children ", words, r"[a-z]\w+") == words
    finally:
        zsh.close()


# ---- Debian itself ----


@pytest.mark.long
def test_lintian(bare_debian):
    # which is for what is sent to Debian
    assert output_of("lintian", "--allow-root", "--pedantic", "--suppress-tags", "initial-upload-closes-no-bugs", package("stepflame_*.deb")) == ""


@pytest.mark.long
@rooted
@helpers.needs_bpf
def test_deb_on_debian(bare_debian, tmp_path, bench):
    """apt installs it with what it asks for, on a bare Debian 12; then it runs, and can be removed."""
    (tmp_path / "layers").mkdir()
    shutil.copy(package("stepflame_*.deb"), tmp_path / "stepflame.deb")
    script = 'mount --bind "$1" "$0/mnt" && cp /etc/resolv.conf "$0/etc" && apt="apt-get -qq -y -o Dpkg::Use-Pty=0 --no-install-recommends" &&'
    script += ' chroot "$0" sh -ec "$apt update; $apt install /mnt/stepflame.deb; stepflame --version; stepflame doctor --json; $apt remove stepflame; ! test -e /usr/bin/stepflame"'
    mounts = 'for folder in /proc /sys /dev; do mount --rbind "$folder" "$0$folder" || exit 125; done; ' + script
    layers = tmp_path / "layers"
    said = output_of("unshare", "-m", "--propagation", "private", "sh", "-c", OVERLAID, bare_debian, layers, "sh", "-c", mounts, layers / "all", tmp_path, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
    assert output_of(helpers.STEPFLAME, "--version") in said
    assert '"type information"' in said


# In the bare Debian: what systemd would be asked, as the package is installed, installed again while the service runs, removed and purged.
LIFE = """
printf '#!/bin/sh\\necho "$@" >>/systemctl\\n[ "$1" != --quiet ] || [ -e /active ]\\n' >/usr/bin/systemctl
chmod +x /usr/bin/systemctl
mkdir -p /run/systemd/system
asked() { echo "$1: $(grep -v daemon-reload /systemctl | tr '\\n' ';')"; : >/systemctl; }
dpkg --force-depends -i /mnt/stepflame.deb; asked installed
ls /etc/systemd/system/multi-user.target.wants 2>/dev/null | grep stepflame || echo not enabled
mkdir -p /var/lib/stepflame/events /var/cache/stepflame; echo 1 >/var/lib/stepflame/events/one; echo '#mine' >>/etc/stepflame/watch.conf
dpkg --force-depends -i /mnt/stepflame.deb; asked upgraded
touch /active
dpkg --force-depends -i /mnt/stepflame.deb; asked upgraded-active
dpkg -r stepflame; asked removed
echo "left: $(find /var/lib/stepflame /etc/stepflame -type f | sort | tr '\\n' ' ')"
dpkg --purge stepflame
echo "purged: $(find /var/lib/stepflame /var/cache/stepflame /etc/stepflame /usr/share/doc/stepflame /usr/lib/stepflame 2>/dev/null)."
"""


@pytest.mark.long
@rooted
def test_deb_service(bare_debian, tmp_path):
    """The service is there, and not enabled; an upgrade restarts it only if it runs; its recordings stay until the package is purged."""
    (tmp_path / "layers").mkdir()
    shutil.copy(package("stepflame_*.deb"), tmp_path / "stepflame.deb")
    mounts = 'mount --bind "$1" "$0/mnt" && mount -t tmpfs none "$0/run" && mount --rbind /proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" sh -ec "$2"'
    layers = tmp_path / "layers"
    said = output_of("unshare", "-m", "--propagation", "private", "sh", "-c", OVERLAID, bare_debian, layers, "sh", "-c", mounts, layers / "all", tmp_path, LIFE)
    told = dict(re.findall(r"^([a-z-]+): (.*)$", said, re.M))
    assert not told["installed"] and "not enabled" in said.splitlines(), said
    assert "restart" not in told["upgraded"], said
    assert "restart stepflame-watch.service" in told["upgraded-active"], said
    assert "stop stepflame-watch.service" in told["removed"], said
    assert told["left"].split() == ["/etc/stepflame/watch.conf", "/var/lib/stepflame/events/one"], said
    assert told["purged"] == ".", said


class Image(Root):
    """A root that is there already."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.mounts = ["/proc", "/sys", "/dev"]


@pytest.fixture
def buildah(bare_debian, tmp_path):
    """A function that calls buildah, which has an image of the bare Debian under the name of the one that the Containerfile begins with."""
    (base,) = set(re.findall(r"^FROM (\S+)", (helpers.ROOT / "Containerfile").read_text(), re.M))
    store = ["buildah", "--storage-driver", "vfs", "--root", tmp_path / "images", "--runroot", tmp_path / "run"]

    def call(*args, seconds=helpers.END_SECONDS):
        done = subprocess.run([str(word) for word in (*store, *args)], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds)
        assert done.returncode == 0, (args, done.stdout[-2000:], done.stderr[-4000:])
        return done.stdout.strip()

    container = call("from", "scratch")
    call("copy", container, bare_debian, "/")
    # how this machine reaches registries
    for name in "/usr/local/share/ca-certificates", "/etc/pip.conf":
        if Path(name).exists():
            call("copy", container, name, name)
    call("commit", "--rm", container, base)
    yield call
    call("rm", "--all")
    call("rmi", "--all", "--force")


@pytest.mark.long
@rooted
@helpers.needs_bpf
def test_image(buildah, bench):
    """The Containerfile builds; what it makes begins with stepflame, and records a job outside."""
    buildah("bud", "--isolation", "chroot", "--pull-never", "-t", "stepflame", helpers.ROOT, seconds=1800)
    assert json.loads(buildah("inspect", "--type", "image", "stepflame"))["OCIv1"]["config"]["Entrypoint"] == ["stepflame"]
    image = Image(buildah("mount", buildah("from", "--pull-never", "stepflame")))
    assert not list((image.folder / "tmp").iterdir()) and not list((image.folder / "var/lib/apt/lists").iterdir())
    check_runs(image, "stepflame")
    check_records(image, "stepflame", bench)
