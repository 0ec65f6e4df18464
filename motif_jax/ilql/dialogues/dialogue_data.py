"""Dialogues of a training. Their source is the task, its options with the tokenizer, and the files;
they are a dataset that is tokenised once into the run folder, or the task's stream. A line says how
many are cut so short that nothing is learned from them.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.core import config as checks
from motif_jax.core import digests, entry_points, seeds
from motif_jax.core.errors import UserError
from motif_jax.core.files import read_json
from motif_jax.core.training.run_files import FILE_OF
from motif_jax.ilql.agent import agent_folder
from motif_jax.ilql.agent.agent_folder import TOKENIZER, vocabulary_digest
from motif_jax.ilql.config import DialogueFilter, InitialParameters, TextConfig, TokenRewardSection
from motif_jax.ilql.dialogues import dialogue_files, dialogue_tokens
from motif_jax.ilql.dialogues.dialogue import Dialogue, Dialogues, share_of
from motif_jax.ilql.dialogues.dialogue_batches import (
    DialogueBatches,
    ItemLayout,
    ListBatches,
    StreamBatches,
)
from motif_jax.ilql.dialogues.dialogue_tokens import (
    NO_TOKENS,
    TextTokenizer,
    TokenItem,
    TokenReward,
    tokenise,
)
from motif_jax.ilql.methods import rule_of
from motif_jax.ilql.tasks import file_tokens, registry
from motif_jax.ilql.tasks.contract import TextTask
from motif_jax.lm.text import fetch
from motif_jax.lm.token_data import (
    HELD_OUT,
    TOKENS,
    TRAIN,
    HeldOut,
    Tokenisation,
    TokensDataset,
    TokensWriter,
)

# Dialogues that are checked before the dataset is tokenised.
_SAMPLE = 64
# The task of a user's own dialogues.
RECORDED = "dialogues"


class DialogueSource(NamedTuple):
    """The source of dialogues, before anything is read; task and options are of
    `ilql.tasks.registry.make`.
    """

    task: str
    options: Mapping[str, Any]
    path: Path | None  # None: dialogues are drawn from the task's stream
    held_out: Path | None  # None: a share of those in `path`
    # gives it the text scorer that it needs
    attach: Callable[[TextTask], TextTask] = lambda task: task


def source_of(config: TextConfig) -> DialogueSource:
    """The source of a run's dialogues. Data of `collect_text` have their task's options, which
    `config.options` overrides.
    """
    path = dialogue_files.find(config.data, "data") if config.data else None
    held_out = (
        dialogue_files.find(config.held_out.data, "held_out.data") if config.held_out.data else None
    )
    if held_out is not None and path is None:
        raise UserError(
            f"config.held_out.data={config.held_out.data}: must be None without config.data: held-out dialogues come from the stream"
        )
    # Later ones win: options of the collected data, of the model, of the initial run, and the
    # user's.
    user_options = registry.json_options(config.options)
    options: dict[str, Any] = {}
    # Beside files of other names, dialogues.json may be anything, such as other dialogues.
    is_collected = path is not None and path.name == dialogue_files.DIALOGUES
    if path is not None and is_collected and (path.parent / dialogue_files.META).is_file():
        options = _collected_options(config, path.parent)
    if config.task == RECORDED:
        if path is not None:
            options["data"] = str(path)
        if config.network.checkpoint and not user_options.get("tokenizer"):
            options["tokenizer"] = str(fetch(config.network.checkpoint, "network.checkpoint"))
    options |= _initial_tokenizer(config.initial)
    options = registry.overlaid(config.task, options, user_options)
    if config.task == RECORDED:
        if "turns" in user_options:
            raise UserError("config.options: must be without turns: --config.turns says which")
        options["turns"] = _turns_of(config, options)
    elif config.turns == file_tokens.OWN:
        raise UserError(
            f"config.turns={config.turns}: must be {file_tokens.AUTO} or {file_tokens.NEW} with config.task={config.task}: only the task {RECORDED} "
            "has a chat model's own turns"
        )
    return DialogueSource(config.task, options, path, held_out)


def _turns_of(config: TextConfig, options: Mapping[str, Any]) -> str:
    """What `config.turns` comes to: the turns of the run that training begins from, or those that
    the tokenizer has.
    """
    for key, run in dataclasses.asdict(config.initial).items():
        if run:
            about = agent_folder.describe(run, f"initial.{key}")
            turns: str = about["options"].get("turns", file_tokens.NEW)
            allowed = f"{file_tokens.AUTO}, or {turns} as in config.initial.{key}={run}"
            checks.require_key(config, "turns", config.turns in (file_tokens.AUTO, turns), allowed)
            return turns
    return file_tokens.choose(config.turns, options.get("tokenizer", "")).turns


def turns_in_words(config: TextConfig, source: DialogueSource) -> str:
    """What surrounds the utterances of the task `dialogues`, for the first line of a run; '' for
    other tasks.
    """
    if config.task != RECORDED:
        return ""
    if source.options["turns"] == file_tokens.OWN:
        return "turns: the model's own, by its chat template"
    reason = ""
    if not any(dataclasses.asdict(config.initial).values()):
        reason = file_tokens.choose(config.turns, source.options.get("tokenizer", "")).reason
    because = f" ({reason})" if reason else ""
    return f"turns: between delimiters of dialogues{because}"


def _collected_options(config: TextConfig, folder: Path) -> dict[str, Any]:
    """The task's options that `collect_text` recorded in `folder`."""
    meta = folder / dialogue_files.META
    collected = read_json(meta, "collect it again").get("config", {})
    entry_points.note_source(meta, collected)
    if config.task == RECORDED and "task" in collected:
        collected = {}  # dialogues of any task may be learned as plain ones
    if collected.get("task", config.task) != config.task:
        raise UserError(
            f"config.data={config.data}: are dialogues of the task {collected['task']}, config.task is {config.task}"
        )
    options: dict[str, Any] = {}
    if "task" in collected:
        options = registry.located(config.task, registry.options_of(collected), folder)
    # Learned with the data, wherever these have been moved to.
    if (folder / TOKENIZER).is_file():
        options["tokenizer"] = str(folder)
    return options


