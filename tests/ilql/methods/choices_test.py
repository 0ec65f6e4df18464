from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from motif_jax.core.training import offline_run, task
from motif_jax.glam import cloning_data, cloning_task
from motif_jax.glam.config import CloningConfig
from motif_jax.glam.trajectories import Pairs
from motif_jax.ilql import text_run, text_task
from motif_jax.ilql.config import TextConfig
from motif_jax.ilql.dialogues import dialogue_data
from motif_jax.ilql.methods import text_ppo
from motif_jax.ilql.methods.implicit_q import Counts
from motif_jax.ilql.methods.text_methods import RULES
from motif_jax.ilql.methods.text_objective import LossTerms, Weights
from motif_jax.ilql.tasks.reddit import text_scorer, upvote_run, upvote_task
from motif_jax.ilql.tasks.reddit.config import UpvoteConfig
from motif_jax.lm import footprint, init_model, language_run, language_task, sums_task
from motif_jax.lm.init_model import Sizes
from motif_jax.lm.training_config import LanguageModelConfig
from motif_jax.motif.reward import reward_task
from motif_jax.schema import read_section
from tests.recorded_outputs import assert_matches_packed_recording, outcome_text
from tests.reward_fixtures import load_config


def given(stage: str, variant: str | None = None, **changes: Any) -> Any:
    kinds = {"train_text": TextConfig, "clone_behaviour": CloningConfig, "train_upvote": UpvoteConfig}
    changes = {name.replace("__", "."): value for name, value in changes.items()}
    return read_section(kinds.get(stage, LanguageModelConfig), load_config(stage, variant or "", changes))


GPT = init_model.make("gpt2", Sizes(8, 1, 2, max_length=48), 40, {"start": 1, "pad": 2, "end": 3})
PRETRAIN = "pretrain_language_model", "smoke"


def test_methods_of_text_agents(record: bool) -> None:
    found, weights = {}, {"q": 2.0, "v": 3.0, "policy": 4.0, "cql": 5.0, "margin": 6.0}
    numbers = {
        "discount": 0.8,
        "expectile": 0.6,
        "q_min": -3.0,
        "q_max": 4.0,
        "cql_temperature": 2.0,
        "margin": 0.5,
        "reward_scale": 5.0,
    }
    flags = "double_q separate_policy separate_target advanced_mlp detach_v detach_policy monte_carlo".split()
    plain = {f"method__{flag}": False for flag in flags} | {f"loss__{name}": x for name, x in weights.items()}
    other = dict.fromkeys((key for key in plain if key.startswith("method")), True)
    other |= {f"method__{name}": x for name, x in numbers.items()} | {"max_len": 41, "dropout": 0.1}
    plain |= {"games__decode__max_tokens": 7, "accumulate": 3, "logits_chunk": 9}
    sizes = [dataclasses.replace(GPT, max_length=most) for most in (48, None, 6)]
    for name, changes in itertools.product(RULES, ({}, other)):
        every = {**plain, **changes}
        config = given("train_text", "wordle_ilql", method__name=name, **every)
        objective = text_run.objective_of(config, GPT)
        parts = [f"{key}: {value}" for key, value in vars(objective).items() if key != "agent"]
        parts += [str(objective.agent.design), str(objective._parts()), str(objective.weights.of_values)]
        parts += [str(text_run.layout_of(config, 26, each)) for each in sizes[:2]]
        parts += [outcome_text(text_run.check_shapes, config, each) for each in sizes]
        found[f"{name} {bool(changes)}"] = "\n".join(parts)
    assert_matches_packed_recording("text_methods", found, record)


def test_what_ppo_and_lengths_ask_for(record: bool) -> None:
    fits = {"chunk_steps": 1, "games__episodes": 1, "batch_size": 16, "num_devices": 1}
    changes: tuple[dict[str, Any], ...] = (
        {},
        {"batch_size": 8},
        {"dropout": 0.1},
        {"chunk_steps": 2},
        {"games__episodes": 0},
        {"data": "x"},
        {"initial__value": "x"},
        {"initial__policy": None},
        {"initial__policy": None, "network__checkpoint": "x"},
    )
    configs = [
        given("train_text", "wordle_ppo", **{"initial__policy": "run", **fits, **each}) for each in changes
    ]
    found = [outcome_text(text_run.check_ppo, config) for config in configs]
    found += [outcome_text(dialogue_data.longest_action, most, None) for most in (5, 1, 0, None)]
    assert_matches_packed_recording("text_ppo_choices", {"found": "\n".join(found)}, record)


