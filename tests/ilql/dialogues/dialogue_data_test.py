from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.ilql.config import DialogueFilter, HeldOutDialogues, InitialParameters, TextConfig
from motif_jax.ilql.dialogues import dialogue, dialogue_data, parquet, token_rewards
from motif_jax.ilql.dialogues.config import TokenRewardSection
from motif_jax.ilql.dialogues.dialogue_batches import ItemLayout, StreamBatches
from motif_jax.ilql.tasks import registry
from motif_jax.lm import tokenised
from tests import resumed, reward_fixtures
from tests.toy_text import Letters, Task


def test_the_best_the_worst_and_those_that_are_good_enough() -> None:
    returns = np.array([-3.0, -1.0, -6.0, -1.0, -2.0, -5.0])
    dataset: Any = SimpleNamespace(item_columns={"return": returns})
    changes = {}, {"top": 0.5}, {"top": 0.2}, {"bottom": 0.5}, {"cutoff": -2.0}, {"top": 0.7, "cutoff": -1.0}
    kept = [dialogue_data.chosen_items(DialogueFilter(**each), dataset).tolist() for each in changes]
    assert kept == [[0, 1, 2, 3, 4, 5], [1, 3, 4], [1], [0, 2, 5], [1, 3, 4], [1, 3]]


def drawn_from(stream: Any, size: int, seed: int = 1, *wanted: Any) -> StreamBatches:
    plan = ItemLayout(Letters.delimiters.pad)
    return StreamBatches(stream, Letters(), token_rewards.constant(0.0), plan, size, seed, *wanted)


def test_a_stream_is_drawn_until_dialogues_are_good_enough_and_a_step_is_its_numbers() -> None:
    stream = Task({"length": 3}).stream("games", "half")

    def drawn(least: float, seed: int = 1) -> StreamBatches:
        return drawn_from(stream, 16, seed, lambda each: each.total >= least)

    good = drawn(2.0).batches(3, 2)
    assert (good.returns >= 2).all()
    np.testing.assert_array_equal(good.tokens[1], drawn(2.0).batches(4, 1).tokens[0])
    assert not np.array_equal(good.tokens[0], good.tokens[1])
    assert not np.array_equal(good.tokens, drawn(2.0, seed=2).batches(3, 2).tokens)
    assert (drawn(0.0).batches(3, 2).returns < 2).any()
    with pytest.raises(UserError, match="dialogues in a row passes it"):
        drawn(4.0).batches(0, 1)


def of_games(folder: Path, listed: bool = True, **changes: Any) -> tuple[Any, Any, Any]:
    """The config of a training on 60 games, which pay -1 a turn but for the last, or on a stream; its source; the returns."""
    given = {"options": json.dumps({"num_words": 30}), "policy": "random", **changes}
    returns = None
    if listed:
        stream = registry.make("wordle", {"num_words": 30}).stream("games", "random")
        played = stream(np.random.default_rng(0), 60, 0)
        parquet.write(folder / "dialogues.parquet", [played], {"origin": "a test"})
        given["data"], returns = str(folder), sorted(played.returns())
    config = TextConfig(**given)
    return config, dialogue_data.source_of(config), returns


def test_a_list_is_filtered_by_what_a_stream_is_without_the_rewards_of_tokens(tmp_path: Path) -> None:
    """With 5 for each token games that were lost would be the best."""
    paid, held_out = TokenRewardSection(constant=5.0), HeldOutDialogues(share=0.1)
    given = {"filter": DialogueFilter(cutoff=-4.0), "token_reward": paid, "held_out": held_out}
    config, source, played = of_games(tmp_path, **given)
    tokenizer = registry.make(source.task, source.options).tokenizer()
    found = dialogue_data.split_tokens(config, source, tokenizer, tmp_path / "tokens", lambda: False)
    assert found is not None
    assert sorted(np.concatenate([part.item_columns["return"] for part in found.values()])) == played
    train = found["train"]
    kept = train.item_columns["return"][dialogue_data.chosen_items(config.filter, train)]
    assert 0 < len(kept) < train.num_items
    assert kept.min() >= -4
    # What is learned has them all the same.
    assert np.asarray(train.token_columns["rewards"]).max() == 5


