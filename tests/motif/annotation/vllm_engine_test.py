"""The queue of vLLM's engine, with an engine that only counts, and what tells one model's answers from another's."""

from __future__ import annotations

import itertools
import json
import sys
from dataclasses import replace
from types import SimpleNamespace

import huggingface_hub
import pytest

from motif_jax.core.errors import UserError
from motif_jax.core.verdicts import FIRST, SECOND, UNKNOWN
from motif_jax.motif.annotation import chat, model_files
from motif_jax.motif.annotation.annotator import Question, check_annotator, make_annotator
from motif_jax.motif.annotation.config import AnswerMode, AnswerSampling
from tests.recorded_outputs import compared
from tests.reward_fixtures import annotation_config

COMMIT, OTHER = "0123456789" * 4, "abcdef0123" * 4


def made(folder, tokenizer="{}"):
    folder.mkdir()
    for name, text in {"config.json": "{}", "tokenizer.json": tokenizer, "weights.bin": "x"}.items():
        (folder / name).write_text(text)
    return str(folder)


@pytest.fixture
def model(tmp_path):
    return made(tmp_path / "judge")


def make_config(model, **values):
    named = {f"vllm.{name}": value for name, value in values.items()}
    return annotation_config({"annotator": "vllm", "vllm.model": model, **named})


# How the engine runs, and then what makes it answer otherwise.
ENGINES = [
    {"cpu_offload_gb": 8, "max_num_seqs": 8, "download_dir": "elsewhere", "seed": 0, "rope_scaling": None},
    *({"tokenizer_revision": OTHER}, {"load_format": "dummy"}, {"seed": 1}, {"revision": OTHER}),
]


def test_what_answers_depend_on_is_the_identity_and_how_the_engine_runs_is_not(model, tmp_path, record):
    other = made(tmp_path / "other", '{"a": 1}')
    named = {"model": "some/model", "revision": COMMIT}
    cases = [{"model": model}, *({**named, "engine": json.dumps(engine)} for engine in ENGINES)]
    cases += [{**named, "tokenizer": "some/tokenizer"}, {"model": model, "tokenizer": model}]
    cases += [
        {"model": model, "tokenizer": other},
        {"model": model, "engine": json.dumps({"tokenizer": other})},
    ]
    found = [str(make_annotator(make_config(**case)).identity) for case in cases]
    (tmp_path / "other" / "chat_template.jinja").write_text("{{ messages }}")
    found += [str(make_annotator(make_config(**cases[-1])).identity)]
    assert [found.count(one) for one in found] == [2, *[1] * 6, 2, 2, 2, 1]
    assert_matches_packed_recording(
        "vllm_identities", {"lines": "\n".join(found).replace(str(tmp_path), "FOLDER")}, record
    )


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

    text, finish_reason = '("best_description": "1")', "stop"

    def __init__(self, at_once):
        self.at_once, self.queued, self.levels = at_once, [], []
        self.llm_engine, self._ids = self, itertools.count()

    def enqueue_chat(self, turns, parameters, **options):
        self.asked = [*turns, *map(vars, parameters), options]
        ids = [f"{next(self._ids)}-random" for _ in turns]
        self.queued += ids
        return ids

    def step(self):
        self.levels.append(len(self.queued))
        done, self.queued = self.queued[: self.at_once], self.queued[self.at_once :]
        sure = [{ord("1"): SimpleNamespace(logprob=-0.5), ord("N"): SimpleNamespace(logprob=-2.0)}]
        about = {"text": self.text, "finish_reason": self.finish_reason}
        completion = SimpleNamespace(**about, token_ids=[1, 2], logprobs=sure)
        common = {"outputs": [completion], "prompt_token_ids": [1, 2, 3], "num_cached_tokens": 1}
        unfinished = [SimpleNamespace(request_id="none", finished=False)]
        names = (one.partition("-")[0] for one in done)
        return unfinished + [SimpleNamespace(request_id=name, finished=True, **common) for name in names]


@pytest.fixture
def vllm(monkeypatch):
    """Modules in vLLM's place, with what the annotator reads of them."""
    parts = dict.fromkeys(("SamplingParams", "StructuredOutputsParams"), SimpleNamespace)
    modules = SimpleNamespace(**parts, VLLMError=RuntimeError, current_platform=SimpleNamespace())
    for name in ("vllm", "vllm.sampling_params", "vllm.exceptions", "vllm.platforms"):
        monkeypatch.setitem(sys.modules, name, modules)
    return modules


