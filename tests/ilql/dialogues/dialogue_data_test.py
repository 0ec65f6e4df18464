from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.ilql.config import (
    DialogueFilter,
    HeldOutDialogues,
    InitialParameters,
    TextConfig,
    TextMethod,
    TokenRewardSection,
)
from motif_jax.ilql.dialogues import (
    dialogue,
    dialogue_data,
    dialogue_files,
    dialogue_tokens,
)
from motif_jax.ilql.dialogues.dialogue_batches import ItemLayout, StreamBatches
from motif_jax.ilql.tasks import registry
from motif_jax.lm.token_data import TokensDataset, TokensWriter
from tests import reward_fixtures
from tests.toy_text import Letters, Task


@pytest.mark.parametrize(
    ("criteria", "chosen"),
    [
        ({}, [0, 1, 2, 3, 4, 5]),
        ({"top": 0.5}, [1, 3, 4]),
        ({"top": 0.2}, [1]),
        ({"bottom": 0.5}, [0, 2, 5]),
        ({"cutoff": -2.0}, [1, 3, 4]),
        ({"top": 0.7, "cutoff": -1.0}, [1, 3]),
    ],
    ids=str,
)
def test_a_filter_chooses_by_return(
    tmp_path: Path, criteria: dict[str, float], chosen: list[int]
) -> None:
    with TokensWriter(tmp_path / "tokens", 10, "numbers", {}, {"return": "float64"}) as writer:
        for total in (-3.0, -1.0, -6.0, -1.0, -2.0, -5.0):
            writer.add([1], item_columns={"return": total})
        writer.commit()
    dataset = TokensDataset(tmp_path / "tokens")

    assert dialogue_data.chosen_items(DialogueFilter(**criteria), dataset).tolist() == chosen


def batches_of(
    stream: dialogue.DialogueStream,
    batch_size: int,
    seed: int = 1,
    accepts: Callable[[dialogue.Dialogue], bool] | None = None,
) -> StreamBatches:
    layout = ItemLayout(Letters.delimiters.pad)
    return StreamBatches(
        stream, Letters(), dialogue_tokens.constant_reward(0.0), layout, batch_size, seed, accepts
    )


def filtered(cutoff: float, seed: int = 1) -> StreamBatches:
    """Batches of games of three letters with a return of at least `cutoff`."""
    stream = Task({"length": 3}).stream("games", "half")
    return batches_of(stream, 16, seed, lambda game: game.total >= cutoff)


def test_a_filtered_stream_is_drawn_until_a_batch_is_full() -> None:
    assert (filtered(2.0).batches(3, 2).returns >= 2).all()
    assert (filtered(0.0).batches(3, 2).returns < 2).any()


def test_a_streams_batch_depends_on_seed_and_step_alone() -> None:
    two_steps = filtered(2.0).batches(3, 2)

    np.testing.assert_array_equal(two_steps.tokens[1], filtered(2.0).batches(4, 1).tokens[0])
    assert not np.array_equal(two_steps.tokens[0], two_steps.tokens[1])
    assert not np.array_equal(two_steps.tokens, filtered(2.0, seed=2).batches(3, 2).tokens)


def test_a_filter_that_no_dialogue_passes_ends_the_run() -> None:
    with pytest.raises(UserError, match="dialogues in a row passes it"):
        filtered(4.0).batches(0, 1)


def source_of_games(folder: Path, **values: Any) -> tuple[TextConfig, Any]:
    """The config and the source of a training on games of a stream, which pay -1 a turn but for the
    last.
    """
    config = TextConfig(options=json.dumps({"num_words": 30}), policy="random", **values)
    return config, dialogue_data.source_of(config)


def write_games(folder: Path) -> list[float]:
    """Writes 60 games; returns their sorted returns."""
    stream = registry.make("wordle", {"num_words": 30}).stream("games", "random")
    games = stream(np.random.default_rng(0), 60, 0)
    dialogue_files.write(folder / "dialogues.parquet", [games], {"origin": "a test"})
    return sorted(games.returns())


