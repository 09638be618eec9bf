# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a package has for a host that watches all its jobs: a unit for systemd, and alerts for Prometheus."""

import os
import re
import shutil
import signal
import socket
import subprocess

import helpers
import pytest
from eventful import Watched

SERVICE = helpers.ROOT / "tools/service"
UNIT = (SERVICE / "stepflame-watch.service").read_text()


def setting(name):
    return re.search("^%s=(.*)$" % name, UNIT, re.M)[1]


@helpers.needs_bpf
def test_unit(bench, tmp_path):
    """With the rights that it gives, and as what it says to systemd: a job is found and watched."""
    rights = ["+" + name.lower().removeprefix("cap_") for name in setting("CapabilityBoundingSet").split()]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(helpers.END_SECONDS)
        env = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"}
        command = ["setpriv", "--no-new-privs", "--bounding-set", ",".join(["-all", *rights]), helpers.STEPFLAME]
        watch = bench.process(*command, "watch", "--state", tmp_path / "state", env=env)
        assert setting("ExecStart") == "/usr/bin/stepflame watch $OPTIONS" and setting("Type") == "notify"
        said = {manager.recv(64) for _ in range(3)}
        assert said == {b"READY=1", b"WATCHDOG=1"}
        steps = Watched(bench)
        watch.until_says("watches process %d" % steps.pid, helpers.END_SECONDS, "stderr")
        steps.release_for(1)
        assert re.search(r"^pid %d +%d +- +[1-9]" % (steps.pid, steps.pid), helpers.stepflame("watch", "status", "--state", tmp_path / "state").stdout, re.M)
        assert not re.search("error|warning", watch.stderr), watch.stderr
        watch.popen.send_signal(signal.SIGTERM)
        assert watch.wait() == helpers.OK, watch.what()
    steps.truth()


def test_unit_is_valid(tmp_path):
    if not shutil.which("systemd-analyze"):
        pytest.skip("no systemd-analyze")
    (tmp_path / "stepflame-watch.service").write_text(UNIT.replace("/usr/bin/stepflame", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", tmp_path / "stepflame-watch.service"], capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done


def test_settings(tmp_path):
    """The file of the package says what can be set, and each of these may be set so."""
    text = (SERVICE / "watch.conf").read_text()
    shown = re.findall(r"^#([a-z-]+) = \S+$", text, re.M)
    known = re.findall(r"^ +(?:-\w, )?--([\w-]+)=", helpers.stepflame("help", "watch").stdout, re.M)
    assert set(shown) == set(known) - {"duration", "config"}
    file = tmp_path / "watch.conf"
    file.write_text(re.sub(r"^#(?=[a-z-]+ = )", "", text, flags=re.M).replace("/var/lib", str(tmp_path)))
    asked = helpers.stepflame("watch", "status", "--config", file)
    assert asked.returncode == helpers.ERROR and "nobody watches with the folder %s/stepflame\n" % tmp_path in asked.stderr, asked


def test_wrong_setting(tmp_path):
    """It ends with the status with which systemd does not start it again."""
    (tmp_path / "watch.conf").write_text("[watch]\nper-huor = 1\n")
    done = helpers.stepflame("watch", "--config", tmp_path / "watch.conf")
    assert str(done.returncode) == setting("RestartPreventExitStatus") and "did you mean 'per-hour'?" in done.stderr, done


@pytest.mark.long
def test_daemonset(tmp_path):
    """What Kubernetes takes, with the rights of the unit and no others, and settings that `watch` takes."""
    yaml, validate = pytest.importorskip("yaml"), pytest.importorskip("kubernetes_validate")
    parts = {part["kind"]: part for part in yaml.safe_load_all((SERVICE / "daemonset.yaml").read_text())}
    for part in parts.values():
        for version in ("1.30", "1.33"):
            validate.validate(part, version, strict=True)
    pod = parts["DaemonSet"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    context = container["securityContext"]
    assert {"CAP_" + name for name in context["capabilities"]["add"]} == set(setting("CapabilityBoundingSet").split())
    assert context["capabilities"]["drop"] == ["ALL"] and "privileged" not in context and pod["hostPID"] and "hostNetwork" not in pod
    assert container["image"] == "stepflame:" + re.search(r"^VERSION := (\S+)", (helpers.ROOT / "Makefile").read_text(), re.M)[1]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    (tmp_path / "watch.conf").write_text(parts["ConfigMap"]["data"]["watch.conf"])
    asked = helpers.stepflame(*container["args"], "status", "--config", tmp_path / "watch.conf", "--state", tmp_path)
    assert asked.returncode == helpers.ERROR and "nobody watches" in asked.stderr, asked


def test_alerts(tmp_path):
    """When they ring, and when not, as promtool reckons."""
    if not shutil.which("promtool"):
        pytest.skip("no promtool")
    shutil.copy(SERVICE / "alerts.yml", tmp_path)
    shutil.copy(helpers.ROOT / "tests/data/alerts_test.yml", tmp_path)
    done = subprocess.run(["promtool", "test", "rules", "alerts_test.yml"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done
