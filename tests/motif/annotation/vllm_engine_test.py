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
from tests.reward_fixtures import annotation_config

COMMIT = "0123456789" * 4
OTHER = "abcdef0123" * 4


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


def test_a_revision_among_the_options_is_the_one_of_the_model():
    assert identity(**NAMED)["revision"] == COMMIT
    assert identity(**NAMED, engine=json.dumps({"revision": OTHER}))["revision"] == OTHER


def test_a_models_own_tokenizer_may_be_named(model):
    assert identity(model=model, tokenizer=model) == identity(model=model)


def test_another_tokenizer_counts_with_its_content_and_template(model, tmp_path):
    tokenizer = made(tmp_path / "other", '{"a": 1}')
    before = identity(model=model, tokenizer=tokenizer)
    assert before["tokenizer"]["name"] == "other"
    assert identity(model=model, engine=json.dumps({"tokenizer": tokenizer})) == before
    (tmp_path / "other" / "chat_template.jinja").write_text("{{ messages }}")
    assert identity(model=model, tokenizer=tokenizer) != before != identity(model=model)


def test_a_tokenizer_that_nobody_knows_is_named_and_one_of_the_cache_is_found(monkeypatch, tmp_path):
    def unknown(*_, **__):
        raise OSError("offline")

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", unknown)
    message = r"config.vllm.tokenizer=some/words: .*\(offline\).*as tokenizer_revision in config.vllm.engine"
    with pytest.raises(UserError, match=message):
        model_files.revision("some/words", None, str(tmp_path), "vllm.tokenizer")
    (tmp_path / "models--some--words/refs").mkdir(parents=True)
    (tmp_path / "models--some--words/refs/main").write_text(COMMIT)
    assert model_files.revision("some/words", None, str(tmp_path), "vllm.tokenizer") == COMMIT


class Engine:
    """Answers `at_once` of what is queued a step, the oldest first, and notes how much there was."""

    text = '("best_description": "1")'
    finish_reason = "stop"

    def __init__(self, at_once):
        self.at_once = at_once
        self.queued = []
        self.levels = []
        self.llm_engine = self
        self._ids = itertools.count()

    def enqueue_chat(self, turns, parameters, **options):
        self.asked = [*turns, *map(vars, parameters), options]
        ids = [f"{next(self._ids)}-random" for _ in turns]
        self.queued += ids
        return ids

    def step(self):
        self.levels.append(len(self.queued))
        done = self.queued[: self.at_once]
        self.queued = self.queued[self.at_once :]
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
    assert sorted(position for position, _ in answers) == list(range(len(questions)))
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
        self.options = options
        self.engine_core = self
        self.ended = []

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


QUESTIONS = [Question(f"{number:032x}", (text, "x")) for number, text in enumerate(("a", "newt", "gold"))]


@pytest.fixture
def start(vllm, model):
    """Starts annotators with an engine of the test; they end with the test."""
    started = []

    def start(mode="analysis", on_cpu=False, **values):
        vllm.LLM = Loaded
        vllm.current_platform.is_cpu = lambda: on_cpu
        annotator = make_annotator(replace(make_config(model, **values), answer=AnswerMode(mode=mode)))
        started.append(annotator)
        annotator.start()
        return annotator

    yield start
    for annotator in started * 2:  # the second time there is nothing to do
        annotator.close()
        assert annotator.engine is None


def test_the_engine_gets_the_options_of_the_config(start, model):
    options = start(engine='{"seed": 3}').engine.options
    assert options["model"] == model
    assert (options["seed"], options["enable_prefix_caching"], options["trust_remote_code"]) == (
        3,
        True,
        False,
    )


def test_a_question_too_long_for_the_model_has_no_answer(start):
    answers = dict(filter(None, start().annotate(QUESTIONS)))
    assert {position: answer.label for position, answer in answers.items()} == {
        0: FIRST,
        1: FIRST,
        2: UNKNOWN,
    }
    assert answers[2].note == "prompt too long for the model"
    assert answers[0].tokens == (3, 2, 1)


