"""A person at the terminal plays a text task with an agent of train_text, against it, or is the
other side.

    python -m motif_jax.launch --config=configs/play_text.py --workdir=runs/play \\
        --config.agent=runs/ilql --config.mode=with

Every game is kept in WORKDIR/games.jsonl. End with Ctrl-D.
"""

from motif_jax.ilql.evaluation.config import PlayTextConfig
from motif_jax.schema import configs, section_keys

KEYS = {"stage": "play_text", **section_keys(PlayTextConfig)}
get_config = configs(KEYS)
