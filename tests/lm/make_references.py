"""Writes references.npz and shapes.json: what transformers makes of the checkpoints in recipes.py.

.venv-vllm/bin/python tests/lm/make_references.py FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

sys.path.insert(0, str(Path(__file__).parent))
import recipes


def build(name: str) -> Any:
    values = dict(recipes.CONFIGS[name])
    kind = values.pop("model_type")
    config = transformers.AutoConfig.for_model(kind, attn_implementation="eager", **values)
    model = getattr(transformers, recipes.CLASSES[name])(config).eval()
    if name == "t5_gated":  # with a head of its own, as the files of T5 v1.1 have it
        model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.shared.weight))
    with torch.no_grad():
        for key, parameter in named(model, name).items():
            parameter.copy_(torch.tensor(recipes.tensor(key, tuple(parameter.shape))))
    return model


def named(model: Any, name: str) -> dict[str, Any]:
    """Parameters under the names of a saved file, tied ones once."""
    prefix = "roberta." if name == "roberta" else ""
    return {prefix + key: p for key, p in model.named_parameters() if "pooler" not in key}


def call(model: Any, name: str, valid: torch.Tensor, tokens: torch.Tensor, **more: Any) -> Any:
    """Runs a model on padded tokens, positions counted from the first that is no padding."""
    attention = valid.long()
    if name.startswith("t5"):
        start = torch.zeros((len(tokens), 1), dtype=torch.long)
        decoder = torch.cat([start, tokens[:, : recipes.DECODER_LENGTH - 1]], dim=1)
        return model(input_ids=tokens, attention_mask=attention, decoder_input_ids=decoder, **more)
    if name == "roberta":
        return model(
            input_ids=torch.where(valid, tokens, torch.tensor(1)), attention_mask=attention, **more
        )
    positions = (attention.cumsum(1) - 1).clamp(min=0)
    return model(input_ids=tokens, attention_mask=attention, position_ids=positions, **more)


def states_of(out: Any, name: str) -> torch.Tensor:
    if name == "roberta":
        return out.last_hidden_state
    return (out.decoder_hidden_states if name.startswith("t5") else out.hidden_states)[-1]


def last_block(model: Any, name: str) -> Any:
    if name.startswith("t5"):
        return model.decoder.block[-1]
    return model.transformer.h[-1] if name == "gpt2" else model.model.layers[-1]


def outputs(model: Any, name: str) -> dict[str, np.ndarray]:
    arrays = {}
    tokens = torch.tensor(recipes.tokens())
    before = []
    if name != "roberta":  # which has no norm at its end
        hook = last_block(model, name).register_forward_hook(
            lambda _, __, out: before.append(out[0] if isinstance(out, tuple) else out)
        )
    for side in recipes.SIDES:
        out = call(model, name, torch.tensor(recipes.mask(side)), tokens, output_hidden_states=True)
        arrays[f"{side}/states"] = states_of(out, name)
        if name.startswith("t5"):
            arrays[f"{side}/encoded"] = out.encoder_last_hidden_state
        if name != "roberta":
            arrays[f"{side}/logits"] = out.logits
            arrays[f"{side}/before"] = before.pop()
    if name != "roberta":
        hook.remove()
    return {key: value.detach().numpy() for key, value in arrays.items()}


def dropped(model: Any, name: str) -> dict[str, np.ndarray]:
    """States while training, with a pattern in the place of what dropout draws."""
    real = torch.nn.functional.dropout

    def stand_in(x: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        return x * torch.tensor(recipes.pattern(x.shape[-1], p)) if training else x

    torch.nn.functional.dropout = stand_in
    try:
        left = torch.tensor(recipes.mask("left"))
        tokens = torch.tensor(recipes.tokens())
        out = call(model.train(), name, left, tokens, output_hidden_states=True)
    finally:
        torch.nn.functional.dropout = real
        model.eval()
    return {"dropped": states_of(out, name).detach().numpy()}


def written(model: Any, name: str) -> dict[str, np.ndarray]:
    tokens = torch.tensor(recipes.tokens())
    attention = torch.tensor(recipes.mask("left")).long()
    drop = 1 if name.startswith("t5") else recipes.LENGTH
    common = {"attention_mask": attention, "do_sample": False, "pad_token_id": 0}
    common |= {"max_new_tokens": recipes.MAX_NEW_TOKENS}
    free = model.generate(tokens, eos_token_id=None, **common)[:, drop:]
    stop = int(free[0, 3])  # a token that really comes, so that rows end at different places
    greedy = model.generate(tokens, eos_token_id=stop, **common)[:, drop:]
    more = {
        "num_beams": recipes.BEAMS,
        "num_return_sequences": recipes.BEAMS,
        "output_scores": True,
    }
    beams = model.generate(
        tokens, eos_token_id=stop, return_dict_in_generate=True, **more, **common
    )
    arrays = {
        "stop": np.array(stop),
        "greedy": greedy.numpy(),
        "beams": beams.sequences[:, drop:].numpy(),
    }
    return {**arrays, "beam_scores": beams.sequences_scores.numpy()}


def score_gradient(model: Any, name: str) -> dict[str, np.ndarray]:
    """Gradients of the summed log-probability of the last two tokens after the others (RoBERTa: of
    the first states' sum).
    """
    tokens = torch.tensor(recipes.tokens())
    if name == "roberta":
        model(input_ids=tokens).last_hidden_state[:, 0, :5].sum().backward()
        return {"gradient_norms": gradient_norms(model, name)}
    if name.startswith("t5"):
        start = torch.zeros((recipes.BATCH, 1), dtype=torch.long)
        decoder = torch.cat([start, tokens[:, -2:-1]], dim=1)
        logits = model(input_ids=tokens[:, :-2], decoder_input_ids=decoder).logits
    else:
        logits = model(input_ids=tokens[:, :-1]).logits[:, -2:]
    chosen = torch.log_softmax(logits, -1).gather(-1, tokens[:, -2:, None])
    chosen.sum().backward()
    table = model.get_input_embeddings().weight.grad
    arrays = {"score": chosen[..., 0].sum(-1).detach().numpy(), "score_gradient": table.numpy()}
    return arrays | {"gradient_norms": gradient_norms(model, name)}


def gradient_norms(model: Any, name: str) -> np.ndarray:
    """One number a tensor, in the order of their names."""
    tensors = named(model, name)
    return np.array([tensors[key].grad.norm() for key in sorted(tensors)], np.float32)


def main(folder: Path) -> None:
    arrays = {}
    shapes = {}
    for name in recipes.CONFIGS:
        model = build(name)
        shapes[name] = {key: list(p.shape) for key, p in named(model, name).items()}
        references = outputs(model, name) | dropped(model, name) | score_gradient(model, name)
        if name != "roberta":
            references |= written(model, name)
        arrays |= {f"{name}/{key}": value for key, value in references.items()}
    folder.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(folder / "references.npz", **arrays)
    (folder / "shapes.json").write_text(json.dumps(shapes, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
