"""Synthetic pictures and recorded talks about them in the layout of the published files of visual dialogue."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.envs.scenes import pictures, talking
from motif_jax.envs.scenes.speaking import Speaker, questioner
from motif_jax.envs.visdial.rules import TURNS
from motif_jax.support import seeds
from motif_jax.support.files import atomic_write_bytes, atomic_write_json, naming, sync

SPLITS = ("train", "val", "test")


def dialogues_file(folder: str | Path, split: str) -> Path:
    """The dialogues of a split."""
    return Path(folder) / f"visdial_0.5_{split}.json"


def cache_file(folder: str | Path, split: str) -> Path:
    """What their answers were worth, by rank."""
    return Path(folder) / f"{split}_rank_reward_cache1.json"


def features_file(folder: str | Path) -> Path:
    """The features of all pictures, HDF5, or .npz where that was written without h5py."""
    hdf5, arrays = (Path(folder) / f"data_img.{suffix}" for suffix in ("h5", "npz"))
    return arrays if arrays.exists() and not hdf5.exists() else hdf5


def draw(seed: int, split: str, count: int) -> list[pictures.Picture]:
    """The pictures of a split; of more pictures the first are the same."""
    return [pictures.draw(seeds.rng(seed, "picture", split, number)) for number in range(count)]


def features(drawn: list[pictures.Picture]) -> np.ndarray:
    """Float32 [N, WIDTH]."""
    return np.stack([picture.features() for picture in drawn])


def write(
    folder: Path, counts: Mapping[str, int], seed: int, policy: str, said: Callable[[int], None]
) -> None:
    """Writes all splits; what is there already stays, so that a kill loses one split at most.

    Args:
      folder: is made where it is not there.
      counts: split -> pictures.
      seed: of pictures and talks.
      policy: who asks, see `speaking.questioner`.
      said: is told how many talks are done.
    """
    folder.mkdir(parents=True, exist_ok=True)
    drawn = {split: draw(seed, split, count) for split, count in counts.items()}
    if not features_file(folder).exists():
        _write_features(folder, {split: features(found) for split, found in drawn.items()})
    speaker, asker, done = Speaker(features(drawn["val"])), questioner(policy), 0
    for split, found in drawn.items():
        if not cache_file(folder, split).exists():
            talks, values = [], []
            for number, picture in enumerate(found):
                rng = seeds.rng(seed, "talk", split, number)
                talk, value = _record(picture, speaker, asker, rng)
                talks.append(talk)
                values.append(value)
                said(done + number + 1)
            atomic_write_json(dialogues_file(folder, split), talks)
            atomic_write_json(cache_file(folder, split), values)
        done += len(found)
        said(done)


def _record(
    picture: pictures.Picture, speaker: Speaker, asker: Any, rng: np.random.Generator
) -> tuple[dict[str, Any], list[float]]:
    """A talk of ten turns, and its row of the cache."""
    caption = pictures.caption(picture, int(rng.integers(8)))
    features, history = picture.features(), []
    said: list[tuple[str, str]] = []
    values = [speaker.value([], caption, features)]
    for _ in range(TURNS):
        question = asker.ask(caption, said, rng)
        answer = talking.answer(picture, question, caption)
        said.append((question, answer))
        history += [{"speaker": "question", "text": question}, {"speaker": "answer", "text": answer}]
        values.append(speaker.value(history, caption, features))
    # The published file has questions without their marks.
    turns = [{"question": question.removesuffix("?"), "answer": answer} for question, answer in said]
    return {"caption": caption, "dialog": turns}, values


def _write_features(folder: Path, arrays: Mapping[str, np.ndarray]) -> None:
    if importlib.util.find_spec("h5py") is None:
        buffer = io.BytesIO()
        named: dict[str, Any] = {f"images_{split}": rows for split, rows in arrays.items()}
        np.savez(buffer, **named)
        atomic_write_bytes(folder / "data_img.npz", buffer.getvalue())
        return
    import h5py

    path = folder / "data_img.h5"
    temporary = path.with_name(f".{path.name}.tmp")
    with naming(path), h5py.File(temporary, "w") as file:
        for split, rows in arrays.items():
            file.create_dataset(f"images_{split}", data=rows)
    sync(temporary)
    temporary.replace(path)