def asked(annotator):
    """The roles of the turns, the sampling and the options of the last question."""
    list(annotator.annotate(QUESTIONS[:1]))
    *turns, sampling, options = annotator.engine.asked
    return [turn["role"] for turn in turns[0]], sampling, options


def test_an_analysis_is_sampled(start):
    roles, sampling, options = asked(start(chat_template_kwargs='{"a": 1}'))
    assert roles == ["system", "user"]
    assert sampling.pop("seed") > 0
    # Marks of reasoning are special tokens in some families.
    assert sampling.pop("skip_special_tokens") is False
    assert sampling == {"temperature": 0.1, "top_k": 50, "top_p": 0.95, "max_tokens": 4096}
    assert options["chat_template_kwargs"] == {"a": 1}
    assert (options["add_generation_prompt"], options["continue_final_message"]) == (True, False)


def test_a_verdict_is_one_of_the_answers_of_the_prompt(start):
    _, sampling, _ = asked(start("verdict"))
    verdicts = [f'("best_description": "{verdict}")' for verdict in ("1", "2", "None")]
    assert sampling["structured_outputs"].choice == verdicts
    assert sampling["max_tokens"] == 64


def test_a_soft_answer_continues_a_begun_one_by_a_token(start):
    roles, sampling, options = asked(start("soft"))
    assert roles == ["system", "user", "assistant"]
    # The first tokens of 1, 2 and None, of which each character is one.
    assert sampling == {"temperature": 0, "max_tokens": 1, "logprob_token_ids": [49, 50, 78]}
    assert (options["add_generation_prompt"], options["continue_final_message"]) == (False, True)


def test_questions_that_nobody_waits_for_are_aborted(start):
    annotator = start()
    engine = annotator.engine
    questions = [Question(f"{number:032x}", ("a", "x")) for number in range(5)]
    answers = annotator.annotate(questions)
    next(answers)
    answers.close()
    assert engine.ended == ["1", "2", "3", "4"]
    annotator.close()
    assert engine.ended[-1] == "shut down"


def test_a_preview_counts_the_tokens_of_the_template(start):
    annotator = start()
    annotator._tokenizer = annotator.engine.get_tokenizer()
    preview = annotator.preview(QUESTIONS[0])
    assert preview.tokens == len(preview.text)
    assert preview.exact


def test_a_conversation_that_vllm_refuses_is_one_line(start):
    with pytest.raises(UserError, match=r"^vLLM refuses a conversation: no$"):
        list(start().annotate([Question("a" * 32, ("boulder", "x"))]))


CPU = {"max_model_len": 8, "max_num_seqs": 4}


@pytest.mark.parametrize(
    ("values", "mode"), [({}, "soft"), (CPU, "verdict"), ({**CPU, "max_num_batched_tokens": 32}, "verdict")]
)
def test_on_a_cpu_batches_of_bounded_size_may_be_seeded(start, values, mode):
    start(mode, on_cpu=True, **values)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {},
            r"config\.vllm\.max_model_len and config\.vllm\.max_num_seqs: must be given on a CPU where answers",
        ),
        (
            {**CPU, "max_num_batched_tokens": 31},
            r"config\.vllm\.max_num_batched_tokens=31: must be at least max_num_seqs \* max_model_len = 32",
        ),
    ],
)
def test_on_a_cpu_seeds_need_batches_of_bounded_size(start, values, words):
    with pytest.raises(UserError, match=words):
        start("verdict", on_cpu=True, **values)


def test_a_model_that_vllm_cannot_load_is_one_line(vllm, model):
    def broken(**options):
        raise RuntimeError("no memory\nat all")

    vllm.LLM = broken
    vllm.current_platform.is_cpu = lambda: False
    with pytest.raises(UserError, match=rf"^vLLM cannot load config.vllm.model={model}: no memory$"):
        make_annotator(make_config(model)).start()


def test_without_vllm_its_annotator_is_refused(model, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"^config.annotator=vllm: vLLM is not installed here; .*python$"):
        check_annotator(make_config(model))
