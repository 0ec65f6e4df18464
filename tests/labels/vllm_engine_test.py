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
from motif_jax.support.errors import UserError
from tests.reward_fixtures import annotation_config

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
    named = {f"vllm.{name}": value for name, value in values.items()}
    return annotation_config({"annotator": "vllm", "vllm.model": model, **named})


def identity(model, engine=None, **values):
    more = {} if engine is None else {"engine": json.dumps(engine)}
    return make_annotator(make_config(model, **more, **values)).identity


def test_what_answers_depend_on_is_the_identity_and_how_the_engine_runs_is_not(model):
    of_the_model = "annotator model revision dtype quantization kv_cache_dtype chat_template_kwargs"
    asked = "goal prompt mode parsing retry sampling"
    assert set(identity(model)) == {*of_the_model.split(), *asked.split()}, "of the first version"
    own = {
        "cpu_offload_gb": 8,
        "max_num_seqs": 8,
        "download_dir": "elsewhere",
        "seed": 0,
        "rope_scaling": None,
    }
    assert identity(model, own) == identity(model)
    named = identity("some/model", revision=COMMIT)
    for changed in (
        {"tokenizer_revision": OTHER},
        {"load_format": "dummy"},
        {"seed": 1},
        {"revision": OTHER},
    ):
        assert identity("some/model", changed, revision=COMMIT) != named, changed


def test_a_tokenizer_of_its_own_counts_with_its_chat_template(model, tmp_path):
    plain, other = identity(model), made(tmp_path / "other", '{"a": 1}')
    assert identity(model, tokenizer=model) == plain
    before = identity(model, tokenizer=other)
    assert before == identity(model, {"tokenizer": other}) != plain
    (tmp_path / "other" / "chat_template.jinja").write_text("{{ messages }}")
    assert identity(model, tokenizer=other) not in (plain, before)
    named = identity("some/model", tokenizer="some/tokenizer", revision=COMMIT)
    assert named["tokenizer"] == {"name": "some/tokenizer", "revision": COMMIT}


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
    parts = dict.fromkeys(("SamplingParams", "StructuredOutputsParams"), SimpleNamespace)
    for name in ("vllm", "vllm.sampling_params", "vllm.exceptions"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(**parts, VLLMError=RuntimeError))


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
