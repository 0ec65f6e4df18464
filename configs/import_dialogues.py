"""Makes dialogues for train_text from a foreign file: JSON lines of LMRL-Gym, or Wordle games of the published ILQL code.

    python -m motif_jax.launch --config=configs/import_dialogues.py --workdir=runs/dialogues --config.file=train.jsonl

No code of a pickle is run. The same command again finds it done, or starts over after a kill.
"""

from motif_jax.core import sections
from motif_jax.schema import Key, configs

KEYS = {
    "stage": "import_dialogues",
    "seed": sections.SEED,
    "file": Key(
        None,
        "FILE.jsonl: {sequence: [[text, is_action], ...], reward: [...], done} a line; FILE.pkl: published Wordle games",
        str,
    ),
    "words": Key("", "word list under which Wordle games are replayed; empty: the one that the file names"),
}
get_config = configs(KEYS)
