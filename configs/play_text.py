"""A person at the terminal plays a text task with an agent of train_text, against it, or is the other side.

    python -m motif_jax.launch --config=configs/play_text.py --workdir=runs/play --config.agent=runs/ilql --config.mode=with

Every game is kept in WORKDIR/games.jsonl. End with Ctrl-D.
"""

from motif_jax.ilql.agent.config import Decode
from motif_jax.ilql.evaluation.config import TextSpeaker
from motif_jax.schema import configs, one_of, positive, section_keys

KEYS = {
    "stage": "play_text",
    **section_keys(TextSpeaker),
    "mode": one_of(
        ("with", "against", "answer"),
        "'with': each turn it proposes what to say, and you take it (Enter) or say something else; 'against': you play, then it plays from the "
        "same seed; 'answer': you are the other side, and it speaks to you",
    ),
    "games": positive(1, "number of games to play"),
    "decode": section_keys(Decode, kind="greedy", advantage_clip=0.0),
}
get_config = configs(KEYS)
