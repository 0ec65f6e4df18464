"""Plays episodes in the terminal: map, message, reward as a bar, action probabilities, value.

    python -m motif_jax.launch --config=configs/visualize.py --workdir=runs/watch \\
        --config.policy=agent --config.agent.dir=runs/agent

Keys: Space pauses, Right or . goes one step, + and - change the speed, n skips to the next rewarded
moment, e to the end of the episode, q quits. Without a terminal, or with --config.live=False, it
plays without showing. Every episode leaves WORKDIR/episode-00000.json (to be replayed) and what
`forms` asks for, and ends with its 100 most frequent messages with their normalised reward, and
those that paid most.
"""

from motif_jax.core import compat
from motif_jax.play.config import VisualizeConfig
from motif_jax.schema import configs, section_keys

KEYS = {
    "stage": "visualize",
    **section_keys(VisualizeConfig),
    "compat": compat.switches("sober_mask oracle_patch_edge crop_row_offset message_count_off"),
}
get_config = configs(
    KEYS, {"smoke": {"live": False, "environment.max_episode_steps": 100}, "quickstart": {}}
)