def test_a_filter_leaves_out_rewards_of_tokens(tmp_path: Path) -> None:
    """With 5 for each token, lost games would be the best."""
    returns = write_games(tmp_path)
    config, source = source_of_games(
        tmp_path,
        data=str(tmp_path),
        filter=DialogueFilter(cutoff=-4.0),
        token_reward=TokenRewardSection(constant=5.0),
        held_out=HeldOutDialogues(share=0.1),
    )
    tokenizer = registry.make(source.task, source.options).tokenizer()

    parts = dialogue_data.split_tokens(
        config, source, tokenizer, tmp_path / "tokens", lambda: False
    )

    assert parts is not None
    assert (
        sorted(np.concatenate([part.item_columns["return"] for part in parts.values()])) == returns
    )
    train = parts["train"]
    chosen = train.item_columns["return"][dialogue_data.chosen_items(config.filter, train)]
    assert 0 < len(chosen) < train.num_items
    assert chosen.min() >= -4
    # The rewards that are learned from include those of tokens.
    assert np.asarray(train.token_columns["rewards"]).max() == 5


@pytest.mark.parametrize(
    ("from_file", "criteria"),
    [(True, {"top": 0.2}), (True, {"cutoff": -5.0}), (False, {"cutoff": -5.0})],
    ids=["best of a file", "cutoff of a file", "cutoff of a stream"],
)
def test_held_out_dialogues_are_filtered_too(
    tmp_path: Path, from_file: bool, criteria: dict[str, float]
) -> None:
    """Else the best parameters are those of the smallest loss on dialogues that are not
    imitated.
    """
    values: dict[str, Any] = {"batch_size": 4, "filter": DialogueFilter(**criteria)}
    if from_file:
        write_games(tmp_path)
        values |= {"data": str(tmp_path), "held_out": HeldOutDialogues(share=0.5)}
    config, source = source_of_games(tmp_path, **values)
    pad = registry.make(source.task, source.options).tokenizer().delimiters.pad

    data: Any = dialogue_data.open_data(config, source, tmp_path, ItemLayout(pad), lambda: False)

    _, held_out = data.batches
    returns = [held_out.batches(step, 1).returns for step in range(8)]
    assert np.concatenate(returns, axis=None).min() >= -5


def groups(rng: np.random.Generator, count: int, first: int) -> dialogue.Dialogues:
    """A stream of groups of 20 dialogues, each of which is paid a hundred times any number plus the
    group's.
    """
    numbers = np.repeat(rng.integers(0, 1000) * 100 + np.arange(first, first + count), 20)
    return dialogue.Dialogues.of(
        dialogue.Dialogue(("ab", "ba"), (None, float(number)), True) for number in numbers
    )


def test_a_batch_is_drawn_from_all_groups_of_a_stream() -> None:
    """Such as steps of episodes, or games with their branches: the first group alone is more than a
    batch.
    """
    of_steps = [batches_of(groups, 8).batches(step, 1).returns[0] % 100 for step in range(6)]

    assert all(len(of_step) == 8 and len(set(of_step)) > 2 for of_step in of_steps)
    assert set(np.concatenate(of_steps)) == set(range(8))


def test_a_batch_of_groups_is_drawn_by_its_step() -> None:
    one, other = (batches_of(groups, 8).batches(2, 1).returns for _ in range(2))

    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("changed", ["words", "token_reward"])
def test_digests_of_a_stream_follow_its_files(tmp_path: Path, changed: str) -> None:
    files = {"words": tmp_path / "words.txt", "token_reward": tmp_path / "rewards.json"}
    files["words"].write_text("crane\nslate\nblimp\n")
    files["token_reward"].write_text('{"3": 1.0}')
    config = TextConfig(
        policy="random",
        options=json.dumps({"words": str(files["words"])}),
        token_reward=TokenRewardSection(file=str(files["token_reward"])),
    )

    def digests() -> dict[str, str]:
        source = dialogue_data.source_of(config)
        data = dialogue_data.open_data(config, source, tmp_path, ItemLayout(0), lambda: False)
        assert data is not None
        return dict(data.digests)

    before = digests()
    contents = {"words": "crate\nslate\nblimp\n", "token_reward": '{"3": 2.0}'}
    files[changed].write_text(contents[changed])

    after = digests()
    assert [name for name in before if before[name] != after[name]] == [f"file of {changed}"]


def require_actions(*texts: str, by_utterance: bool, max_len: int | None) -> None:
    """Checks 70 dialogues without an action, and one with these; items have at most nine tokens."""
    layout = ItemLayout(Letters.delimiters.pad, by_utterance, max_len or 9)
    without_action = dialogue.Dialogue(("abc",), (None,), True)
    with_actions = dialogue.Dialogue(("abc", *texts), (None, *[1.0 for _ in texts]), True)
    dialogues = dialogue.Dialogues.of([*[without_action] * 70, with_actions])
    config = TextConfig(max_len=max_len)
    dialogue_data.require_actions(config, Letters(), dialogues, layout, "held_out.data")


