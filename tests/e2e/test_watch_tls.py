# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`watch --listen` with TLS. Truth: openssl's certificates, Python's TLS and curl, which know nothing of stepflame."""

import os
import shutil
import socket
import ssl
import subprocess
import urllib.error
import urllib.request

import helpers
import pytest
from helpers import END_SECONDS, ERROR, stepflame
from test_watch import Watch, free_port

TOKEN = "0123456789abcdef"
pytestmark = [helpers.needs_bpf, pytest.mark.skipif(not shutil.which("openssl"), reason="needs openssl to make certificates")]


class Files:
    """A certificate for this host, its key, and a token."""

    def __init__(self, folder):
        self.cert, self.key, self.token = (folder / name for name in ("cert.pem", "key.pem", "token"))
        self.token.write_text(TOKEN)
        self.token.chmod(0o600)
        self.renew()

    def renew(self, *options):
        made = [self.cert.with_suffix(".new"), self.key.with_suffix(".new")]
        words = ["-nodes", "-subj", "/CN=stepflame", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
        subprocess.run(["openssl", "req", "-x509", *words, "-out", made[0], "-keyout", made[1], *options], check=True, capture_output=True)
        made[1].chmod(0o600)
        for new, old in zip(made, (self.cert, self.key)):
            new.rename(old)

    def options(self):
        return ["--token-file", self.token, "--tls-cert", self.cert, "--tls-key", self.key]


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path)


def serial(port):
    """Of the certificate that is shown there."""
    return ssl.get_server_certificate(("127.0.0.1", port), timeout=END_SECONDS)


def get(port, path, files, token=TOKEN):
    request = urllib.request.Request("https://127.0.0.1:%d%s" % (port, path), headers={"Authorization": "Bearer " + token})
    with urllib.request.urlopen(request, timeout=END_SECONDS, context=ssl.create_default_context(cafile=files.cert)) as answer:
        return answer.read().decode()


def metrics(port, files):
    try:
        return get(port, "/metrics", files)
    except urllib.error.HTTPError as error:
        assert error.code == 503  # it begins
        return ""


def test_answers(bench, files):
    """Over TLS 1.2 and 1.3 alone, with a certificate that is checked; a new one is used without a pause, and a bad one is not."""
    port = free_port()
    watch = Watch(bench, "--listen", "0.0.0.0:%d" % port, *files.options())
    helpers.until(END_SECONDS, lambda: "stepflame_jobs" in metrics(port, files), watch.process.what)
    assert get(port, "/healthz", files) == "ok\n"
    with pytest.raises(urllib.error.HTTPError, match="401"):
        get(port, "/metrics", files, "another-token-of-it")
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        urllib.request.urlopen("https://127.0.0.1:%d/healthz" % port, timeout=END_SECONDS)
    if shutil.which("curl"):
        words = ["curl", "-sS", "-m", "20", "--cacert", files.cert, "https://127.0.0.1:%d/metrics" % port]
        said = subprocess.run([*words, "-H", "Authorization: Bearer " + TOKEN], capture_output=True, text=True)
        assert said.returncode == 0 and "stepflame_jobs" in said.stdout, said
        assert subprocess.run([*words, "--tls-max", "1.1", "--ciphers", "DEFAULT@SECLEVEL=0"], capture_output=True).returncode == 35
    with socket.create_connection(("127.0.0.1", port)) as plain:
        plain.settimeout(END_SECONDS)
        plain.sendall(b"GET /metrics HTTP/1.1\r\nAuthorization: Bearer %s\r\n\r\n" % TOKEN.encode())
        try:
            assert b"stepflame" not in plain.recv(4096)
        except ConnectionResetError:
            pass

    # some that say nothing after they have connected, or within the handshake
    hanging = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
    for one in hanging[10:]:
        one.sendall(b"\x16\x03\x01\x02\x00\x01")
    assert "stepflame_jobs" in get(port, "/metrics", files)

    before = serial(port)
    files.renew()
    watch.says("uses the certificate that is in")
    assert serial(port) != before and serial(port) == files.cert.read_text()
    now = serial(port)
    files.cert.write_text("nonsense")
    watch.says("cannot use the certificate in .*; goes on with the one of before")
    assert serial(port) == now
    # the key is out of reach of who answers
    [child] = [pid for pid in map(int, subprocess.run(["pgrep", "-P", str(watch.process.pid), "-x", "stepflame-http"], capture_output=True, text=True).stdout.split())]
    assert not [fd for fd in os.listdir("/proc/%d/fd" % child) if "pem" in os.readlink("/proc/%d/fd/%s" % (child, fd))]
    for one in hanging:
        one.close()
    watch.end()


def test_refused(tmp_path, files):
    """Told before anything starts: no TLS beyond this host, one file of two, files that are none, another's key, a key that others read or that wants a password."""
    other = Files(tmp_path / "other") if not (tmp_path / "other").mkdir() else None
    (tmp_path / "empty").touch()
    locked = Files(tmp_path / "locked") if not (tmp_path / "locked").mkdir() else None
    subprocess.run(["openssl", "ec", "-in", files.key, "-aes256", "-passout", "pass:secret", "-out", locked.key], check=True, capture_output=True)
    shared = tmp_path / "shared"
    shutil.copy(files.key, shared)
    shared.chmod(0o644)
    token = ["--token-file", files.token]
    for options, says in (
        (token, "without TLS: the token would go over the network as it is"),
        ([*token, "--tls-cert", files.cert], "needs both a certificate and its key"),
        ([*token, "--tls-cert", files.cert, "--tls-key", other.key], "key values mismatch"),
        ([*token, "--tls-cert", tmp_path / "empty", "--tls-key", files.key], "no start line"),
        ([*token, "--tls-cert", files.cert, "--tls-key", shared], "others may read or write it"),
        ([*token, "--tls-cert", tmp_path, "--tls-key", files.key], "it is no regular file"),
        ([*token, "--tls-cert", files.cert, "--tls-key", locked.key], "cannot use the certificate"),
        (["--tls-cert", files.cert, "--tls-key", files.key], "whoever reaches it could read the metrics"),
    ):
        result = stepflame("watch", "--state", tmp_path / "state", "-d", "1s", "--listen", "0.0.0.0:%d" % free_port(), *options)
        assert result.returncode == ERROR and says in result.stderr and "fix: " in result.stderr, result
    result = stepflame("watch", "--state", tmp_path / "state", "-d", "300ms", "--listen", "0.0.0.0:%d" % free_port(), *token, "--tls", "off")
    assert result.returncode == 0, result
