"""Model cards of exported rewards (Mitchell et al. 2019, "Model cards for model reporting")."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from motif_jax.core.config import flat, listed
from motif_jax.core.run_folder import read_description, stored_folder

if TYPE_CHECKING:
    from motif_jax.motif.reward.reward_model import RewardModel

_UNKNOWN = "Nothing is known of it.\n"
_NUMBERS = ("accuracy", "accuracy_pairs", "loss", "loss_pairs", "calibration_error")


def render(reward: RewardModel, licence: str = "", notes: str = "") -> str:
    """The card in Markdown; the owner gives the `licence` of the weights and `notes`."""
    from motif_jax.oni.online_model import OnlineRewardModel

    made = read_description(Path(reward.folder) / "versions.json")
    if isinstance(reward, OnlineRewardModel):
        game = reward.config["environment"]["name"]
        origin = f"Learned while an agent played {game}, from {len(reward.labels):,} labels of the annotator in the settings below.\n"
    else:
        origin = "\n".join(_labels(reward))
    # Of pairs whose messages were both never trained on, too.
    known = [f"{part}/{name}" for part in ("validation", "validation_unseen") for name in _NUMBERS]
    evaluation = reward.curve[-1] if reward.curve else {}
    numbers = {name: evaluation[name] for name in known if name in evaluation}
    return f"""# Model card: a reward of game messages

Made by `{made.get("command", "an unknown command")}` in `{reward.folder}`, motif_jax {made.get("git_revision", "of unknown revision")}. {notes}

## Use

An intrinsic reward for agents, and a study of what its annotator prefers. Not a judge of people's text. On messages that are not in its dataset the number is a guess,
and normalised otherwise on another dataset. It has the blind spots of its annotator, and pays for messages, not for what they stand for.

## Data and annotators

{origin}
## Numbers

{_block(numbers) or _UNKNOWN}
## Licence

{licence or "Not stated by the owner of the weights."} The licences of data and annotator apply besides (the published Motif dataset and its annotations are CC-BY-NC 4.0: no commercial use).

## Settings

{_block(reward.config)}"""


def _labels(reward: RewardModel) -> Iterator[str]:
    """Of each dataset and its labels: what describes them, with the annotator's prompts."""
    for folder_name in listed(reward.config.get("dataset_dir") or ""):
        folder = stored_folder(reward.folder, folder_name)
        described = read_description(folder / "dataset.json") if folder else {}
        facts = {key: described[key] for key in described if key not in ("arrays", "digests")}
        yield f"Dataset `{folder_name}`:\n\n{_block(facts) or _UNKNOWN}"
        for name in listed(reward.config.get("annotator") or ""):
            shards = sorted(folder.glob(f"annotations/{name}/shard-*.json")) if folder else []
            who = read_description(shards[0]) if shards else {}
            facts = {key: who[key] for key in ("annotator", "questions") if key in who}
            yield f"Labels `{name}`:\n\n{_block(facts) or _UNKNOWN}"


def _block(facts: Mapping[str, Any]) -> str:
    """Values by dotted key as code by its indentation, which no text within it ends."""
    texts = (
        f"{name}: {value if isinstance(value, str) else json.dumps(value)}\n"
        for name, value in flat(facts).items()
    )
    return textwrap.indent("".join(texts), "    ", lambda _: True)
