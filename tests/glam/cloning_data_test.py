from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.glam import cloning_data
from motif_jax.glam.config import CloningConfig
from motif_jax.glam.trajectories import FILE, Pairs
from motif_jax.schema import read_section
from tests.lm import characters
from tests.reward_fixtures import load_config

PROMPTS = ["abc", "d", "", "efgh", "ij"]
ACTIONS = [0, 2, 1, 2, 0]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the model's tokenizer and a file of trajectories."""
    (tmp_path / FILE).write_text("steps")
    return characters.write(tmp_path)


def config_of(folder: Path, **values: Any) -> CloningConfig:
    named = {"trajectories": str(folder), "network.model": str(folder), "network.prompt_tokens": 5}
    return read_section(CloningConfig, load_config("clone_behaviour", "", {**named, **values}))


def load(
    folder: Path, actions: list[int], special: bool = False, **values: Any
) -> cloning_data.CloningData:
    pairs = Pairs(PROMPTS[: len(actions)], actions)
    return cloning_data.load(config_of(folder, **values), pairs, actions=3, special=special)


def prompts_of(data: cloning_data.CloningData) -> list[list[int]]:
    return [part.tolist() for part in np.split(data.tokens, data.offsets[1:-1])]


def test_prompts_are_tokenised_end_to_end(folder: Path) -> None:
    data = load(folder, ACTIONS)

    assert prompts_of(data) == [characters.numbers(prompt) for prompt in PROMPTS]
    assert data.actions.tolist() == ACTIONS


def test_prompts_may_have_the_special_tokens_of_the_model(folder: Path) -> None:
    data = load(folder, ACTIONS, special=True)

    assert prompts_of(data) == [[*characters.numbers(prompt), characters.END] for prompt in PROMPTS]


@pytest.mark.parametrize(("values", "train"), [({}, 4), ({"train_pairs": 2}, 2)], ids=str)
def test_the_last_steps_are_held_out(folder: Path, values: dict[str, Any], train: int) -> None:
    data = load(folder, ACTIONS, **values)

    assert data.train.tolist() == list(range(train))
    assert data.held_out.tolist() == list(range(train, 5))


def test_a_longer_prompt_than_the_network_reads_is_refused(folder: Path) -> None:
    message = r"config\.network\.prompt_tokens=4: must be at least 5, the tokens of the prompt 'efgh'\.\.\."
    with pytest.raises(UserError, match=message):
        load(folder, ACTIONS, special=True, **{"network.prompt_tokens": 4})


def test_rows_of_prompts_are_padded(folder: Path) -> None:
    prompts = load(folder, ACTIONS).prompts(np.array([1, -1, 0]), 4)

    assert prompts.tolist() == [[3, -1, -1, -1], [-1, -1, -1, -1], [0, 1, 2, -1]]


def test_a_folder_of_trajectories_has_one_file(folder: Path) -> None:
    assert cloning_data.files(config_of(folder)) == [folder / FILE]
