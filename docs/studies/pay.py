"""With which action a text is paid outside NetHack: the one chosen on it, or the one before.

    python -m motif_jax.launch --config=docs/studies/pay.py --workdir=runs/pay_study

The published systems pay a text with the action that is chosen on it (`reward.pay=read`), one step
after what it tells of. `caused` pays it with the step that caused it. Everything else is as in
docs/studies/minigrid.py: 250,000 steps of DoorKey-8x8, a million of KeyCorridorS3R3, 200 games that
no training meets.

The rule was written down before the first seed was run: `caused` becomes the default outside
NetHack if its mean success over the three seeds is at least that of `read` less 0.05, in both
games.
"""

from motif_jax.reports import study_config as studies

_KEYCORRIDOR = "--config.environment.name=MiniGrid-KeyCorridorS3R3-v0 --config.train_for_env_steps=1000000 --config.reward.dir={workdir}/reward_keycorridor"
_DOORKEY = "--config.reward.dir={workdir}/reward_doorkey"


def _prepare() -> dict[str, str]:
    """A dataset of random play in a small level of each kind, its labels, and its reward."""
    commands = {}
    levels = {
        "doorkey": "",
        "keycorridor": " --config.environment.name=MiniGrid-KeyCorridorS3R1-v0 --config.num_pairs=6000",
    }
    for name, level in levels.items():
        dataset = f"--config.dataset_dir={{workdir}}/dataset_{name}"
        commands |= {
            f"dataset_{name}": f"configs/collect.py:minigrid{level}",
            f"labels_{name}": f"configs/annotate.py:minigrid {dataset} --config.store_dir={{workdir}}/store --config.goal=defaultgoal",
            f"reward_{name}": f"configs/train_reward.py:minigrid {dataset} --config.annotator=minigrid_msg_defaultgoal",
        }
    return commands


BASE = {
    "seed": 21,
    "seeds": 3,
    "rows": "docs/studies/pay.jsonl",
    "prepare": _prepare(),
    "training": "configs/train_agent.py:minigrid",
    "methods": {
        f"{level}_{pay}": f"{flags} --config.reward.pay={pay}"
        for level, flags in (("doorkey", _DOORKEY), ("keycorridor", _KEYCORRIDOR))
        for pay in ("read", "caused")
    },
    "evaluation": "configs/evaluate.py --config.policy=agent --config.reward.dir= --config.seed=77003 --config.episodes=200 "
    "--config.lanes=64",
    "tables": {
        "doorkey": "doorkey_read,doorkey_caused",
        "keycorridor": "keycorridor_read,keycorridor_caused",
    },
    "claims": "doorkey_caused > doorkey_read - 0.05: success; keycorridor_caused > keycorridor_read - 0.05: success",
    "lexicon.file": "minigrid.yaml",
    "measures": "success,through_door",
}
get_config = studies.study(BASE, {"": {}})