@pytest.mark.parametrize(("in_flight", "step"), [(1, 1), (32, 4), (520, 64)])
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


def answer_of(annotator, question):
    return next(heard[1] for heard in annotator.annotate([question]) if heard is not None)


def test_an_answer_that_the_engine_cut_is_unknown(vllm, model):
    annotator = make_annotator(make_config(model))
    annotator.engine = Engine(1)
    annotator.engine.finish_reason = "length"
    answer = answer_of(annotator, Question("0" * 32, ("a", "x")))
    assert (answer.label, answer.note, answer.cut) == (UNKNOWN, chat.CUT, 2)


def test_special_tokens_stay_since_they_mark_reasoning(vllm, model):
    annotator = make_annotator(make_config(model))
    annotator.engine = Engine(1)
    annotator.engine.text = '[THINK]("best_description": "1")[/THINK]("best_description": "2")'
    assert answer_of(annotator, Question("0" * 32, ("a", "x"))).label == SECOND
    assert annotator._sampling(None).skip_special_tokens is False


def test_what_is_none_is_left_to_the_engine(vllm, model):
    sampling = AnswerSampling(temperature=None, top_p=None, verdict_tokens=900)
    asked = replace(make_config(model), sampling=sampling, answer=AnswerMode(mode="verdict"))
    parameters = vars(make_annotator(asked)._sampling(None))
    assert not {"temperature", "top_p"} & parameters.keys()
    assert parameters["max_tokens"] == 900


class Loaded(Engine):
    """An engine as `vllm.LLM` makes it; each character is a token, and a question of gold is too long."""

    def __init__(self, **options):
        super().__init__(2)
        self.options, self.engine_core, self.ended = options, self, []

    def get_tokenizer(self):
        def chat(turns, **options):
            return f"{options}" + "|".join(turn["content"] for turn in turns)

        def encode(text, add_special_tokens):
            return [*map(ord, text)]

        return SimpleNamespace(encode=encode, apply_chat_template=chat)

    def enqueue_chat(self, turns, parameters, **options):
        for refused in ("gold", "boulder"):
            if any(refused in turn["content"] for asked in turns for turn in asked[1:]):
                raise ValueError("the context length is 8" if refused == "gold" else "no\nboulder")
        return super().enqueue_chat(turns, parameters, **options)

    def abort_request(self, left):
        self.ended += left

    def shutdown(self):
        self.ended += ["shut down"]


CPU = {"max_model_len": 8, "max_num_seqs": 4}
STARTS = [
    ({"chat_template_kwargs": '{"a": 1}'}, "analysis", False),
    ({"engine": '{"seed": 3}'}, "verdict", False),
    ({}, "soft", False),
    ({}, "soft", True),
    ({}, "analysis", True),
    (CPU, "verdict", True),
    ({**CPU, "max_num_batched_tokens": 31}, "verdict", True),
    ({**CPU, "max_num_batched_tokens": 32}, "verdict", True),
]


def test_an_engine_is_started_asked_and_ended(vllm, model, monkeypatch, record):
    parts, texts = {}, ("a", "newt", "gold")
    questions = [Question(f"{n:032x}", (text, "x")) for n, text in enumerate(texts)]
    for place, (values, mode, vllm.on_cpu) in enumerate(STARTS):
        vllm.LLM, vllm.current_platform.is_cpu, found = Loaded, lambda: vllm.on_cpu, []
        annotator = make_annotator(replace(make_config(model, **values), answer=AnswerMode(mode=mode)))
        try:
            annotator.start()
            engine = annotator.engine
            found += [engine.options | {"model": ""}, *annotator.annotate(questions), engine.asked]
            left = annotator.annotate(questions[1:])
            found += [next(left), next(left)]
            left.close()
            annotator._tokenizer = engine.get_tokenizer()
            found += [annotator.preview(questions[0])]
            list(annotator.annotate([Question("a" * 32, ("boulder", "x"))]))
        except UserError as error:
            found += [str(error)]
        for _ in range(2):
            annotator.close()
        found += [annotator.engine, len(found) > 1 and engine.ended]
        parts[f"{place}"] = json.dumps(found, default=str, indent=1).replace(model, "MODEL")
    assert_matches_packed_recording("vllm_engine", parts, record)

    def broken(**options):
        raise RuntimeError("no memory\nat all")

    vllm.LLM = broken
    with pytest.raises(UserError, match=rf"^vLLM cannot load config.vllm.model={model}: no memory$"):
        annotator.start()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"^config.annotator=vllm: vLLM is not installed here; .*python$"):
        check_annotator(make_config(model))
