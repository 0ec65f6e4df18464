"""Annotate the pairs of a dataset with preferences.

    python -m motif_jax.launch --config=configs/annotate.py --workdir=runs/annotate \\
        --config.dataset_dir=DATASET

asks the lexicon (a stand-in for a language model, seconds). A small language model in this process,
on a laptop; with `--config.probe=True` first pairs with a known answer:

    python -m motif_jax.launch --config=configs/annotate.py --workdir=runs/annotate \\
        --config.dataset_dir=DATASET --config.annotator=model --config.model.model=FOLDER

A large one, 8 GPUs:

    python -m motif_jax.launch --config=configs/annotate.py --workdir=runs/annotate \\
        --config.dataset_dir=DATASET --config.annotator=vllm --config.vllm.model=MODEL \\
        --config.vllm.tensor_parallel_size=8

Hours for a 70B model and 500,000 pairs: `--config.dry_run` prints the conversations and an
estimate, and asks nothing. Writes DATASET/preference/NAME.npy, DATASET/annotations/NAME/ and
summary.json in the workdir. See docs/annotation.md. Variants: smoke (the same, seconds),
quickstart, faithful (the published settings), minigrid (its own lexicon: docs/studies/minigrid.md),
crafter (its lexicon and its goal, which a language model is told, too), laptop (vLLM's CPU build
with a small model: one token an answer, in both orders).
"""

from motif_jax.core import compat
from motif_jax.motif.annotation.config import AnnotationConfig
from motif_jax.schema import configs, section_keys

KEYS = {
    "stage": "annotate",
    **section_keys(AnnotationConfig),
    "compat": compat.switches("answer_first_match"),
}
VARIANTS = {
    "smoke": {},
    "quickstart": {},
    "faithful": {
        **compat.switched_on(*KEYS["compat"]),
        "orders": "given",
        "prompt.version": "default",
        "answer.mode": "analysis",
        "annotator": "vllm",
        "vllm": {"model": "meta-llama/Llama-2-70b-chat-hf", "tensor_parallel_size": 8},
    },
    "minigrid": {"lexicon.file": "minigrid.yaml"},
    "crafter": {"lexicon.file": "crafter.yaml", "goal": "crafter"},
    "laptop": {
        "annotator": "vllm",
        "answer.mode": "soft",
        "orders": "both",
        "prompt.version": "small",
        "vllm": {
            # Averages of two orders are right more often by float32's probabilities than by
            # bfloat16's, which are coarse.
            "dtype": "float32",
            "enforce_eager": True,
            "max_model_len": 2048,
            "max_num_seqs": 16,
            # Of larger blocks no prompt of this length shares one with another.
            "block_size": 32,
            "kv_cache_memory_bytes": 1 << 30,
        },
    },
}
get_config = configs(KEYS, VARIANTS)
