"""Replies to comments as a text task of one turn, rewarded by toxicity or by real or predicted
upvotes.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from motif_jax.core import config as checks
from motif_jax.core import seeds
from motif_jax.core.errors import UserError
from motif_jax.core.files import read_json
from motif_jax.ilql.dialogues.dialogue import Dialogue, DialogueStream
from motif_jax.ilql.tasks import contract
from motif_jax.ilql.tasks.file_tokens import TOKENIZER_HELP, FileTokenTask
from motif_jax.ilql.tasks.reddit import data, made_up
from motif_jax.schema import Key, one_of, positive

RECORDED, GAMES = "recorded", "games"
FOLDER = "comments"
# Reward -> the score of texts that it needs.
REWARDS = {
    "none": "",
    "toxicity": "toxicity",
    "toxicity_noised": "toxicity",
    "upvote": "",
    "upvote_model": "upvote",
}


def scale_of(reward: str) -> float:
    """The published default factor of a reward."""
    return -5.0 if reward.startswith("toxicity") else 1.0


class RedditReply(contract.Observation):
    """A comment (`parent`, None if hidden) and the reply."""

    def __init__(self, parent: str | None, text: str | None = None, reward: float = 0.0) -> None:
        self.parent, self.text, self.reward = parent, text, reward

    def to_sequence(self) -> Dialogue:
        texts: list[str] = []
        rewards: list[float | None] = []
        if self.parent is not None:
            texts.append(self.parent)
            rewards.append(None)
        if self.text is not None:
            texts.append(self.text)
            rewards.append(self.reward)
        return Dialogue(tuple(texts), tuple(rewards), self.text is not None)


class RedditEnvironment(contract.TextEnvironment):
    """Shows a comment and rewards the reply."""

    def __init__(self, task: Reddit) -> None:
        self._task = task
        self._now = RedditReply(None)

    def reset(self, rng: np.random.Generator, start: Any = None) -> RedditReply:
        if start is None:
            comments = self._task.comments
            # Of the comment its parent alone: the agent's reply takes its place.
            comment = comments[int(rng.integers(len(comments)))]
            start = RedditReply(comment.parent if self._task.options["include_parent"] else None)
        self._now = start
        return start

    def step(self, action: str) -> contract.Outcome:
        if self._now.text is not None:
            raise ValueError("the reply has been made")
        reward = self._task.rewards([action])[0]
        self._now = RedditReply(self._now.parent, action, reward)
        return contract.Outcome(self._now, reward, True)


KEYS: Mapping[str, Key] = {
    "folder": Key(
        "", "folder with comments_positive.csv and comments_negative.csv; empty: made-up ones"
    ),
    "indexes": Key(
        "", "a JSON list of the rows that are used, counted through both files; empty: all"
    ),
    "include_parent": Key(True, "shows what a reply is to"),
    "reward": Key(
        "toxicity",
        "'toxicity' (0, 1, 2), 'toxicity_noised' (1 becomes 0 or 2), 'upvote' (the sign of its score, recorded replies alone), 'upvote_model' "
        "(whether a model expects that it is liked, by `scores`), 'none'",
        choices=tuple(REWARDS),
    ),
    "reward_scale": Key(
        None, "factor on the reward; None: -5 of toxicity, as published, 1 of the others", float
    ),
    "reward_shift": Key(0.0, "amount that is added to the scaled reward"),
    "cutoff": Key(None, "recorded replies that are paid less are left out", float),
    "scores": Key("", "a JSON file, a text -> its score; what has none in there is asked"),
    "upvote_run": Key(
        "", "run of train_upvote, whose model pays texts without a score in the file (upvote_model)"
    ),
    "noise_seed": Key(0, "seed of the noise of toxicity_noised"),
    "num_comments": positive(2000, "number of comments that are made up"),
    "tokenizer": Key("", TOKENIZER_HELP),
    "vocab_size": positive(512, "number of byte pairs that the tokenizer learns"),
    "annotator": Key(
        "lexicon",
        "who says how toxic a text is: lexicon, openai, or (of recorded comments) model or vllm",
    ),
    "lexicon": Key("", "a YAML file; empty: built in"),
    "prompt": Key("", "a prompt file; empty: built in"),
    "answer_mode": one_of(
        ("soft", "verdict", "analysis"), "form of the annotator's answer, as in annotate"
    ),
    "server": Key("", "address of the annotator's server; the same command resumes with another"),
    "model": Key(
        "",
        "the annotator's model: its name on the server; for model and vllm its folder or its name on the hub",
    ),
    "store": Key("runs/answer_store", "folder of the answers that are kept"),
}


class Reddit(FileTokenTask):
    """Comments from the published files, or made up."""

    name = "reddit"
    kinds = (RECORDED, GAMES)
    switches = "upvote_"
    paths = ("folder", "indexes", "scores", "upvote_run", "tokenizer", "lexicon", "prompt")
    # Scores belong to one judge, and the scale to one reward.
    follow: ClassVar[Mapping[str, Sequence[str]]] = {
        "reward": ("scores", "reward_scale"),
        **dict.fromkeys(
            ("upvote_run", "annotator", "lexicon", "prompt", "answer_mode", "model"), ("scores",)
        ),
    }
    keys: ClassVar[Mapping[str, Key]] = {**KEYS, "zero_one": Key(False, "compat.upvote_zero_one")}

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        values = self.options
        if values["reward_scale"] is None:
            values["reward_scale"] = scale_of(values["reward"])
        self._scorer: contract.Scorer | None = None
        # Word lists are fast; a model that judges is slow.
        by_words = self.scored_by() == "toxicity" and values["annotator"] == "lexicon"
        self.patient = bool(self.scored_by()) and not by_words

    def files(self) -> dict[str, Path]:
        files = super().files()
        folder = Path(self.options["folder"])
        run = Path(self.options["upvote_run"])
        if self.options["folder"]:
            files |= {f"folder ({name})": folder / name for name in data.FILES}
        if self.options["upvote_run"]:
            # The weights decide what is paid; other files of a run change without them.
            weights = (*run.glob("model/*.safetensors"), *run.glob("*.safetensors"))
            files |= {f"upvote_run ({path.name})": path for path in weights}
        return files

    def prepare(self, kind: str, policy: str, folder: Path) -> dict[str, Any]:
        if self.options["folder"]:
            return self.options
        made_up.write(folder / FOLDER, self.options["num_comments"])
        return {**self.options, "folder": str(folder / FOLDER)}

    @functools.cached_property
    def comments(self) -> list[data.Comment]:
        comments = data.read_comments(f"{self.name}.folder", self.options["folder"])
        return [comments[row] for row in self.read_indexes(len(comments))]

    def scored_by(self) -> str:
        judge = REWARDS[self.options["reward"]]
        # Without a run the file of scores has to have them all.
        return "" if judge == "upvote" and not self.options["upvote_run"] else judge

    def use_scorer(self, scorer: contract.Scorer) -> None:
        self._scorer = scorer

    def texts_to_score(self, kind: str) -> Sequence[str]:
        if kind != RECORDED:
            return ()
        # Each text once, in the order of the files.
        texts = dict.fromkeys(comment.text for comment in self.comments)
        return tuple(text for text in texts if text not in self._known)

    def known_scores(self) -> Mapping[str, float]:
        return self._known

    @functools.cached_property
    def _known(self) -> dict[str, float]:
        path = self.options["scores"]
        if not path:
            return {}
        form = 'a JSON object, a text -> its score, such as {"thanks": 0}'
        scores = read_json(path, f"config.{self.name}.scores takes {form}")
        # Foreign files do not name the judge.
        if isinstance(scores.get("scores"), dict):
            judge = scores.get("judge")
            scores = scores["scores"]
            reward = self.options["reward"]
            needed = REWARDS[reward]
            allowed = f"scores of {needed} with reward={reward}, these are of {judge}"
            self.require(needed in ("", judge), "scores", allowed)
        return scores

    @functools.cached_property
    def _votes(self) -> dict[str, list[int]]:
        votes = defaultdict(list)
        for comment in self.comments:
            votes[comment.text].append(comment.score)
        return votes

    def rewards(self, texts: Sequence[str]) -> list[float]:
        """Raises UserError: a text has no score and the task has no scorer."""
        scores = self._upvotes(texts) if self.options["reward"] == "upvote" else self._scores(texts)
        scale = self.options["reward_scale"]
        shift = self.options["reward_shift"]
        return [scale * score + shift for score in scores]

    def _upvotes(self, texts: Sequence[str]) -> list[float]:
        """1 for texts with upvotes, else -1; one of a text's equal comments is drawn by the
        text.
        """
        unknown = [text for text in texts if text not in self._votes]
        if unknown:
            raise UserError(
                f"config.{self.name}.reward=upvote: has rewards for the comments of its data only, and {unknown[0][:40]!r} is not "
                "one: use upvote_model for new comments"
            )
        rewards = []
        for text in texts:
            votes = self._votes[text]
            # By the text, so that equal comments, whose scores may differ, have one reward.
            vote = votes[int(self._draw(text).integers(len(votes)))]
            rewards.append(1.0 if vote > 0 else -1.0)
        return rewards

    def _draw(self, text: str) -> np.random.Generator:
        return seeds.rng(self.options["noise_seed"], "comment", text)

    def _scores(self, texts: Sequence[str]) -> list[float]:
        if self.options["reward"] == "none":
            return [0.0] * len(texts)
        # Each text is asked about once.
        missing = list(dict.fromkeys(text for text in texts if text not in self._known))
        new: dict[str, float] = {}
        if missing:
            if self._scorer is None:
                raise UserError(
                    f"config.{self.name}.scores={self.options['scores']}: has no score of {missing[0][:40]!r}, and nothing here scores it"
                )
            new = dict(zip(missing, self._scorer(missing), strict=True))
        scores = [float(new[text] if text in new else self._known[text]) for text in texts]
        if self.options["reward"] == "toxicity_noised":
            return [self._noised(text, score) for text, score in zip(texts, scores, strict=True)]
        if self.options["reward"] == "upvote_model":
            # The released code pays 0, where its README says -1.
            low = 0.0 if self.options["zero_one"] else -1.0
            return [1.0 if score >= 0.5 else low for score in scores]
        return scores

    def _noised(self, text: str, score: float) -> float:
        """A rude text counts as friendly or as toxic, drawn by the text."""
        return 2.0 * self._draw(text).integers(2) if score == 1 else score

    def environment(self) -> RedditEnvironment:
        return RedditEnvironment(self)

    def policy(self, name: str) -> contract.TextPolicy:
        """Names: 'recorded', a random reply of the data, and 'friendly'."""
        _require_policy(name)
        if name.strip() == "friendly":
            return contract.FunctionPolicy(lambda _, rng: made_up.friendly(rng))
        comments = self.comments
        return contract.FunctionPolicy(
            lambda _, rng: comments[int(rng.integers(len(comments)))].text
        )

    def check(self, kind: str, policy: str) -> None:
        super().check(kind, policy)
        if kind == GAMES:
            allowed = "another for games: this one has rewards for recorded comments only"
            self.require(not self._pays_recorded_only, "reward", allowed)
            _require_policy(policy)
        if self.options["folder"]:
            len(self.comments)
        elif self.options["indexes"]:
            self.require(False, "folder", "a folder where indexes are given")
        if self.options["scores"]:
            len(self._known)
        expected = self.options["scores"] or self.options["upvote_run"]
        allowed = (
            "a file with what a model expects of each comment, a probability, for reward=upvote_model; "
            "or give upvote_run, a run of train_upvote"
        )
        self.require(self.options["reward"] != "upvote_model" or bool(expected), "scores", allowed)

    @property
    def _pays_recorded_only(self) -> bool:
        reward = self.options["reward"]
        return reward == "upvote" or (reward == "upvote_model" and not self.options["upvote_run"])

    def check_episodes(self) -> None:
        if self._pays_recorded_only:
            raise UserError(
                f"config.options: reward={self.options['reward']} has rewards for recorded comments only, and new replies need one: give "
                '{"reward": "upvote_model", "upvote_run": RUN}, RUN a run of train_upvote'
            )
        allowed = f"a folder of comments, or {FOLDER}/ of a run of collect_text or train_text that made some"
        self.require(bool(self.options["folder"]), "folder", allowed)
        len(self.comments)
        if REWARDS[self.options["reward"]]:
            len(self._known)

    @functools.cached_property
    def _recorded(self) -> list[RedditReply]:
        rewards = self.rewards([comment.text for comment in self.comments])
        shows_parent = self.options["include_parent"]
        cutoff = self.options["cutoff"]
        replies = [
            RedditReply(comment.parent if shows_parent else None, comment.text, reward)
            for comment, reward in zip(self.comments, rewards, strict=True)
            if cutoff is None or reward >= cutoff
        ]
        return replies

    def count(self, kind: str) -> int | None:
        if kind == GAMES:
            return None
        if not self.options["folder"]:
            return int(self.options["num_comments"])
        # The selection by reward needs all scores first.
        scored = not self.scored_by() or self._scorer is not None or not self.texts_to_score(kind)
        return len(self._recorded if scored else self.comments)

    def endless(self, kind: str) -> bool:
        return kind == GAMES

    def stream(self, kind: str, policy: str) -> DialogueStream:
        if kind == GAMES:
            return super().stream(kind, policy)
        return contract.recorded_stream([item.to_sequence() for item in self._recorded])

    def dialogues_per_draw(self, kind: str) -> int:
        return 1024 if kind == RECORDED else 64


def _require_policy(name: str) -> None:
    checks.require(name.strip() in ("recorded", "friendly"), "policy", name, "recorded or friendly")
