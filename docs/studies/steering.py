"""What the words of a goal change: agents of rewards for combat and for gold, beside three that
have no such goal.

    python -m motif_jax.launch --config=docs/studies/steering.py --workdir=runs/steering_study

One dataset serves all. `combat` and `gold` learn from a judge with that goal, `default` from one
whose goal is to get on in the game; `score` has the task's reward alone, `random` plays at random.
A million steps a run, games of 200 steps; then 300 games that no training meets, one line a run in
`rows`, and what has a line is not run again. Some minutes a run on 2 quiet cores.

The claims were written down before the first of the seeds 11 to 13 was run; the settings were
chosen on seed 1.

Variants:
  (none)  three seeds: docs/tutorials/steer.md.
  demo    combat, gold and random with one seed: launch/demo_steering.sh.
"""

from motif_jax.reports import study_config as studies

_NO_REWARD = "--config.reward.intrinsic_coefficient=0 --config.reward.extrinsic_coefficient=1"
_LEXICONS = {
    "default": ("nethack.yaml", "defaultgoal"),
    "combat": ("steering.yaml", "combat"),
    "gold": ("steering.yaml", "gold"),
}


def _prepare() -> dict[str, str]:
    commands = {"dataset": "configs/collect.py:steering"}
    dataset = "--config.dataset_dir={workdir}/dataset"
    for name, (lexicon, goal) in _LEXICONS.items():
        commands |= {
            f"labels_{name}": f"configs/annotate.py:quickstart {dataset} --config.store_dir={{workdir}}/store "
            f"--config.lexicon.file={lexicon} --config.goal={goal}",
            f"reward_{name}": f"configs/train_reward.py:quickstart {dataset} --config.epochs=8 "
            f"--config.annotator={lexicon.removesuffix('.yaml').replace('nethack', 'lexicon')}_msg_{goal}",
        }
    return commands


_PREPARE = _prepare()
_METHODS = {
    **{name: f"--config.reward.dir={{workdir}}/reward_{name}" for name in _LEXICONS},
    "score": _NO_REWARD,
    "random": f"{_NO_REWARD} --config.train_for_env_steps=2048",
}
_GOALS = {"combat": "kills", "gold": "gathered"}
BASE = {
    "seed": 11,
    "rows": "docs/studies/steering.jsonl",
    "prepare": _PREPARE,
    "training": "configs/train_agent.py:steering",
    "methods": _METHODS,
    "evaluation": "configs/evaluate.py --config.policy=agent --config.reward.dir= --config.seed=77003 --config.episodes=300 "
    "--config.lanes=64",
    "games": {"random": "--config.policy=random"},  # its games are played by the random policy
    "tables": {"goals": "combat,gold,default,score,random"},
    "claims": "; ".join(
        f"{goal} > {other}: {measure}"
        for goal, measure in _GOALS.items()
        for other in ("default", "score", "random")
    ),
    "lexicon.file": "steering.yaml",
    "goal": "combat",
    "measures": "kills,gathered,score,scout,dlvl",
}
DEMO = {
    "seeds": 1,
    "rows": "",
    "methods": {name: _METHODS[name] for name in ("combat", "gold", "random")},
    "prepare": {
        name: command for name, command in _PREPARE.items() if not name.endswith("_default")
    },
    "tables": {"goals": "combat,gold,random"},
    "claims": "combat > gold: kills; combat > random: kills; gold > combat: gathered; gold > random: gathered",
}
get_config = studies.study(BASE, {"": {}, "demo": DEMO})
