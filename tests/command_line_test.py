"""What the command line makes of arguments before absl reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from motif_jax import command_line, schema
from motif_jax.core import resources
from motif_jax.core.errors import UserError
from tests.command_configs import CONFIGS, config_of
from tests.stage_inputs import CONFIGS as CONFIG_NAMES


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("--workdir=~/runs/a", "--workdir=/home/me/runs/a"),
        ("--config.dataset_dirs=~/a,~/b,c", "--config.dataset_dirs=/home/me/a,/home/me/b,c"),
        ("--config=~/my.py:smoke", "--config=/home/me/my.py:smoke"),
        ("--config.text=a ~/b", "--config.text=a ~/b"),
        ("--config.seed=7", "--config.seed=7"),
        ("--workdir", "--workdir"),
    ],
)
def test_a_tilde_that_the_shell_left_is_the_home_folder(
    monkeypatch: pytest.MonkeyPatch, argument: str, expected: str
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert command_line.with_paths(argument) == expected


def test_a_blank_may_stand_in_place_of_the_equals_sign() -> None:
    arguments = "launch --config a.py:b --workdir runs/a --config.seed -7 --config.probe --config.x=1 --print_config y"
    joined = "launch --config=a.py:b --workdir=runs/a --config.seed=-7 --config.probe --config.x=1 --print_config y"
    assert command_line.with_values(arguments.split()) == joined.split()


@pytest.mark.parametrize(
    ("config", "flags", "words"),
    [
        (
            "train_agent",
            "algorithm.name=ppo algorithm.exploration_coefficient=0.1",
            "with algorithm.name=ppo, which has no such key",
        ),
        ("train_agent", "algorithm.name=drrn algorithm.c_clip=1.5", "with algorithm.name=drrn, which"),
        ("train_language_agent", "network.kind=drrn network.score=raw_logit", "with network.kind=drrn"),
        ("train_agent", "optimizer.final_fraction=0.1", "with optimizer.schedule=constant, only with linear or cosine"),
        ("train_agent", "reward.kind=any_text reward.table=a.json", "with reward.kind=any_text, only with table"),
        ("train_agent", "reward.kind=retrieval reward.quantile=0.7", "with reward.kind=retrieval, only with motif or "),
        ("oni", "reward.kind=ranking reward.classifier.dropout=0.2", "with reward.kind=ranking, only with classification"),
        ("oni", "reward.kind=retrieval reward.training.members=3", "with reward.kind=retrieval, only with classification or ranking"),
        ("oni", "reward.kind=table reward.pairs.every=3", "with reward.kind=table"),
        ("oni", "reward.kind=retrieval reward.threshold=0.1", "with reward.kind=retrieval, only with"),
        ("oni", "reward.kind=classification reward.normalise=False", "with reward.kind=classification, only with"),
        ("oni", "reward.kind=classification reward.decay=0.5", "with reward.kind=classification, only with ranking"),
        ("oni", "reward.kind=ranking reward.value=probability", "with reward.kind=ranking, only with retrieval or classification"),
        ("annotate", "probe_pairs=minigrid", "with probe=False, only with True"),
        ("collect", "policy=random mixture.kicker=9.0", "with policy=random, only with mixture"),
        ("train_language_agent", "lora.rank=4", "without --config.lora.patterns"),
        ("train_reward", "network.crop_dim=8", "with network.crop=False, only with True"),
    ],
)  # fmt: skip
def test_a_flag_that_nothing_reads_is_refused(config: str, flags: str, words: str) -> None:
    arguments = [f"--config.{flag}" for flag in flags.split()]

    with pytest.raises(UserError) as refused:
        command_line.check_read(command_line.read(arguments), config_of(f"{config}.py", *arguments))

    assert f"{arguments[-1]}: has no effect {words}" in str(refused.value)


@pytest.mark.parametrize(
    ("config", "flags"),
    [
        ("train_agent", "algorithm.name=ppo algorithm.epochs=2"),
        ("train_agent", "algorithm.exploration_coefficient=0.1"),
        ("train_agent", "optimizer.schedule=linear optimizer.final_fraction=0.1"),
        # PPO has this key, and no choice of advantages.
        ("train_language_agent", "algorithm.gae_lambda=0.9"),
        # A class of the user's reads what it likes.
        ("train_agent", "algorithm.name=tests.toys:Nothing algorithm.c_clip=0.1"),
        ("train_agent", "reward.kind=tests.toys:Nothing reward.goal=gold"),
        ("train_agent", "reward.kind=retrieval reward.quantile=None"),
        ("oni", "reward.kind=ranking reward.threshold=0.1"),
        ("oni", "reward.kind=motif reward.quantile=0.7"),
        ("collect", "policy=mixture mixture.kicker=9.0"),
        ("train_language_agent", "lora.patterns=* lora.rank=4"),
        ("train_text", "network.max_length=64"),
    ],
)
def test_a_flag_that_is_read_is_taken(config: str, flags: str) -> None:
    arguments = [f"--config.{flag}" for flag in flags.split()]

    command_line.check_read(command_line.read(arguments), config_of(f"{config}.py", *arguments))


@pytest.mark.parametrize("name", [name for name in CONFIG_NAMES if name != "benchmark"])
def test_a_key_is_read_with_values_that_another_key_may_have(name: str) -> None:
    keys = {path: key for path, _, key in schema.items(resources.config(name)) if key is not None}
    for path, key in keys.items():
        if key.read_when is None:
            continue
        other, values = schema.condition(path, key)
        for value in values:
            # PPO has a `gae_lambda` and no choice of advantages.
            if other in keys:
                keys[other].require(other, value)


def test_packaged_files_are_found_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    probes = tmp_path / "configs" / "probes"
    probes.mkdir(parents=True)
    (probes / "judge_nethack.json").touch()
    arguments = [
        "--config.probes.prompts=configs/probes/babyai_directions.json",
        "--config.probe_pairs=configs/probes/judge_nethack.json",  # the user's own
        "--config.probe_pairs=configs/probes/none.json",
        "--config.text=configs/",
        "--workdir=configs/probes/babyai_directions.json",
    ]
    expected = [f"--config.probes.prompts={CONFIGS}/probes/babyai_directions.json", *arguments[1:]]
    assert [command_line.with_paths(argument) for argument in arguments] == expected
