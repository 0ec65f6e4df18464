"""Clones a player of BabyAI-Text: a language model learns to say what the player did, prompt by
prompt.

    python -m motif_jax.launch --config=configs/clone_behaviour.py --workdir=runs/cloned \\
        --config.trajectories=runs/bot_trajectories --config.network.model=google/flan-t5-large
    python -m motif_jax.launch --config=configs/evaluate.py --workdir=runs/cloned_test \\
        --config.policy=runs/cloned

Trajectories are those of collect_trajectories, or published .npy arrays (config.published). The
result is an agent: evaluate, visualize, test_language_agent and collect_trajectories take the
folder. Files: checkpoints/EVALUATION/, resume/, metrics.jsonl, summary.json. A run that was killed
resumes with the same command and ends bit for bit like one that was not.

Variants:
  (none)    the published settings, mended: pairs are shuffled, pads do not count.
  faithful  the first 400,000 pairs, with the quirks of the released code; with fewer pairs set
            train_pairs.
  smoke     seconds: whether everything works; needs a small model.
"""

from motif_jax.core import compat
from motif_jax.glam.config import ClonedLevelKeys, CloningCompat, CloningConfig
from motif_jax.schema import configs, section_keys

KEYS = {
    "stage": "clone_behaviour",
    **section_keys(CloningConfig),
    # Of our trajectories name, options and the wording of French goals (compat.glam_french_goal)
    # are theirs.
    "environment": section_keys(ClonedLevelKeys),
    "compat": compat.switches(
        "bc_unshuffled bc_pad_in_loss glam_french_goal glam_separate_tokens", CloningCompat
    ),
}
VARIANTS = {
    "faithful": {
        **compat.switched_on(*KEYS["compat"]),
        "matmul_precision": "highest",
        "train_pairs": 400_000,
    },
    "smoke": {
        "batch_size": 8,
        "evaluate_every": 4,
        "evaluation_batches": 1,
        "chunk_steps": 2,
        "network.head_widths": (16,),
    },
}
get_config = configs(KEYS, VARIANTS)
