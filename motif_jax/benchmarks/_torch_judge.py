"""The judge's questions by plain torch, the other side of `judge` and `judge_memory`: a Llama or
Qwen2 decoder, with the beginning of all prompts run once.

It does without jax, so that a process of its own takes the memory of plain torch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from motif_jax.core.config import flat
from motif_jax.core.errors import UserError

if TYPE_CHECKING:
    from motif_jax.lm.model import LanguageModel

# Files of a decoder that a process without jax reads.
_WEIGHTS, _SHAPE = "decoder.safetensors", "decoder.json"
# Keys and values of one layer, [N, G, K, D] each.
KeyValues = tuple[Any, Any]


def torch() -> Any:
    """The module. Raises UserError where it is not installed: it is not a dependency of this
    package.
    """
    try:
        import torch as module
    except ImportError:
        raise UserError(
            "config.options.torch=True: torch is not installed here; install its CPU build in an environment of its own"
        ) from None
    return module


class DecoderShape(NamedTuple):
    """What `TorchJudge` knows of a decoder beside its weights.

    Attributes:
      rotary_theta: base of the rotary positions' frequencies.
      tied: the head is the table of embeddings.
      output_major: kernels are [out, in].
    """

    layers: int
    heads: int
    key_value_heads: int
    head_width: int
    norm_epsilon: float
    rotary_theta: float
    tied: bool
    output_major: bool


def decoder_shape(model: LanguageModel) -> DecoderShape:
    """The shape of a model. Raises UserError where torch's side does not have its architecture."""
    config = model.config
    if config.architecture not in ("llama", "qwen2"):
        raise UserError(
            f"config.options.torch=True: torch's side has no {config.architecture}, only Llama and Qwen2"
        )
    assert config.rotary is not None
    return DecoderShape(
        layers=config.layers,
        heads=config.heads,
        key_value_heads=config.key_value_heads,
        head_width=config.head_width,
        norm_epsilon=config.norm_epsilon,
        rotary_theta=config.rotary.theta,
        tied=config.tied,
        output_major=model.output_major,
    )


