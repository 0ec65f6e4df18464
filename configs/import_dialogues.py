"""Makes dialogues for train_text from a foreign file: JSON lines of LMRL-Gym, or Wordle games of
the published ILQL code.

    python -m motif_jax.launch --config=configs/import_dialogues.py --workdir=runs/dialogues \\
        --config.file=train.jsonl

No code of a pickle is run. The same command again finds it done, or starts over after a kill.
"""

from motif_jax.published.config import ImportDialoguesConfig
from motif_jax.schema import configs, section_keys

KEYS = {"stage": "import_dialogues", **section_keys(ImportDialoguesConfig)}
get_config = configs(KEYS)
