"""A language model as the judge, beside plain torch: questions a second of both, with the same
weights, in turns. The rows of docs/performance.md that name torch are of this script.

    python docs/studies/judge_beside_torch.py MODEL --dtype=bfloat16 --repeats=9

MODEL is a folder, a GGUF file or a hub name of a Llama or Qwen2. Questions are those of
`configs/benchmark.py:judge`. On both sides what all of them begin with is run once; on ours so is
what several begin with. torch is no dependency of this package: .venv-examples has it
(launch/setup_examples.sh). Prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from motif_jax import benchmarks
from motif_jax.benchmarks import _language, judge
from motif_jax.core import resources
from motif_jax.core.files import finite
from motif_jax.lm.model import LanguageModel
from motif_jax.lm.next_token import NextToken

# Keys and values of one layer, [N, G, K, D] each.
KeyValues = tuple[Any, Any]


def tensors(params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as torch's tensors, which are copies, in the same tree."""
    return {
        name: tensors(value) if isinstance(value, Mapping) else _tensor(value)
        for name, value in params.items()
    }


def _tensor(array: Any) -> torch.Tensor:
    if array.dtype == "bfloat16":  # numpy has no such type that torch knows
        bits = np.array(array).view(np.int16)
        return torch.from_numpy(bits).view(torch.bfloat16)
    return torch.from_numpy(np.array(array))


class TorchJudge:
    """Log-probabilities of groups of tokens after rows of one length that share a beginning.

    Args:
      model: a Llama or Qwen2; ValueError for another architecture.
      params: of the model, as `tensors` gives them; their dtype is that of the computation.
    """

    def __init__(
        self,
        model: LanguageModel,
        params: Mapping[str, Any],
        groups: Sequence[Sequence[int]],
        shared: Sequence[int],
        batch: int,
    ) -> None:
        if model.config.architecture not in ("llama", "qwen2"):
            raise ValueError(f"torch's side has no {model.config.architecture}")
        self._config = model.config
        self._output_major = model.output_major
        self._groups = groups
        self._shared = list(shared)
        self._batch = batch
        self._params = params

    def answering(self, rows: Sequence[Sequence[int]]) -> Callable[[], np.ndarray]:
        """A call that answers all rows, which begin with the shared tokens: float32
        [rows, groups].
        """
        own_tokens = torch.tensor([row[len(self._shared) :] for row in rows])
        with torch.inference_mode():
            # Once: the calls begin behind it.
            prefix = self._run(torch.tensor([self._shared]), None)[1]

        def call() -> np.ndarray:
            parts = []
            with torch.inference_mode():
                for start in range(0, len(rows), self._batch):
                    parts.append(self._log_probs(own_tokens[start : start + self._batch], prefix))
            return torch.cat(parts).numpy()

        return call

    def _log_probs(self, tokens: Any, prefix: Sequence[KeyValues]) -> Any:
        states, _ = self._run(tokens, prefix)
        if self._config.tied:
            head = self._params["embedding"]
        else:
            head = self._by_output(self._params["head"]["kernel"])
        logits = torch.nn.functional.linear(states[:, -1], head).float()
        log_probs = torch.log_softmax(logits, dim=-1)
        chosen = [torch.logsumexp(log_probs[:, list(group)], dim=-1) for group in self._groups]
        return torch.stack(chosen, dim=-1)

    def _run(self, tokens: Any, prefix: Sequence[KeyValues] | None) -> tuple[Any, list[KeyValues]]:
        """States [N, S, width] after the last norm of tokens [N, S] that follow the prefix, and
        their keys of all layers.
        """
        decoder = self._params["decoder"]
        start = 0 if prefix is None else prefix[0][0].shape[2]
        turns = self._turns(start, tokens.shape[1])
        x = torch.nn.functional.embedding(tokens, self._params["embedding"])
        keys = []
        for layer in range(self._config.layers):
            block = decoder[f"block_{layer}"]
            earlier = None if prefix is None else prefix[layer]
            looked, fresh = self._attention(
                block["attention"], self._norm(x, block["attention_norm"]), turns, earlier
            )
            keys.append(fresh)
            x = x + looked
            x = x + self._feed_forward(
                block["feed_forward"], self._norm(x, block["feed_forward_norm"])
            )
        return self._norm(x, decoder["final_norm"]), keys

    def _norm(self, x: Any, params: Mapping[str, Any]) -> Any:
        wide = x.float()
        # RMS norm, with its mean in float32.
        normed = wide * torch.rsqrt(
            wide.square().mean(-1, keepdim=True) + self._config.norm_epsilon
        )
        return (normed * params["scale"].float()).to(x.dtype)

    def _linear(self, x: Any, params: Mapping[str, Any]) -> Any:
        kernel = self._by_output(params["kernel"])
        return torch.nn.functional.linear(x, kernel, params.get("bias"))

    def _by_output(self, kernel: Any) -> Any:
        """A kernel as [out, in]."""
        return kernel if self._output_major else kernel.T

    def _feed_forward(self, params: Mapping[str, Any], x: Any) -> Any:
        gate = torch.nn.functional.silu(self._linear(x, params["activated"]))
        return self._linear(gate * self._linear(x, params["factor"]), params["down"])

    def _turns(self, start: int, length: int) -> tuple[Any, Any]:
        """Cosines and sines float32 [S, D] of rotary positions from `start` on."""
        width = self._config.head_width
        frequencies = 1 / self._config.rotary.theta ** (torch.arange(0, width, 2) / width)
        angles = torch.arange(start, start + length)[:, None] * frequencies
        both_halves = torch.cat([angles, angles], dim=-1)
        return both_halves.cos(), both_halves.sin()

    def _rotated(self, x: Any, turns: tuple[Any, Any]) -> Any:
        cosine, sine = turns
        first, second = x.float().chunk(2, dim=-1)
        # (x1, x2) becomes (x1 cos - x2 sin, x2 cos + x1 sin).
        across = torch.cat([-second, first], dim=-1)
        return (x.float() * cosine + across * sine).to(x.dtype)

    def _attention(
        self, params: Mapping[str, Any], x: Any, turns: tuple[Any, Any], prefix: KeyValues | None
    ) -> tuple[Any, KeyValues]:
        rows, length, _ = x.shape

        def heads(name: str, count: int) -> Any:
            return self._linear(x, params[name]).view(rows, length, count, -1).transpose(1, 2)

        query = self._rotated(heads("query", self._config.heads), turns)
        keys = self._rotated(heads("key", self._config.key_value_heads), turns)
        values = heads("value", self._config.key_value_heads)
        fresh = (keys, values)
        before = 0
        if prefix is not None:
            before = prefix[0].shape[2]
            keys = torch.cat([prefix[0].expand(rows, -1, -1, -1), keys], dim=2)
            values = torch.cat([prefix[1].expand(rows, -1, -1, -1), values], dim=2)
        # A token sees the whole prefix, and of its own row the tokens up to itself.
        visible = torch.ones(length, before + length, dtype=torch.bool).tril(before)
        looked = torch.nn.functional.scaled_dot_product_attention(
            query, keys, values, attn_mask=visible, enable_gqa=True
        )
        return self._linear(
            looked.transpose(1, 2).reshape(rows, length, -1), params["output"]
        ), fresh