def _initial_tokenizer(initial: InitialParameters) -> dict[str, Any]:
    """The option that names the tokenizer file of the initial run, if it has one."""
    for key, run in dataclasses.asdict(initial).items():
        if run:
            folder = agent_folder.find(run, f"initial.{key}")
            if (folder / TOKENIZER).is_file():
                return {"tokenizer": str(folder)}
    return {}


def token_reward_of(settings: TokenRewardSection) -> TokenReward:
    """The reward of each token of an action: a constant, or a file's values. UserError: the file is
    not such a file.
    """
    if settings.file:
        return dialogue_tokens.rewards_from_file(settings.file, settings.scale, settings.shift)
    return dialogue_tokens.constant_reward(settings.constant)


def check_token_reward(settings: TokenRewardSection, tokens: Callable[[], int]) -> None:
    """Raises UserError for rewards of tokens that there are not.

    Args:
      tokens: gives the size of the vocabulary; asked where there is a file.
    """
    if not settings.file:
        return
    size = tokens()
    beyond = [token for token in dialogue_tokens.read_token_values(settings.file) if token >= size]
    if beyond:
        raise UserError(
            f"config.token_reward.file={settings.file}: {min(beyond)}: must be below {size}, the number of tokens"
        )


def split_tokens(
    config: TextConfig,
    source: DialogueSource,
    tokenizer: TextTokenizer,
    folder: Path,
    stopped: Callable[[], bool],
) -> dict[str, TokensDataset] | None:
    """Tokenises dialogues into `folder`, or resumes: the datasets by part, or None after a request
    to stop.
    """
    assert source.path is not None
    dialogues = dialogue_files.read(source.path)
    paths = [source.path]
    if source.held_out is None:
        held_out_dialogues = Dialogues.of(())
        # All dialogues of a group are held out or none: an expert's game and its branches share
        # their beginning.
        is_held_out = HeldOut.of(config.held_out.share, config.seed).holds(
            _group_numbers(dialogues)
        )
    else:
        held_out_dialogues = dialogue_files.read(source.held_out)
        is_held_out = np.zeros(len(dialogues), bool)
        paths.append(source.held_out)
    if config.token_reward.file:
        paths.append(Path(config.token_reward.file))

    def numbered() -> Iterator[tuple[str, tuple[int, Dialogue, str]]]:
        """(Part, (number in its file, dialogue, key of the file)): the training part first, as
        `Tokenisation.split` reads them.
        """
        for number in np.flatnonzero(~is_held_out).tolist():
            yield TRAIN, (number, dialogues[number], "data")
        for number in np.flatnonzero(is_held_out).tolist():
            yield HELD_OUT, (number, dialogues[number], "data")
        for number, dialogue in enumerate(held_out_dialogues):
            yield HELD_OUT, (number, dialogue, "held_out.data")

    token_reward = token_reward_of(config.token_reward)

    def add(writer: TokensWriter, items: Sequence[tuple[int, Dialogue, str]]) -> None:
        for number, dialogue, key in items:
            item = _tokenise(dialogue, tokenizer, token_reward, number, key)
            dialogue_tokens.add_item(writer, item, dialogue.total)

    tokenisation = Tokenisation(
        vocab_size=tokenizer.size,
        tokenizer=vocabulary_digest(tokenizer),
        # What the tokens depend on: another value makes them again.
        source={
            "files": {str(path): digests.of_file(path) for path in paths},
            "held_out": config.held_out.share,
            "seed": config.seed,
            "token_reward": dataclasses.asdict(config.token_reward),
            "split": digests.of_bytes(is_held_out.tobytes()),
        },
        add=add,
        token_columns=dialogue_tokens.TOKEN_COLUMNS,
        item_columns=dialogue_tokens.ITEM_COLUMNS,
        too_few=f"config.data={config.data}: too few dialogues ({len(dialogues)}, or groups of them), there is none {{}}",
        unit="dialogues",
    )
    return tokenisation.split(folder, numbered(), len(dialogues) + len(held_out_dialogues), stopped)


