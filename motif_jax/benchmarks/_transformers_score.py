"""Scores of actions as the released code of GLAM computes them, the other side of `score`.

transformers' T5 in PyTorch runs the encoder once for each prompt. Its decoder has a row for every
action, which reads the prompt's states anew. It computes in float32, as released, whatever the
dtype of ours.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from motif_jax.core.errors import UserError

if TYPE_CHECKING:
    from motif_jax.lm.config import ModelConfig


def require(shape: Mapping[str, Any]) -> None:
    """Raises UserError where the shape (the content of config.json) is no T5's, or PyTorch or
    transformers is not installed.
    """
    if shape["model_type"] != "t5":
        raise UserError(
            f"config.options.torch=True: the other side has no {shape['model_type']}, only T5"
        )
    _modules()


def _modules() -> tuple[Any, Any]:
    try:
        import torch
        import transformers
    except ImportError as error:
        raise UserError(
            f"config.options.torch=True: {error.name} is not installed here; bash launch/setup_examples.sh makes .venv-examples, which has both"
        ) from None
    return torch, transformers


def write_checkpoint(
    folder: Path, shape: Mapping[str, Any], config: ModelConfig, params: Any
) -> None:
    """Writes a model as transformers opens it.

    Args:
      shape: the content of config.json.
      params: of a `LanguageModel` of this shape.
    """
    # Here, since it imports jax: the class below is used without it.
    from motif_jax.lm import weights

    weights.save(folder, params, config)
    (folder / "config.json").write_text(json.dumps(shape), encoding="utf-8")


class TransformersScorer:
    """transformers' T5 in float32 with the weights of a folder, as `write_checkpoint` leaves it."""

    def __init__(self, folder: Path) -> None:
        self._torch, transformers = _modules()
        model = transformers.T5ForConditionalGeneration.from_pretrained(
            folder, dtype=self._torch.float32
        )
        self._model = model.eval()

    def scoring(
        self, prompts: np.ndarray, valid: np.ndarray, candidates: np.ndarray
    ) -> Callable[[], np.ndarray]:
        """A call that scores candidates int [B, N, S] after prompts int [B, T], `valid` bool
        [B, T]: log-probabilities float32 [B, N].
        """
        torch = self._torch
        prompt_tokens = torch.tensor(prompts, dtype=torch.int64)
        mask = torch.tensor(valid)
        words = torch.tensor(candidates, dtype=torch.int64)
        batch, count, length = words.shape
        rows = words.reshape(batch * count, length)
        start = torch.full((len(rows), 1), self._model.config.decoder_start_token_id)
        # The decoder reads before each token the one in front of it, at first its start token.
        inputs = torch.cat([start, rows[:, :-1]], dim=1)

        def call() -> np.ndarray:
            with torch.inference_mode():
                states = self._model.encoder(
                    input_ids=prompt_tokens, attention_mask=mask
                ).last_hidden_state
                logits = self._model(
                    encoder_outputs=(states.repeat_interleave(count, dim=0),),
                    attention_mask=mask.repeat_interleave(count, dim=0),
                    decoder_input_ids=inputs,
                    use_cache=False,
                ).logits
                log_probs = torch.log_softmax(logits, dim=-1).gather(-1, rows[..., None])
            return log_probs.sum(dim=(1, 2)).reshape(batch, count).numpy()

        return call
