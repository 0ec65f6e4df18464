"""Writes what transformers makes of a real GGUF file: tokens of varied texts, logits after prompts,
and greedy continuations.

PYTHON tests/lm/make_real_reference.py FILE.gguf OUT.json [LOGITS.npz]

PYTHON is of an environment with transformers 5.24, torch, accelerate and gguf.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers
from tokenizers import Regex, pre_tokenizers

sys.path.insert(0, str(Path(__file__).parent))
from varied_texts import varied_texts

PROMPTS = (
    "You kill the newt! You see here",
    "The capital of France is",
    "def add(a, b):\n    return",
    "Once upon a time, in a dungeon far below the village,",
    "1 2 3 4 5 6",
)
# Longer than the window of Gemma 3.
LONG = " ".join(f"{number} newts" for number in range(400))
TOKENS = 24
BEST = 5


def with_words_of_file(tokenizer: Any, file: Path) -> Any:
    """The tokenizer with the words that `tokenizer.ggml.pre` names: transformers takes its
    architecture's, whatever it says.

    llama.cpp cuts texts for `smollm` at every \\p{N} first.
    """
    field = gguf.GGUFReader(file).get_field("tokenizer.ggml.pre")
    if field is not None and field.contents() == "smollm":
        cut = pre_tokenizers.Split(Regex(r"\p{N}"), "isolated")
        words = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([cut, words])
    return tokenizer


def main(file: Path, out: Path, arrays: Path | None) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    tokenizer = with_words_of_file(tokenizer, file)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        file.parent,
        gguf_file=file.name,
        dtype=torch.float32,
        quantization_config=transformers.GgufConfig(dequantize=True),
        attn_implementation="eager",
    ).eval()
    reference: dict[str, object] = {
        "tokens": [tokenizer(text)["input_ids"] for text in varied_texts()],
        "prompts": [],
    }
    logits = {}
    for prompt in (*PROMPTS, LONG):
        rows = tokenizer(prompt, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            logits[prompt] = model(input_ids=rows).logits[0].numpy()
        log_probs = torch.log_softmax(torch.tensor(logits[prompt]), -1)
        best = log_probs[-1].topk(BEST)
        about = {
            "prompt": prompt,
            "log_prob": float(log_probs[:-1].gather(-1, rows[0, 1:, None]).sum()),
            "best": dict(zip(map(str, best.indices.tolist()), best.values.tolist(), strict=True)),
        }
        if prompt != LONG:
            options = {
                "max_new_tokens": TOKENS,
                "do_sample": False,
                "eos_token_id": None,
                "pad_token_id": 0,
            }
            written = model.generate(rows, attention_mask=torch.ones_like(rows), **options)
            about["greedy"] = written[0, rows.shape[1] :].tolist()
        reference["prompts"].append(about)
    out.write_text(json.dumps(reference, indent=1) + "\n")
    if arrays is not None:
        np.savez(arrays, **{str(number): logits[prompt] for number, prompt in enumerate(logits)})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]) if len(sys.argv) > 3 else None)