def line_of(model: str, dtype: str, questions: int, repeats: int) -> dict[str, Any]:
    """Both sides' questions a second: the fields of a benchmark's line."""
    config = resources.config("benchmark", "judge")
    config.repeats = repeats
    config.options.update(model=model, dtype=dtype, questions=questions, baseline=False)
    chosen = config.options
    ours, params = judge.model_of(config)
    rng = np.random.default_rng(config.seed)
    shared = rng.integers(6, 64, chosen.shared_tokens).tolist()
    rows = judge.prompts(chosen, shared, rng)
    theirs = TorchJudge(ours, tensors(params), judge.VERDICTS, shared, chosen.batch)
    scorer = NextToken(ours, params, judge.VERDICTS, shared, chosen.batch)
    calls = {"ours": judge.answering(scorer, rows), "torch": theirs.answering(rows)}
    # Compiles ours, before the clock runs.
    answers = {name: call() for name, call in calls.items()}
    rates = _language.rates(config, calls, chosen.questions)
    return benchmarks.result(
        config,
        "questions/s",
        rates["ours"],
        f"the same weights in plain torch {torch.__version__}",
        rates["torch"],
        log_probabilities_apart=float(np.abs(answers["ours"] - answers["torch"]).max()),
        threads=_language.usable_cores(),
    )


def main() -> None:
    """Prints the line of the command line's model."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--questions", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=5)
    chosen = parser.parse_args()
    line = line_of(chosen.model, chosen.dtype, chosen.questions, chosen.repeats)
    print(json.dumps(finite(line), allow_nan=False))


if __name__ == "__main__":
    main()
