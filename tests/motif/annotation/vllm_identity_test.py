"""What tells the answers of one of vLLM's models from those of another."""

from __future__ import annotations

import json

import huggingface_hub
import pytest

from motif_jax.motif.annotation import model_files
from motif_jax.motif.annotation.annotator import make_annotator
from tests.motif.annotation.vllm_stand_in import make_config, write_model

COMMIT = "0123456789" * 4
OTHER = "abcdef0123" * 4


@pytest.fixture
def model(tmp_path):
    return write_model(tmp_path / "judge")


NAMED = {"model": "some/model", "revision": COMMIT}


def identity(**values):
    return make_annotator(make_config(**values)).identity


@pytest.mark.parametrize(
    "engine",
    [
        {"cpu_offload_gb": 8},
        {"max_num_seqs": 8},
        {"download_dir": "elsewhere"},
        {"seed": 0},
        {"rope_scaling": None},
    ],
    ids=str,
)
def test_how_the_engine_runs_is_no_part_of_the_identity(engine):
    assert identity(**NAMED, engine=json.dumps(engine)) == identity(**NAMED)


@pytest.mark.parametrize(
    "engine",
    [{"tokenizer_revision": OTHER}, {"load_format": "dummy"}, {"seed": 1}, {"revision": OTHER}],
    ids=str,
)
def test_options_that_change_answers_are_part_of_the_identity(engine):
    assert identity(**NAMED, engine=json.dumps(engine)) != identity(**NAMED)


def test_a_revision_among_the_options_is_the_models():
    assert identity(**NAMED)["revision"] == COMMIT
    assert identity(**NAMED, engine=json.dumps({"revision": OTHER}))["revision"] == OTHER


def test_a_models_own_tokenizer_may_be_named(model):
    assert identity(model=model, tokenizer=model) == identity(model=model)


def test_another_tokenizer_counts_with_its_content_and_template(model, tmp_path):
    tokenizer = write_model(tmp_path / "other", '{"a": 1}')
    before = identity(model=model, tokenizer=tokenizer)
    assert before["tokenizer"]["name"] == "other"
    assert identity(model=model, engine=json.dumps({"tokenizer": tokenizer})) == before
    (tmp_path / "other" / "chat_template.jinja").write_text("{{ messages }}")
    assert identity(model=model, tokenizer=tokenizer) != before != identity(model=model)


@pytest.fixture
def offline(monkeypatch):
    """The hub cannot be reached."""

    def fail(*_, **__):
        raise OSError("offline")

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", fail)


@pytest.mark.usefixtures("offline")
def test_the_revision_of_a_cached_tokenizer_is_read(tmp_path):
    (tmp_path / "models--some--words/refs").mkdir(parents=True)
    (tmp_path / "models--some--words/refs/main").write_text(COMMIT)

    assert model_files.revision("some/words", None, str(tmp_path)) == COMMIT
