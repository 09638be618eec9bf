# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Less than root: with which capabilities stepflame records which processes (docs/safety.md), and what it says without them; containers."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import helpers
import pytest

pytestmark = helpers.needs_bpf

USER = 1000
CALLS = 1000
SOME = ["-d", "100ms"]
BACKENDS = {
    # how probes are attached: what is needed for own processes, and of that what nothing else there includes
    "multi": (["bpf", "perfmon"], ["bpf", "perfmon"]),
    "events": (["bpf", "perfmon", "dac_override"], ["bpf", "perfmon", "dac_override"]),
    "perf": (["bpf", "perfmon", "sys_admin"], ["sys_admin"]),
}
OF_OTHERS = "sys_ptrace"


def as_user(capabilities, *command, uid=USER):
    sets = "-all" + "".join(",+" + name for name in capabilities)
    return ["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups", "--inh-caps=" + sets, "--ambient-caps=" + sets, "--bounding-set=" + sets, *map(str, command)]


@pytest.fixture(scope="module")
def place():
    """A folder in which every user can write, with a copy of the program, and one to be recorded."""
    with tempfile.TemporaryDirectory(prefix="stepflame-") as name:
        folder = Path(name)
        shutil.copy(helpers.STEPFLAME, folder / "stepflame")
        helpers.compiled(folder / "called", helpers.JOBS / "called.c")
        folder.chmod(0o777)
        yield folder


class Called(helpers.Process):
    """A process that calls work() CALLS times once it is released, of a user's."""

    def __init__(self, bench, place, uid, *child, program, prefix=()):
        # not in a folder of pytest's, which another pytest that starts closes to other users
        self.go = place / ("%s.go%d" % (bench.directory.name, len(bench.started)))
        bench.directory.chmod(0o755)
        for parent in bench.directory.parents:
            if parent.name.startswith(("pytest", "popen")):  # those of pytest, and of a worker of xdist
                parent.chmod(0o755)
        command = [*prefix, *as_user([], program, self.go, CALLS, *child, uid=uid)]
        super().__init__(bench.directory, bench._name("called"), command)
        bench._keep(self)
        self.until_ready()


@pytest.fixture
def called(bench, place):
    return lambda uid, *child, program=place / "called", **options: Called(bench, place, uid, *child, program=program, **options)


def recording(place, pid, *options):
    (place / "out.rec").unlink(missing_ok=True)  # of another test, and another user
    return ["record", "-p", pid, "-F", 0, "--no-syscalls", "--action", "called:work", "-o", place / "out.rec", *options]


def check_calls(file, count):
    rows = helpers.actions(helpers.report(file, "--all"))
    assert {name: row["count"] for name, row in rows.items()} == ({"called:work": count} if count else {})


def run(command, **env):
    env = {**os.environ, "XDG_CACHE_HOME": "/nonexistent", **env}
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, env=env, timeout=helpers.END_SECONDS)


WITHOUT_TRACEFS = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /sys/kernel/tracing && exec "$@"', "sh"]


@pytest.fixture(params=BACKENDS)
def backend(request, monkeypatch):
    """(its name, the beginning of a command with what it needs beside capabilities)"""
    monkeypatch.setenv("STEPFLAME_PROBES", request.param)
    where = WITHOUT_TRACEFS if request.param == "perf" else helpers.WITH_TRACEFS
    if "FAIL" in run([*where, helpers.STEPFLAME, "doctor"]).stdout:
        pytest.skip("this kernel does not attach probes so")
    return request.param, where


@pytest.mark.parametrize("whose", ["own", "others"])
def test_exact_set(bench, place, called, backend, whose):
    """The documented capabilities suffice; without any one of them the message names it."""
    target = called(USER if whose == "own" else USER + 1)
    name, where = backend
    needed, each = BACKENDS[name]
    if whose == "others":
        needed, each = [*needed, OF_OTHERS], [OF_OTHERS]
    for missing in each:
        rest = [name for name in needed if name != missing]
        result = run([*where, *as_user(rest, place / "stepflame", *recording(place, target.pid, *SOME))])
        helpers.check_message(result, helpers.PERMISSION)
        assert re.search(r"CAP_%s (is )?missing" % missing.upper(), result.stderr), result.stderr
    record = bench.process(*where, *as_user(needed, place / "stepflame", *recording(place, target.pid)))
    record.until_says("armed", helpers.ARMED_SECONDS, "stderr")
    target.go.touch()
    assert target.wait() == 0 and record.wait() == helpers.OK, record.what()
    check_calls(place / "out.rec", CALLS)
    assert (place / "out.rec").stat().st_uid == USER


