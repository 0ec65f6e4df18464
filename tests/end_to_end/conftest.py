"""Servers that annotators ask."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator

import pytest

from tests.chat_server import Server
from tests.end_to_end.served_lexicon import serve_lexicon
from tests.processes import ended, wait_until


@pytest.fixture
def server() -> Iterator[Server]:
    """One in this process, which does as a test says."""
    server = Server()
    yield server
    server.close()


@pytest.fixture(scope="module")
def lexicon_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A served lexicon."""
    log = tmp_path_factory.mktemp("serve") / "log"
    program = serve_lexicon(log, 0)
    with ended([program]):
        wait_until(lambda: "http://" in program.text(), "the server listens")
        yield re.search(r"http://\S+", program.text())[0]
        program.send(signal.SIGTERM)
        assert program.wait() == 0
