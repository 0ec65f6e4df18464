"""A chat server in this process that behaves well, badly, or not at all, as a test says.

    python -m tests.chat_server PORT SECONDS

is one that behaves well, in a process of its own, and takes some seconds for an answer.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np

from tests.tiny_judge import good, rule


def asked(request):
    return next(turn["content"] for turn in request["messages"] if turn["role"] == "user")


class Server:
    """Answers by the judge's rule, or as `behave(number, request)` says: (status, body, headers
    ...) or None for the rule.

    A body in bytes is sent without any head.
    """

    def __init__(self, port=0, seconds=0.005):
        self.behave = lambda number, request: None
        self.requests = []
        self.times = []
        self.keys = set()
        self.max_at_once = 0
        # Set, or set when two requests are there at the same time: until then the first one is kept
        # waiting.
        self.met = threading.Event()
        self.met.set()
        self._running = 0
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with outer._lock:
                    outer.requests.append(request)
                    outer.times.append(time.monotonic())
                    outer.keys.add(self.headers["Authorization"])
                    number = len(outer.requests)
                    outer._running += 1
                    outer.max_at_once = max(outer.max_at_once, outer._running)
                    if outer._running > 1:
                        outer.met.set()
                outer.met.wait(60)
                outer.met.set()
                status, body, *headers = outer.behave(number, request) or (
                    200,
                    outer.judge(request),
                )
                time.sleep(seconds)
                with outer._lock:
                    outer._running -= 1
                if isinstance(body, bytes):  # as it is, and the line goes dead
                    self.close_connection = True
                    with contextlib.suppress(OSError):
                        self.wfile.write(body)
                    return
                data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
                with contextlib.suppress(OSError):
                    self.send_response(status)
                    self.send_header("Content-Type", "application/json")
                    for name, value in headers:
                        self.send_header(name, value)
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)

            def log_message(self, *arguments):
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}/v1"
        threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()

    def captions(self, request):
        text = asked(request)
        return [json.loads(re.search(rf'"description_{n}": (".*")}}', text)[1]) for n in (1, 2)]

    def judge(self, request):
        text = asked(request)
        if single := re.search(r'"text": (".*")}', text):
            words = ("No", "Yes")
            key = "good_news"
            word = words[good(json.loads(single[1]))]
        elif "description_1" not in text:
            key = ""
            word = "Hello"
            words = ()
        else:
            words = ("1", "2", "None")
            key = "best_description"
            word = words[rule(*self.captions(request))]
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant"}}
        choice["message"]["content"] = f'Thinking.\n("{key}": "{word}")' if key else word
        if request.get("response_format"):
            choice["message"]["content"] = json.dumps({key: word})
        if request.get("logprobs"):
            top = [
                {"token": t, "logprob": np.log(0.8 if t == word else 0.1), "bytes": []}
                for t in words
            ]
            chosen = next(token for token in top if token["token"] == word)
            choice["logprobs"] = {"content": [{**chosen, "top_logprobs": top}]}
        usage = {"prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 105}
        head = {"id": "x", "object": "chat.completion", "created": 0, "model": "judge"}
        return {**head, "choices": [choice], "usage": usage}

    def close(self):
        self._http.shutdown()
        self._http.server_close()


if __name__ == "__main__":
    Server(int(sys.argv[1]), float(sys.argv[2]))
    threading.Event().wait()
