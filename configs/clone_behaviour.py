"""Clones a player of BabyAI-Text: a language model learns to say what the player did, prompt by prompt.

    python -m motif_jax.launch --config=configs/clone_behaviour.py --workdir=runs/cloned --config.trajectories=runs/bot_trajectories \\
        --config.network.model=google/flan-t5-large
    python -m motif_jax.launch --config=configs/evaluate.py --workdir=runs/cloned_test --config.policy=runs/cloned

Trajectories are those of collect_trajectories, or published .npy arrays (config.published). The result is an agent: evaluate, visualize,
test_language_agent and collect_trajectories take the folder. Files: checkpoints/EVALUATION/, resume/, metrics.jsonl, summary.json. A run that
was killed resumes with the same command and ends bit for bit like one that was not.

Variants:
  (none)    the published settings, mended: pairs are shuffled, pads do not count.
  faithful  with the quirks of the released code.
  smoke     seconds: whether everything works; needs a small model.
"""

from motif_jax import sections
from motif_jax.schema import Key, configs, fraction, natural, one_of, positive, size, with_defaults
from motif_jax.support import resources

_AGENT = resources.config_file("train_language_agent")["KEYS"]
KEYS = {
    "stage": "clone_behaviour",
    "seed": sections.SEED,
    "trajectories": Key(None, "folder of collect_trajectories", str),
    # Arrays of Python objects are refused.
    "published": {
        "dir": Key(None, "or published arrays: DIR/NAME_prompts_NUMBER.npy, NAME_actions_NUMBER.npy", str),
        "name": Key("trajectories", "see dir"),
        "number": natural(13, "see dir"),
    },
    "train_pairs": positive(None, "the first ones (published: 400,000); None: all but held_out_share", int),
    "held_out_share": Key(0.05, "of the steps, to measure with", above=0, most=0.5),
    "loss": one_of(
        ("tokens", "candidates"),
        "'tokens': cross-entropy of each token of the action's words and of the end token after them, as published. 'candidates': "
        "cross-entropy of the action among all actions, as PPO acts",
    ),
    "target_tokens": size(3, "with compat.bc_pad_in_loss: pads up to this many tokens count"),
    "batch_size": sections.batch(64, "steps of a batch"),
    "accumulate": sections.ACCUMULATE,
    "epochs": positive(1, "passes over the pairs"),
    "evaluate_every": positive(250, "steps"),
    "evaluation_batches": positive(64, "of held-out steps, at most"),
    "chunk_steps": sections.CHUNK_STEPS,
    "num_devices": sections.NUM_DEVICES,
    "warmup_share": fraction(0.01, "share of the steps that warm up, where optimizer.warmup_steps is None"),
    "optimizer": with_defaults(
        sections.OPTIMIZER, learning_rate=5e-4, schedule="cosine", warmup_steps=None, max_gradient_norm=0.0
    ),
    # What a language agent is made of.
    "network": _AGENT["network"],
    "lora": _AGENT["lora"],
    # Of our trajectories name, options and the wording of French goals (compat.glam_french_goal) are theirs.
    "environment": _AGENT["environment"] | {"name": Key(None, "where the agent plays afterwards", str)},
    "early_stopping": sections.EARLY_STOPPING,
    "keep_checkpoints": positive(3, "of the newest evaluations, besides the best"),
    "save_every_seconds": sections.SAVE_EVERY_SECONDS,
    "nonfinite": sections.NONFINITE,
    "matmul_precision": sections.MATMUL_PRECISION,
    "profile": _AGENT["profile"],
    "wandb": sections.WANDB,
    "compat": sections.compat("bc_unshuffled bc_pad_in_loss glam_french_goal"),
}
VARIANTS = {
    "faithful": {**sections.on(*KEYS["compat"]), "matmul_precision": "highest"},
    "smoke": {
        "batch_size": 8,
        "evaluate_every": 4,
        "evaluation_batches": 1,
        "chunk_steps": 2,
        "network.head_widths": (16,),
    },
}
get_config = configs(KEYS, VARIANTS)
