"""Prompts of turns, which a model's own chat template writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import processors

from motif_jax import lm
from motif_jax.lm import chat_template
from motif_jax.lm.chat_template import ChatTemplate
from tests import made_up_judge

TURNS = [{"role": "user", "content": "What?"}]
WRITTEN = "<|im_start|>user\nWhat?<|im_end|>\n<|im_start|>assistant\n"
TEMPLATE = ChatTemplate(made_up_judge.CHATML)


def test_turns_are_written_by_the_template() -> None:
    written = chat_template.write_prompts(
        [TURNS, [*TURNS, {"role": "assistant", "content": "That."}]], TEMPLATE
    )

    assert written.texts[0] == WRITTEN
    assert written.texts[1].endswith("That.<|im_end|>\n<|im_start|>assistant\n")
    assert not written.special


def test_plain_texts_stay_as_they_are() -> None:
    assert chat_template.write_prompts(["What?"], TEMPLATE) == (["What?"], True)


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
