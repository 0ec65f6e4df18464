"""NetHack at a twentieth of the paper's steps: is a judge's taste worth more than the score?

    python -m motif_jax.launch --config=docs/studies/nethack_long.py:pilots --workdir=runs/long

Games of 5,000 steps as published, a small network, sentences paid apart. The reward is that of the
1.5-billion model on the play of trained agents (`docs/studies/judges/nethack_played`). Stopped at
any moment and started again with the same command it resumes; what has a line in `rows` is not run
again.

Variants:
  pilots  16 million steps, one seed: the settings are chosen here, and nothing is claimed.
"""

from __future__ import annotations

from motif_jax.reports import study_config as studies

# Two processes of 64 games each: with one of 128 the learner waited for games half of its time.
_TRAINING = (
    "configs/train_agent.py:laptop --config.environment.max_episode_steps=5000 --config.actors.workers=2 "
    "--config.actors.envs_per_worker=64 --config.save_every_seconds=120"
)
_EVALUATION = (
    "configs/evaluate.py --config.policy=agent --config.reward.dir= --config.seed=77003 --config.lanes=64 "
    "--config.environment.max_episode_steps=5000"
)
_PREPARE = {
    "reward_played": "configs/train_reward.py:quickstart --config.dataset_dir=docs/studies/judges/nethack_played "
    "--config.annotator=qwen15 --config.labels.soft=True",
}
_PLAYED = "--config.reward.dir={workdir}/reward_played --config.reward.by=sentence --config.reward.count_exponent=3 --config.reward.quantile=0.5"
_WIDE = (
    "--config.network.image_features=128 --config.network.vector_features=64 --config.network.message_features=64 "
    "--config.network.hidden_size=128"
)
_TASK = "--config.reward.intrinsic_coefficient=0"
_BOTH = f"{_PLAYED} --config.reward.intrinsic_coefficient=0.5"
_PILOTS = {
    "task": _TASK,
    "both": _BOTH,
    "taste": f"{_BOTH} --config.reward.extrinsic_coefficient=0",
    # The published weights.
    "both_published": f"{_PLAYED} --config.reward.intrinsic_coefficient=0.1 --config.reward.extrinsic_coefficient=0.1",
    "both_wide": f"{_BOTH} {_WIDE}",
    "task_wide": f"{_TASK} {_WIDE}",
}

get_config = studies.study(
    {},
    {
        "pilots": {
            "seed": 1,
            "seeds": 1,
            "rows": "docs/studies/nethack_long_pilots.jsonl",
            "prepare": _PREPARE,
            "training": f"{_TRAINING} --config.train_for_env_steps=16000000",
            "evaluation": f"{_EVALUATION} --config.episodes=300",
            "methods": _PILOTS,
            "tables": {"pilots": ",".join(_PILOTS)},
            "lexicon.file": "nethack.yaml",
            "measures": "score,kills,dlvl,length,deaths",
        },
    },
)
