"""The keys of all configs: what each means, and that a wrong value of each is one line that names it."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
from ml_collections import ConfigDict

from motif_jax import launch, schema
from motif_jax.core import resources
from motif_jax.core.errors import UserError
from motif_jax.core.sections import Wandb
from motif_jax.oni import label_config as online
from motif_jax.rl.config import AgentReward, AnyAlgorithm, agent_config
from motif_jax.schema import Key
from tests.recorded_outputs import assert_matches_recording
from tests.stage_inputs import CONFIGS, variants

NAMES = [name for name in CONFIGS if name != "benchmark"]


def wrong(key: Key) -> list[Any]:
    """Values that a key may not have: of another type, outside its range, none of its choices, None."""
    uneven = None if key.multiple_of == 1 else key.default
    beyond = [(key.above, 0), (key.below, 0), (key.minimum, -1), (key.maximum, 1), (uneven, 1)]
    values_outside: list[Any] = [end + step for end, step in beyond if end is not None]
    kind = key.type or type(key.default)
    values = [(value,) if kind is tuple else value for value in values_outside]
    values += [["no such thing"]] if kind not in (str, tuple) else ["no such thing"] if key.choices else []
    return values if key.optional else [*values, None]


@pytest.mark.parametrize("name", NAMES)
def test_every_key_has_a_meaning_and_refuses_wrong_values(name: str) -> None:
    config = resources.config(name)
    for path, value, key in schema.items(config):
        if key is None:
            assert path == "stage" or config.stage in ("study", "import_torch"), path
            continue
        assert key.help, path
        key.require(path, value)
        for bad in wrong(key):
            with pytest.raises(UserError, match="^" + re.escape(f"config.{path}=") + r".*: must be .*\Z"):
                key.require(path, bad)


@pytest.mark.parametrize("name", NAMES)
def test_every_variant_has_values_that_its_keys_allow(name: str) -> None:
    for variant in variants(name):
        schema.validate(resources.config(name, variant))


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_variant_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="'no such' is not one of ''"):
        resources.config(name, "no such")


def changes_of_variant(name: str, variant: str) -> list[str]:
    """The keys to which a variant gives another value, one a line.

    They are compared with the config without a variant. A section that this config does not have, such as `agent` of
    import_torch, is compared with the defaults of its keys: a new key with a default then adds no line.
    """
    plain = {path: value for path, value, _ in schema.items(resources.config(name))}
    lines = []
    for path, value, key in schema.items(resources.config(name, variant)):
        if key is not None:
            plain.setdefault(path, key.default)
        is_changed = path not in plain or plain[path] != value
        # Without a variant the number of workers is that of the machine's cores.
        if is_changed and not path.endswith("workers"):
            lines.append(f"    {path}={value!r}")
    return lines


def test_variants_change_the_recorded_keys(record: bool) -> None:
    lines: list[str] = []
    for name in NAMES:
        for variant in variants(name):
            if variant:
                lines += [f"configs/{name}.py:{variant}", *changes_of_variant(name, variant)]
    assert_matches_recording("variants.txt", "\n".join(lines) + "\n", record)


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        (schema.positive(1, ""), 0, "=0: must be a number above 0"),
        (schema.non_negative(1.0, ""), -1.0, "=-1.0: must be a number of at least 0"),
        (schema.fraction(0.5, ""), 1.5, "=1.5: must be a number between 0 and 1"),
        (Key(0.5, "", above=0, below=1), 1.0, "=1.0: must be a number between 0 and 1, neither of them"),
        (schema.layer_size_key(8, ""), 1 << 20, "=1048576: must be at most 65,536"),
        (schema.layer_size_key((8,), ""), (8, 0), r"=\(8, 0\): must be whole numbers above 0"),
        (schema.layer_size_key((), ""), (1.5,), r"=\(1.5,\): must be whole numbers above 0"),
        (schema.one_of(("a", "b"), ""), "c", "='c': must be one of a, b"),
        (schema.positive(1, ""), True, "=True: must be a whole number"),
        (schema.positive(1.0, ""), float("nan"), "=nan: must be a finite number"),
        (Key("", ""), "a\0b", "must be text in UTF-8 without zeros"),
        (Key("", ""), "a\udc80", "must be text in UTF-8 without zeros"),
        (Key(1, ""), 1 << 63, "=9223372036854775808: must be below 2"),
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


def test_help_shows_values_types_and_meanings_of_all_keys(capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of(capsys, "evaluate.py:smoke", "--config.seed=7")
    assert "--config.seed=7  (whole number)\n" in text
    assert "--config.confidence=0.95  (number between 0 and 1, neither of them)\n" in text
    assert "--config.forms.stop=None  (whole number above 0, or None)\n" in text
    for name, _, key in schema.items(resources.config("evaluate", "smoke")):
        assert f"--config.{name}=" in text
        assert key is None or " ".join(key.help.split()) in " ".join(text.split())


@pytest.mark.parametrize("name", ["report", "merge_annotations"])
def test_help_of_a_command_is_the_recorded_one(
    name: str, capsys: pytest.CaptureFixture[str], record: bool
) -> None:
    assert_matches_recording(f"help_{name}.txt", help_of(capsys, f"{name}.py"), record)


def test_a_plain_config_is_checked_by_the_keys_of_its_stage() -> None:
    plain = ConfigDict({**resources.config("evaluate").to_dict(), "episodes": -5})
    schema.validate(plain)
    with pytest.raises(UserError, match=r"config\.episodes=-5: must be a number above 0"):
        schema.validate(plain, launch.keys_of_stage(plain))
    assert schema.section_keys(Wandb, name="x")["name"].optional


def test_keys_are_not_shared_between_configs() -> None:
    resources.config("train_agent").batch_size = 64
    assert resources.config("train_agent").batch_size == 4096
    changed = schema.section({"a": {"b": Key(1, "")}})
    schema.update(changed, {"a.b": 2})
    assert changed.a.b == 2
    with pytest.raises(KeyError, match=r"not a key of this config: c"):
        schema.update(changed, {"a": {"c": 2}})
    with pytest.raises(KeyError, match="c"):
        schema.section_keys(Wandb, c=3)


def test_outside_parts_read_their_keys_and_ours_keep_types() -> None:
    mine = {"alpha": 2.0, "sizes": (3, 4), "deep": {"beta": 1}}
    sections = {"reward": {"kind": "own.part:Reward"}, "algorithm": {"name": "own.part:Algorithm"}}
    asked = {"kind": "own.part:Judge", "goal": "gold"}
    # Keys that are ours elsewhere say nothing here.
    sections["reward"] |= {"minibatch_size": 7, "training": {"mine": 1}, **mine}  # type: ignore[dict-item]
    sections["algorithm"] |= {"training": {"mine": 1}, **mine}  # type: ignore[dict-item]
    config = agent_config(ConfigDict({**sections, "annotator": {**asked, **mine}, "stage": "train_agent"}))
    assert isinstance(config.reward, AgentReward)
    assert isinstance(config.algorithm, AnyAlgorithm)
    parts: list[Any] = [config.reward, config.algorithm, config.annotator, online.annotator_config(config)]
    for part in parts:
        assert (part.alpha, part.sizes, part.deep.beta) == (2.0, (3, 4), 1)
        assert dataclasses.asdict(dataclasses.replace(part, alpha=3.0))["deep"] == {"beta": 1}
    assert [part.training.mine for part in parts[:2]] == [1, 1]
    assert config.reward.dir is None
    assert (parts[3].annotator, parts[3].goal, parts[3].captions.messages) == ("own.part:Judge", "gold", True)
    assert not hasattr(agent_config({"reward": mine}).reward, "alpha"), "a reward of ours has its own keys"
