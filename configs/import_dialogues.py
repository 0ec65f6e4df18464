"""Makes dialogues of a file of others, for train_text: JSON lines of LMRL-Gym, or Wordle games of the published ILQL code.

    python -m motif_jax.launch --config=configs/import_dialogues.py --workdir=runs/dialogues --config.file=train.jsonl

Nothing of a pickle is run. The same command again finds it done, or after a kill makes it anew.
"""

from __future__ import annotations

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from motif_jax.support.config import unknown_variant


def get_config(variant: str | None = None) -> ConfigDict:
    if variant not in (None, ""):
        raise unknown_variant(variant, ("",))
    config = ConfigDict()
    config.stage = "import_dialogues"
    config.seed = 0
    # FILE.jsonl: {sequence: [[text, is_action], ...], reward: [...], done} a line; FILE.pkl: published Wordle games.
    config.file = placeholder(str)
    # Of Wordle games: the word list that they are replayed under; empty for the one that the file names.
    config.words = ""
    return config
