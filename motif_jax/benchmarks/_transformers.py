"""transformers as a benchmark's other side: reads questions, a JSON object a line, and answers each when it is done.

Run by its path with the Python of an environment that has torch and transformers; nothing else of this package is imported.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


class Side:
    """A model, its prompts and candidates."""

    def __init__(self, folder: str, kind: str, dtype: str, threads: int, device: str) -> None:
        import torch
        import transformers

        self.torch = torch
        torch.set_num_threads(threads)
        model = getattr(transformers, kind).from_pretrained(folder, dtype=getattr(torch, dtype))
        self.model, self.device = model.eval().to(device), device
        with np.load(Path(folder) / "inputs.npz") as inputs:
            self.prompt, self.candidates = (
                torch.tensor(inputs[name].astype(np.int64)).to(device) for name in ("prompt", "candidates")
            )
        self.attention = torch.ones_like(self.prompt)
        # Of a text agent: the trunks of its values beside the policy, and its heads.
        self.trunks, self.heads = [], {}
        if (Path(folder) / "heads.npz").is_file():
            for name in ("values", "target"):
                trunk = getattr(transformers, kind).from_pretrained(
                    Path(folder) / name, dtype=getattr(torch, dtype)
                )
                self.trunks.append(trunk.eval().to(device))
            with np.load(Path(folder) / "heads.npz") as heads:
                self.heads = {
                    name: torch.tensor(heads[name]).to(device, getattr(torch, dtype)) for name in heads.files
                }

    def score(self) -> Any:
        """Log-probabilities [B, N] of all candidates; an encoder's prompts are encoded once, and every row looks at its copy."""
        from transformers.modeling_outputs import BaseModelOutput

        torch, count = self.torch, self.candidates.shape[1]
        encoded = self.model.encoder(input_ids=self.prompt, attention_mask=self.attention)[0]
        rows = self.candidates.reshape(-1, self.candidates.shape[-1])
        start = torch.full_like(rows[:, :1], self.model.config.decoder_start_token_id)
        logits = self.model(
            encoder_outputs=BaseModelOutput(encoded.repeat_interleave(count, 0)),
            attention_mask=self.attention.repeat_interleave(count, 0),
            decoder_input_ids=torch.cat([start, rows[:, :-1]], dim=1),
            use_cache=False,
        ).logits
        chosen = torch.log_softmax(logits.float(), -1).gather(-1, rows[..., None])[..., 0]
        return chosen.sum(-1).reshape(self.candidates.shape[:2])

    def steered(self, new_tokens: int, weight: float, pad: int) -> Any:
        """Tokens [B, M], greedily by log pi + weight (Q - V), in the published order of work: one trunk after the other, with its cache,
        V and both online Qs of the second, both target Qs of the third, of every token."""
        torch, caches, new, found = self.torch, [None] * 3, self.prompt, []
        for _ in range(new_tokens):
            outputs = []
            for place, model in enumerate((self.model, *self.trunks)):
                out = model.transformer(new, past_key_values=caches[place], use_cache=True)
                caches[place] = out.past_key_values
                outputs.append(out.last_hidden_state[:, -1])
            logits = self.model.lm_head(outputs[0]).float()
            value = self._head("v", outputs[1])
            _ = self._head("q1", outputs[1]), self._head("q2", outputs[1])
            q = torch.minimum(self._head("target_q1", outputs[2]), self._head("target_q2", outputs[2]))
            logits = logits + weight * (q - value)
            logits[:, pad] = -torch.inf
            new = logits.argmax(-1, keepdim=True)
            found.append(new)
        return torch.cat(found, dim=1)

    def _head(self, name: str, states: Any) -> Any:
        weights = [
            self.heads[f"{name}.{layer}.{part}"]
            for layer in ("hidden_0", "output")
            for part in ("kernel", "bias")
        ]
        return (self.torch.relu(states @ weights[0] + weights[1]) @ weights[2] + weights[3]).float()

    def generate(self, new_tokens: int) -> Any:
        """Tokens [B, M], greedily, none of which ends a text."""
        found = self.model.generate(
            self.prompt,
            attention_mask=self.attention,
            do_sample=False,
            max_new_tokens=new_tokens,
            min_new_tokens=new_tokens,
            eos_token_id=None,
            pad_token_id=0,
        )
        return found[:, -new_tokens:]

    def rate(self, call: Callable[[], Any], seconds: float) -> float:
        """Calls a second, after one to warm up."""
        self.wait(call())
        count, elapsed, start = 0, 0.0, time.perf_counter()
        while not count or elapsed < seconds:
            self.wait(call())
            count, elapsed = count + 1, time.perf_counter() - start
        return count / elapsed

    def wait(self, value: Any) -> None:
        """Waits until the device has made `value`."""
        del value
        if self.device != "cpu":
            self.torch.cuda.synchronize()


def main() -> None:
    """Answers until the questions end: the first loads the model, the others measure, or ask for the result (seconds 0)."""
    # What a library prints must not stand among the answers.
    answers, sys.stdout = sys.stdout, sys.stderr
    side: Side | None = None
    for line in sys.stdin:
        question = json.loads(line)
        if side is None:
            side = Side(**question)
            answer: dict[str, Any] = {}
        else:
            seconds, name = question.pop("seconds"), question.pop("do")
            with side.torch.inference_mode():
                call = lambda: getattr(side, name)(**question)  # noqa: B023, E731 - called before the next question
                if seconds:
                    answer = {"calls_per_second": side.rate(call, seconds)}
                else:
                    answer = {"result": call().tolist()}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
