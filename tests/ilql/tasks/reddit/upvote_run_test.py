from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import pytest

from motif_jax.core.devices.parallel import DataParallel
from motif_jax.core.errors import UserError
from motif_jax.ilql.config import UpvoteConfig
from motif_jax.ilql.tasks.reddit import upvote
from motif_jax.lm.config import Dropout
from motif_jax.lm.token_data import HELD_OUT, TOKENS, TRAIN, TokensDataset
from motif_jax.lm.tokens import Tokenizer
from motif_jax.schema import read_section
from tests.ilql.tasks.reddit.conftest import write
from tests.lm import characters
from tests.reward_fixtures import load_config


def config_of(**values: Any) -> UpvoteConfig:
    return read_section(UpvoteConfig, load_config("train_upvote", "", values))


def test_a_fresh_network_has_the_vocabulary_that_is_learned() -> None:
    settings = upvote.settings_of(config_of(vocab_size=300, dropout=0.0), None)

    assert settings.architecture == "roberta"
    assert settings.vocab_size == 300
    assert settings.dropout == Dropout()


def test_a_learned_tokenizer_may_have_fewer_tokens(tmp_path: Path) -> None:
    tokenizer = Tokenizer.read(characters.write(tmp_path))

    assert upvote.settings_of(config_of(vocab_size=300), tokenizer).vocab_size == characters.SIZE


def test_longer_comments_than_the_model_reads_are_refused() -> None:
    network = {"network.max_length": 64}
    assert upvote.settings_of(config_of(max_len=64, **network), None).max_length == 64

    with pytest.raises(
        UserError, match=r"config\.max_len=65: must be at most 64, the positions that the model has"
    ):
        upvote.settings_of(config_of(max_len=65, **network), None)


# Ten different texts twice, the second time with another score.
COMMENTS = [(f"{chr(97 + number % 10)} text", number % 4, "parent") for number in range(20)]


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TokensDataset]:
    folder = tmp_path_factory.mktemp("comments")
    write(folder, COMMENTS)
    config = config_of(
        cutoff=2,
        max_len=6,
        vocab_size=300,
        **{
            "reddit.folder": str(folder),
            "network.width": 8,
            "network.layers": 1,
            "network.heads": 1,
        },
    )
    parallel = DataParallel(jax.local_devices()[:1])
    with pytest.MonkeyPatch.context() as patch:
        # Of ten texts.
        patch.setattr(upvote, "HELD_OUT_SHARE", 0.3)
        assert upvote.build(config, folder / "run", parallel, lambda: False) is not None
    return {part: TokensDataset(folder / "run" / TOKENS / part) for part in (TRAIN, HELD_OUT)}


def test_every_comment_is_in_one_part(datasets: dict[str, TokensDataset]) -> None:
    assert sum(dataset.num_items for dataset in datasets.values()) == len(COMMENTS)


def test_equal_texts_are_in_one_part(datasets: dict[str, TokensDataset]) -> None:
    texts = {
        part: {tuple(dataset.item(index).tolist()) for index in range(dataset.num_items)}
        for part, dataset in datasets.items()
    }

    assert not texts[TRAIN] & texts[HELD_OUT]


def test_comments_above_the_cutoff_are_liked(datasets: dict[str, TokensDataset]) -> None:
    liked = sum(int(dataset.item_columns["liked"].sum()) for dataset in datasets.values())

    assert liked == sum(score > 2 for _, score, _ in COMMENTS)


def test_comments_are_cut_to_the_longest(datasets: dict[str, TokensDataset]) -> None:
    assert max(int(dataset.lengths.max()) for dataset in datasets.values()) <= 6
