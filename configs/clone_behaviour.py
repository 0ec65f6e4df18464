"""Clones a player of BabyAI-Text: a language model learns to say what the player did, prompt by prompt.

    python -m motif_jax.launch --config=configs/clone_behaviour.py --workdir=runs/cloned --config.trajectories=runs/bot_trajectories \\
        --config.network.model=google/flan-t5-large
    python -m motif_jax.launch --config=configs/evaluate.py --workdir=runs/cloned_test --config.policy=runs/cloned

Trajectories are those of collect_trajectories, or published .npy arrays (config.published). What comes out is an agent: evaluate, visualize,
test_language_agent and collect_trajectories take the folder. Files: checkpoints/EVALUATION/, resume/, metrics.jsonl, summary.json. A run that
was killed goes on with the same command and ends bit for bit like one that was not.

Variants:
  (none)    the published settings, mended: pairs are shuffled, pads do not count.
  faithful  with the quirks of the released code.
  smoke     seconds: whether everything works; needs a small model.
"""

from __future__ import annotations

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from motif_jax.support import nonfinite, resources
from motif_jax.support.config import all_compat_on, compat, unknown_variant


def get_config(variant: str | None = None) -> ConfigDict:
    config = ConfigDict()
    config.stage = "clone_behaviour"
    config.seed = 0
    config.trajectories = placeholder(str)  # folder of collect_trajectories
    # Or published arrays: DIR/NAME_prompts_NUMBER.npy and DIR/NAME_actions_NUMBER.npy; arrays of Python objects are refused.
    config.published = ConfigDict({"dir": placeholder(str), "name": "trajectories", "number": 13})
    # Steps to learn from, the first ones (published: 400,000); None: all but a share of them. The rest is measured with.
    config.train_pairs = placeholder(int)
    config.held_out_share = 0.05
    # 'tokens': cross-entropy of each token of the action's words and of the end token behind them, as published. 'candidates':
    # cross-entropy of the action among all actions, as PPO acts.
    config.loss = "tokens"
    config.target_tokens = 3  # with compat.bc_pad_in_loss: pads up to so many tokens count
    config.batch_size = 64
    config.accumulate = 1  # parts of a batch that run one after the other: changes memory alone
    config.epochs = 1  # passes over the pairs
    config.evaluate_every = 250  # steps
    config.evaluation_batches = 64
    config.chunk_steps = 8  # whose batches are made at once
    config.num_devices = placeholder(int)  # None: all
    config.warmup_share = 0.01  # of the steps, where optimizer.warmup_steps is None

    training = resources.config("train_language_agent")
    config.optimizer = training.optimizer
    config.optimizer.learning_rate = 5e-4
    config.optimizer.schedule = "cosine"
    config.optimizer.warmup_steps = placeholder(int)
    config.optimizer.eps = 1e-8
    config.optimizer.max_gradient_norm = 0.0

    # What a language agent is made of.
    config.update({name: training[name] for name in ("network", "lora") if name in training})
    # Where the agent plays afterwards; of our trajectories name and options are theirs, and so is the wording of French goals
    # (compat.glam_french_goal).
    config.environment = training.environment
    config.environment.name = placeholder(str)

    config.early_stopping = ConfigDict({"patience": 0})  # evaluations without a better one; 0: never
    config.keep_checkpoints = 3  # of the newest evaluations, besides the best
    config.save_every_seconds = 300.0
    config.nonfinite = nonfinite.defaults()  # where a step is not finite
    config.matmul_precision = "default"
    config.profile = training.profile
    config.wandb = training.wandb
    config.compat = compat("bc_unshuffled", "bc_pad_in_loss", "glam_french_goal")

    if variant in (None, ""):
        return config
    if variant == "faithful":
        all_compat_on(config)
        config.matmul_precision = "highest"
        return config
    if variant == "smoke":
        config.batch_size, config.evaluate_every, config.evaluation_batches, config.chunk_steps = 8, 4, 1, 2
        config.network.head_widths = (16,)
        return config
    raise unknown_variant(variant, ("", "faithful", "smoke"))
