"""Every variant of every config passes its check, or names in one line what it wants."""

from __future__ import annotations

from pathlib import Path

import pytest

from motif_jax.core import entry_points
from tests.command_configs import refusal_line
from tests.stage_inputs import CONFIGS, Inputs, ready, variants


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    return Inputs(tmp_path_factory.mktemp("inputs"))


# Variants that want more than a small machine has, and what their refusal names.
WANTED = {
    # The user chooses what a study of his own trains.
    ("study", ""): "config.training=''",
    ("collect_text", "visdial"): "config.visdial.reward_cache",
    # Their agent speaks about Wordle.
    ("evaluate_text", "visdial"): "config.",
    ("evaluate_text", "reddit"): "config.",
    ("train_upvote", "faithful"): "roberta-base",
    ("train_text", "chai"): "config.initial.policy",
    # Of data: a stream has no best part, and pictures and comments need their files or tokens.
    ("train_text", "bc_top"): "config.filter.top",
    ("train_text", "visdial"): "config.visdial.reward_cache",
    ("train_text", "reddit"): "config.reddit.tokenizer",
    # The published trunks come from the hub.
    ("train_text", "faithful"): "config.network.checkpoint",
    # It learns from more pairs than the tests have.
    ("clone_behaviour", "faithful"): "config.train_pairs",
    # They take a policy as it is.
    ("train_text", "ilql_utterance_faithful"): "config.initial.policy",
    **{("train_text", part): "config.initial.policy" for part in ("psi", "bcq", "_g", "g")},
    ("train_text", "dialogues"): "config.data=None",
}


@pytest.mark.extra
@pytest.mark.parametrize("name", [name for name in CONFIGS if name != "benchmark"])
def test_every_variant_passes_its_check_or_names_what_it_wants(
    name: str, inputs: Inputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for variant in variants(name):
        config = ready(name, variant, inputs)
        # The launcher trusts what a config names.
        monkeypatch.setenv("MOTIF_JAX_TRUST", ",".join(entry_points.named(config.to_dict())))
        line = refusal_line(config, tmp_path / "run")
        named = {part: words for (config, part), words in WANTED.items() if config == name}
        wanted = [
            named[part] for part in named if (part in variant if len(part) > 1 else part == variant)
        ]
        assert line is None or any(words in line for words in wanted), f"{name}:{variant}: {line}"
