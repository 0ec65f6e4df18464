"""Reads rewards that were learned online from checkpoints of the agent's run, and freezes them."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.core.checkpoints import ANY, Checkpoints
from motif_jax.core.verdicts import NO
from motif_jax.motif.annotation.captions import decode_message
from motif_jax.motif.reward.normalisation import Normalisation
from motif_jax.motif.reward.reward_model import RewardModel, in_chunks, of_members
from motif_jax.nets.classifier import MessageClassifier
from motif_jax.nets.reward import RewardArchitecture, RewardNetwork
from motif_jax.oni.label_log import FILE, read_labels, read_log
from motif_jax.oni.label_queue import Label
from motif_jax.oni.message_stats import MessageStats

RETRIEVAL = "retrieval"
CLASSIFICATION = "classification"
RANKING = "ranking"
KINDS = (RETRIEVAL, CLASSIFICATION, RANKING)


def is_online_run(config: Mapping[str, Any]) -> bool:
    """Whether the run with this config learned its reward while it played."""
    return config.get("stage") == "train_agent" and config.get("reward", {}).get("kind") in KINDS


def architecture_of_run(config: Mapping[str, Any]) -> tuple[RewardArchitecture, int]:
    """The inputs of such a run's reward, and its number of networks."""
    reward = config["reward"]
    members = 1 if reward["kind"] == RETRIEVAL else int(reward["training"]["members"])
    return RewardArchitecture(message=reward["encoder"]), members


def classifier_probabilities(
    message: str, members: int, params: Any, texts: np.ndarray
) -> np.ndarray:
    """Probabilities of yes float32 [members, N] of texts uint8 [N, L], independent of the other
    texts.
    """
    return in_chunks(functools.partial(_program, message, members), params, texts, members)


@functools.lru_cache(maxsize=16)
def _program(
    message: str, members: int, length: int | None
) -> Callable[[Any, np.ndarray], jax.Array]:
    network = MessageClassifier(message)
    return jax.jit(
        lambda params, texts: of_members(network.probability, members, params, texts, length)
    )


class _Step(Normalisation):
    """1 above the threshold, else 0; without a threshold the probability as it is."""

    def __call__(self, raw: jax.Array | np.ndarray) -> jax.Array | np.ndarray:
        if self.threshold is None:
            return raw
        # As the training compares, in float32.
        return (raw > np.float32(self.threshold)).astype(jnp.float32)


@dataclasses.dataclass(frozen=True)
class OnlineRewardModel(RewardModel):
    """The reward of an online run at one of the agent's checkpoints, which `step` names.

    Attributes:
      labels: text -> the annotator's label by then, and the probability of yes or None.
      taken: gradient steps so far.
      step_counts: text -> number of steps that had shown it to the agent.
      earned: text -> the sum of its rewards (`MessageStats.earned`).
    """

    learned_online = True
    labels: dict[str, tuple[int, float | None]] = dataclasses.field(default_factory=dict)
    taken: int = 0
    step_counts: dict[str, int] = dataclasses.field(default_factory=dict)
    earned: dict[str, float] = dataclasses.field(default_factory=dict)

    def header(self) -> dict[str, Any]:
        """The JSON object `learned` of a file's header: gradient steps, and the labels of single
        texts.
        """
        return {
            "taken": self.taken,
            "labels": {text: [*label] for text, label in self.labels.items()},
        }

    @property
    def _reward(self) -> Mapping[str, Any]:
        return self.config["reward"]

    @property
    def _pays(self) -> bool:
        pays_untrained = bool(self.config["compat"].get("oni_untrained_reward", False))
        return self._reward["kind"] == RETRIEVAL or self.taken > 0 or pays_untrained

    def normalisation(
        self,
        normalise: bool = True,
        quantile: float | str | None = None,
        rounded: bool | None = None,
    ) -> Normalisation:
        """The run's own moments and threshold (`quantile` None: no threshold)."""
        kind = self._reward["kind"]
        if kind == RANKING:
            # As in `RankingReward.reward_of`.
            is_raw = not (normalise and self._reward["normalise"])
            if is_raw or self.config["compat"].get("oni_ranking_raw_reward", False):
                return Normalisation(enabled=False)
            threshold = None if quantile is None else self._reward["threshold"]
            return Normalisation(self.statistics["mean"], self.statistics["variance"], threshold)

        # Labels are 0 and 1 already.
        if kind == RETRIEVAL or quantile is None or self._reward["value"] == "probability":
            return _Step(threshold=None)
        return _Step(threshold=self._reward["classifier"]["threshold"])

    def combine_members(self, members: np.ndarray) -> np.ndarray:
        """Raw rewards, 0 before the first training."""
        if not self._pays:
            return np.zeros(members.shape[1], np.float32)
        return np.asarray(members.mean(axis=0), np.float32)

    def members_of_messages(self, params: Any, messages: np.ndarray) -> np.ndarray:
        if self._reward["kind"] == RANKING:
            return super().members_of_messages(params, messages)
        if self._reward["kind"] == CLASSIFICATION:
            return classifier_probabilities(self._reward["encoder"], self.members, params, messages)
        return np.array(
            [[self._retrieve(decode_message(message)) for message in messages]], np.float32
        )

    def _retrieve(self, text: str) -> float:
        """The label of a text, or its probability as the config says; 0 without a label."""
        label, probability = self.labels.get(text, (NO, None))
        if self._reward["value"] == "probability" and probability is not None:
            return float(probability)
        return float(label)

    def compile_messages(self, params: Any) -> None:
        if self._reward["kind"] != RETRIEVAL:
            super().compile_messages(params)


