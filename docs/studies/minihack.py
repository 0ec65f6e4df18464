"""What NetHack's messages are worth as captions on sparse levels of MiniHack.

    python -m motif_jax.launch --config=docs/studies/minihack.py --workdir=runs/minihack_study

`task`, `intrinsic`, `both` and `random` play on each level with each seed, as
docs/studies/minigrid.py has them: 200 games that no training meets, one line a run in `rows`, and
what has a line is not run again. 300,000 steps a run, minutes on 2 quiet cores.

The claims were written down before the first of the seeds 11 to 15 was run; the settings were
chosen on seed 1.
"""

from __future__ import annotations

from typing import Any

from motif_jax.reports import study_config as studies

# What is played, and what the judge's texts are of: random play there.
_LEVELS = {"multiroom": ("MultiRoom-N4", "MultiRoom-N4"), "keyroom": ("KeyRoom-S5", "KeyRoom-S5")}
_NO_REWARD = "--config.reward.intrinsic_coefficient=0"


def _level(name: str, played: str, collected: str) -> tuple[dict[str, str], dict[str, str]]:
    """The commands that prepare a level's reward, and the methods."""
    dataset = f"--config.dataset_dir={{workdir}}/dataset_{name}"
    prepare = {
        f"dataset_{name}": f"configs/collect.py --config.environment.name=MiniHack-{collected}-v0 --config.policy=random "
        "--config.num_pairs=3000 --config.start_share=0.5 --config.spread=messages --config.screens=False",
        f"labels_{name}": f"configs/annotate.py {dataset} --config.store_dir={{workdir}}/store --config.lexicon.file=minihack.yaml",
        f"reward_{name}": f"configs/train_reward.py:minigrid {dataset} --config.annotator=minihack_msg_defaultgoal",
    }
    reward = f"--config.reward.dir={{workdir}}/reward_{name}"
    flags = {
        "task": _NO_REWARD,
        "random": f"{_NO_REWARD} --config.train_for_env_steps=512",
        "intrinsic": f"{reward} --config.reward.extrinsic_coefficient=0",
        "both": reward,
    }
    level = f"--config.environment.name=MiniHack-{played}-v0"
    return prepare, {f"{name}_{method}": f"{level} {own}" for method, own in flags.items()}


def _study() -> dict[str, Any]:
    prepare: dict[str, str] = {}
    methods: dict[str, str] = {}
    tables: dict[str, str] = {}
    claims: list[str] = []
    for name, (played, collected) in _LEVELS.items():
        commands, listed = _level(name, played, collected)
        prepare |= commands
        methods |= listed
        tables[name] = ",".join(listed)
        for other in ("task + 0.3", "random + 0.3", "intrinsic"):
            claims.append(f"{name}_both > {name}_{other}: success")
    return {
        "prepare": prepare,
        "methods": methods,
        "games": {f"{name}_random": "--config.policy=random" for name in tables},
        "tables": tables,
        "claims": "; ".join(claims),
    }


BASE = {
    "seed": 11,
    "seeds": 5,
    "rows": "docs/studies/minihack.jsonl",
    **_study(),
    "training": "configs/train_agent.py:quickstart --config.network.encoder=tiles --config.train_for_env_steps=300000 "
    "--config.algorithm.exploration_coefficient=0.01 --config.reward.threshold=auto --config.reward.count_exponent=0 "
    "--config.reward.intrinsic_coefficient=0.1 --config.reward.extrinsic_coefficient=10 "
    # Most batches hold no success: scaled by their own spread, the cost of walking into walls would
    # be as large as one.
    "--config.algorithm.advantage_scale=returns --config.algorithm.value_normalisation=running",
    "evaluation": "configs/evaluate.py --config.policy=agent --config.reward.dir= --config.seed=77003 --config.episodes=200 "
    "--config.lanes=64",
    "lexicon.file": "minihack.yaml",
    "measures": "success,scout",
}
get_config = studies.study(BASE)
