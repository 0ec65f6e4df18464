"""A server for the annotator `openai`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from motif_jax.motif.annotation import openai_client
from tests.motif.annotation.scripted_server import KEY, ScriptedServer


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedServer]:
    server = ScriptedServer()
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr(openai_client, "post", lambda session, url, request: server.post(request))
    monkeypatch.setattr(asyncio, "sleep", server.sleep)
    # The module alone: `asyncio` needs the real clock.
    monkeypatch.setattr(openai_client, "time", server)
    yield server
    server.close()
