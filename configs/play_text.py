"""A person at the terminal plays a text task with an agent of train_text, against it, or is the other side.

    python -m motif_jax.launch --config=configs/play_text.py --workdir=runs/play --config.agent=runs/ilql --config.mode=with

Every game is kept in WORKDIR/games.jsonl. End with Ctrl-D.
"""

from __future__ import annotations

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from motif_jax.support import decode_config
from motif_jax.support.config import unknown_variant


def get_config(variant: str | None = None) -> ConfigDict:
    if variant not in (None, ""):
        raise unknown_variant(variant, ("",))
    config = ConfigDict()
    config.stage = "play_text"
    config.seed = 0
    config.agent = placeholder(str)  # a run folder of train_text
    config.policy = placeholder(str)  # a policy of the task in its place, such as 'optimal'
    config.task = placeholder(str)  # None: the agent's
    config.options = ""  # of the task as JSON, over those that the agent was trained with
    # 'with': each turn it proposes what to say, and you take it (Enter) or say something else; 'against': you play, then it plays
    # from the same seed; 'answer': you are the other side, and it speaks to you.
    config.mode = "with"
    config.games = 1
    config.decode = decode_config.defaults()  # as in evaluate_text
    config.decode.update({"kind": "greedy", "advantage_clip": 0.0})
    config.token_reward = ConfigDict({"constant": 0.0, "file": placeholder(str), "scale": 1.0, "shift": 0.0})
    config.dtype = "float32"
    return config