def test_no_rights_to_files(bench, place, called):
    """CAP_DAC_OVERRIDE is there for tracefs: what its user may not write stepflame does not write, and may not read, not read."""
    roots = bench.directory / "roots"
    roots.mkdir(mode=0o755)
    (roots / "secret.rec").write_text("secret")
    (roots / "secret.rec").chmod(0o600)
    target = called(USER)
    capabilities = ["bpf", "perfmon", "dac_override", "dac_read_search", "fowner", "chown"]
    for out in (roots / "new", roots / "secret.rec"):
        result = run(as_user(capabilities, place / "stepflame", "record", "-p", target.pid, "-o", out, *SOME))
        helpers.check_message(result, helpers.PERMISSION)
    result = run(as_user(capabilities, place / "stepflame", "report", roots / "secret.rec"))
    assert "Permission denied" in result.stderr and os.listdir(roots) == ["secret.rec"], result


@pytest.fixture
def privileged(place):
    """The program with file capabilities, that is, every user's program."""
    program = shutil.copy(place / "stepflame", place / "privileged")
    if shutil.which("setcap") is None or subprocess.run(["setcap", "cap_bpf,cap_perfmon,cap_sys_ptrace,cap_dac_override+ep", program]).returncode:
        pytest.skip("this file system has no file capabilities")
    yield program
    os.unlink(program)


def test_file_capabilities(bench, place, called, privileged):
    """They serve for the caller's own processes only."""
    own, roots = called(USER), called(0)
    result = run(caller(privileged, *recording(place, own.pid, *SOME)))
    assert result.returncode == helpers.OK, result
    result = run(caller(privileged, *recording(place, roots.pid, *SOME)))
    helpers.check_message(result, helpers.PERMISSION)
    assert "another user's" in result.stderr, result
    assert helpers.breakpoints(roots.pid) == set()
    assert "another user's" in run(caller(privileged, "doctor", "-p", roots.pid)).stdout


def caller(*command):
    """A user without capabilities, who may get some by a program's file."""
    return ["setpriv", "--reuid", str(USER), "--regid", str(USER), "--clear-groups", "--inh-caps=-all", *map(str, command)]


def test_program_with_more_rights(bench, place, called, privileged):
    """What an own process starts with the rights of another user is not watched by the rights of stepflame's file; by root it is."""
    shutil.copy(place / "called", place / "called-as-root")
    os.chmod(place / "called-as-root", 0o4755)
    for prefix, count in [(caller(privileged), 0), ([place / "stepflame"], CALLS)]:
        go = bench.directory / ("child%d" % count)
        target = called(USER, place / "called-as-root", go)
        (place / "out.rec").unlink(missing_ok=True)
        record = bench.process(*prefix, *recording(place, target.pid), env=dict(os.environ, XDG_CACHE_HOME="/nonexistent"))
        record.until_says("armed", helpers.ARMED_SECONDS, "stderr")
        target.go.touch()
        child = int(target.until_says(r"^ready \d+\nready (\d+)$", helpers.READY_SECONDS, "stdout")[1])
        if count:
            helpers.until(helpers.ARMED_SECONDS, lambda: helpers.breakpoints(child), record.what)
        else:
            time.sleep(0.3)  # in which it would be looked at
            assert helpers.breakpoints(child) == set()
        go.touch()
        assert target.wait() == 0 and record.wait() == helpers.OK, record.what()
        assert helpers.report(place / "out.rec")["overhead"]["hits"] == 2 * count


def test_environment_of_file_capabilities(place, privileged):
    """What it loads into a process is not the caller's choice."""
    library = place / "evil.so"
    library.touch()
    command = ["record", "-F", 0, "--gpu", "cupti", "-o", "/dev/null", "--", "sh", "-c", "echo is $CUDA_INJECTION64_PATH"]
    assert str(library) in run([place / "stepflame", *command], STEPFLAME_INJECT=str(library)).stdout
    result = run(caller(privileged, *command), STEPFLAME_INJECT=str(library))
    assert "is" in result.stdout and str(library) not in result.stdout, result


def test_set_user_id(place):
    program = shutil.copy(place / "stepflame", place / "set-user-id")
    os.chmod(program, 0o4755)
    helpers.check_message(run(caller(program, "ps")), helpers.PERMISSION)


# ---- doctor ----

RESTRICTED = """
mount -t tmpfs none /sys/kernel/security && echo 'none integrity [confidentiality]' > /sys/kernel/security/lockdown
mount -t tmpfs none /sys/fs && mkdir /sys/fs/selinux && echo 1 > /sys/fs/selinux/enforce
exec "$@" """


def checks(*command):
    found = json.loads(run([*command, "doctor", "--json"]).stdout)["checks"]
    return {check["name"]: check for check in found}


def test_doctor_of_root():
    names = ["capabilities", "user namespace", "lockdown", "SELinux", "perf_event_paranoid", "unprivileged_bpf_disabled"]
    found = checks(helpers.STEPFLAME)
    assert [found[name]["verdict"] for name in names[:2]] == ["OK", "OK"]
    assert set(names) <= set(found) and all(check["verdict"] == "OK" or check["fix"] for check in found.values())


def test_doctor_names_what_restricts():
    found = checks("unshare", "-m", "sh", "-c", RESTRICTED, "sh", helpers.STEPFLAME)
    assert found["lockdown"]["verdict"] == "FAIL" and "confidentiality" in found["lockdown"]["found"]
    assert found["SELinux"]["verdict"] == "WARN" and "enforcing" in found["SELinux"]["found"]


