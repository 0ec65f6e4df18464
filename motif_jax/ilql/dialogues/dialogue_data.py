"""Dialogues of a training: a dataset that is tokenised once into the run folder, or a task's stream."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.core import config as checks
from motif_jax.core import digests, entry_points, sections, seeds
from motif_jax.core.errors import UserError
from motif_jax.core.files import read_json
from motif_jax.core.training.records import FILE_OF
from motif_jax.ilql.agent import agent_folder
from motif_jax.ilql.agent.agent_folder import TOKENIZER, vocabulary_digest
from motif_jax.ilql.config import DialogueFilter, InitialParameters, TextConfig
from motif_jax.ilql.dialogues import cut_dialogues, files, token_columns, token_rewards
from motif_jax.ilql.dialogues.dialogue import Dialogue, Dialogues
from motif_jax.ilql.dialogues.dialogue_batches import DialogueBatches, ItemLayout, ListBatches, StreamBatches
from motif_jax.ilql.dialogues.items import TextTokenizer, TokenItem, tokenise
from motif_jax.ilql.dialogues.token_rewards import TokenReward
from motif_jax.ilql.methods.text_methods import rule_of
from motif_jax.ilql.tasks import registry
from motif_jax.ilql.tasks.contract import TextTask
from motif_jax.lm.held_out import HeldOut
from motif_jax.lm.text import fetch
from motif_jax.lm.token_data.dataset import TokensDataset
from motif_jax.lm.token_data.writer import TokensWriter
from motif_jax.lm.tokenised import HELD_OUT, TOKENS, TRAIN, Tokenisation

_META = "dialogues.json"
# The task of a user's own dialogues.
RECORDED = "dialogues"
# Dialogues that are checked before the dataset is tokenised.
_LOOKED_AT = 64


class DialogueSource(NamedTuple):
    """The source of dialogues, before anything is read; task and options are of `ilql.tasks.registry.make`."""

    task: str
    options: Mapping[str, Any]
    path: Path | None  # None: dialogues are drawn from the task's stream
    held_out: Path | None  # None: a share of those in `path`
    attach: Callable[[TextTask], TextTask] = lambda task: task  # gives it the text scorer that it needs


def source_of(config: TextConfig) -> DialogueSource:
    """The source of a run's dialogues. Data of `collect_text` have their task's options, which `config.options` overrides."""
    path = files.find(config.data, "data") if config.data else None
    held_out = files.find(config.held_out.data, "held_out.data") if config.held_out.data else None
    if held_out is not None and path is None:
        raise UserError(
            f"config.held_out.data={config.held_out.data}: must be None without config.data: held-out dialogues come from the stream"
        )
    own = registry.json_options(config.options)
    found: dict[str, Any] = {}
    if path is not None and path.name != _META and (path.parent / _META).is_file():
        drawn = read_json(path.parent / _META, "collect it again").get("config", {})
        if not isinstance(drawn, dict):
            raise UserError(f"{path.parent / _META} is damaged (config is not an object): collect it again")
        entry_points.asked(path.parent / _META, drawn)
        if drawn.get("task", config.task) != config.task:
            raise UserError(
                f"config.data={config.data}: are dialogues of the task {drawn['task']}, config.task is {config.task}"
            )
        try:
            found = registry.options_of(drawn) if "task" in drawn else {}
        except (KeyError, TypeError, ValueError, AttributeError):
            raise UserError(
                f"{path.parent / _META} is damaged (config has no options of the task {config.task}): collect it again, or take that file out"
            ) from None
        if (path.parent / TOKENIZER).is_file() and not found.get("tokenizer", ""):
            found = {**found, "tokenizer": str(path.parent)}
    if rule_of(config.method.name).online and config.initial.policy:
        found = agent_folder.options_for(config.task, config.initial.policy, "initial.policy")
    if config.task == RECORDED:
        found = {**found, **({} if path is None else {"data": str(path)})}
        if config.network.checkpoint:
            found["tokenizer"] = str(fetch(config.network.checkpoint, "network.checkpoint"))
    options = registry.overlaid(config.task, {**found, **_spoken(config.initial)}, own)
    return DialogueSource(config.task, options, path, held_out)


def _spoken(initial: InitialParameters) -> dict[str, Any]:
    """The tokenizer file of the initial run, if it has one."""
    for key, run in dataclasses.asdict(initial).items():
        if run:
            place = agent_folder.find(run, f"initial.{key}")
            if (place / TOKENIZER).is_file():
                return {"tokenizer": str(place)}
    return {}


def token_reward_of(paid: sections.TokenReward) -> TokenReward:
    """The reward of each token of an action: a constant, or a file's values."""
    if paid.file:
        return token_rewards.from_file(paid.file, paid.scale, paid.shift)
    return token_rewards.constant(paid.constant)


