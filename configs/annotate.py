"""Annotate the pairs of a dataset with preferences.

    python -m motif_jax.launch --config=configs/annotate.py --workdir=runs/annotate --config.dataset_dir=DATASET

asks the lexicon (a stand-in for a language model, seconds). A language model in process, 8 GPUs:

    python -m motif_jax.launch --config=configs/annotate.py --workdir=runs/annotate --config.dataset_dir=DATASET \
        --config.annotator=vllm --config.vllm.model=MODEL --config.vllm.tensor_parallel_size=8

Hours for a 70B model and 500,000 pairs: `--config.dry_run` prints the conversations and an estimate, and asks nothing.
Writes DATASET/preference/NAME.npy, DATASET/annotations/NAME/ and summary.json in the workdir. See
docs/annotation.md. Variants: smoke (the same, seconds), quickstart, faithful (the published settings), minigrid (its own
lexicon: docs/results_minigrid.md).
"""

from motif_jax import sections
from motif_jax.schema import Key, configs, keys, natural, one_of, positive
from motif_jax.sections import annotators

KEYS = {
    "stage": "annotate",
    "seed": sections.SEED,
    "dataset_dir": Key("", "folder of a pairs dataset"),
    "store_dir": annotators.STORE_DIR,
    "annotator": Key(
        "lexicon", "score, return, random, lexicon, a model by vllm or openai, or module:Class of your own"
    ),
    "goal": annotators.GOAL,
    "name": Key("", "of the label file; empty: the published scheme, llama70b_msg_defaultgoal_default"),
    "num_shards": positive(1, "parts of the dataset, each a command of its own"),
    "shard_index": natural(0, "which part this command does, below num_shards"),
    "restart": Key(False, "discards the labels of this name first; answers in the store stay"),
    "attempts": positive(1, "times that a question is asked at most, until an answer has a verdict"),
    "orders": one_of(
        ("once", "given", "both"),
        "once: asks one of (a, b) and (b, a). given: asks in the dataset's order. both: asks both, averaged",
    ),
    "captions": {"messages": Key(True, "shows messages"), "status": Key(False, "shows the status line")},
    "flush_seconds": natural(2.0, "between writes of new answers"),
    "limit": positive(None, "questions of this run at most, for a pilot; None: all", int),
    "keep_conversations": annotators.KEEP_CONVERSATIONS,
    "dry_run": Key(False, "prints the conversations of the first pairs and a cost estimate; asks nothing"),
    "dry_run_pairs": positive(2, "pairs whose conversations dry_run prints"),
    "measured_rate": positive(None, "questions a second, for the estimate; None: the last run's", float),
    "prompt": keys(annotators.PromptChoice),
    "answer": keys(annotators.AnswerMode),
    "sampling": keys(annotators.AnswerSampling),
    "lexicon": keys(annotators.LexiconFile),
    "vllm": keys(annotators.VllmEngine),
    "openai": keys(annotators.OpenaiServer),
    "compat": sections.compat("answer_first_match"),
}
VARIANTS = {
    "smoke": {},
    "quickstart": {},
    "faithful": {
        **sections.on(*KEYS["compat"]),
        "orders": "given",
        "annotator": "vllm",
        "vllm": {"model": "meta-llama/Llama-2-70b-chat-hf", "tensor_parallel_size": 8},
    },
    "minigrid": {"lexicon.file": "minigrid.yaml"},
}
get_config = configs(KEYS, VARIANTS)
