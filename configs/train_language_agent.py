"""Trains a language model as an agent, by PPO on BabyAI-Text (GLAM): it reads what it sees and
scores the actions' words.

    python -m motif_jax.launch --config=configs/train_language_agent.py --workdir=runs/gflan \\
        --config.network.model=MODEL

MODEL is a folder with config.json, safetensors and tokenizer.json, or a name of the Hugging Face
hub (google/flan-t5-large). Everything else is as in configs/train_agent.py, with its files;
evaluate, visualize, report and study take the run. See docs/glam.md.

Variants:
  (none)      the published hyperparameters, mended: 32 environments x 40 steps, 4 epochs,
              minibatches of 64.
  faithful    with the quirks of the released code.
  faithful_first_release  with those of the code of the paper's time.
  aflan, npae, npa, npe   the published ablations: an action head (aflan); fresh weights with the
                          model's embeddings and an action head (npae), with an action head alone
                          (npa), with the embeddings alone (npe).
  drrn        the baseline without a language model: two small recurrent encoders, Q-learning from a
              memory; needs a --config.network.tokenizer. drrn_faithful: with the quirks of the
              released code.
  quickstart  what launch/quickstart_glam.sh runs: GoToLocal, a small MODEL, minutes on 2 cores.
  smoke       seconds: whether everything works; needs a small MODEL.
Several are joined by '+': faithful+npae.
"""

from ml_collections import ConfigDict

from motif_jax.core import compat, resources
from motif_jax.core.config import unknown_variant
from motif_jax.glam.config import DrrnPolicy, LanguageTraining, QLearning, TrainedLevelKeys
from motif_jax.schema import section, section_keys, update

# Quirks that exclude each other stand in one set each: those of the code since May 2023, and those
# of the paper's time.
_ALWAYS = (
    "timeout_as_terminal glam_value_broadcast glam_french_goal glam_untrained_dropout glam_fixed_kind_per_env "
    "glam_separate_tokens"
)
FAITHFUL = f"{_ALWAYS} glam_raw_logit_score glam_pad_plus_one"
FAITHFUL_FIRST_RELEASE = f"{_ALWAYS} glam_scaled_probability_score glam_end_token"
# What the published names of agents stand for: (pretrained, keep_embedding, policy).
ABLATIONS = {
    "aflan": (True, False, "actions"),
    "npae": (False, True, "actions"),
    "npa": (False, False, "actions"),
    "npe": (False, True, "score"),
}
DRRN = ("drrn", "drrn_faithful")
VARIANTS = ("", "faithful", "faithful_first_release", *ABLATIONS, *DRRN, "quickstart", "smoke")
_AGENT = resources.config_file("train_agent")["KEYS"]
KEYS = {
    **_AGENT,
    **section_keys(LanguageTraining),
    "environment": section_keys(TrainedLevelKeys),
    "compat": compat.switches(
        f"quantile_two_decimals {FAITHFUL} glam_scaled_probability_score glam_end_token"
    ),
}
_BASE = {
    "train_for_env_steps": 1_500_000,
    "rollout": 40,
    "batch_size": 32 * 40,
    # Play and learn in turns, as PPO is defined: the policy that learns is the one that has played.
    "serial": True,
    "on_policy": True,
    "optimizer": {"learning_rate": 1e-6, "eps": 1e-5, "max_gradient_norm": 0.5},
    "reward": {"intrinsic_coefficient": 0.0, "extrinsic_coefficient": 1.0},
    "reward.extrinsic_scale": 20.0,
    "reward.extrinsic_clip": 20.0,
    "algorithm.positive_reward": True,
    "actors": {
        "workers": 1,
        "envs_per_worker": 32,
        "groups_per_worker": 1,
        "warmup_steps": 0,
    },
    "save_every_steps": 12_800,
    "stats_episodes": 300,
}
_SHORT = {"environment.name": "BabyAI-GoToLocal-v0", "environment.babyai_text.observations": 1}
_CHANGES = {
    **{
        name: {"network": dict(zip(("pretrained", "keep_embedding", "policy"), values))}
        for name, values in ABLATIONS.items()
    },
    **{
        name: {
            **compat.switched_on(*quirks.split()),
            "network.special_tokens": "nowhere",
            "matmul_precision": "highest",
        }
        for name, quirks in (
            ("faithful", FAITHFUL),
            ("faithful_first_release", FAITHFUL_FIRST_RELEASE),
        )
    },
    "quickstart": {
        **_SHORT,
        "train_for_env_steps": 61_440,
        "network": {"head_widths": (128,), "prompt_tokens": 80},
        "algorithm": {
            "gamma": 0.95,
            "gae_lambda": 0.9,
            "epochs": 2,
            "minibatch_size": 128,
            "microbatch_size": 128,
            "normalise_advantage": True,
        },
        "optimizer": {"learning_rate": 1e-3, "schedule": "linear"},
        "reward.extrinsic_scale": 1.0,
        "save_every_seconds": 30.0,
        "log_every_seconds": 5.0,
    },
    "smoke": {
        **_SHORT,
        "train_for_env_steps": 256,
        "tests": "",
        "rollout": 16,
        "batch_size": 4 * 16,
        "actors.envs_per_worker": 4,
        "algorithm": {"epochs": 2, "minibatch_size": 32},
        "network.head_widths": (16,),
        "save_every_steps": 128,
        "log_every_seconds": 1.0,
    },
}
# DRRN (He et al. 2016) with the published sizes: 32 environments x 4 steps, then one step of
# learning.
_DRRN = {
    "network": section_keys(DrrnPolicy),
    "algorithm": section_keys(QLearning),
    "compat": compat.switches(
        "timeout_as_terminal quantile_two_decimals glam_french_goal glam_fixed_kind_per_env drrn_first_observation"
    ),
}


def get_config(variant: str | None = None) -> ConfigDict:
    variants = (variant or "").split("+")
    for name in variants:
        if name not in VARIANTS or (name in DRRN and len(variants) > 1):
            raise unknown_variant(variant, VARIANTS)
    config = update(section(KEYS), _BASE)
    for name in variants:
        update(config, _CHANGES.get(name, {}))
    if variant in DRRN:
        for name in ("lora", "sharding", "probes"):
            del config[name]
        for name, keys in _DRRN.items():
            config[name] = section(keys)
        # The memory is part of each checkpoint.
        update(
            config,
            {
                "rollout": 4,
                "batch_size": 32 * 4,
                "keep_checkpoints": 1,
                "save_every_steps": 150_000,
            },
        )
        update(config.optimizer, {"learning_rate": 1e-4, "eps": 1e-8, "max_gradient_norm": 5.0})
    if variant == "drrn_faithful":
        quirks = [name for name in config.compat if name != "quantile_two_decimals"]
        update(config, {**compat.switched_on(*quirks), "matmul_precision": "highest"})
    return config
