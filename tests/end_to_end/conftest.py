"""Servers that annotators ask."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.chat_server import Server


@pytest.fixture
def server() -> Iterator[Server]:
    """One in this process, which does as a test says."""
    server = Server()
    yield server
    server.close()
