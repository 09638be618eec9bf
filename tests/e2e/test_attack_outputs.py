# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What another user may put under the name of an output, or on the way to it: stepflame, as root, neither writes to it nor follows it."""

import os
import shutil
import stat
import subprocess
import sys

import helpers
import pytest
import recfile as r

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes other users")

OTHER = 12345  # a user id
PRECIOUS = "precious\n"
COMMANDS = {
    "record": ["record", "-F", "0", "-o", "OUT", "--", "true"],
    "flame": ["flame", "a.rec", "-o", "OUT"],
    "export": ["export", "a.rec", "-f", "folded", "-o", "OUT"],
    "merge": ["merge", "a.rec", "b.rec", "-o", "OUT"],
}
# record writes as the others do: where nothing else is to be seen, without the time that it takes
of_each = pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
of_finished = pytest.mark.parametrize("command", [COMMANDS[name] for name in ("flame", "export", "merge")], ids=lambda command: command[0])


@pytest.fixture
def folder(tmp_path):
    """Recordings in a folder in which all may write, as in /tmp, and beside it a folder with a file of root's."""
    for pid, name in enumerate(["a.rec", "b.rec"], 10):
        content = [r.host(hostname=name), r.target(pid, rank=pid), r.window(0, 10**9)]
        for i in range(1, 60):
            content += [r.name(i, os.urandom(200).hex()), r.code(i, i, i), r.stack(i, [(i, 0)]), r.sample(pid, pid, r.CPU, 5000 * i, 5000, i)]
        (tmp_path / name).write_bytes(r.recording(content))
    (tmp_path / "roots").mkdir()
    (tmp_path / "roots" / "victim").write_text(PRECIOUS)
    tmp_path.chmod(0o1777)
    return tmp_path


def run(command, folder, out, **env):
    command = [str(out) if word == "OUT" else word for word in command]
    return helpers.stepflame(*command, cwd=folder, env=dict(os.environ, **env))


def check_written(result, out):
    assert result.returncode == helpers.OK, result
    assert out.stat().st_size > 20 and stat.S_IMODE(out.stat().st_mode) == 0o600 and not out.is_symlink()
    check_no_temporaries(out.parent)


def check_refused(result, why):
    helpers.check_message(result, helpers.PERMISSION)
    assert "cannot write" in result.stderr and why in result.stderr, result.stderr


def check_no_temporaries(folder):
    assert [name for name in os.listdir(folder) if name.startswith(".")] == []


@of_each
@pytest.mark.parametrize("owner", [0, OTHER])
def test_link(folder, command, owner):
    out, victim = folder / "out", folder / "roots" / "victim"
    out.symlink_to(victim)
    os.lchown(out, owner, owner)
    check_refused(run(command, folder, out), "symbolic link" if owner == 0 else "another user")
    assert victim.read_text() == PRECIOUS and out.is_symlink()
    check_no_temporaries(folder)


@of_finished
def test_link_to_nothing(folder, command):
    """It would make a file where its owner cannot."""
    out = folder / "out"
    out.symlink_to(folder / "roots" / "new")
    check_refused(run(command, folder, out), "symbolic link")
    assert os.listdir(folder / "roots") == ["victim"]


@of_finished
def test_link_to_a_folder(folder, command):
    """Of another user's it is not followed; of the user's own, and of root's, it is."""
    (folder / "link").symlink_to(folder / "roots")
    os.lchown(folder / "link", OTHER, OTHER)
    check_refused(run(command, folder, folder / "link" / "victim"), "folder on the way")
    assert (folder / "roots" / "victim").read_text() == PRECIOUS
    check_written(run(command, folder, folder / "link" / "out", SUDO_UID=str(OTHER), SUDO_GID=str(OTHER)), folder / "roots" / "out")


@of_each
def test_hard_link(folder, command):
    """Another name of the file: it keeps its content, and loses that name."""
    out, victim = folder / "out", folder / "roots" / "victim"
    os.link(victim, out)
    check_written(run(command, folder, out), out)
    assert victim.read_text() == PRECIOUS and victim.stat().st_nlink == 1


@of_finished
def test_file_of_another_user(folder, command):
    """In a folder that users share nobody's file is replaced but one's own."""
    out = folder / "out"
    out.write_text(PRECIOUS)
    os.chown(out, OTHER, OTHER)
    check_refused(run(command, folder, out), "file of another user")
    assert out.read_text() == PRECIOUS
    check_written(run(command, folder, out, SUDO_UID=str(OTHER), SUDO_GID=str(OTHER)), out)


