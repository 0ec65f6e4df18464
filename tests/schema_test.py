"""The keys of all configs: what each means, and that a wrong value is refused by its key."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from ml_collections import ConfigDict

from motif_jax import launch, running, schema
from motif_jax.core import resources
from motif_jax.core.errors import UserError
from motif_jax.core.sections import Profile
from motif_jax.oni import label_service as online
from motif_jax.rl.config import AgentConfig, AgentReward, AnyAlgorithm, agent_config
from motif_jax.schema import Key
from tests.stage_inputs import CONFIGS, variants

NAMES = [name for name in CONFIGS if name != "benchmark"]


@pytest.mark.parametrize("name", NAMES)
def test_every_key_has_a_meaning_and_an_allowed_default(name: str) -> None:
    config = resources.config(name)
    for path, value, key in schema.items(config):
        if key is None:
            assert path == "stage" or config.stage in ("study", "import"), path
            continue
        assert key.help, path
        key.require(path, value)


@pytest.mark.parametrize("name", NAMES)
def test_every_variant_has_values_that_its_keys_allow(name: str) -> None:
    for variant in variants(name):
        schema.validate(resources.config(name, variant))


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        (schema.positive(1, ""), 0, "=0: must be a number above 0"),
        (schema.non_negative(1.0, ""), -1.0, "=-1.0: must be a number of at least 0"),
        (schema.fraction(0.5, ""), 1.5, "=1.5: must be a number between 0 and 1"),
        (Key(0.5, "", above=0, below=1), 1.0, "=1.0: must be a number strictly between 0 and 1"),
        (schema.layer_size_key(8, ""), 1 << 20, "=1048576: must be at most 65,536"),
        (schema.layer_size_key((8,), ""), (8, 0), r"=\(8, 0\): must be whole numbers above 0"),
        (schema.layer_size_key((), ""), (1.5,), r"=\(1.5,\): must be whole numbers above 0"),
        (schema.one_of(("a", "b"), ""), "c", "='c': must be one of a, b"),
        (schema.positive(1, ""), True, "=True: must be a whole number"),
        (schema.positive(1.0, ""), float("nan"), "=nan: must be a finite number"),
    ],
)
def test_a_refusal_names_key_value_and_what_is_allowed(key: Key, value: Any, line: str) -> None:
    config = schema.section({"part": {"name": key}})
    config.part.name = value
    with pytest.raises(UserError, match=f"^config.part.name{line}" if line[0] == "=" else line):
        schema.validate(config)


def help_of(capsys: pytest.CaptureFixture[str], config: str, *flags: str) -> str:
    with pytest.raises(SystemExit) as ended:
        launch.parse_flags(["launch", f"--config=configs/{config}", *flags, "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_help_shows_values_types_and_meanings_of_all_keys(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = help_of(capsys, "evaluate.py:smoke", "--config.seed=7")
    assert "--config.seed=7  (whole number)\n" in text
    assert "--config.forms.frames_per_second=10.0  (number above 0)\n" in text
    assert "--config.forms.stop=None  (whole number above 0, or None)\n" in text
    for name, _, key in schema.items(resources.config("evaluate", "smoke")):
        assert f"--config.{name}=" in text
        assert key is None or " ".join(key.help.split()) in " ".join(text.split())


def test_a_plain_config_is_checked_by_its_stages_keys() -> None:
    plain = ConfigDict({**resources.config("evaluate").to_dict(), "episodes": -5})
    schema.validate(plain)
    with pytest.raises(UserError, match=r"config\.episodes=-5: must be a number above 0"):
        schema.validate(plain, running.keys_of_stage(plain))


def test_keys_are_not_shared_between_configs() -> None:
    resources.config("train_agent").batch_size = 64

    assert resources.config("train_agent").batch_size == 4096


def test_an_update_reaches_keys_of_inner_sections() -> None:
    config = schema.section({"a": {"b": Key(1, "")}})

    schema.update(config, {"a.b": 2})

    assert config.a.b == 2


def test_an_unknown_key_of_an_update_is_refused() -> None:
    config = schema.section({"a": {"b": Key(1, "")}})

    with pytest.raises(KeyError, match=r"not a key of this config: c"):
        schema.update(config, {"a": {"c": 2}})


def test_a_key_stays_optional_with_another_default() -> None:
    assert schema.section_keys(Profile, start=3)["start"].optional


def test_a_section_has_no_default_for_an_unknown_key() -> None:
    with pytest.raises(KeyError, match=r"^'c'$"):
        schema.section_keys(Profile, c=3)


# Keys that no class of the package has.
OUTSIDE_KEYS = {"alpha": 2.0, "sizes": (3, 4), "deep": {"beta": 1}}
# Names that keys of the package have elsewhere, with values of other types.
FAMILIAR_KEYS = {"training": {"mine": 1}}


OUTSIDE_SECTIONS: dict[str, Callable[[AgentConfig], Any]] = {
    "reward": lambda config: config.reward,
    "algorithm": lambda config: config.algorithm,
    "annotator": lambda config: config.annotator,
    "annotator of questions": online.annotator_config,
}


@pytest.fixture
def outside_config() -> AgentConfig:
    """A training whose reward, algorithm and annotator stand outside the package."""
    sections: dict[str, Any] = {
        "stage": "train_agent",
        "reward": {"kind": "own.part:Reward", "minibatch_size": 7, **FAMILIAR_KEYS, **OUTSIDE_KEYS},
        "algorithm": {"name": "own.part:Algorithm", **FAMILIAR_KEYS, **OUTSIDE_KEYS},
        "annotator": {"kind": "own.part:Judge", "goal": "gold", **OUTSIDE_KEYS},
    }
    return agent_config(ConfigDict(sections))


@pytest.mark.parametrize("section_of", OUTSIDE_SECTIONS.values(), ids=OUTSIDE_SECTIONS)
def test_a_part_from_outside_reads_its_own_keys(
    outside_config: AgentConfig, section_of: Callable[[AgentConfig], Any]
) -> None:
    section = section_of(outside_config)

    assert (section.alpha, section.sizes, section.deep.beta) == (2.0, (3, 4), 1)
    copy = dataclasses.replace(section, alpha=3.0)
    assert dataclasses.asdict(copy)["deep"] == {"beta": 1}


def test_a_part_from_outside_may_use_names_of_our_keys(outside_config: AgentConfig) -> None:
    algorithm: Any = outside_config.algorithm
    reward: Any = outside_config.reward

    assert algorithm.training.mine == 1
    assert reward.training.mine == 1
    assert isinstance(algorithm, AnyAlgorithm)


def test_a_part_from_outside_has_the_keys_of_its_kind(outside_config: AgentConfig) -> None:
    assert isinstance(outside_config.reward, AgentReward)
    assert outside_config.reward.dir is None


def test_an_annotator_from_outside_keeps_our_keys(outside_config: AgentConfig) -> None:
    annotator: Any = online.annotator_config(outside_config)

    assert annotator.annotator == "own.part:Judge"
    assert annotator.goal == "gold"
    assert annotator.captions.messages is True


def test_a_reward_of_ours_has_its_own_keys_alone() -> None:
    config = agent_config({"reward": OUTSIDE_KEYS})

    assert not hasattr(config.reward, "alpha")