@pytest.mark.parametrize(
    ("listed", "wanted"),
    [(True, DialogueFilter(top=0.2)), *((listed, DialogueFilter(cutoff=-5.0)) for listed in (True, False))],
)
def test_held_out_dialogues_are_filtered_too(tmp_path: Path, listed: bool, wanted: DialogueFilter) -> None:
    """Else the best parameters are those of the smallest loss on what is not imitated."""
    given = {"held_out": HeldOutDialogues(share=0.5)} if listed else {}
    config, source, _ = of_games(tmp_path, listed, batch_size=4, filter=wanted, **given)
    pad = registry.make(source.task, source.options).tokenizer().delimiters.pad
    opened: Any = dialogue_data.open_data(config, source, tmp_path, ItemLayout(pad), lambda: False)
    returns = [opened.batches[1].batches(step, 1).returns for step in range(8)]
    assert np.concatenate(returns, axis=None).min() >= -5


def test_a_batch_of_a_stream_of_groups_is_drawn_from_all_of_them() -> None:
    """Steps of episodes, games with their branches: the first ones alone are far more than a batch."""
    chosen = set[float]()

    def groups(rng: np.random.Generator, count: int, first: int) -> dialogue.Dialogues:
        numbers = np.repeat(rng.integers(0, 1000) * 100 + np.arange(first, first + count), 20)
        return dialogue.Dialogues.of(dialogue.Dialogue(("ab", "ba"), (None, float(n)), True) for n in numbers)

    for step in range(6):
        found, again = (drawn_from(groups, 8).batches(step, 1).returns[0] % 100 for _ in range(2))
        assert found.tolist() == again.tolist()
        assert (len(found), len({*found}) > 2) == (8, True)
        chosen |= {*found}
    assert chosen == {*range(8)}


def test_what_the_dialogues_of_a_stream_follow_from_is_recorded(tmp_path: Path) -> None:
    words, paid = tmp_path / "words.txt", tmp_path / "paid.json"
    words.write_text("crane\nslate\nblimp\n")
    paid.write_text('{"3": 1.0}')
    reward = TokenRewardSection(file=str(paid))
    config = TextConfig(policy="random", options=json.dumps({"words": str(words)}), token_reward=reward)

    def read() -> dict[str, str]:
        given: Any = config, dialogue_data.source_of(config), tmp_path, ItemLayout(0), lambda: False
        return dialogue_data.open_data(*given).digests  # type: ignore[union-attr]

    before = read()
    words.write_text("crate\nslate\nblimp\n")
    now = read()
    paid.write_text('{"3": 2.0}')
    for one, other, name in ((before, now, "words"), (now, read(), "token_reward")):
        assert [key for key in one if one[key] != other[key]] == [f"file of {name}"]


@pytest.mark.parametrize("most", [None, 9])
def test_dialogues_without_a_live_action_are_refused(most: int | None) -> None:
    """By tokens an action that is cut off counts, as a whole one does by utterances."""

    def told(by_utterance: bool, *texts: str) -> None:
        plan, config = ItemLayout(Letters.delimiters.pad, by_utterance, most or 9), TextConfig(max_len=most)
        other = dialogue.Dialogue(("abc", *texts), (None, *[1.0 for _ in texts]), True)
        dialogues = dialogue.Dialogues.of([*[dialogue.Dialogue(("abc",), (None,), True)] * 70, other])
        dialogue_data.require_actions(config, Letters(), dialogues, plan, "held_out.data")

    with pytest.raises(UserError, match=r"^config\.held_out\.data=None: must have actions"):
        told(False)
    told(True, "ab")
    told(False, "abcdefgh")
    room = "network.max_length: the model has room for 9 tokens .* 15"
    with pytest.raises(UserError, match=rf"^config\.{'max_len=9: must be at least 15' if most else room}"):
        told(True, "abcdefgh")


def splitter(tmp_path: Path, share: float, groups: list[Any]) -> Callable[..., Any]:
    """(folder, stopped) -> the two parts of dialogues with these groups, which are paid their numbers."""
    metas = [{} if group is None else {"group": group} for group in groups]
    said = [dialogue.Dialogue(("a",), (float(number),), True, meta) for number, meta in enumerate(metas)]
    parquet.write(tmp_path / "d.parquet", [dialogue.Dialogues.of(said)], {})
    config = TextConfig(data=str(tmp_path / "d.parquet"), held_out=HeldOutDialogues(share=share))
    given, split = (config, dialogue_data.source_of(config), Task({}).tokenizer()), dialogue_data.split_tokens
    return lambda folder, stopped=lambda: False: split(*given, tmp_path / folder, stopped)


