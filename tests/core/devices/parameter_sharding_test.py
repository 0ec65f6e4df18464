"""The table names what is large, of every architecture."""

from __future__ import annotations

import jax
import pytest
from jax.sharding import PartitionSpec

from motif_jax.core.devices import sharding
from motif_jax.lm import config
from motif_jax.lm.model import LanguageModel
from tests.lm.models import NAMES
from tests.lm.recipes import CONFIGS

SIZES = {"data": 1, "fsdp": 2, "tensor": 2}


OTHERS: list[tuple[str, tuple[int, ...], tuple[str | None, ...]]] = [
    ("params/q1/output/kernel", (32, 64), ("fsdp", "tensor")),
    ("0/mu/decoder/block_0/attention/output/kernel", (16, 16), ("tensor", "fsdp")),
    ("decoder/block_0/attention/query/codes", (16, 16), ("fsdp", "tensor")),
    ("decoder/block_0/attention/query/scales", (16,), ()),
    ("decoder/block_0/attention/query/a", (16, 2), ()),
    ("embedding", (61, 16), (None, "fsdp")),
    ("count", (), ()),
]


@pytest.mark.parametrize("name", NAMES)
def test_every_matrix_is_split_both_ways(name: str) -> None:
    values = {
        **CONFIGS[name],
        "vocab_size": 64,
        "tie_word_embeddings": False,
        "attention_bias": True,
    }
    values |= {"num_heads": 4} if name.startswith("t5") else {}
    shapes = jax.eval_shape(LanguageModel(config.parse(values)).init, jax.random.key(0))
    for path, leaf in jax.tree_util.tree_leaves_with_path(shapes):
        names = sharding.path_names(path)
        spec = sharding.spec_of(names, leaf.shape, SIZES)
        assert names[-1] not in ("kernel", "embedding") or set(spec) == {"fsdp", "tensor"}, names
        assert names != ("embedding",) or spec == PartitionSpec("tensor", "fsdp")


def test_optimiser_state_is_split_like_the_parameters() -> None:
    for path, shape, expected in OTHERS:
        names = path.rsplit("/", 1)  # as additions and codes have it: a whole path as one key
        assert sharding.spec_of(names, shape, SIZES) == PartitionSpec(*expected), path
