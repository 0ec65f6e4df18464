"""A training that asks a server while it runs, through the real flags, killed and continued."""

from __future__ import annotations

import signal

import pytest

from motif_jax.core.checked_lines import read_lines
from motif_jax.oni.label_log import FILE, read_log
from tests.processes import Program, checkpoint_steps, ended, launch, processes_with, wait_until


def labels(run) -> dict:
    records = list(read_log(run / FILE))
    labels_by_text = {record.items[0]: record.label for record in records}
    assert len(labels_by_text) == len(records), "each text has one label"
    return labels_by_text


def answered(store) -> list[str]:
    return [key for path in store.glob("*.jsonl") for key, _ in read_lines(path)]


@pytest.mark.extra
def test_a_killed_training_leaves_no_process_and_loses_no_label(server, tmp_path):
    run = tmp_path / "run"
    store = tmp_path / "store"

    def start(steps: int, log: str) -> Program:
        asked = f"annotator.openai.base_url={server.url} annotator.openai.model=judge annotator.kind=openai"
        asked += f" annotator.store_dir={store} annotator.answer.mode=verdict"
        values = f"train_for_env_steps={steps} save_every_steps=256 actors.workers=1 {asked}"
        flags = [f"--config.{flag}" for flag in values.split()]
        variables = {"MARK": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
        return launch(run, "oni.py:smoke", *flags, log=tmp_path / log, **variables)

    program = start(10**9, "first")
    with ended([program]):

        def learned() -> bool:
            assert program.process.poll() is None, program.text()[-3000:]
            return bool(checkpoint_steps(run)) and len(labels(run)) > 10

        wait_until(learned, "a checkpoint and some labels")
        program.send(signal.SIGKILL)
        program.wait()
        wait_until(lambda: not processes_with("MARK", str(tmp_path)), "all of it has ended")
    before = labels(run)
    answers = answered(store)
    step = checkpoint_steps(run)[-1]
    assert len(answers) == len(set(answers)) >= len(before)
    program = start(step + 512, "second")
    with ended([program]):
        assert program.wait() == 0, program.text()[-3000:]
        wait_until(lambda: not processes_with("MARK", str(tmp_path)), "nothing is left")
    after = labels(run)
    now = answered(store)
    assert before.items() <= after.items(), "what had a label has it still"
    assert set(answers) <= set(now)
    assert len(now) == len(set(now)), "what was answered is not asked again"
