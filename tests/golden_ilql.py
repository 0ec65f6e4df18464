"""The golden losses of ILQL (tests/golden/README.md): 13 cases by tokens, two of CQL, four by
utterances.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from motif_jax.ilql.config import IlqlCompat, PolicyWeights, TextMethod
from motif_jax.ilql.dialogues.dialogue import Dialogue
from motif_jax.ilql.dialogues.dialogue_batches import ItemLayout, truncated
from motif_jax.ilql.dialogues.dialogue_tokens import TokenItem, constant_reward, tokenise
from motif_jax.ilql.methods import TextBatch
from motif_jax.ilql.tasks.wordle.environment import WordleTokenizer

GOLDEN = Path(__file__).parent / "golden"
FILES = (("ilql_loss.json", "ilql_loss.npz"), ("ilql_loss_extra.json", "ilql_loss_extra.npz"))
NAMES = """
00_wordle_config 01_exp_beta1 02_exp_beta4_clip 03_sign_weights_beta0p7 04_transition_weight 05_single_q 06_tau0p9_gamma1
07_cql_temp2_margin 08_value_clip 09_monte_carlo_v 10_max_len_20 11_token_reward 12_zero_action_item
00_cql_double 01_cql_single 02_utterance_double 03_utterance_single_tau0p9 04_utterance_token_reward 05_utterance_monte_carlo
""".split()
PUBLISHED = IlqlCompat(
    ilql_padded_positions=True, ilql_utterance_int_reward=True, ilql_utterance_truncation=True
)


def dialogue_text(dialogue: Dialogue) -> str:
    """The dialogue as text with delimiters; one without utterances ends before an action."""
    state_first = bool(dialogue.rewards) and dialogue.rewards[0] is None
    parts = ["<s>" if state_first else "<a>"]
    for text, reward in zip(dialogue.texts, dialogue.rewards, strict=True):
        parts += [text, "</s>" if reward is None else "</a>"]
    return "".join(parts) + "</eod>" * dialogue.terminal


def below(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {key.removeprefix(prefix): x for key, x in arrays.items() if key.startswith(prefix)}


class Case(NamedTuple):
    name: str
    kind: str
    config: dict[str, Any]
    options: dict[str, Any]
    loss: dict[str, float]
    n: float | None
    texts: list[str]
    arrays: dict[str, np.ndarray]

    @property
    def utterance(self) -> bool:
        return self.kind == "PerUtteranceIQL"

    def group(self, name: str) -> dict[str, np.ndarray]:
        return below(f"{name}/", self.arrays)


@functools.cache
def cases() -> list[Case]:
    cases = []
    for file, numbers in FILES:
        arrays = dict(np.load(GOLDEN / numbers))
        for case in json.loads((GOLDEN / file).read_text())["cases"]:
            prefix = case["prefix"]
            texts = case.get("texts") or [datapoint["text"] for datapoint in case["datapoints"]]
            kind = case.get("kind", "PerTokenIQL")
            values = (kind, case["config"], case["options"], case["loss"], case.get("n"), texts)
            cases.append(Case(prefix.rstrip("/"), *values, below(prefix, arrays)))
    assert [case.name for case in cases] == NAMES
    return cases


def item_of(text: str, reward: float, paid: np.ndarray | None = None) -> TokenItem:
    """The item of a game as it is written, -1 a guess; or what its actions' tokens are `paid` in
    all.
    """
    utterances = re.findall(r"(?:^<[as]>)?(.*?)</([as])>", text)
    rewards = [-1.0 if end == "a" else None for _, end in utterances]
    if paid is not None:
        ends = np.cumsum([len(utterance) + 1 for utterance, end in utterances if end == "a"]) - 1
        action_rewards = iter(
            [float(paid[end]) - reward if end < len(paid) else -1.0 for end in ends]
        )
        rewards = [
            None if reward_or_none is None else next(action_rewards) for reward_or_none in rewards
        ]
    dialogue = Dialogue(
        tuple(utterance for utterance, _ in utterances), tuple(rewards), text.endswith("</eod>")
    )
    return tokenise(dialogue, WordleTokenizer(), constant_reward(reward))


def method_of(case: Case) -> TextMethod:
    config = case.config
    policy = PolicyWeights(
        beta=config["beta"],
        exponential=config["exp_weights"],
        most_weight=config.get("clip_weight"),
        context_weight=config["transition_weight"],
    )
    return TextMethod(
        discount=config["gamma"],
        expectile=config["tau"],
        policy=policy,
        q_min=config.get("value_min"),
        q_max=config.get("value_max"),
        cql_temperature=config["cql_temp"],
        margin=config.get("dm_margin", 0.0),
        monte_carlo=bool(case.options.get("mc_returns")),
    )


def items_of(case: Case, compat: IlqlCompat = PUBLISHED) -> list[TokenItem]:
    """The case's games from their texts, cut as it says."""
    paid = case.arrays["batch/rewards"]
    max_len = case.options.get("max_len")
    games = zip(case.texts, paid, strict=True)
    return [
        truncated(item_of(text, case.options.get("tr", 0.0), token_rewards), max_len, compat)
        for text, token_rewards in games
    ]


def batch_of(
    case: Case, compat: IlqlCompat = PUBLISHED, utterance: bool | None = None
) -> TextBatch:
    """The case's games as a batch, made by the package from their texts; by `utterance`s or not
    where that is given.
    """
    by_utterance = case.utterance if utterance is None else utterance
    plan = ItemLayout(
        WordleTokenizer().delimiters.pad, by_utterance, case.options.get("max_len"), compat
    )
    items = items_of(case, compat)
    width = max(len(item.tokens) for item in items)
    tokens = max(len(item.action_indices) for item in items)
    utterances = max(len(item.utterance_action_indices) for item in items)
    return plan.batch(items, width, tokens, utterances)


def inputs(case: Case) -> dict[str, Any]:
    inputs = {name: jnp.asarray(x) for name, x in case.group("in").items()}
    if case.utterance:  # one number an utterance
        inputs |= {name: inputs[name][..., 0] for name in ("q1", "q2", "tq1", "tq2")}
    return inputs
