"""Talks about synthetic pictures as a text task: visual dialogue whose data is made on the spot and whose other side goes by rules."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from motif_jax.envs.scenes import files
from motif_jax.envs.scenes.speaking import Speaker, questioner
from motif_jax.envs.text.contract import TextPolicy
from motif_jax.envs.visdial import data
from motif_jax.envs.visdial.environment import OtherSide
from motif_jax.envs.visdial.task import GAMES, RECORDED, RULES, SERVER, VisDial
from motif_jax.support.progress import Progress

FOLDER = "scenes"


class Scenes(VisDial):
    """Visual dialogue on synthetic pictures; behind `url` any server of its protocol may stand, the published one too."""

    name = "scenes"
    defaults: ClassVar[Mapping[str, Any]] = {
        "folder": "",
        "split": "train",
        "num_train": 4000,
        "num_val": 500,
        "num_test": 500,
        "data_seed": 1,
        "normalise": True,
        "additional": "",
        "tokenizer": "",
        "vocab_size": 512,
        **RULES,
        "percentile": 0.9,
        **SERVER,
    }

    def __init__(self, options: Mapping[str, Any]) -> None:
        """See `TextTask`."""
        super().__init__(options)
        for split in files.SPLITS:
            key = f"num_{split}"
            given = self.options[key]
            self._require(type(given) is int and given > 0, key, "a whole number above 0")
        folder = self.options["folder"]
        self._require(not folder or os.path.isdir(folder), "folder", "an existing folder, or empty")

    def check(self, kind: str, policy: str) -> None:
        """See `TextTask`; what is made on the spot need not be there."""
        super(VisDial, self).check(kind, policy)
        self.policy(policy)
        if kind == RECORDED:
            self._more()
        if self.options["folder"]:
            len(self.features)

    def check_episodes(self) -> None:
        """See `TextTask`."""
        self._require(
            bool(self.options["folder"]),
            "folder",
            f"the folder {FOLDER}/ of a run of collect_text or train_text that made pictures",
        )
        super().check_episodes()

    def files(self) -> dict[str, Path]:
        """See `TextTask`."""
        if not (folder := self.options["folder"]):
            return super().files()
        split = self.options["split"]
        talks, worth = files.dialogues_file(folder, split), files.cache_file(folder, split)
        named = (talks, worth, files.features_file(folder))
        return {**super().files(), **{f"folder ({path.name})": path for path in named}}

    def prepare(self, kind: str, policy: str, folder: Path) -> dict[str, Any]:
        """See `TextTask`: pictures, and talks in which `policy` asks, in the published layout."""
        del kind
        if self.options["folder"]:
            return self.options
        counts = {split: self.options[f"num_{split}"] for split in files.SPLITS}
        with Progress(sum(counts.values()), "talks", "make") as progress:
            files.write(folder / FOLDER, counts, self.options["data_seed"], policy, progress.update)
        return {**self.options, "folder": str(folder / FOLDER)}

    @functools.cached_property
    def scenes(self) -> list[data.Scene]:
        """See `VisDial`."""
        folder, split, key = self.options["folder"], self.options["split"], f"{self.name}.folder"
        scenes = data.read_dialogues(key, str(files.dialogues_file(folder, split)))
        return data.with_rewards(key, str(files.cache_file(folder, split)), scenes)

    def _features(self, split: str, normalise: bool) -> data.Features:
        path = str(files.features_file(self.options["folder"]))
        return data.Features(f"{self.name}.folder", path, split, normalise)

    @functools.cached_property
    def features(self) -> data.Features:
        """See `VisDial`."""
        features = self._features(self.options["split"], self.options["normalise"])
        self.require_together(features, self.options["folder"], self.options["folder"])
        return features

    @functools.cached_property
    def other_side(self) -> OtherSide:
        """See `VisDial`: rules, where no `url` is given."""
        if self.options["url"]:
            return self.server()
        if not self.options["folder"]:
            return Speaker(
                files.features(files.draw(self.options["data_seed"], "val", self.options["num_val"]))
            )
        pool = self._features("val", False)
        return Speaker(np.stack([pool[row] for row in range(len(pool))]))

    def count(self, kind: str) -> int | None:
        """See `TextTask`; of data that is yet to be made the number of pictures."""
        if kind != GAMES and not self.options["folder"]:
            return int(self.options[f"num_{self.options['split']}"])
        return super().count(kind)

    def policy(self, name: str) -> TextPolicy:
        """One of `speaking.QUESTIONERS`, several with their probabilities, or 'remote'."""
        return super().policy(name) if name.strip() == "remote" else questioner(name)
