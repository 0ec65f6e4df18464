"""Annotate the pairs of a dataset with preferences.

    python -m motif_jax.launch --config=configs/annotate.py --workdir=runs/annotate --config.dataset_dir=DATASET

asks the lexicon (a stand-in for a language model, seconds). A language model in process, 8 GPUs:

    python -m motif_jax.launch --config=configs/annotate.py --workdir=runs/annotate --config.dataset_dir=DATASET \
        --config.annotator=vllm --config.vllm.model=MODEL --config.vllm.tensor_parallel_size=8

Hours for a 70B model and 500,000 pairs: `--config.dry_run` prints the conversations and an estimate, and asks nothing.
What comes out: DATASET/preference/NAME.npy, DATASET/annotations/NAME/ and summary.json in the workdir. See
docs/annotation.md. Variants: smoke (the same, seconds), quickstart, faithful (the published settings), minigrid (its own
lexicon: docs/results_minigrid.md).
"""

from __future__ import annotations

from ml_collections import ConfigDict, config_dict

from motif_jax.annotation import defaults
from motif_jax.support.config import all_compat_on, compat, unknown_variant

VARIANTS = ("", "smoke", "quickstart", "faithful", "minigrid")


def get_config(variant: str | None = None) -> ConfigDict:
    """The annotate stage's config."""
    variant = variant or ""
    if variant not in VARIANTS:
        raise unknown_variant(variant, VARIANTS)
    config = ConfigDict()
    config.stage = "annotate"
    config.seed = 0
    config.dataset_dir = ""
    # Answers of all runs: what is in it is never asked again.
    config.store_dir = "runs/answer_store"
    # score, return, random, lexicon; with a language model: vllm, openai; module:Class of your own.
    config.annotator = "lexicon"
    # defaultgoal, zeroknowledge, combat, gold, stairs.
    config.goal = "defaultgoal"
    # Name of the label file; empty: by the published scheme, such as llama70b_msg_defaultgoal_default.
    config.name = ""

    config.num_shards = 1
    config.shard_index = 0
    # Discard the labels of this name first. Answers in the store stay.
    config.restart = False
    # How often a question is asked at most while no verdict is found: 2 asks the unknown ones alone once more.
    config.attempts = 1
    # once: of (a, b) and (b, a) one is asked. given: as the pairs stand. both: both orders, averaged.
    config.orders = "once"
    config.captions = ConfigDict({"messages": True, "status": False})
    # Seconds between writes of answers that come in, and at most how many to ask in this run (a pilot).
    config.flush_seconds = 2.0
    config.limit = config_dict.placeholder(int)
    config.keep_conversations = False

    # Print the conversations of the first pairs and a cost estimate; ask nothing.
    config.dry_run = False
    config.dry_run_pairs = 2
    # Questions a second, for the estimate; without it the rate of the workdir's last run is taken.
    config.measured_rate = config_dict.placeholder(float)

    # default, reworded, or a prompt file of your own.
    config.prompt = ConfigDict({"version": "default", "file": ""})
    # analysis: free text, then the verdict (published). verdict: the verdict alone, by structured output.
    # soft: probabilities of the verdicts after a prefilled answer.
    config.answer = ConfigDict({"mode": "analysis", "retry": True})
    # soft: an answer whose three verdicts have less probability than this together is unknown.
    config.answer.minimum_mass = 0.05
    config.sampling = ConfigDict({"temperature": 0.1, "top_k": 50, "top_p": 0.95, "max_tokens": 4096})
    # Every question gets a seed of its own, derived from config.seed; False: unseeded, a little faster on a GPU.
    config.sampling.seeded = True
    # The lexicon: a YAML file, or the name of a built-in one, nethack.yaml, minigrid.yaml or comments.yaml; empty: nethack.yaml.
    config.lexicon = ConfigDict({"file": ""})
    # vLLM in process, and any server that speaks the OpenAI protocol.
    config.vllm = defaults.vllm()
    config.openai = defaults.openai()
    config.compat = compat("answer_first_match")
    if variant == "faithful":
        config.orders = "given"
        config.annotator = "vllm"
        config.vllm.model = "meta-llama/Llama-2-70b-chat-hf"
        config.vllm.tensor_parallel_size = 8
        all_compat_on(config)
    if variant == "minigrid":
        config.lexicon.file = "minigrid.yaml"
    return config
