"""A server of the published protocol of visual dialogue, whose replies follow from the request by rules."""

from __future__ import annotations

import contextlib
import json
import threading
import urllib.parse
import zlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from motif_jax.envs.visdial.client import QUESTION, REWARDS

WORDS = "red blue two yes no here there dog".split()


def reply(route: str, history: list[dict[str, str]]) -> Any:
    """What the server says: an answer that the last question determines, and what that is worth."""
    if route == QUESTION:
        return f"what {len(history) // 2}?"
    texts = [said["text"] for said in history if said["speaker"] == "question"]
    drawn = zlib.crc32(texts[-1].encode()) if texts else 0
    worth = drawn % 7 / 50 if texts else 0.25
    return [WORDS[drawn % len(WORDS)], worth] if route in {step for step, _ in REWARDS.values()} else worth


class _Handler(BaseHTTPRequestHandler):
    wbufsize = -1  # headers and body in one packet: two cost the 40 ms of a delayed acknowledgement

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        fields = dict(urllib.parse.parse_qsl(body, keep_blank_values=True, strict_parsing=True))
        said = json.dumps(reply(self.path, json.loads(fields["history"]))).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(said)

    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def serving(handler: type[BaseHTTPRequestHandler] = _Handler, **attributes: Any) -> Iterator[Any]:
    """A server in threads of this process; its attribute `address` is its URL.

    Args:
      handler: of its requests.
      attributes: what the handler finds as attributes of the server.
    """
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads, server.address = True, f"http://127.0.0.1:{server.server_address[1]}"
    vars(server).update(attributes)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
