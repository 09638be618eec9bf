# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`watch --push` to a server of Python's library. Truth: what the job was told to do, and Google's protobuf, which reads the profiles."""

import gzip
import http.server
import os
import ssl
import threading
import time
import urllib.parse

import helpers
import pprof
import pytest
from eventful import Watched
from helpers import END_SECONDS, ERROR, USAGE, stepflame
from test_watch import Watch, free_port, metrics_of
from test_watch_tls import Files

SLEEP = 3
SLEEP_LINE = 1 + (helpers.JOBS / "events.py").read_text().splitlines().index("            time.sleep(seconds)")
pytestmark = helpers.needs_bpf


class Server:
    """Keeps [(query, headers, body)] of what is posted."""

    def __init__(self, port, files=None):
        got = self.got = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                got.append((dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query)), self.headers, body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        if files:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(files.cert, files.key)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def of(self, pid):
        return [one for one in list(self.got) if "pid_%d" % pid in one[0]["name"]]


def test_profiles(bench):
    """While nobody is there, profiles wait; then all of them come, with the functions of the job, and the time for which one slept."""
    profile_class = pprof.profile_class()
    port, headers = free_port(), bench.directory / "headers"
    headers.write_text("Authorization: Bearer secret\nX-Scope-OrgID: me\n")
    headers.chmod(0o600)
    begin = time.time()
    watch = Watch(bench, "--push", "http://127.0.0.1:%d/ingest" % port, "--push-headers", headers, "--push-every", "1s")
    steps = Watched(bench)
    watch.watches(steps)
    steps.job.until_ran(0.5)
    watch.says("cannot push profiles to http://127.0.0.1:%d/ingest: " % port)
    steps.sleep(SLEEP)
    steps.job.until_ran(0.5)
    server = Server(port)

    def slept():
        """In all profiles: a wait that goes on when one is made is in two, each with its part."""
        waits = 0
        for _, _, body in server.of(steps.pid):
            profile = profile_class.FromString(gzip.decompress(body))
            lines = {location.id: {line.line for line in location.line} for location in profile.location}
            waits += sum(s.value[2] for s in profile.sample if not s.value[1] and any(SLEEP_LINE in lines[at] for at in s.location_id))
        return waits / 1e9

    helpers.until(END_SECONDS, lambda: slept() >= SLEEP - 0.1, watch.process.what, steps.job.delayed)
    assert slept() <= SLEEP + 0.5
    watch.says("pushes profiles to .* again")
    until = time.time()
    for query, said, body in server.of(steps.pid):
        profile = profile_class.FromString(gzip.decompress(body))
        names = {(profile.string_table[f.name], profile.string_table[f.filename].rpartition("/")[2]) for f in profile.function}
        assert query["name"].startswith("stepflame{job=pid_%d,rank=pid_%d,host=" % (steps.pid, steps.pid)) and query["format"] == "pprof"
        assert query["name"].endswith(",role=main}")
        assert begin - 2 <= int(query["from"]) <= int(query["until"]) <= until + 2 and ("main", "events.py") in names
        assert said["Authorization"] == "Bearer secret" and said["X-Scope-OrgID"] == "me"
        assert begin - 2 <= profile.time_nanos / 1e9 <= until + 2
    times = sorted((int(query["from"]), int(query["until"])) for query, _, _ in server.of(steps.pid))
    assert all(one[1] <= next_one[0] + 1 for one, next_one in zip(times, times[1:]))  # none twice
    path = watch.state / "metrics.prom"
    helpers.until(END_SECONDS, lambda: metrics_of(path).get('stepflame_profiles_total{result="sent"}', 0) > 0, watch.process.what)
    assert metrics_of(path)['stepflame_profiles_total{result="lost"}'] == 0
    steps.truth()
    watch.end()
    server.close()


LOADS = """
import time, torch
from torch.utils.data import DataLoader

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 100000

    def __getitem__(self, i):
        return spin_in_worker(i)

def spin_in_worker(i):
    end = time.thread_time() + 0.01
    while time.thread_time() < end:
        pass
    return torch.ones(8)

model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
for batch in DataLoader(Rows(), batch_size=2, num_workers=2):
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
"""


def test_workers(bench):
    """The workers of a process have a profile of their own, and the process has nothing of them."""
    server = Server(port := free_port())
    profile_class = pprof.profile_class()
    watch = Watch(bench, "--push", "http://127.0.0.1:%d/ingest" % port, "--push-every", "1s")
    job = bench.process(helpers.PYTHON, "-c", LOADS, env=dict(os.environ, STEPFLAME_WATCH="1"))
    watch.says("watches process %d" % job.pid)

    def functions(role):
        profiles = (profile_class.FromString(gzip.decompress(body)) for query, _, body in server.of(job.pid) if "role=%s}" % role in query["name"])
        return {profile.string_table[f.name] for profile in profiles for f in profile.function}

    helpers.until(END_SECONDS, lambda: "spin_in_worker" in functions("workers") and functions("main"), watch.process.what)
    assert "spin_in_worker" not in functions("main")
    job.kill()
    watch.end()
    server.close()


def test_refused(bench, tmp_path):
    """A certificate that nobody trusts: told, and the jobs go on. What cannot be a server or a header: nothing starts."""
    port = free_port()
    server = Server(port, Files(tmp_path))
    watch = Watch(bench, "--push", "https://127.0.0.1:%d/ingest" % port, "--push-every", "1s")
    steps = Watched(bench)
    watch.watches(steps)
    watch.says("cannot push profiles to .*: SSL")
    steps.truth()
    watch.end()
    assert not server.got
    server.close()
    for url in ("ftp://h/", "http://u:p@h/", "h:4040"):
        assert stepflame("watch", "--state", tmp_path / "no", "--push", url).returncode == USAGE
    headers = tmp_path / "headers"
    for text, mode, says in (("no colon", 0o600, "one without a colon"), ("a: b", 0o644, "others may read"), ("a: \x1bb", 0o600, "control character"), ("a: b\n" * 17, 0o600, "more than 16")):
        headers.write_text(text)
        headers.chmod(mode)
        result = stepflame("watch", "--state", tmp_path / "no", "--push", "http://127.0.0.1:1/", "--push-headers", headers)
        assert result.returncode == ERROR and says in result.stderr, result