@pytest.mark.parametrize("max_len", [None, 9])
def test_dialogues_without_an_action_are_refused(max_len: int | None) -> None:
    with pytest.raises(UserError, match=r"^config\.held_out\.data=None: must have actions"):
        require_actions(by_utterance=False, max_len=max_len)


def test_tokens_of_a_cut_action_count() -> None:
    require_actions("abcdefgh", by_utterance=False, max_len=9)


def test_a_whole_utterance_counts() -> None:
    require_actions("ab", by_utterance=True, max_len=9)


def test_a_user_s_file_is_the_data_of_its_task(tmp_path: Path) -> None:
    (tmp_path / "dialogues.parquet").touch()

    source = dialogue_data.source_of(TextConfig(task="dialogues", data=str(tmp_path)))

    assert source.options["data"] == str(source.path) == str(tmp_path / "dialogues.parquet")


@pytest.mark.parametrize(
    ("initial_run", "options", "tokenizer"),
    [(False, None, "data"), (True, None, "run/agent"), (True, '{"tokenizer": "gpt2"}', "gpt2")],
    ids=["of the data", "of the initial run", "of the options"],
)
def test_a_run_inherits_the_tokenizer_of_its_initial_run(
    tmp_path: Path, initial_run: bool, options: str | None, tokenizer: str
) -> None:
    """Also where the data have a tokenizer of their own, unless the options name another."""
    for folder, name in (("data", "dialogues.parquet"), ("run/agent", "agent.json")):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / name).touch()
        (tmp_path / folder / "tokenizer.json").touch()
    collected = reward_fixtures.load_config("collect_text", "reddit").to_dict()
    (tmp_path / "data" / "dialogues.json").write_text(json.dumps({"config": collected}))
    values: dict[str, Any] = {"task": "reddit", "data": str(tmp_path / "data")}
    if initial_run:
        values["initial"] = InitialParameters(value=str(tmp_path / "run"))
    if options:
        values["options"] = options

    source = dialogue_data.source_of(TextConfig(**values))

    assert source.options["tokenizer"] in (tokenizer, str(tmp_path / tokenizer))


def test_a_share_is_not_one_less_by_rounding() -> None:
    assert [dialogue.share_of(100, share) for share in (0.29, 0.58, 0.57, 0.999)] == [
        29,
        58,
        57,
        99,
    ]


def test_a_large_reward_leaves_other_dialogues_their_returns() -> None:
    rewards = (1e18, 0.5, 0.1)
    dialogues = dialogue.Dialogues.of(
        dialogue.Dialogue(("a",), (reward,), True) for reward in rewards
    )

    assert dialogues.returns().tolist() == list(rewards)


@pytest.mark.parametrize(
    ("method", "reward", "paid", "is_refused"),
    [
        ("ilql", 0.0, 0.0, True),
        ("chai", 0.0, 0.0, True),
        ("ilql", 1.0, 0.0, False),
        ("ilql", 0.0, -0.1, False),
        ("bc", 0.0, 0.0, False),
        ("psi", 0.0, 0.0, False),  # the policy's log-probability is a reward, too
    ],
)
def test_values_are_not_learned_where_nothing_is_paid(
    method: str, reward: float, paid: float, is_refused: bool
) -> None:
    """Such as of a file whose rewards have a name that is not read."""
    one = dialogue.Dialogue(("a", "b"), (None, reward), True, {"score": 1, "Reward": 2})
    dialogues = dialogue.Dialogues.of([one] * 3)
    config = TextConfig(
        data="mine.jsonl",
        method=TextMethod(name=method),
        token_reward=TokenRewardSection(constant=paid),
    )
    if is_refused:
        with pytest.raises(
            UserError, match=r"config\.data='mine\.jsonl'.* no reward: Reward, score"
        ):
            dialogue_data.require_rewards(config, dialogues)
    else:
        dialogue_data.require_rewards(config, dialogues)


def test_a_user_s_dialogues_json_says_nothing_about_its_neighbours(tmp_path: Path) -> None:
    line = json.dumps({"messages": [{"role": "assistant", "content": "a"}], "reward": 1})
    for name in ("dialogues.json", "mine.jsonl"):
        (tmp_path / name).write_text(f"{line}\n{line}\n")
    data = str(tmp_path / "mine.jsonl")

    source = dialogue_data.source_of(TextConfig(task="dialogues", data=data))

    assert source.options["data"] == data
