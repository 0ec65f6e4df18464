"""Shows episodes in the terminal (map, message, reward as a bar, action probabilities, value), and
makes films of them: HTML player, ttyrec3, GIF.

    python -m motif_jax.launch --config=configs/visualize.py --workdir=runs/watch \\
        --config.policy=agent --config.agent.dir=runs/agent
    python -m motif_jax.launch --config=configs/visualize.py --workdir=runs/replays \\
        --config.recorded.evaluation=runs/evaluation --config.recorded.episodes=best,worst,7
    python -m motif_jax.launch --config=configs/visualize.py --workdir=runs/replays \\
        --config.recorded.files=runs/watch/episode-00000.json --config.reward.dir=runs/other_reward

Keys: Space pauses, Right or . goes one step, + and - change the speed, n skips to the next rewarded
moment, e to the end of the episode, q quits. Without a terminal, or with --config.live=False, it
plays without showing.

An episode that a policy plays now leaves WORKDIR/episode-00000.json (to be shown again) and what
`forms` asks for, and ends with its 100 most frequent messages with their normalised reward, and
those that paid most.

Every episode of an evaluation can be shown again, recorded or not: its seed and actions are in the
journal. Another reward can be laid over it (`reward.dir`), and an agent can be asked what it thinks
of it (`recorded.agent.dir`). A second or two per episode of 1,000 steps, GIF 10 ms per frame.
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
