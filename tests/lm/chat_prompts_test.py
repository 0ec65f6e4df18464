"""Prompts of turns, which a model's own chat template writes, in the library and in the stages over
files.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import processors

from motif_jax import lm
from motif_jax.lm import chat_prompts
from motif_jax.lm.chat_template import ChatTemplate
from motif_jax.lm.text_files import read_questions
from tests import made_up_judge
from tests.reward_fixtures import run_stage

TURNS = [{"role": "user", "content": "What?"}]
WRITTEN = "<|im_start|>user\nWhat?<|im_end|>\n<|im_start|>assistant\n"
TEMPLATE = ChatTemplate(made_up_judge.CHATML)


def test_turns_are_written_by_the_template() -> None:
    written = chat_prompts.write(
        [TURNS, [*TURNS, {"role": "assistant", "content": "That."}]], TEMPLATE
    )

    assert written.texts[0] == WRITTEN
    assert written.texts[1].endswith("That.<|im_end|>\n<|im_start|>assistant\n")
    assert not written.special


def test_plain_texts_stay_as_they_are() -> None:
    assert chat_prompts.write(["What?"], TEMPLATE) == (["What?"], True)


@pytest.mark.parametrize(
    ("chat", "expected"), [("auto", TURNS), ("always", TURNS), ("never", "What?")]
)
def test_a_stage_makes_a_turn_of_a_text(chat: str, expected: Any) -> None:
    assert chat_prompts.chosen(chat, TEMPLATE, ["What?"]) == [expected]


def test_a_model_without_a_template_reads_texts_as_they_are() -> None:
    assert chat_prompts.chosen("auto", None, ["What?"]) == ["What?"]


def test_a_file_has_turns_or_texts(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    rows = [{"prompt": TURNS}, {"prompt": "What?"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    assert read_questions(path, "file") == rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A chat model whose tokenizer puts a beginning-of-text token before every text."""
    path = made_up_judge.write(tmp_path_factory.mktemp("chat") / "model")
    backend = Backend.from_file(str(path / "tokenizer.json"))
    special = ("<|endoftext|>", backend.token_to_id("<|endoftext|>"))
    backend.post_processor = processors.TemplateProcessing(
        "<|endoftext|> $A", special_tokens=[special]
    )
    backend.save(str(path / "tokenizer.json"))
    return path


@pytest.mark.slow
def test_turns_have_the_tokens_that_their_template_writes(folder: Path) -> None:
    model = lm.load(folder)

    (look,) = model.token_log_probs([TURNS], ["A"])

    assert "".join(look.pieces) == f"{WRITTEN}A"
    (score,) = model.score([TURNS], ["A"])
    np.testing.assert_allclose(score, look.log_probs[look.start :].sum(), rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["generate_text", "score_text"])
def test_stages_say_and_record_how_prompts_are_written(
    folder: Path, tmp_path: Path, stage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text(json.dumps({"prompt": TURNS, "candidates": ["A", "B"]}) + "\n")
    values: dict[str, Any] = {"model": str(folder), "file": str(path)}
    values |= {"max_new_tokens": 4} if stage == "generate_text" else {"page": 1}

    run = run_stage(stage, tmp_path / "run", variant="", **values)

    assert "prompts: turns by the model's own chat template" in capsys.readouterr().out
    (row,) = map(json.loads, next(run.glob("*.jsonl")).read_text().splitlines())
    model = lm.load(folder)
    if stage == "generate_text":
        assert row == {"prompt": TURNS, "texts": model.generate([TURNS], max_new_tokens=4)[0]}
    else:
        np.testing.assert_allclose(row["log_probs"], model.score([TURNS], ["A", "B"])[0], rtol=1e-4)
