"""Reads a file of others: checkpoints and datasets of the published systems, and exported rewards.

    python -m motif_jax.launch --config=configs/import.py:KIND --workdir=runs/imported \\
        --config.file=FILE

KIND      FILE                          what becomes of it
reward    reward.safetensors            a run folder of a reward of configs/export.py:reward
motif_reward, motif_agent
          checkpoint_9.pth              a run folder that agents, evaluate and explain_reward use
oni       checkpoint_*.pth              an agent of ONI (28 actions) with its labels and classifier
glam      model.checkpoint              an agent of GLAM or of its behaviour cloning
ilql      model.pkl                     an agent of BC, DT, ILQL, CQL, Psi, utterance ILQL or CHAI
upvote    model.pkl                     the upvote model of Reddit's comments, as of train_upvote
dialogues FILE.jsonl, FILE.pkl          dialogues of LMRL-Gym, published Wordle games

PyTorch reads its checkpoints (the extra `torch`); no code of a file is run. Seconds. The same
command again finds it done, or starts over after a kill; a folder with something else is refused.

motif_reward takes the published quantiles, too:
--config.quantiles=reward_metrics/train_norm_quantiles.csv. It also reads the network of a ranking
of ONI, whose mean and variance are not in the file. Tensors of Motif and ONI are matched by shape,
order and hints in their names; where that leaves a choice it is asked for:
--config.names="reward_head/weight=THEIR.weight,...". mapping.json says which tensor became which
layer. glam needs --config.agent.network.model=google/flan-t5-large, the model that was trained.
Agents of visual dialogue and comments need GPT-2's tokenizer: --config.task=reddit
--config.options='{"tokenizer": "gpt2"}' with a folder gpt2 that has its tokenizer.json.
"""

from ml_collections import ConfigDict

from motif_jax.core import resources
from motif_jax.published.config import IMPORTS, of_kind

# Kind -> the section with the network and the task of such a file, and the stage whose faithful
# config says what these are.
TRAININGS = {
    "motif_reward": ("reward", "train_reward"),
    "motif_agent": ("agent", "train_agent"),
    "oni": ("agent", "oni"),
    # Of config.agent: network.model (a folder with the config and tokenizer of the model that was
    # trained), network.policy, level.
    "glam": ("agent", "train_language_agent"),
}


def get_config(variant: str | None = None) -> ConfigDict:
    config = of_kind("import", IMPORTS, variant)
    if config.kind in TRAININGS:
        part, stage = TRAININGS[config.kind]
        config[part] = resources.config(stage, "faithful")
    if config.kind == "oni":
        # The task that it was trained on.
        config.agent.environment.name = "NetHackScoreExtendedActions-v1"
    return config