def _group_numbers(dialogues: Dialogues) -> np.ndarray:
    """The group of each dialogue, int64 [N]: those with one `group` in their `meta` share a
    number.
    """
    numbers: dict[str, int] = {}
    groups = np.zeros(len(dialogues), np.int64)
    for index, meta in enumerate(dialogues.metas):
        group = json.loads(meta).get("group")
        name = f"alone {index}" if group is None else json.dumps(group)
        groups[index] = numbers.setdefault(name, len(numbers))
    return groups


def _tokenise(
    dialogue: Dialogue, tokenizer: TextTokenizer, token_reward: TokenReward, number: int, key: str
) -> TokenItem:
    """`tokenise`, with a UserError that names dialogue `number` of the config's `key`."""
    try:
        return tokenise(dialogue, tokenizer, token_reward)
    except NO_TOKENS as error:
        raise UserError(
            f"config.{key}: dialogue {number} does not fit the task's tokens: {error}"
        ) from None


def chosen_items(filters: DialogueFilter, dataset: TokensDataset) -> np.ndarray:
    """The items that pass, int64 [N]: those with the highest or lowest returns, and of them from a
    cutoff on; UserError for none.
    """
    returns = np.asarray(dataset.item_columns["return"])
    chosen = np.arange(len(returns))
    if filters.top < 1 or filters.bottom < 1:
        share = filters.top if filters.top < 1 else filters.bottom
        # Of equal returns the first ones in the file.
        order = np.argsort(-returns if filters.top < 1 else returns, kind="stable")
        chosen = np.sort(order[: max(1, share_of(len(returns), share))])
    if filters.cutoff is not None:
        chosen = chosen[returns[chosen] >= filters.cutoff]
    if not len(chosen):
        raise UserError(
            f"config.filter={dataclasses.asdict(filters)}: leaves none of {len(returns):,} dialogues in {dataset.folder}"
        )
    return chosen


def require_any_action(config: TextConfig, dialogues: Dialogues, key: str) -> None:
    """Raises UserError where the dialogues of the config's `key` have no action."""
    if not dialogues.actions.any():
        raise UserError(
            f"config.{key}={checks.dotted(config, key)}: must have actions to learn from (utterances with a reward), and has none"
        )


def require_rewards(config: TextConfig, dialogues: Dialogues) -> None:
    """Raises UserError where a method learns values and nothing is paid: no dialogue of
    `config.data`, and no token.
    """
    rule = rule_of(config.method.name)
    pays_tokens = config.token_reward.constant != 0 or config.token_reward.file is not None
    if rule.q == "none" or rule.prior_reward or pays_tokens or dialogues.rewards.any():
        return
    # A misspelt key of the reward has become an entry of `meta`: the message names such keys.
    unread = sorted(
        {key for meta in dialogues.metas[:_SAMPLE].tolist() for key in json.loads(meta)}
    )
    keys = f" (keys that are no reward: {', '.join(unread)})" if unread else ""
    allowed = (
        f"dialogues with a reward other than 0 for method {config.method.name}, and have none{keys}"
    )
    checks.require_key(config, "data", False, allowed)