def test_what_a_step_needs_in_memory(record: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    monkeypatch.setattr(footprint, "device_memory", lambda: 10**8)
    wide = init_model.make("gpt2", Sizes(1024, 1, 8, max_length=48), 40, {"start": 1, "pad": 2, "end": 3})
    small = {"lora__patterns": "*", "lora__base": "int8"}
    for change in ({"accumulate": 4}, {"lora__patterns": "*/attention/query"}, small):
        config = given(*PRETRAIN, model__architecture="gpt2", batch_size=64, **change)
        found.append(outcome_text(language_run.check_memory, config, wide))
    assert_matches_packed_recording("memory_of_steps", {"found": "\n".join(found)}, record)


def test_models_of_texts(record: bool) -> None:
    found = []
    for name in ("gpt2", "llama", "qwen2", "roberta", "t5"):
        model = {"model__architecture": name, "tokenizer__vocab_size": 300, "length": 64, "dropout": 0.1}
        changes = {}, {"max_length": 80}, {"attention": "comparing"}, {"attention": "comparing", "heads": 4}
        named = [{f"model__{key}": value for key, value in each.items()} for each in changes]
        configs = [given(*PRETRAIN, **model, **each) for each in named]
        for objective in ("causal", "masked", "spans", "prefix", None):
            found.append(outcome_text(language_run.objective_of, objective, configs[0].model))
        found += [outcome_text(language_run.settings_of, config, None) for config in configs]
    words: Any = SimpleNamespace(token=lambda text: 77 if text == "<mask>" else int(text[10:-1]))
    for objective in ("causal", "masked", "spans"):
        found += [str(language_run.longest_item(packing, 9, objective)) for packing in ("windows", "items")]
        found.append(str(language_run.special_tokens(GPT, words, objective)))
    found += [
        outcome_text(language_run.check_shapes, given(*PRETRAIN).lora, length, GPT) for length in (48, 49)
    ]
    for longest, dropout in ((32, 0.0), (64, 0.2), (65, 0.0)):
        named = {"network__max_length": 64, "vocab_size": 300, "max_len": longest, "dropout": dropout}
        config = given("train_upvote", **named)
        found += [
            outcome_text(upvote_run.settings_of, config, words) for words in (None, SimpleNamespace(size=280))
        ]
    files = dataclasses.replace(config.reddit, folder="x")
    found += [str(upvote_run.input_files(each)) for each in (config.reddit, files)]
    found += [str(offline_run.mesh_sizes(given("train_text", num_devices=count))) for count in (1, 4)]
    found.append(str(offline_run.numbers_in({"a": np.zeros((2, 3)), "b": [np.zeros(4)]})))
    assert_matches_packed_recording("models_of_texts", {"found": "\n".join(found)}, record)


def test_an_experts_steps(tmp_path: Path, record: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    words = SimpleNamespace(
        encode=lambda texts, special: [[*map(ord, text), *[1] * special] for text in texts]
    )
    monkeypatch.setattr(cloning_data, "Tokenizer", SimpleNamespace(read=lambda folder: words))
    monkeypatch.setattr(cloning_data, "fetch", lambda *names: tmp_path)
    monkeypatch.setattr(cloning_data, "_TOKENISED_AT_ONCE", 2)
    (tmp_path / "trajectories.parquet").write_text("here")
    prompts, found = ["abc", "d", "", "efgh", "ij"], []
    for actions, change, special in (
        ([0, 2, 1, 2, 0], {}, False),
        ([0, 2, 1, 2, 0], {"held_out_share": 0.4}, True),
        ([0, 2, 1, 2, 0], {"train_pairs": 2}, False),
        ([0, 2, 1, 2, 0], {"train_pairs": 5}, False),
        ([0, 2, 1, 3, 0], {}, False),
        ([0, -1, 1, 2, 0], {}, False),
        ([1], {}, False),
        ([], {}, False),
        ([0, 1], {}, False),
        ([0, 2, 1, 2, 0], {"network__prompt_tokens": 4}, True),
    ):
        named = {"trajectories": str(tmp_path), "network__prompt_tokens": 5, "network__model": "m", **change}
        pairs = Pairs(prompts[: len(actions)], actions, {})
        found.append(outcome_text(cloning_data.load, given("clone_behaviour", **named), pairs, 3, special))
    for change in ({"trajectories": None}, {"published__dir": str(tmp_path)}, {}):
        named = {"trajectories": str(tmp_path), **change}
        found.append(outcome_text(cloning_data.files, given("clone_behaviour", **named)))
    assert_matches_packed_recording(
        "experts_steps", {"found": "\n".join(found).replace(str(tmp_path), "FOLDER")}, record
    )


def test_what_evaluations_say(record: bool) -> None:
    """Of numbers that a training might have measured."""
    sums = {"steps": 4.0, "loss": 6.0, "accuracy": 1.0, "tokens": 8.0, "gradient_norm": 2.0}
    position = task.TrainingPosition(6, [{}, {}], sums)
    config: Any = SimpleNamespace(batch_size=3, length=5)

    def evaluation(row: Mapping[str, Any], text: str, place: Any) -> str:
        return f"{row} {text} {place.step}"

    training: Any = SimpleNamespace(
        held_out=lambda *_: sums_task.HeldOutMeans(0.5, 0.25, 1234.0),
        units=lambda step: 15 * step,
        evaluation=evaluation,
        config=config,
        _train=SimpleNamespace(steps_per_pass=4),
        _steps_per_pass=4,
    )
    kinds = language_task.LanguageTask, cloning_task.CloningTask, upvote_task.UpvoteTask
    found = {kind.__name__: str(kind.evaluate(training, None, None, position)) for kind in kinds}
    columns = {"tokens": [2, 6], "loss": [3, 5], "accuracy": [0.5, 1], "gradient_norm": [1, 2]}
    columns |= {"q_min": [3, -1], "q_max": [2, 9]}
    metrics = {name: np.array(numbers, np.float32) for name, numbers in columns.items()}
    language, ppo = language_task.LanguageTask, text_ppo.PpoTraining
    tallied = {name: float(total) for name, total in language.tally(training, metrics).items()}
    shown = [language.shown(training, sums) for sums in (position.sums, {})]
    found["language"] = str([tallied, language.units(training, 7), *shown])
    found["text"] = str(text_task.TextTraining.logged(training, metrics, 2.0))
    terms, counts = LossTerms(9.0, 1.0, 2.0, 3.0, 4.0, 5.0), (Counts(2.0, 8.0), Counts(6.0, 24.0))
    measured = iter([(terms, counts[0]), (LossTerms(9.0, 5.0, 4.0, 3.0, 2.0, 1.0), counts[1])] * 2)
    training._held_out, training._measure = [1, 2], lambda *_: next(measured)
    training.parallel = SimpleNamespace(put_whole=lambda batch, axis: batch)
    training.objective = SimpleNamespace(weights=Weights(1.0, 0.5, 0.25, 0.125, 0.0))
    training._named = functools.partial(text_task.TextTraining._named, training)
    training._held_out_terms = functools.partial(text_task.TextTraining._held_out_terms, training)
    training._denominators = text_task.TextTraining._denominators
    position.sums |= {"q": 2.0, "v": 3.0, "policy": 4.0, "conservative": 5.0}
    state, training.play = SimpleNamespace(params=1, target=2), None
    found["text evaluation"] = text_task.TextTraining.evaluate(training, state, None, position)
    played = {"games/return": -1.5, "games/won": 0.5}
    training.play, training._agent, training.criterion = lambda agent: played, lambda *_: None, ppo.criterion
    config.games = SimpleNamespace(episodes=4)
    found["ppo"] = str(ppo.evaluate(training, state, None, position))
    found["ppo"] += str([ppo.shown(training, {text_ppo._RETURN: 6.0, "steps": 4.0}), ppo.shown(training, {})])
    metrics = {"batch/tokens": np.array([3, 4]), "value": np.array([1, 2])}
    found["ppo"] += str(ppo.logged(training, metrics, 2.0))
    rates = [each.learning_rate(lambda step: 10 * step) for each in (position, task.TrainingPosition())]
    means = [position.mean("loss"), position.mean("loss", "tokens"), task.TrainingPosition().mean("loss")]
    position.add({"loss": 2, "new": 3})
    found["position"] = str([position, rates, means, position.epoch, task.TrainingPosition().epoch])
    optimizer: Any = SimpleNamespace(learning_rate=3e-4, max_gradient_norm=None)
    found["remedies"] = task.smaller_steps(optimizer) + str(task.diverged("it", "less"))
    optimizer.max_gradient_norm = 1.0
    found["remedies"] += task.smaller_steps(optimizer)
    found["perplexity"] = str([language_task.perplexity(loss) for loss in (0.5, 700, 701)])
    assert_matches_packed_recording("evaluations", found, record)


def test_what_evaluations_of_rewards_and_sums_say(tmp_path: Path, record: bool) -> None:
    reward, sums, position = reward_task.RewardTask, sums_task.SumsTask, task.TrainingPosition(5, [{}, {}])
    columns = {"counted": [3, 0], "pairs": [4, 5], "loss": [0.5, 1.5], "accuracy": [0.75, 0.5]}
    columns["gradient_norm"] = [2, 3]
    position.add(reward.tally(None, {name: np.array(numbers) for name, numbers in columns.items()}))  # type: ignore[arg-type]
    levels, names = reward_task.QUANTILE_LEVELS, "mean variance disagreement num_pairs num_steps num_distinct"
    statistics = {name: 0.5 + place for place, name in enumerate(names.split())}
    statistics |= {"quantile_levels": levels, "quantiles": [level * 3.14159 for level in levels]}
    measured = {"validation/loss": 0.25, "validation/accuracy": 0.75, "validation/accuracy_pairs": 1234}
    measured |= {"epoch": 1, "csv_validation_loss": 0.1234, "csv_score_accuracy": 0.1234}
    measured["csv_validation_accuracy"] = math.nan
    training: Any = SimpleNamespace(
        measure=lambda state, shared, step: (
            statistics,
            {**measured, "validation_unseen/accuracy": 0.5, **unseen},
        ),
        _schedule=lambda step: 0.1 * step,
        steps_per_epoch=3,
        data=SimpleNamespace(train=np.arange(5)),
        plan=SimpleNamespace(batch_size=2, steps_per_pass=3),
        config=SimpleNamespace(compat=SimpleNamespace(), accumulate=2, batch_size=2),
        _held_out=[1, 2],
        parallel=SimpleNamespace(put_whole=lambda batch, axis: batch),
        remedy="less",
        schedule=lambda step: 7 + step,
    )
    training.shown = functools.partial(reward.shown, training)
    found = [str([reward.units(training, step) for step in range(8)]), str(position.sums)]
    for pairs, rounded in ((0, False), (3, True)):
        unseen = {"validation_unseen/accuracy_pairs": pairs}
        found.append(str(evaluation := reward.evaluate(training, None, None, position)))  # type: ignore[arg-type]
        training.config.compat.quantile_two_decimals = rounded
        reward.write(training, tmp_path, [{**evaluation.row, "epoch": 0}, evaluation.row])
        found += [path.read_text() for path in sorted(tmp_path.rglob("*.csv"))]
    more = [(6.0, 4.0, 1.0, 3.0), (2.0, 1.0, 2.0, 5.0)]
    for parts in ([each[:3] for each in more], more, [(math.inf, 1.0, 1.0)] * 2):
        counted = iter(parts)
        training._measure = lambda state, batch: next(counted)  # noqa: B023
        found.append(outcome_text(sums.held_out, training, SimpleNamespace(params=1), None, position))
    training._train = SimpleNamespace(batches=lambda first, count: np.arange(24).reshape(count, 4, 2) + first)
    made = sums.batches(training, 5, 3), sums.micro_batches(training, np.arange(8).reshape(4, 2))
    found += [str(each.tolist()) for each in made]
    found.append(str(sums.evaluation(training, {"a": 1}, "said", position)))
    found += [str(sums.units(training, 7)), str(sums.batch_axes(training, None))]
    assert_matches_packed_recording("evaluations_of_rewards", {"found": "\n".join(found)}, record)


def test_comments_are_split(tmp_path: Path, record: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def encoded(_: Any, texts: list[str], most: int) -> list[list[int]]:
        return [[*map(ord, text[:most])] for text in texts]

    monkeypatch.setattr(text_scorer, "encoded", encoded)
    config = given("train_upvote", max_len=3, held_out_share=0.3, cutoff=2)
    tokenizer = SimpleNamespace(size=128)
    comments = [SimpleNamespace(text=chr(97 + n) * (n % 5 + 1), score=n % 4) for n in range(20)]
    split = functools.partial(upvote_run._tokenise, config, vocabulary="v", stopped=lambda: False)
    parts = split(target=tmp_path / "d", comments=comments, tokenizer=tokenizer)
    assert parts is not None
    found = []
    for part, each in parts.items():
        liked = each.item_columns["liked"]
        found.append(f"{part} {each.manifest['source']} {each.tokens.tolist()} {liked.tolist()}")
    found.append(outcome_text(split, target=tmp_path / "few", comments=comments[:1], tokenizer=tokenizer))
    assert_matches_packed_recording("comments", {"found": "\n".join(found)}, record)
