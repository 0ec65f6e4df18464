"""Makes dialogues of a file of others, for train_text: JSON lines of LMRL-Gym, or Wordle games of the published ILQL code.

    python -m motif_jax.launch --config=configs/import_dialogues.py --workdir=runs/dialogues --config.file=train.jsonl

Nothing of a pickle is run. The same command again finds it done, or after a kill makes it anew.
"""

from motif_jax import sections
from motif_jax.schema import Key, configs

KEYS = {
    "stage": "import_dialogues",
    "seed": sections.SEED,
    "file": Key(
        None,
        "FILE.jsonl: {sequence: [[text, is_action], ...], reward: [...], done} a line; FILE.pkl: published Wordle games",
        str,
    ),
    "words": Key("", "of Wordle games: the list to replay them under; empty: the one that the file names"),
}
get_config = configs(KEYS)