def require_actions(
    config: TextConfig, tokenizer: TextTokenizer, dialogues: Dialogues, layout: ItemLayout, key: str
) -> None:
    """Requires that the first dialogues of the config's `key` fit the task's tokens and have an
    action, not all cut off.
    """
    require_any_action(config, dialogues, key)
    token_reward = token_reward_of(config.token_reward)
    # A few of those with actions, since this is a check before any work.
    indices = np.flatnonzero(dialogues.action_counts())[:_SAMPLE].tolist()
    items = [_tokenise(dialogues[index], tokenizer, token_reward, index, key) for index in indices]
    if not _have_action(items, layout):
        part = "the state after its first action" if layout.by_utterance else "its first action"
        raise UserError(
            f"config.max_len={config.max_len}: must be more, or a model of more positions: cut to {layout.max_len} tokens, none of the first dialogues of config.{key} keeps {part}"
        )


def _have_action(items: Iterable[TokenItem], layout: ItemLayout) -> bool:
    """Whether an item has an action that is not cut off."""
    actions = "utterance_action_indices" if layout.by_utterance else "action_indices"
    return any(len(getattr(layout.cut(item), actions)) for item in items)


class Data(NamedTuple):
    """Dialogues of a run."""

    batches: tuple[DialogueBatches, DialogueBatches]  # of the training and the held-out part
    digests: dict[str, str]  # of what the dialogues were read from, by name
    amount: str  # size of the data, for messages
    # tokens of the longest action, `</a>` included; for a stream that of a sample
    longest_action: int
    options: Mapping[str, Any]  # of the task, with all files that it needs


def open_data(
    config: TextConfig,
    source: DialogueSource,
    workdir: Path,
    layout: ItemLayout,
    stopped: Callable[[], bool],
) -> Data | None:
    """The dialogues of a run; None after a request to stop."""
    task = registry.make(source.task, source.options)
    tokenizer = task.tokenizer()
    vocabulary = {"vocabulary": vocabulary_digest(tokenizer)}
    if source.path is None:
        return _stream_data(config, source, workdir, layout, vocabulary)

    datasets = split_tokens(config, source, tokenizer, workdir / TOKENS, stopped)
    if datasets is None:
        return None
    chosen = {part: chosen_items(config.filter, dataset) for part, dataset in datasets.items()}

    def batches(part: str) -> ListBatches:
        return ListBatches(
            datasets[part],
            chosen[part],
            layout,
            config.batch_size,
            seeds.derive(config.seed, part),
            # The steps of a chunk are one program, so that their rows have one width.
            group=config.chunk_steps if part == TRAIN else 1,
            by_length=config.length_buckets,
        )

    for part, name in ((TRAIN, "training data"), (HELD_OUT, "held-out data")):
        counts = count_cut_of_dataset(datasets[part], chosen[part], layout)
        print_cut(config, layout, counts, name)
    return Data(
        batches=(batches(TRAIN), batches(HELD_OUT)),
        digests=vocabulary
        | {part: dataset.manifest["content"] for part, dataset in datasets.items()},
        amount=f"{len(chosen[TRAIN]):,} dialogues to learn from, {len(chosen[HELD_OUT]):,} held out",
        longest_action=dialogue_tokens.longest_action(datasets[TRAIN]),
        options=source.options,
    )


def _file_digests(paths: Mapping[str, Path]) -> dict[str, str]:
    return {f"{FILE_OF}{name}": digests.of_file(path) for name, path in paths.items()}