@pytest.mark.parametrize(("safe", "more"), [(16, 0), (16, 2), (32, 2)])
def test_nothing_is_tokenised_again(tmp_path: Path, monkeypatch: Any, safe: int, more: int) -> None:
    """Of 40, of which the last 10 are held out, it was asked to stop behind the last that are safe, or killed some behind those."""
    monkeypatch.setattr(tokenised, "_TOGETHER", 2)
    monkeypatch.setattr(tokenised, "_SAVED_EVERY", 2)
    split_into = splitter(tmp_path, 0.25, [None] * 40)
    with resumed.tokenised(safe + more if more else None) as items:
        assert split_into("run", lambda: not more and len(items) == safe) is None
    assert len(items) == safe + more
    with resumed.tokenised() as items:
        found = split_into("run")
    assert len(items) == 40 - safe
    whole = split_into("whole")
    assert [part.manifest for part in found.values()] == [part.manifest for part in whole.values()]


def test_dialogues_of_a_group_are_held_out_together(tmp_path: Path) -> None:
    groups = [None, None, *[place // 3 for place in range(60)], "last", 0, "last", None]
    parts = splitter(tmp_path, 0.25, groups)("tokens").values()
    train, held_out = ([int(paid) for paid in part.item_columns["return"]] for part in parts)
    assert sorted([*train, *held_out]) == list(range(len(groups)))
    assert not {groups[n] for n in train} & {groups[n] for n in held_out} - {None}
    assert abs(len(held_out) / len(groups) - 0.25) < 0.05


def test_a_part_of_another_split_is_made_anew(tmp_path: Path) -> None:
    """Of an older version that was killed between the two."""
    split_into = splitter(tmp_path, 0.4, [None] * 20)
    split_into("tokens")
    manifest = tmp_path / "tokens" / "train" / "tokens.json"
    shutil.rmtree(tmp_path / "tokens" / "held_out")
    told = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**told, "source": {**told["source"], "split": None}}))
    assert [part.num_items for part in split_into("tokens").values()] == [12, 8]
    assert json.loads(manifest.read_text()) == told
    manifest.write_text(json.dumps({**told, "tokenizer": "another"}))
    with pytest.raises(UserError, match="train was tokenised by another tokenizer"):
        split_into("tokens")


def test_a_run_that_starts_from_another_speaks_with_its_tokenizer(tmp_path: Path) -> None:
    """Also where the data have one of their own; unless the options name a third."""
    data, run = tmp_path / "data", tmp_path / "run" / "agent"
    for folder, name in ((data, "dialogues.parquet"), (run, "agent.json")):
        folder.mkdir(parents=True)
        (folder / name).touch()
        (folder / "tokenizer.json").touch()
    recorded = dialogue_data.source_of(TextConfig(task="dialogues", data=str(data)))
    assert recorded.options["data"] == str(recorded.path) == str(data / "dialogues.parquet")
    drawn = reward_fixtures.load_config("collect_text", "reddit").to_dict()
    (data / "dialogues.json").write_text(json.dumps({"config": drawn}))
    begun = {"initial": InitialParameters(value=str(run.parent))}
    for given, wanted in (({}, data), (begun, run), ({**begun, "options": '{"tokenizer": "gpt2"}'}, "gpt2")):
        source = dialogue_data.source_of(TextConfig(task="reddit", data=str(data), **given))
        assert source.options["tokenizer"] == str(wanted)


def test_a_description_of_data_that_says_nothing_of_the_task_is_told(tmp_path: Path) -> None:
    (tmp_path / "dialogues.parquet").touch()
    told = r"dialogues\.json is damaged \(config has no options of the task"
    odd = {"wordle": "x", "compat": {}}
    for task, more in (("wordle", {}), ("wordle", odd), ("a:b", {"options": "[1]"})):
        (tmp_path / "dialogues.json").write_text(json.dumps({"config": {"task": task, **more}}))
        with pytest.raises(UserError, match=told):
            dialogue_data.source_of(TextConfig(data=str(tmp_path), task=task))
