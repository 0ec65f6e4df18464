"""The stage that makes small language models: what it learns, on how many devices, and killed."""

from __future__ import annotations

import functools
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from motif_jax import language
from motif_jax.devices.parallel import DataParallel
from motif_jax.language import folder as folders
from motif_jax.language import masked_head, training
from motif_jax.language.finetune_params import Adaptation
from motif_jax.trainers import language_run
from motif_jax.trainers.task import TrainingPosition
from tests import texts
from tests.processes import REPOSITORY
from tests.stages.pretraining import SPANS, config_of, train

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("compiled_quickly")]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return texts.write(tmp_path_factory.mktemp("texts"))


@pytest.fixture(scope="module")
def trained(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a GPT-2 of wide enough layers for nf4."""
    return train(
        text,
        tmp_path_factory.mktemp("run") / "r",
        **{"model.width": 64, "tokenizer.vocab_size": 290, "steps": 30, "evaluate_every": 15},
    )


LEARNED: dict[str, tuple[str, dict[str, Any]]] = {
    "t5": ("t5", SPANS),
    "t5 of items": ("t5", {"objective": "prefix", "packing": "items"}),
    "roberta of items": ("roberta", {"packing": "items", "accumulate": 2}),
    "llama": ("llama", {"packing": "items", "dtype": "bfloat16", "remat": True, "logits_chunk": 7}),
}


@pytest.fixture(scope="module")
def learned(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The run of each of `LEARNED`, made where it is asked for first."""
    folder = tmp_path_factory.mktemp("learned")

    @functools.cache
    def make(name: str) -> Path:
        architecture, given = LEARNED[name]
        prompts = given.get("packing") == "items" and architecture != "roberta"
        path = texts.write(folder / f"prompts of {name}", prompts=True) if prompts else text
        more = {
            "tokenizer.vocab_size": 370,
            "optimizer.learning_rate": 0.01,
            "model.architecture": architecture,
        }
        return train(path, folder / name, **{**more, **({"length": 48} if prompts else {}), **given})

    return make


def perplexities(run: Path) -> list[float]:
    return [
        json.loads(line)["validation/perplexity"] for line in (run / "metrics.jsonl").read_text().splitlines()
    ]


def test_it_learns_and_the_model_opens_and_says_the_same_perplexity(trained: Path, text: Path) -> None:
    curve = perplexities(trained)
    assert curve[-1] < 0.8 * curve[0]
    assert 150 < curve[0] < 600  # of 290 tokens, unlearned
    model = language.load(trained / "model")
    assert model.tokenizer.size == 290
    assert all(isinstance(found, str) for found in model.generate(["the red"], most=4)[0])
    # The exported parameters are those of the last evaluation.
    config = config_of(
        text, **{"model.folder": str(trained / "model"), "tokens": str(trained / "tokens"), "texts": None}
    )
    again = language_run.build(config, trained, DataParallel(jax.local_devices()[:1]))
    state = again.task.init_state()
    found = again.task.evaluate(state, None, TrainingPosition())
    assert found.row["validation/perplexity"] == pytest.approx(curve[-1], rel=1e-5)


@pytest.mark.parametrize("name", LEARNED)
def test_every_architecture_and_objective_learns(learned: Callable[[str], Path], name: str) -> None:
    run, (architecture, given) = learned(name), LEARNED[name]
    curve = perplexities(run)
    assert curve[-1] < curve[0]
    opened = folders.read(run / "model")
    assert opened.config.architecture == architecture
    assert opened.config.dropout.attention == given.get("dropout", 0.0)
    assert (masked_head.load(run / "model") is not None) == (architecture == "roberta")
    assert np.isfinite(language.load(run / "model").states(["the red key"])[0]).all()


@pytest.mark.parametrize("base", ["float32", "nf4"])
def test_additions_alone_are_learned_and_merged(trained: Path, text: Path, tmp_path: Path, base: str) -> None:
    given = {
        "model.folder": str(trained / "model"),
        "lora.patterns": "*/attention/*",
        "lora.rank": 2,
        "lora.base": base,
    }
    run = train(text, tmp_path / "r", **given, **{"optimizer.learning_rate": 0.003, "steps": 8})
    curve = perplexities(run)
    assert curve[-1] < curve[0]
    if base == "float32":
        assert curve[0] == pytest.approx(perplexities(trained)[-1], rel=1e-5), "zero B is the base"
    before, after = folders.read(trained / "model").params, folders.read(run / "model").params
    block, there = after["decoder"]["block_0"], before["decoder"]["block_0"]
    np.testing.assert_array_equal(after["embedding"], before["embedding"])
    if base == "float32":
        np.testing.assert_array_equal(
            block["feed_forward"]["down"]["kernel"], there["feed_forward"]["down"]["kernel"]
        )
    change = block["attention"]["query"]["kernel"] - there["attention"]["query"]["kernel"]
    rank = np.linalg.matrix_rank(change, tol=1e-4 * np.linalg.norm(change, 2))
    assert rank == 2 if base == "float32" else np.abs(change).max() > 0
    # The merged model measures what the run did at its end.
    again = language_run.build(
        config_of(text, **{"model.folder": str(run / "model")}),
        tmp_path / "again",
        DataParallel(jax.local_devices()[:1]),
    )
    found = again.task.evaluate(again.task.init_state(), None, TrainingPosition())
    assert found.row["validation/perplexity"] == pytest.approx(curve[-1], rel=1e-4)


OPEN = """
import json, sys
import numpy as np, torch, transformers
kinds = {"gpt2": "AutoModelForCausalLM", "roberta": "AutoModelForMaskedLM", "t5": "AutoModelForSeq2SeqLM"}
for folder in sys.argv[2:]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    name = json.load(open(folder + "/config.json"))["model_type"]
    model, info = getattr(transformers, kinds[name]).from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    tokens = tokenizer("the red key", return_tensors="pt").input_ids
    more = {"decoder_input_ids": tokens} if name == "t5" else {}
    logits = model.eval()(input_ids=tokens, **more).logits.detach().numpy()
    np.savez(f"{sys.argv[1]}/{name}.npz", tokens=tokens.numpy(), logits=logits)
"""


@pytest.mark.extra
@pytest.mark.vllm
def test_transformers_opens_what_was_trained_and_says_the_same(
    trained: Path, learned: Callable[[str], Path], tmp_path: Path
) -> None:
    python = REPOSITORY / ".venv-vllm" / "bin" / "python"
    if not python.exists():
        pytest.skip("the environment with transformers is not there: bash launch/setup_vllm_cpu.sh makes it")
    models = {
        "gpt2": trained / "model",
        "roberta": learned("roberta of items") / "model",
        "t5": learned("t5") / "model",
    }
    done = subprocess.run(
        [str(python), "-c", OPEN, str(tmp_path), *map(str, models.values())],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    for architecture, model in models.items():
        with np.load(tmp_path / f"{architecture}.npz") as said:
            assert_says(model, architecture, said["tokens"], said["logits"])


def assert_says(model: Path, architecture: str, tokens: np.ndarray, logits: np.ndarray) -> None:
    """The loss of these tokens is that of transformers' logits."""
    opened = language.load(model)
    assert opened.tokenizer.encode(["the red key"]) == tokens.tolist()
    adaptation = Adaptation(opened.model)
    there = np.ones(tokens.shape, bool)
    batch = training.TokenBatch(tokens, there, tokens, there.astype(np.float32), tokens, there)
    learned, frozen = adaptation.arrange(
        opened.params, masked_head.load(model) if architecture == "roberta" else None, jax.random.key(0)
    )
    sums = adaptation.sums(learned, frozen, batch, None)
    expected = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    loss = -np.take_along_axis(expected, tokens[..., None], -1).sum()
    assert float(sums.loss) == pytest.approx(loss, rel=1e-4)