def _stream_data(
    config: TextConfig,
    source: DialogueSource,
    workdir: Path,
    layout: ItemLayout,
    vocabulary: dict[str, str],
) -> Data:
    """Dialogues that are drawn while the training runs; a sample of them is checked and measured
    before.
    """
    options = registry.make(source.task, source.options).prepare(
        config.kind, config.policy, workdir
    )
    task = source.attach(registry.make(source.task, options))
    tokenizer = task.tokenizer()
    stream = task.stream(config.kind, config.policy)
    token_reward = token_reward_of(config.token_reward)
    input_files = task.files()
    if config.token_reward.file:
        input_files["token_reward"] = Path(config.token_reward.file)

    # By a generator of its own: those of the training are drawn by step.
    sample = stream(seeds.rng(config.seed, "look"), _SAMPLE, 0)
    require_actions(config, tokenizer, sample, layout, "kind")
    items = [
        _tokenise(dialogue, tokenizer, token_reward, number, "kind")
        for number, dialogue in enumerate(sample)
    ]
    counts = count_cut(items, layout)
    print_cut(config, layout, counts, f"the first dialogues of kind {config.kind}")
    actions = [
        str(text) for text, is_action in zip(sample.texts, sample.actions, strict=True) if is_action
    ]

    cutoff = config.filter.cutoff

    def accepts(dialogue: Dialogue) -> bool:
        return cutoff is None or dialogue.total >= cutoff

    def batches(part: str) -> StreamBatches:
        seed = seeds.derive(config.seed, part)
        return StreamBatches(
            stream, tokenizer, token_reward, layout, config.batch_size, seed, accepts
        )

    return Data(
        batches=(batches(TRAIN), batches(HELD_OUT)),
        digests=vocabulary | _file_digests(input_files),
        amount=f"a stream of {config.kind} of {config.task}",
        # One more for `</a>`.
        longest_action=max(len(tokenizer.encode(action)) + 1 for action in actions),
        options=options,
    )


class CutDialogues(NamedTuple):
    """Numbers of dialogues."""

    total: int = 0
    unused: int = 0  # cut before their first action: nothing is learned from them
    shortened: int = 0  # cut after it: their later actions are lost
    silent: int = 0  # without an action


def count_cut(items: Iterable[TokenItem], layout: ItemLayout) -> CutDialogues:
    """Counts items before they are cut."""
    counts = [(_actions(item, layout), _actions(layout.cut(item), layout)) for item in items]
    return CutDialogues(
        total=len(counts),
        unused=sum(after_cut == 0 < before for before, after_cut in counts),
        shortened=sum(0 < after_cut < before for before, after_cut in counts),
        silent=sum(before == 0 for before, _ in counts),
    )


def count_cut_of_dataset(
    dataset: TokensDataset, chosen: np.ndarray, layout: ItemLayout
) -> CutDialogues:
    """Counts the items `chosen` int64 [N] of a dataset of tokens; reads those alone that are longer
    than the limit.
    """
    kinds = np.asarray(dataset.token_columns["kinds"])
    acting = np.r_[0, np.cumsum(kinds > 0)]
    # Tokens of actions, which are counted without reading an item.
    actions = acting[dataset.offsets[1:]] - acting[dataset.offsets[:-1]]
    silent = int((actions[chosen] == 0).sum())
    long = (
        np.zeros(0, np.int64)
        if layout.max_len is None
        else chosen[dataset.lengths[chosen] > layout.max_len]
    )
    counts = count_cut((dialogue_tokens.item_of(dataset, int(index)) for index in long), layout)
    return counts._replace(total=len(chosen), silent=silent)


def _actions(item: TokenItem, layout: ItemLayout) -> int:
    return len(item.utterance_action_indices if layout.by_utterance else item.action_indices)


def _begins(layout: ItemLayout) -> str:
    """Where the part of a dialogue begins that something is learned from: an action that is cut off
    counts by tokens.
    """
    return "the state after their first action" if layout.by_utterance else "their first action"


def print_cut(config: TextConfig, layout: ItemLayout, counts: CutDialogues, source: str) -> None:
    """Prints a line on stderr about dialogues that are not used, or not as a whole; `source` names
    the data.
    """
    parts = []
    if counts.unused:
        parts.append(
            f"{counts.unused:,} of {counts.total:,} dialogues are cut before {_begins(layout)} and teach nothing"
        )
    if counts.shortened:
        parts.append(
            f"{counts.shortened:,} of {counts.total:,} dialogues are cut and lose later actions"
        )
    if parts:
        limit = f"the model's {layout.max_len} positions (config.network.max_length)"
        if config.max_len == layout.max_len:
            limit = f"config.max_len={layout.max_len}"
        parts[-1] += f": {limit}"
    if counts.silent:
        parts.append(
            f"{counts.silent:,} of {counts.total:,} dialogues have no action and teach nothing"
        )
    if parts:
        print(f"note: {source}: {'; '.join(parts)}", file=sys.stderr, flush=True)
