"""Visual dialogue as a text task: recorded dialogues, talks with a server, and reward caches."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_json
from motif_jax.ilql.dialogues import dialogue_files
from motif_jax.ilql.dialogues.dialogue import Dialogue, Dialogues, DialogueStream
from motif_jax.ilql.tasks.contract import FunctionPolicy, TextPolicy, recorded_stream
from motif_jax.ilql.tasks.file_tokens import TOKENIZER_HELP, FileTokenTask
from motif_jax.ilql.tasks.visdial import data
from motif_jax.ilql.tasks.visdial.client import REWARDS, VisDialServer, base_url
from motif_jax.ilql.tasks.visdial.environment import (
    MODES,
    STOP,
    YES_NO,
    Rules,
    Talk,
    VisDialEnvironment,
    VisDialObservation,
    recorded,
)
from motif_jax.schema import Key, non_negative, one_of, positive

RECORDED, GAMES, REWARD_CACHE = "recorded", "games", "reward_cache"


KEYS: Mapping[str, Key] = {
    "data": Key("", "the published dialogues (JSON)"),
    "features": Key("", "the published features of pictures (.h5, or .npz)"),
    "reward_cache": Key("", "file of what each answer was worth (JSON)"),
    "split": one_of(("train", "val", "test"), "part of the published features that is used"),
    "mode": one_of(
        MODES,
        "'env_stops': -1 a turn until enough is known; '10_stop': ten turns, paid their progress; 'agent_stops': so, until <stop>",
    ),
    "goal": Key(1.0, "progress at which nothing is left to learn about a picture"),
    "percentile": Key(
        0.5,
        "share of the possible progress, from the first to the goal, at which a talk of env_stops ends",
    ),
    "yes_no": one_of(
        tuple(YES_NO),
        "answers that cost yes_no_reward besides, in env_stops: 'hard' (exactly yes or no), 'soft' (has one), 'conservative' (17 key words)",
    ),
    "yes_no_reward": Key(-2.0, "reward of the answers that yes_no names"),
    "reward_scale": Key(
        1.0,
        "factor of the progress that is paid; with mode=env_stops of the rewards in play, not of recorded talks",
    ),
    "reward_shift": Key(0.0, "amount that is added to each reward that reward_scale multiplies"),
    "url": Key("", "address of the server of 'games' and 'reward_cache'"),
    "server_reward": one_of(tuple(REWARDS), "reward that the server gives"),
    "timeout_seconds": positive(60.0, "longest time that a request may take, in seconds"),
    "attempts": positive(6, "number of times that a request is made before it is given up"),
    "normalise": Key(True, "divides the features of a picture by their length"),
    "additional": Key("", "further dialogues (a parquet file) after the recorded ones"),
    "tokenizer": Key("", TOKENIZER_HELP),
    "vocab_size": non_negative(0, "number of byte pairs that the tokenizer learns; 0: none yet"),
}


class VisDial(FileTokenTask):
    """Visual dialogue by the published files and server."""

    name = "visdial"
    kinds = (RECORDED, GAMES, REWARD_CACHE)
    switches = "visdial_"
    paths = ("data", "features", "reward_cache", "additional", "tokenizer")
    patient = True
    words = (STOP,)
    # Other modes reject this option.
    follow: ClassVar[Mapping[str, Sequence[str]]] = {"mode": ("yes_no",)}
    keys: ClassVar[Mapping[str, Key]] = {
        **KEYS,
        "last_turn_free": Key(False, "compat.visdial_last_turn_free"),
    }

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        values = self.options
        is_valid = values["mode"] == "env_stops" or values["yes_no"] == "none"
        self.require(
            is_valid, "yes_no", f"none with mode={values['mode']}, which is paid progress alone"
        )
        if values["url"]:
            values["url"] = base_url(values["url"])
        self.rules = Rules(
            values["mode"], values["goal"], values["percentile"], values["yes_no"], values["yes_no_reward"],
            values["reward_scale"], values["reward_shift"], values["last_turn_free"],
        )  # fmt: skip

    def _key(self, key: str) -> tuple[str, str]:
        return f"{self.name}.{key}", str(self.options[key])

    @functools.cached_property
    def scenes(self) -> list[data.Scene]:
        scenes = data.read_dialogues(*self._key("data"))
        if self.options["reward_cache"]:
            scenes = data.with_rewards(*self._key("reward_cache"), scenes)
        return scenes

    @functools.cached_property
    def features(self) -> data.Features:
        features = data.Features(
            self.options["features"], self.options["split"], self.options["normalise"]
        )
        if len(features) != len(self.scenes):
            raise UserError(
                f"config.visdial: {self.options['features']} has {len(features)} pictures of {self.options['split']}, "
                f"{self.options['data']} has {len(self.scenes)} dialogues: they do not belong together"
            )
        return features

    @functools.cached_property
    def other_side(self) -> VisDialServer:
        self.require(
            bool(self.options["url"]), "url", "the server's address, such as http://127.0.0.1:5000"
        )
        keys = ("url", "server_reward", "timeout_seconds", "attempts")
        return VisDialServer(*(self.options[key] for key in keys))

    def failures(self) -> int:
        # Without making the property, which would ask for an address.
        return self.other_side.failures if "other_side" in self.__dict__ else 0

    def environment(self) -> VisDialEnvironment:
        return VisDialEnvironment(self.scenes, self.features, self.other_side, self.rules)

    def policy(self, name: str) -> TextPolicy:
        if name.strip() != "remote":
            raise UserError(f"config.policy={name}: must be remote, the server's own questioner")
        other = self.other_side
        return FunctionPolicy(
            lambda observation, _: other.ask(observation.history(), observation.talk.scene.caption)
        )

    def check(self, kind: str, policy: str) -> None:
        super().check(kind, policy)
        # Each of these opens a file or makes a client, so that errors come before any work.
        if kind == RECORDED:
            unpaid = self.rules.mode != "env_stops" and self.rules.scale == 0
            allowed = "a file: it says what answers were worth, and where dialogues end (with mode=10_stop or agent_stops reward_scale=0 wants none)"
            self.require(bool(self.options["reward_cache"]) or unpaid, "reward_cache", allowed)
            if self.options["features"]:
                len(self.features)
            self._more()
        else:
            len(self.features)
            bool(self.other_side)
        if kind == GAMES:
            self.policy(policy)
        len(self.scenes)

    def check_episodes(self) -> None:
        self.environment()

    def _more(self) -> list[Dialogue]:
        path = self.options["additional"]
        return list(dialogue_files.read_parquet(path)) if path else []

    def count(self, kind: str) -> int | None:
        if kind == GAMES:
            return None
        return len(self._recorded) if kind == RECORDED else len(self.scenes)

    @functools.cached_property
    def _recorded(self) -> Sequence[Dialogue]:
        dialogues = [
            item.to_sequence() for scene in self.scenes for item in recorded(scene, self.rules)
        ]
        return [*dialogues, *self._more()]

    def stream(self, kind: str, policy: str) -> DialogueStream:
        if kind == RECORDED:
            return recorded_stream(self._recorded)
        if kind == REWARD_CACHE:
            scenes = self.scenes
            return lambda rng, count, first: Dialogues.of(
                map(self._valued, scenes[first : first + count])
            )
        return super().stream(kind, policy)

    def finish(self, kind: str, folder: Path) -> None:
        if kind == REWARD_CACHE:
            metas = dialogue_files.read_parquet(folder / "dialogues.parquet").metas
            atomic_write_json(
                folder / "reward_cache.json", [json.loads(meta)["values"] for meta in metas]
            )

    def dialogues_per_draw(self, kind: str) -> int:
        """Few for dialogues with a server, since only complete ones are saved."""
        return 1024 if kind == RECORDED else 8

    def _valued(self, scene: data.Scene) -> Dialogue:
        """A recorded dialogue with values from the other side, in `meta`: the published
        `cache_dataset_reward`.
        """
        features = self.features[scene.image]
        other = self.other_side
        values = [other.value([], scene.caption, features)]
        for turns in range(1, len(scene.answers) + 1):
            # The server values a history by its last answer, so that each turn is a request.
            talk = Talk(scene, 0.0, scene.questions[:turns], scene.answers[:turns])
            history = VisDialObservation(talk, self.rules).history()
            values.append(other.value(history, scene.caption, features))
        valued = scene._replace(initial=values[0], progress=tuple(values[1:]))
        dialogue = recorded(valued, self.rules)[-1].to_sequence()
        return dialogue._replace(meta={**dialogue.meta, "values": values})
