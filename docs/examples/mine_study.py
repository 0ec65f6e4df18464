"""A study of one's own: does a reward from captions help, does its judge, and with every seed?
docs/tutorials/my_study.md
"""

from motif_jax.reports import study_config as studies

TASK = "--config.environment.name=gym:Mine-v0 --config.environment.modules=mine --config.environment.text=mine:tell"
CAPTIONS = "--config.reward.dir=runs/mine/reward --config.reward.threshold=auto --config.reward.intrinsic_coefficient=0.5"
ALIKE = "--config.reward.kind=any_text --config.reward.intrinsic_coefficient=0.5"
get_config = studies.study(
    {
        "training": f"configs/train_agent.py:recall {TASK} --config.train_for_env_steps=150000",
        "methods": {"task": "", "captions": CAPTIONS, "alike": ALIKE},
        "evaluation": "configs/evaluate.py --config.policy=agent --config.reward.dir=",
        "measures": "return,length",
        "claims": "captions > task + 0.5: return",
    }
)
