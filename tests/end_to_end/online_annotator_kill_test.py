"""A training that asks a server while it runs, through the real flags, killed and continued."""

from __future__ import annotations

import signal

import pytest

from motif_jax.rewards.label_log import FILE, read_log
from motif_jax.support.checked_lines import read_lines
from motif_jax.support.checkpoints import Checkpoints
from tests.processes import Program, ended, launch, processes_with, wait_until


def labels(run) -> dict:
    found = list(read_log(run / FILE))
    said = {record.items[0]: record.label for record in found}
    assert len(said) == len(found), "each text has one label"
    return said


def checkpoint(run) -> int:
    if not (run / "checkpoints").is_dir():
        return 0
    with Checkpoints(run / "checkpoints", read_only=True) as checkpoints:
        return checkpoints.latest() or 0


def answered(store) -> list[str]:
    return [key for path in store.glob("*.jsonl") for key, _ in read_lines(path)]


@pytest.mark.slow
def test_a_killed_training_leaves_no_process_and_goes_on_with_every_label(lexicon_url, tmp_path):
    run, store = tmp_path / "run", tmp_path / "store"

    def start(steps: int, log: str) -> Program:
        values = {
            "train_for_env_steps": steps,
            "save_every_steps": 256,
            "actors.workers": 1,
            "annotator.kind": "openai",
            "annotator.store_dir": store,
            "annotator.answer.mode": "verdict",
            "annotator.openai.base_url": lexicon_url,
            "annotator.openai.model": "lexicon",
        }
        flags = [f"--config.{key}={value}" for key, value in values.items()]
        own = {"MARK": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
        return launch(run, "oni.py:smoke", *flags, log=tmp_path / log, **own)

    program = start(10**9, "first")
    with ended([program]):

        def learned() -> bool:
            assert program.process.poll() is None, program.text()[-3000:]
            return checkpoint(run) > 0 and len(labels(run)) > 10

        wait_until(learned, "a checkpoint and some labels")
        program.send(signal.SIGKILL)
        program.wait()
        wait_until(lambda: not processes_with("MARK", str(tmp_path)), "all of it has ended")
    before, kept, step = labels(run), answered(store), checkpoint(run)
    assert len(kept) == len(set(kept)) >= len(before)
    program = start(step + 512, "second")
    with ended([program]):
        assert program.wait() == 0, program.text()[-3000:]
        wait_until(lambda: not processes_with("MARK", str(tmp_path)), "nothing is left")
    after, now = labels(run), answered(store)
    assert before.items() <= after.items(), "what had a label has it still"
    assert set(kept) <= set(now)
    assert len(now) == len(set(now)), "what was answered is not asked again"