def test_doctor_in_a_user_namespace(place):
    found = checks(*caller("unshare", "-r", place / "stepflame"))
    assert found["user namespace"]["verdict"] == "FAIL" and "BPF" in found["user namespace"]["found"]
    assert found["BPF programs"]["verdict"] == "FAIL" and "user namespace" in found["BPF programs"]["found"]
    result = run(caller("unshare", "-r", place / "stepflame", "record", "-o", place / "out.rec", "--", "true"))
    helpers.check_message(result, helpers.PERMISSION)
    assert "user namespace" in result.stderr


def test_doctor_without_capabilities(place):
    found = checks(*as_user(["bpf"], place / "stepflame"))
    assert found["capabilities"]["verdict"] == "FAIL" and "CAP_PERFMON, CAP_SYS_PTRACE missing" in found["capabilities"]["found"]
    assert (found["perf_event_paranoid"]["verdict"], found["unprivileged_bpf_disabled"]["verdict"]) == ("WARN", "OK")
    assert found["perf_event_paranoid"]["found"].endswith(": stepflame needs CAP_PERFMON, whatever this value is")
    assert found["unprivileged_bpf_disabled"]["found"].endswith(": does not matter with CAP_BPF")
    found = checks(*as_user(["bpf", "perfmon"], place / "stepflame"))
    assert found["capabilities"]["verdict"] == "WARN" and "your own processes only" in found["capabilities"]["found"]


# ---- containers ----

POD = """
"$1" "$2.go" %d > "$2.out" 2>&1 & target=$!
until read word rest < "$2.out" && [ "$word" = ready ]; do :; done # without a process, so that the next number is the same
"$3" record -p $target -F 0 --no-syscalls --action called:work -o "$2.rec" > "$2.log" 2>&1 & record=$!
until grep -q armed "$2.log" || ! kill -0 $record; do sleep 0.01; done
echo $target $record; wait""" % CALLS
ALL_END = ["unshare", "--pid", "--fork", "--kill-child"]  # when this one does
PODS = 'for pod in a b; do unshare --pid --mount --fork --mount-proc sh -c "$0" sh "$1" "$2/$pod" "$3" > "$2/$pod.pids" & done; wait'


def test_two_pods_with_one_tracefs(bench, place):
    """Their processes have the same numbers, and neither touches the probes of the other."""
    folder = bench.directory
    pods = bench.process(*ALL_END, *helpers.WITH_TRACEFS, "sh", "-c", PODS, POD, place / "called", folder, helpers.STEPFLAME, env=dict(os.environ, STEPFLAME_PROBES="events"))
    files = [folder / (pod + ".pids") for pod in "ab"]
    helpers.until(helpers.ARMED_SECONDS, lambda: all(file.exists() and file.read_text() for file in files), pods.what)
    assert files[0].read_text() == files[1].read_text()
    for pod in "ab":
        (folder / (pod + ".go")).touch()
    assert pods.wait() == 0, pods.what()
    for pod in "ab":
        check_calls(folder / (pod + ".rec"), CALLS)


OVERLAY = 'mkdir "$0/upper" "$0/work" "$0/merged" && mount -t overlay overlay -o "lowerdir=$1,upperdir=$0/upper,workdir=$0/work" "$0/merged" && shift && exec "$@"'


@pytest.mark.parametrize("probes", ["multi", "events"])
def test_overlay(bench, place, called, probes):
    """The image of a container: maps and stat(2) may give its files different device numbers."""
    image = bench.directory / "image"
    image.mkdir()
    shutil.copy(place / "called", image / "called")
    prefix = ["unshare", "-m", "sh", "-c", OVERLAY, bench.directory, image]
    target = called(USER, program=bench.directory / "merged" / "called", prefix=prefix)
    record = bench.process(*helpers.WITH_TRACEFS, place / "stepflame", *recording(place, target.pid), env=dict(os.environ, STEPFLAME_PROBES=probes))
    record.until_says("armed", helpers.ARMED_SECONDS, "stderr")
    target.go.touch()
    assert target.wait() == 0 and record.wait() == helpers.OK, record.what()
    check_calls(place / "out.rec", CALLS)


@pytest.mark.parametrize("args", [["ps"], ["restore", "-n"]], ids=" ".join)
def test_why_processes_are_hidden(place, args):
    """Nothing that root knows already is advised to it."""
    result = subprocess.run(as_user([], place / "stepflame", *args), capture_output=True, text=True)
    assert "of other users: CAP_SYS_PTRACE is missing" in result.stderr and "as root (sudo)" in result.stderr, result
    inside = ["unshare", "--user", "--map-root-user"]
    if subprocess.run([*inside, "true"], capture_output=True).returncode:
        pytest.skip("there are no user namespaces")
    result = subprocess.run([*inside, place / "stepflame", *args], capture_output=True, text=True)
    assert "of other users" not in result.stderr and "root" not in result.stderr, result
    assert "to include hidden processes, run stepflame on the host" in result.stderr, result
