"""A training whose server is silent for as long as it likes."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import Any

import pytest

from motif_jax.labels import online
from motif_jax.rewards.label_log import FILE, Label, read_log
from motif_jax.rl.learner import Learner
from tests.chat_server import Server
from tests.processes import wait_until
from tests.rl.oni_runs import oni_config, train

pytestmark = [pytest.mark.extra, pytest.mark.usefixtures("compiled_quickly")]
TEXTS = {*(f"the cue is {cue}" for cue in range(4)), "which cue?", ""}


def labels(folder: Path) -> list[Label]:
    return list(read_log(folder / FILE))


def test_it_goes_on_and_has_every_label_once_the_server_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    speaks, step, server = threading.Event(), Learner.step, Server()

    def behave(number: int, request: Any) -> None:
        if number > 1:
            speaks.wait(600)

    def watched(self: Learner, batch: Any) -> None:
        if self.version == 5:
            # The empty text is what the start asks, too.
            assert {label.items for label in labels(tmp_path / "run")} <= {("",)}, (
                "updates continue meanwhile"
            )
            speaks.set()
        # Of 17 updates; by now everything was met.
        if self.version == 12:
            [book] = sources
            wait_until(lambda: book.queued() + book.in_flight() == 0, "all is answered")
        step(self, batch)

    server.behave = behave
    sources: list[Any] = []
    made = online.make_source
    monkeypatch.setattr(online, "make_source", lambda *given: sources.append(made(*given)) or sources[0])
    monkeypatch.setattr(Learner, "step", watched)
    changes = {"annotator__kind": "openai", "annotator__store_dir": str(tmp_path / "store")}
    changes |= {"annotator__openai__base_url": server.url, "annotator__openai__model": "judge"}
    with contextlib.closing(server):
        train(tmp_path / "run", oni_config("retrieval", train_for_env_steps=800, **changes))
    log = labels(tmp_path / "run")
    assert sorted(label.items[0] for label in log) == sorted(TEXTS)
    assert min(label.number for label in log if label.items != ("",)) >= 5