def split_tokens(
    config: TextConfig,
    source: DialogueSource,
    tokenizer: TextTokenizer,
    folder: Path,
    stopped: Callable[[], bool],
) -> dict[str, TokensDataset] | None:
    """Tokenises dialogues into `folder`, or resumes: the datasets by part, or None after a request to stop."""
    assert source.path is not None
    paths = [path for path in (source.path, source.held_out) if path is not None]
    about: dict[str, Any] = {
        "files": {str(path): digests.of_file(path) for path in paths},
        "held_out": config.held_out.share,
        "seed": config.seed,
        "token_reward": dataclasses.asdict(config.token_reward),
    }
    dialogues, others = files.read(source.path), Dialogues.of(())
    if source.held_out is not None:
        others, held = files.read(source.held_out), np.zeros(len(dialogues), bool)
    else:  # all of a group or none
        held = HeldOut.of(config.held_out.share, config.seed).holds(_units(dialogues))
    about["split"] = digests.of_bytes(held.tobytes())
    chosen = [(TRAIN, dialogues, ~held, "data"), (HELD_OUT, dialogues, held, "data")]
    chosen.append((HELD_OUT, others, np.ones(len(others), bool), "held_out.data"))
    items = (
        (part, (number, dialogues[int(place)], key))
        for part, dialogues, kept, key in chosen
        for number, place in enumerate(np.flatnonzero(kept))
    )
    reward = token_reward_of(config.token_reward)

    def add(writer: TokensWriter, some: Sequence[tuple[int, Dialogue, str]]) -> None:
        for number, dialogue, key in some:
            token_columns.add(writer, _tokenised(dialogue, tokenizer, reward, number, key), dialogue.total)

    too_few = f"config.data={config.data}: too few dialogues ({len(dialogues)}, or groups of them), there is none {{}}"
    columns = token_columns.TOKEN_COLUMNS, token_columns.ITEM_COLUMNS
    vocabulary = tokenizer.size, vocabulary_digest(tokenizer)
    tokenisation = Tokenisation(*vocabulary, about, add, *columns, too_few, "dialogues")
    return tokenisation.split(folder, items, len(dialogues) + len(others), stopped)


def _units(dialogues: Dialogues) -> np.ndarray:
    """The group of each dialogue, int64 [N]: those with one `group` in their `meta` share a number."""
    numbers: dict[str, int] = {}
    groups = (json.loads(meta).get("group") for meta in dialogues.metas)
    names = (f"alone {place}" if group is None else json.dumps(group) for place, group in enumerate(groups))
    return np.array([numbers.setdefault(name, len(numbers)) for name in names], np.int64)


def _tokenised(
    dialogue: Dialogue, tokenizer: TextTokenizer, reward: TokenReward, number: int, key: str
) -> TokenItem:
    try:
        return tokenise(dialogue, tokenizer, reward)
    except (ValueError, KeyError) as error:
        raise UserError(f"config.{key}: dialogue {number} does not fit the task's tokens: {error}") from None


def chosen_items(wanted: DialogueFilter, dataset: TokensDataset) -> np.ndarray:
    """The items that are kept, int64 [N]: those with the highest or lowest returns, and of them from a cutoff on."""
    returns = np.asarray(dataset.item_columns["return"])
    kept = np.arange(len(returns))
    if wanted.top < 1 or wanted.bottom < 1:
        order = np.argsort(-returns if wanted.top < 1 else returns, kind="stable")
        share = wanted.top if wanted.top < 1 else wanted.bottom
        kept = np.sort(order[: max(1, int(len(returns) * share))])
    if wanted.cutoff is not None:
        kept = kept[returns[kept] >= wanted.cutoff]
    if not len(kept):
        raise UserError(
            f"config.filter={dataclasses.asdict(wanted)}: leaves none of {len(returns):,} dialogues in {dataset.folder}"
        )
    return kept


def said_in(folder: Path, tokenizer: TextTokenizer) -> Iterator[Dialogue]:
    """The dialogues of a run's tokenised part, as text; an action's reward includes those of its tokens."""
    dataset, marks = TokensDataset(folder), tokenizer.delimiters
    ends = (marks.state_end, marks.action_end)
    for index in range(dataset.num_items):
        item = token_columns.item_of(dataset, index)
        tokens, paid = item.tokens.tolist(), iter(item.utterance_rewards.tolist())
        texts: list[str] = []
        rewards: list[float | None] = []
        start = 1
        for place in (place for place, token in enumerate(tokens) if place and token in ends):
            texts.append(tokenizer.decode(tokens[start:place]))
            rewards.append(next(paid) if tokens[place] == marks.action_end else None)
            start = place + 1
        yield Dialogue(tuple(texts), tuple(rewards), bool(item.terminals[-1]))


def require_turns(config: TextConfig, dialogues: Dialogues, key: str) -> None:
    """Raises UserError where the dialogues of the config's `key` have no action."""
    if not dialogues.actions.any():
        raise UserError(
            f"config.{key}={checks.dotted(config, key)}: must have actions to learn from (utterances with a reward), and has none"
        )


