"""A decoder's folder as an agent: what it is without, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer

from motif_jax.core.errors import UserError
from motif_jax.ilql.agent import agent_folder
from tests import made_up_judge
from tests.lm.gguf import gguf_writing

TOKENIZER = "tokenizer.json"


def test_a_chat_model_is_a_policy_without_values(tmp_path: Path) -> None:
    model = made_up_judge.write(tmp_path / "model")

    about = agent_folder.describe_model(model, "agent")

    assert agent_folder.is_model(model)
    assert about["task"] is None
    assert about["design"]["q"] == "none"


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused(tmp_path: Path) -> None:
    model = made_up_judge.write(tmp_path / "model")
    backend = Tokenizer.from_file(str(model / TOKENIZER))
    size = backend.get_vocab_size()
    backend.add_tokens(["xylophone"])
    backend.save(str(model / TOKENIZER))

    with pytest.raises(UserError) as error:
        agent_folder.describe_model(model, "agent")
    assert str(error.value) == (
        f"config.agent={model}: {TOKENIZER} has {size + 1:,} tokens, the model {size:,}: must have one for each"
    )


def test_a_folder_without_weights_is_no_model(tmp_path: Path) -> None:
    model = made_up_judge.write(tmp_path / "model")
    for path in model.glob("*.safetensors*"):
        path.unlink()

    assert not agent_folder.is_model(model)


def test_a_gguf_file_is_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    model = made_up_judge.write(tmp_path / "model")
    file = gguf_writing.write(model, tmp_path / "packed" / "model.gguf")

    for agent in (file, file.parent):
        assert agent_folder.is_model(agent)
        assert agent_folder.describe_model(agent, "agent")["folder"] == str(agent)
        assert agent_folder.turns_of_model(agent) == agent_folder.turns_of_model(model)