@of_finished
def test_open_file_of_another_user(folder, command):
    """What is written cannot be read by who had the old file open, or owns the folder."""
    theirs = folder / "theirs"
    theirs.mkdir()
    (theirs / "out").write_text(PRECIOUS)
    for path in (theirs, theirs / "out"):
        os.chown(path, OTHER, OTHER)
    with open(theirs / "out") as file:
        check_written(run(command, folder, theirs / "out"), theirs / "out")
        assert file.read() == PRECIOUS
    assert (theirs / "out").stat().st_uid == 0


@of_finished
def test_pipe_of_another_user(folder, command):
    out = folder / "out"
    os.mkfifo(out)
    reader = os.open(out, os.O_RDONLY | os.O_NONBLOCK)
    os.chown(out, OTHER, OTHER)
    check_refused(run(command, folder, out), "another user")
    assert os.read(reader, 1) == b""
    os.close(reader)


@of_finished
def test_own_pipe(folder, command):
    os.mkfifo(folder / "out")
    with open(folder / "read", "wb") as read, subprocess.Popen(["cat", folder / "out"], stdout=read):
        result = run(command, folder, folder / "out")
    assert result.returncode == helpers.OK and (folder / "read").stat().st_size > 20, result


@of_finished
def test_behind_sudo(folder, command):
    """The file belongs to who called sudo, also where it replaces root's; what is no user id is nobody's."""
    out = folder / "out"
    for uid, gid, owner, group in [("12x", "1", 0, 0), ("", "", 0, 0), (str(OTHER), "54321", OTHER, 54321)]:
        check_written(run(command, folder, out, SUDO_UID=uid, SUDO_GID=gid), out)
        assert (out.stat().st_uid, out.stat().st_gid) == (owner, group)


ON_A_DISK = 'mount -t tmpfs -o size=8k none disk && echo precious > disk/out && "$@"; echo "status $?"; ls -A disk; cat disk/out'


@of_finished
def test_what_fails_replaces_nothing(folder, command):
    (folder / "disk").mkdir()
    words = [word.replace("OUT", "disk/out") for word in command]
    result = subprocess.run(["unshare", "-m", "sh", "-c", ON_A_DISK, "sh", helpers.STEPFLAME, *words], cwd=folder, capture_output=True, text=True)
    assert "status 1\nout\nprecious" in result.stdout and "No space left" in result.stderr, result


# ---- the command that record runs ----

WHO = "echo $(id -u) $(id -G) $HOME $USER $(grep -E 'Cap(Prm|Eff)' /proc/self/status | cut -f2 | sort -u)"
NOTHING = "0000000000000000"


def said_by_command(bench, *options, **env):
    env = dict(os.environ, HOME="/home/of", USER="somebody", **env)
    process = bench.process(helpers.STEPFLAME, "record", "-F", 0, "-o", "/dev/null", *options, "--", "sh", "-c", WHO, env=env)
    assert process.wait() == helpers.OK, process.what()
    return process.stdout.splitlines()[0]


@helpers.needs_bpf
def test_command_behind_sudo(bench):
    """Runs as who called sudo, also if that one has no name, without root's groups and capabilities; as root where that is said."""
    sudo = {"SUDO_UID": "65534", "SUDO_GID": "65534"}
    assert said_by_command(bench, **sudo) == "65534 65534 /nonexistent nobody " + NOTHING
    assert said_by_command(bench, "--user", "root", **sudo).split()[0] == "0"
    assert said_by_command(bench, SUDO_UID="54321", SUDO_GID="54322") == "54321 54322 /home/of somebody " + NOTHING


@helpers.needs_bpf
def test_no_such_user(tmp_path):
    result = helpers.stepflame("record", "--user", "nobody-has-this-name", "-o", tmp_path / "r", "--", "true")
    helpers.check_message(result, helpers.ERROR)
    assert helpers.stepflame("record", "--user", "root", "-p", os.getpid()).returncode == helpers.USAGE


def test_user_without_root(tmp_path):
    """Said before anything else, and nothing runs."""
    shutil.copy(helpers.STEPFLAME, tmp_path / "stepflame")
    for path in (tmp_path, *tmp_path.parents[:2]):
        if path.owner() == "root" and path.name.startswith("pytest"):
            path.chmod(0o755)
    tmp_path.chmod(0o777)
    nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all", tmp_path / "stepflame"]
    command = [*nobody, "record", "--user", "root", "-o", "r", "--", sys.executable, "-c", "open('ran', 'w')"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    helpers.check_message(result, helpers.PERMISSION)
    assert "only root" in result.stderr and not (tmp_path / "ran").exists()
