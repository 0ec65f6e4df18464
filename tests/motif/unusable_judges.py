"""Changes of a folder that make its model of no use as a judge."""

from __future__ import annotations

import json

from safetensors.numpy import load_file, save_file

from tests import made_up_judge


def changed_config(folder, **values) -> None:
    """Changes entries of a folder's config.json."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def with_pickled_weights(folder) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def with_yarn(folder) -> None:
    changed_config(folder, rope_parameters={"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4})


def with_dynamic_positions(folder) -> None:
    changed_config(
        folder, rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}
    )


def of_another_type(folder) -> None:
    changed_config(folder, model_type="mamba")


def with_a_misfit_of_the_head(folder) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    tensors["lm_head.weight"] = tensors["lm_head.weight"][:-1]
    save_file(tensors, path)


def without_a_tokenizer_of_ours(folder) -> None:
    (folder / "tokenizer.json").unlink()


def with_a_broken_template(folder) -> None:
    (folder / "chat_template.jinja").write_text("{% for %}")


def with_a_small_vocabulary(folder) -> None:
    backend = made_up_judge.tokenizer()
    backend.add_tokens(["more"])
    backend.save(str(folder / "tokenizer.json"))