class OnlineRuns:
    """Reads runs that learned their reward while they played, for what opens folders and files of
    rewards.
    """

    @staticmethod
    def wrote(config: Mapping[str, Any]) -> bool:
        return is_online_run(config)

    @staticmethod
    def architecture(config: Mapping[str, Any]) -> tuple[RewardArchitecture, int]:
        return architecture_of_run(config)

    @staticmethod
    def read(folder: Path, step: int | None, config: Mapping[str, Any]) -> OnlineRewardModel:
        return read_online_model(folder, step, config)

    @staticmethod
    def network(
        config: Mapping[str, Any], network: RewardNetwork
    ) -> RewardNetwork | MessageClassifier | None:
        return network_of(config, network)

    @staticmethod
    def model(parts: Sequence[Any], header: Mapping[str, Any]) -> OnlineRewardModel:
        """The model of a file: the arguments of `RewardModel`, and the file's header."""
        return OnlineRewardModel(*parts, **of_header(header))

    @staticmethod
    def labels(path: Path) -> list[Label]:
        """The labels of a run's log."""
        return list(read_log(path))


def network_of(
    config: Mapping[str, Any], network: RewardNetwork
) -> RewardNetwork | MessageClassifier | None:
    """The network of a run's reward; None for a table of labels."""
    kind = config["reward"]["kind"]
    if kind == RETRIEVAL:
        return None
    return MessageClassifier(config["reward"]["encoder"]) if kind == CLASSIFICATION else network


def of_header(header: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `OnlineRewardModel.header`."""
    labels = {text: (label, p) for text, (label, p) in header["learned"]["labels"].items()}
    return {"labels": labels, "taken": header["learned"]["taken"]}


def read_online_model(
    folder: Path, step: int | None, config: Mapping[str, Any]
) -> OnlineRewardModel:
    """Reads the reward of an online run at checkpoint `step` of the agent (None: the newest);
    UserError if it is lost.
    """
    with Checkpoints(folder / "checkpoints", keep=None, read_only=True) as checkpoints:
        step = checkpoints.require_saved(checkpoints.latest() if step is None else step)
        state = checkpoints.restore(step, {"reward": ANY})["reward"]

    book = json.loads(np.asarray(state["book"]).tobytes())
    log = read_labels(
        folder / FILE,
        book["length"],
        book["labels"],
        f"checkpoint {step}",
        "restore it from a copy",
    )
    architecture, members = architecture_of_run(config)
    # Imports from the published system do not have the texts that were seen.
    stats = MessageStats.unpack(np.asarray(state["met"])) if "met" in state else MessageStats()
    kind_state = book["own"] or {}
    mean, variance, _ = kind_state.get("moments", (0.0, 1.0, 0.0))
    statistics = {
        "mean": mean,
        "variance": variance,
        "quantile_levels": [],
        "quantiles": [],
        "num_distinct": len(log),
        # Only the moments of the ensemble are kept: all members are normalised by them.
        "member_mean": [mean] * members,
        "member_variance": [variance] * members,
    }
    # The columns have room for more texts than there are.
    counts = zip(stats.texts, stats.count.tolist(), strict=False)
    return OnlineRewardModel(
        folder=folder,
        step=step,
        network=RewardNetwork(architecture),
        # Retrieval has no network.
        params=state["own"]["params"] if kind_state else {},
        members=members,
        statistics=statistics,
        config=dict(config),
        curve=[],
        # A label of two texts says nothing of one alone.
        labels={
            label.items[0]: (label.label, label.probability)
            for label in log
            if len(label.items) == 1
        },
        taken=kind_state.get("taken", 0),
        # A text has the count 0 where it was named by a label, but shown by no batch before the
        # checkpoint.
        step_counts={text: count for text, count in counts if count},
        earned=dict(zip(stats.texts, stats.earned.tolist(), strict=False)),
    )
