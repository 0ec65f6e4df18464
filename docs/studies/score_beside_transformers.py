"""Scores of actions beside GLAM's released code: prompts a second of both, with the same weights,
in turns. The rows of docs/performance.md that name transformers are of this script.

    python docs/studies/score_beside_transformers.py --prompt-tokens=360 --repeats=9

transformers' T5 in PyTorch runs the encoder once for each prompt. Its decoder has a row for every
action, which reads the prompt's states anew. It computes in float32, as released, whatever the
dtype of ours. Prompts are those of `configs/benchmark.py:score`. transformers is no dependency of
this package: .venv-examples has it (launch/setup_examples.sh). Prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from motif_jax import benchmarks
from motif_jax.benchmarks import _language, score
from motif_jax.benchmarks._language import Subject
from motif_jax.core import resources
from motif_jax.core.files import finite
from motif_jax.lm import weights


def open_in_transformers(shape: dict[str, Any], subject: Subject) -> Any:
    """transformers' T5 in float32 with the weights of `subject`; `shape` is the content of
    config.json.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        weights.save(folder, subject.params, subject.model.config)
        (folder / "config.json").write_text(json.dumps(shape), encoding="utf-8")
        model = transformers.T5ForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
    return model.eval()


def scoring(model: Any, subject: Subject) -> Callable[[], np.ndarray]:
    """A call that scores the candidates [B, N, S] of `subject` after its prompts:
    log-probabilities float32 [B, N].
    """
    prompt_tokens = torch.tensor(np.asarray(subject.prompt), dtype=torch.int64)
    mask = torch.tensor(np.asarray(subject.valid))
    words = torch.tensor(np.asarray(subject.candidates), dtype=torch.int64)
    batch, count, length = words.shape
    rows = words.reshape(batch * count, length)
    start = torch.full((len(rows), 1), model.config.decoder_start_token_id)
    # The decoder reads before each token the one in front of it, at first its start token.
    inputs = torch.cat([start, rows[:, :-1]], dim=1)

    def call() -> np.ndarray:
        with torch.inference_mode():
            states = model.encoder(input_ids=prompt_tokens, attention_mask=mask).last_hidden_state
            logits = model(
                encoder_outputs=(states.repeat_interleave(count, dim=0),),
                attention_mask=mask.repeat_interleave(count, dim=0),
                decoder_input_ids=inputs,
                use_cache=False,
            ).logits
            log_probs = torch.log_softmax(logits, dim=-1).gather(-1, rows[..., None])
        return log_probs.sum(dim=(1, 2)).reshape(batch, count).numpy()

    return call


def line_of(options: dict[str, Any], repeats: int) -> dict[str, Any]:
    """Both sides' prompts a second: the fields of a benchmark's line; `options` are those of
    `configs/benchmark.py:score`.
    """
    config = resources.config("benchmark", "score")
    config.repeats = repeats
    config.options.update(options)
    subject = _language.subject(config)
    arguments = (subject.params, subject.prompt, subject.valid, subject.candidates)
    model = open_in_transformers(_language.SHAPES[config.options.model], subject)
    calls = {
        "ours": _language.compiled(score.shared(subject), *arguments),
        "transformers": scoring(model, subject),
    }
    totals = {name: np.asarray(call()) for name, call in calls.items()}
    apart = np.abs(totals["ours"] - totals["transformers"]).max()
    rates = _language.rates(config, calls, config.options.batch_size)
    return benchmarks.result(
        config,
        "prompts/s",
        rates["ours"],
        f"transformers {transformers.__version__}, each prompt encoded once",
        rates["transformers"],
        # Relative to the largest score of the other side.
        scores_apart=float(apart / np.abs(totals["transformers"]).max()),
        threads=_language.usable_cores(),
    )


def main() -> None:
    """Prints the line of the command line's sizes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    t5s = [name for name, shape in _language.SHAPES.items() if shape["model_type"] == "t5"]
    parser.add_argument("--model", choices=t5s, default="flan_t5_small")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--prompt-tokens", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=5)
    chosen = parser.parse_args()
    options = {
        "model": chosen.model,
        "dtype": chosen.dtype,
        "prompt_tokens": chosen.prompt_tokens,
        "baseline": False,
    }
    print(json.dumps(finite(line_of(options, chosen.repeats)), allow_nan=False))


if __name__ == "__main__":
    main()
