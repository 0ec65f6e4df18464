"""The queue of vLLM's engine, with an engine that only counts, and what tells one model's answers from another's."""

from __future__ import annotations

import itertools
import json
import sys
from types import SimpleNamespace

import huggingface_hub
import pytest

from motif_jax.datasets.verdicts import FIRST
from motif_jax.labels import model_files
from motif_jax.labels.annotator import Question, make_annotator
from motif_jax.labels.vllm_options import check_options
from motif_jax.support.errors import UserError
from tests.reward_fixtures import load_config

COMMIT, OTHER = "0123456789" * 4, "abcdef0123" * 4


def made(folder, tokenizer="{}"):
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "tokenizer.json").write_text(tokenizer)
    (folder / "weights.bin").write_bytes(b"x")
    return str(folder)


@pytest.fixture
def model(tmp_path):
    return made(tmp_path / "judge")


def make_config(model, **values):
    config = load_config("annotate", "")
    named = {f"vllm.{name}": value for name, value in values.items()}
    config.update_from_flattened_dict({"annotator": "vllm", "vllm.model": model, **named})
    return config


def identity(model, engine=None, **values):
    more = {} if engine is None else {"engine": json.dumps(engine)}
    return make_annotator(make_config(model, **more, **values)).identity


def test_default_settings_have_the_identity_of_the_first_version(model):
    of_the_model = "annotator model revision dtype quantization kv_cache_dtype chat_template_kwargs"
    asked = "goal prompt mode parsing retry sampling"
    assert set(identity(model)) == {*of_the_model.split(), *asked.split()}


@pytest.mark.parametrize(
    "engine", [{"tokenizer_revision": OTHER}, {"load_format": "dummy"}, {"seed": 1}, {"revision": OTHER}]
)
def test_options_that_may_change_answers_are_told_apart(engine):
    by_name = [identity("some/model", engine=chosen, revision=COMMIT) for chosen in (None, engine)]
    assert by_name[0] != by_name[1]


def test_how_the_engine_runs_is_no_part_of_the_identity(model):
    own = {
        "cpu_offload_gb": 8,
        "max_num_seqs": 8,
        "download_dir": "elsewhere",
        "seed": 0,
        "rope_scaling": None,
    }
    assert identity(model, own) == identity(model)


def test_a_tokenizer_of_its_own_counts_with_its_chat_template(model, tmp_path):
    plain, other = identity(model), made(tmp_path / "other", '{"a": 1}')
    assert identity(model, tokenizer=model) == plain
    before = identity(model, tokenizer=other)
    assert before == identity(model, {"tokenizer": other}) != plain
    (tmp_path / "other" / "chat_template.jinja").write_text("{{ messages }}")
    assert identity(model, tokenizer=other) not in (plain, before)
    named = identity("some/model", tokenizer="some/tokenizer", revision=COMMIT)
    assert named["tokenizer"] == {"name": "some/tokenizer", "revision": COMMIT}


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"tokenizer": "./nowhere"}, r"config.vllm.tokenizer='./nowhere': must be the name of a tokenizer"),
        ({"engine": '{"tokenizer": 5}'}, r"config.vllm.engine=.*whose tokenizer is a text"),
        ({"engine": '{"model": null}'}, r"config.vllm.engine=.*whose model is a text"),
        ({"engine": '{"model": "./nowhere"}'}, r"config.vllm.model=./nowhere: there is no such folder"),
    ],
)
def test_what_is_no_tokenizer_or_option_is_named(model, values, told):
    check_options(make_config(model))
    with pytest.raises(UserError, match=told):
        check_options(make_config(model, **values))


def test_a_tokenizer_that_nobody_knows_is_named_and_one_of_the_cache_is_found(monkeypatch, tmp_path):
    def unknown(*_, **__):
        raise OSError("offline")

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", unknown)
    told = r"config.vllm.tokenizer=some/words: .*\(offline\).*as tokenizer_revision in config.vllm.engine"
    with pytest.raises(UserError, match=told):
        model_files.revision("some/words", None, str(tmp_path), "vllm.tokenizer")
    (tmp_path / "models--some--words/refs").mkdir(parents=True)
    (tmp_path / "models--some--words/refs/main").write_text(COMMIT)
    assert model_files.revision("some/words", None, str(tmp_path), "vllm.tokenizer") == COMMIT


class Engine:
    """Answers `at_once` of what is queued a step, the oldest first, and notes how much there was."""

    def __init__(self, at_once):
        self.at_once, self.queued, self.levels = at_once, [], []
        self.llm_engine, self._ids = self, itertools.count()

    def enqueue_chat(self, turns, parameters, **options):
        del parameters, options
        ids = [f"{next(self._ids)}-random" for _ in turns]
        self.queued += ids
        return ids

    def step(self):
        self.levels.append(len(self.queued))
        done, self.queued = self.queued[: self.at_once], self.queued[self.at_once :]
        completion = SimpleNamespace(text='("best_description": "1")', token_ids=[1])
        common = {"finished": True, "outputs": [completion], "prompt_token_ids": [1], "num_cached_tokens": 0}
        return [SimpleNamespace(request_id=one.partition("-")[0], **common) for one in done]


@pytest.fixture
def vllm(monkeypatch):
    """Modules in vLLM's place, with what the annotator reads of them."""
    parts = {
        "SamplingParams": SimpleNamespace,
        "StructuredOutputsParams": SimpleNamespace,
        "VLLMError": RuntimeError,
    }
    for name in ("vllm", "vllm.sampling_params", "vllm.exceptions"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(**parts))


@pytest.mark.parametrize(("in_flight", "step"), [(1, 1), (32, 4), (2000, 64)])
@pytest.mark.parametrize("at_once", [1, 3, 70])
def test_the_engine_never_drains_while_questions_wait(vllm, model, in_flight, step, at_once):
    annotator = make_annotator(make_config(model, in_flight=in_flight))
    annotator.engine = engine = Engine(at_once)
    questions = [Question(f"{n:032x}", (str(n), "x")) for n in range(3 * in_flight + 50)]
    answers = [heard for heard in annotator.annotate(questions) if heard is not None]
    assert sorted(place for place, _ in answers) == list(range(len(questions)))
    assert {answer.label for _, answer in answers} == {FIRST}
    answered = 0
    for level in engine.levels:
        assert level <= in_flight
        if answered + level < len(questions):  # some were not queued yet
            assert level > in_flight - step
        answered += min(level, at_once)