def require_actions(
    config: TextConfig, tokenizer: TextTokenizer, dialogues: Dialogues, plan: ItemLayout, key: str
) -> None:
    """Requires that the first dialogues of the config's `key` fit the task's tokens and have an action, not all cut off."""
    acting, reward = np.flatnonzero(dialogues.turns())[:_LOOKED_AT], token_reward_of(config.token_reward)
    require_turns(config, dialogues, key)
    items = [_tokenised(dialogues[int(i)], tokenizer, reward, int(i), key) for i in acting]
    actions = "utterance_action_indices" if plan.by_utterance else "action_indices"
    if any(len(getattr(plan.cut(item), actions)) for item in items):
        return
    least = min(int(item.utterance_action_indices[0]) + 2 for item in items)
    allowed = f"at least {least}, where the shortest first action ends"
    checks.require_key(config, "max_len", config.max_len != plan.max_len, allowed)
    raise UserError(
        f"config.network.max_length: the model has room for {plan.max_len} tokens of a dialogue and needs {least}, where the shortest first action ends"
    )


def longest_action(given: int | None, run: str | None) -> int:
    """The most tokens of an action in play: `given` by games.decode, or that of the initial run; UserError without either."""
    if given is None and run:
        given = agent_folder.describe(run, "initial.policy")["settings"].get("longest_action")
    checks.require(
        given is not None and given > 0, "games.decode.max_tokens", given, "tokens of an action at most"
    )
    assert given is not None
    return given


class Data(NamedTuple):
    """Dialogues of a run."""

    # Of the training and the held-out part; None where the agent plays its own episodes.
    batches: tuple[DialogueBatches, DialogueBatches] | None
    digests: dict[str, str]
    amount: str  # size of the data, for messages
    longest_action: int  # tokens of the longest action, `</a>` included; for a stream that of a sample
    options: Mapping[str, Any]  # of the task, with all files that it needs


def open_data(
    config: TextConfig, source: DialogueSource, workdir: Path, plan: ItemLayout, stopped: Callable[[], bool]
) -> Data | None:
    """The dialogues of a run; None after a request to stop."""
    task = registry.make(source.task, source.options)
    tokenizer = task.tokenizer()
    said = {"vocabulary": vocabulary_digest(tokenizer)}
    if rule_of(config.method.name).online:
        said |= _file_digests(task.files())
        amount = f"{config.batch_size:,} episodes a step"
        longest = longest_action(config.games.decode.max_tokens, config.initial.policy)
        return Data(None, said, amount, longest, source.options)
    if source.path is None:
        return _stream_data(config, source, workdir, plan, said)
    found = split_tokens(config, source, tokenizer, workdir / TOKENS, stopped)
    if found is None:
        return None
    chosen = {part: chosen_items(config.filter, dataset) for part, dataset in found.items()}

    def batches(part: str) -> ListBatches:
        seed, group = seeds.derive(config.seed, part), config.chunk_steps if part == TRAIN else 1
        return ListBatches(
            found[part], chosen[part], plan, config.batch_size, seed, group, config.length_buckets
        )

    for part, name in ((TRAIN, "training data"), (HELD_OUT, "held-out data")):
        counts = cut_dialogues.count_chosen(found[part], chosen[part], plan)
        cut_dialogues.say(config, plan, counts, name)
    said |= {part: dataset.manifest["content"] for part, dataset in found.items()}
    amount = f"{len(chosen[TRAIN]):,} dialogues to learn from, {len(chosen[HELD_OUT]):,} held out"
    longest = token_columns.longest_action(found[TRAIN])
    return Data((batches(TRAIN), batches(HELD_OUT)), said, amount, longest, source.options)


def _file_digests(files: Mapping[str, Path]) -> dict[str, str]:
    return {f"{FILE_OF}{name}": digests.of_file(path) for name, path in files.items()}


def _stream_data(
    config: TextConfig, source: DialogueSource, workdir: Path, plan: ItemLayout, said: dict[str, str]
) -> Data:
    options = registry.make(source.task, source.options).prepare(config.kind, config.policy, workdir)
    task = source.attach(registry.make(source.task, options))
    tokenizer, stream = task.tokenizer(), task.stream(config.kind, config.policy)
    named, cutoff = task.files(), config.filter.cutoff
    if config.token_reward.file:
        named["token_reward"] = Path(config.token_reward.file)
    some = stream(seeds.rng(config.seed, "look"), _LOOKED_AT, 0)
    require_actions(config, tokenizer, some, plan, "kind")
    reward = token_reward_of(config.token_reward)
    items = (_tokenised(dialogue, tokenizer, reward, number, "kind") for number, dialogue in enumerate(some))
    cut_dialogues.say(
        config, plan, cut_dialogues.count(items, plan), f"the first dialogues of kind {config.kind}"
    )

    def wanted(dialogue: Dialogue) -> bool:
        return cutoff is None or dialogue.total >= cutoff

    def drawn(part: str) -> StreamBatches:
        seed, reward = seeds.derive(config.seed, part), token_reward_of(config.token_reward)
        return StreamBatches(stream, tokenizer, reward, plan, config.batch_size, seed, wanted)

    actions = zip(some.texts, some.actions, strict=True)
    longest = max(len(tokenizer.encode(str(text))) + 1 for text, action in actions if action)
    amount = f"a stream of {config.kind} of {config.task}"
    return Data((drawn(TRAIN), drawn(HELD_OUT)), said | _file_digests(named), amount, longest, options)