def tensors(params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as torch's tensors, which are copies, in the same tree."""
    return {
        name: tensors(value) if isinstance(value, Mapping) else _tensor(value)
        for name, value in params.items()
    }


def _tensor(array: Any) -> Any:
    module = torch()
    if array.dtype == "bfloat16":  # numpy has no such type that torch knows
        bits = np.array(array).view(np.int16)
        return module.from_numpy(bits).view(module.bfloat16)
    return module.from_numpy(np.array(array))


def write(folder: Path, shape: DecoderShape, params: Mapping[str, Any]) -> None:
    """Writes a decoder and its parameters, as `tensors` gives them, for a process without jax."""
    from safetensors.torch import save_file

    save_file(flat(params), folder / _WEIGHTS)
    (folder / _SHAPE).write_text(json.dumps(shape._asdict()), encoding="utf-8")


def read(folder: Path) -> tuple[DecoderShape, dict[str, Any]]:
    """What `write` has written."""
    from safetensors.torch import load_file

    params: dict[str, Any] = {}
    for name, tensor in load_file(folder / _WEIGHTS).items():
        *parents, leaf = name.split(".")
        tree = params
        for parent in parents:
            tree = tree.setdefault(parent, {})
        tree[leaf] = tensor
    return DecoderShape(**json.loads((folder / _SHAPE).read_text(encoding="utf-8"))), params


class TorchJudge:
    """Log-probabilities of groups of tokens after rows of one length that share a beginning.

    Args:
      params: of the model, as `tensors` gives them; their dtype is that of the computation.
    """

    def __init__(
        self,
        shape: DecoderShape,
        params: Mapping[str, Any],
        groups: Sequence[Sequence[int]],
        shared: Sequence[int],
        batch: int,
    ) -> None:
        self._torch = torch()
        self._shape = shape
        self._groups = groups
        self._shared = list(shared)
        self._batch = batch
        self._params = params

    def answering(self, rows: Sequence[Sequence[int]]) -> Callable[[], np.ndarray]:
        """A call that answers all rows, which begin with the shared tokens: float32
        [rows, groups].
        """
        module = self._torch
        own_tokens = module.tensor([row[len(self._shared) :] for row in rows])
        with module.inference_mode():
            # Once: the calls begin behind it.
            prefix = self._run(module.tensor([self._shared]), None)[1]

        def call() -> np.ndarray:
            parts = []
            with module.inference_mode():
                for start in range(0, len(rows), self._batch):
                    parts.append(self._log_probs(own_tokens[start : start + self._batch], prefix))
            return module.cat(parts).numpy()

        return call

    def _log_probs(self, tokens: Any, prefix: Sequence[KeyValues]) -> Any:
        states, _ = self._run(tokens, prefix)
        if self._shape.tied:
            head = self._params["embedding"]
        else:
            head = self._by_output(self._params["head"]["kernel"])
        logits = self._torch.nn.functional.linear(states[:, -1], head).float()
        log_probs = self._torch.log_softmax(logits, dim=-1)
        chosen = [
            self._torch.logsumexp(log_probs[:, list(group)], dim=-1) for group in self._groups
        ]
        return self._torch.stack(chosen, dim=-1)

    def _run(self, tokens: Any, prefix: Sequence[KeyValues] | None) -> tuple[Any, list[KeyValues]]:
        """States [N, S, width] after the last norm of tokens [N, S] that follow the prefix, and
        their keys of all layers.
        """
        decoder = self._params["decoder"]
        start = 0 if prefix is None else prefix[0][0].shape[2]
        turns = self._turns(start, tokens.shape[1])
        x = self._torch.nn.functional.embedding(tokens, self._params["embedding"])
        keys = []
        for layer in range(self._shape.layers):
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
        normed = wide * self._torch.rsqrt(
            wide.square().mean(-1, keepdim=True) + self._shape.norm_epsilon
        )
        return (normed * params["scale"].float()).to(x.dtype)

    def _linear(self, x: Any, params: Mapping[str, Any]) -> Any:
        kernel = self._by_output(params["kernel"])
        return self._torch.nn.functional.linear(x, kernel, params.get("bias"))

    def _by_output(self, kernel: Any) -> Any:
        """A kernel as [out, in]."""
        return kernel if self._shape.output_major else kernel.T

    def _feed_forward(self, params: Mapping[str, Any], x: Any) -> Any:
        gate = self._torch.nn.functional.silu(self._linear(x, params["activated"]))
        return self._linear(gate * self._linear(x, params["factor"]), params["down"])

    def _turns(self, start: int, length: int) -> tuple[Any, Any]:
        """Cosines and sines float32 [S, D] of rotary positions from `start` on."""
        width = self._shape.head_width
        frequencies = 1 / self._shape.rotary_theta ** (self._torch.arange(0, width, 2) / width)
        angles = self._torch.arange(start, start + length)[:, None] * frequencies
        both_halves = self._torch.cat([angles, angles], dim=-1)
        return both_halves.cos(), both_halves.sin()

    def _rotated(self, x: Any, turns: tuple[Any, Any]) -> Any:
        cosine, sine = turns
        first, second = x.float().chunk(2, dim=-1)
        # (x1, x2) becomes (x1 cos - x2 sin, x2 cos + x1 sin).
        across = self._torch.cat([-second, first], dim=-1)
        return (x.float() * cosine + across * sine).to(x.dtype)

    def _attention(
        self, params: Mapping[str, Any], x: Any, turns: tuple[Any, Any], prefix: KeyValues | None
    ) -> tuple[Any, KeyValues]:
        rows, length, _ = x.shape

        def heads(name: str, count: int) -> Any:
            return self._linear(x, params[name]).view(rows, length, count, -1).transpose(1, 2)

        query = self._rotated(heads("query", self._shape.heads), turns)
        keys = self._rotated(heads("key", self._shape.key_value_heads), turns)
        values = heads("value", self._shape.key_value_heads)
        fresh = (keys, values)
        before = 0
        if prefix is not None:
            before = prefix[0].shape[2]
            keys = self._torch.cat([prefix[0].expand(rows, -1, -1, -1), keys], dim=2)
            values = self._torch.cat([prefix[1].expand(rows, -1, -1, -1), values], dim=2)
        # A token sees the whole prefix, and of its own row the tokens up to itself.
        visible = self._torch.ones(length, before + length, dtype=self._torch.bool).tril(before)
        looked = self._torch.nn.functional.scaled_dot_product_attention(
            query, keys, values, attn_mask=visible, enable_gqa=True
        )
        return self._linear(
            looked.transpose(1, 2).reshape(rows, length, -1), params["output"]
        ), fresh
