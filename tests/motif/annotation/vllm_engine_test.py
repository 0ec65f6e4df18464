"""The queue of vLLM's engine, and what it is asked, with an engine that only counts."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import ModuleType

import pytest

from motif_jax.core.errors import UserError
from motif_jax.core.verdicts import FIRST, SECOND, UNKNOWN
from motif_jax.motif.annotation import chat
from motif_jax.motif.annotation.annotator import Question, make_annotator
from motif_jax.motif.annotation.config import AnswerMode, AnswerSampling
from tests.motif.annotation.vllm_stand_in import (
    Engine,
    Loaded,
    Parameters,
    Platform,
    Tokenizer,
    make_config,
    write_model,
)


@pytest.fixture
def model(tmp_path):
    return write_model(tmp_path / "judge")


@pytest.fixture
def vllm(monkeypatch):
    """A module in the place of vLLM and of its parts, with what the annotator reads of them."""
    module = ModuleType("vllm")
    module.SamplingParams = Parameters
    module.StructuredOutputsParams = Parameters
    module.VLLMError = RuntimeError
    module.current_platform = Platform()
    for name in ("vllm", "vllm.sampling_params", "vllm.exceptions", "vllm.platforms"):
        monkeypatch.setitem(sys.modules, name, module)
    return module


@pytest.mark.parametrize(("in_flight", "step"), [(1, 1), (32, 4), (520, 64)])
@pytest.mark.parametrize("at_once", [1, 3, 70])
def test_the_engine_never_drains_while_questions_wait(vllm, model, in_flight, step, at_once):
    annotator = make_annotator(make_config(model, in_flight=in_flight))
    annotator.engine = engine = Engine(at_once)
    questions = [Question(f"{n:032x}", (str(n), "x")) for n in range(3 * in_flight + 50)]

    answers = [answer for answer in annotator.annotate(questions) if answer is not None]

    assert sorted(position for position, _ in answers) == list(range(len(questions)))
    assert {answer.label for _, answer in answers} == {FIRST}
    answered = 0
    for level in engine.levels:
        assert level <= in_flight
        if answered + level < len(questions):  # some were not queued yet
            assert level > in_flight - step
        answered += min(level, at_once)


def answer_of(annotator, question):
    """The answer to a question that is asked alone."""
    answers = [answer for answer in annotator.annotate([question]) if answer is not None]
    ((_, answer),) = answers
    return answer


def last_request(annotator):
    """The roles of the turns, the sampling and the options of the last question."""
    *turns, sampling, options = annotator.engine.request
    return [turn["role"] for turn in turns[0]], sampling, options


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

    answer = answer_of(annotator, Question("0" * 32, ("a", "x")))

    assert answer.label == SECOND
    _, sampling, _ = last_request(annotator)
    assert sampling["skip_special_tokens"] is False


def test_what_is_none_is_left_to_the_engine(vllm, model):
    sampling = AnswerSampling(temperature=None, top_p=None, verdict_tokens=900)
    config = replace(make_config(model), sampling=sampling, answer=AnswerMode(mode="verdict"))
    annotator = make_annotator(config)
    annotator.engine = Engine(1)

    answer_of(annotator, Question("0" * 32, ("a", "x")))

    _, parameters, _ = last_request(annotator)
    assert not {"temperature", "top_p"} & parameters.keys()
    assert parameters["max_tokens"] == 900


QUESTIONS = [
    Question(f"{number:032x}", (text, "x")) for number, text in enumerate(("a", "newt", "gold"))
]


@pytest.fixture
def start(vllm, model):
    """Starts annotators with an engine of the test; they end with the test."""
    started = []

    def start(mode="analysis", on_cpu=False, **values):
        vllm.LLM = Loaded
        vllm.current_platform = Platform(on_cpu)
        annotator = make_annotator(
            replace(make_config(model, **values), answer=AnswerMode(mode=mode))
        )
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
    assert options["seed"] == 3
    assert options["enable_prefix_caching"] is True
    assert options["trust_remote_code"] is False


def test_a_question_too_long_for_the_model_has_no_answer(start):
    answers = dict(filter(None, start().annotate(QUESTIONS)))

    assert [answers[position].label for position in range(3)] == [FIRST, FIRST, UNKNOWN]
    assert answers[2].note == "prompt too long for the model"
    assert answers[0].tokens == (3, 2, 1)


def request_of(annotator):
    """`last_request` of a question that is asked now."""
    answer_of(annotator, QUESTIONS[0])
    return last_request(annotator)


def test_an_analysis_is_sampled(start):
    roles, sampling, options = request_of(start(chat_template_kwargs='{"a": 1}'))
    assert roles == ["system", "user"]
    assert sampling.pop("seed") > 0
    # Marks of reasoning are special tokens in some families.
    assert sampling.pop("skip_special_tokens") is False
    assert sampling == {"temperature": 0.1, "top_k": 50, "top_p": 0.95, "max_tokens": 4096}
    assert options["chat_template_kwargs"] == {"a": 1}
    assert (options["add_generation_prompt"], options["continue_final_message"]) == (True, False)


def test_a_verdict_is_one_of_the_answers_of_the_prompt(start):
    _, sampling, _ = request_of(start("verdict"))
    verdicts = [f'("best_description": "{verdict}")' for verdict in ("1", "2", "None")]
    assert sampling["structured_outputs"].choice == verdicts
    assert sampling["max_tokens"] == 64


def test_a_soft_answer_continues_a_begun_one_by_a_token(start):
    roles, sampling, options = request_of(start("soft"))
    assert roles == ["system", "user", "assistant"]
    # The first tokens of 1, 2 and None, of which each character is one.
    assert sampling == {"temperature": 0, "max_tokens": 1, "logprob_token_ids": [49, 50, 78]}
    assert (options["add_generation_prompt"], options["continue_final_message"]) == (False, True)


def test_a_tokenizer_that_drops_the_verdicts_is_refused(start, monkeypatch) -> None:
    def encode(tokenizer: Tokenizer, text: str, add_special_tokens: bool) -> list[int]:
        return [ord(character) for character in text if character not in '12None")']

    monkeypatch.setattr(Tokenizer, "encode", encode)
    with pytest.raises(UserError, match="no single token of this model distinguishes 1, 2, None"):
        start("soft")


def test_questions_that_nobody_waits_for_are_aborted(start):
    annotator = start()
    engine = annotator.engine
    questions = [Question(f"{number:032x}", ("a", "x")) for number in range(5)]
    answers = annotator.annotate(questions)
    next(answers)

    answers.close()

    assert engine.ended == ["1", "2", "3", "4"]


def test_the_engine_is_shut_down_at_the_end(start):
    annotator = start()
    engine = annotator.engine

    annotator.close()

    assert engine.ended == ["shut down"]


class AutoTokenizer:
    """Stands for the class of transformers."""

    @staticmethod
    def from_pretrained(name, **options):
        return Tokenizer()


def test_a_preview_counts_the_tokens_of_the_template(model, monkeypatch):
    transformers = ModuleType("transformers")
    transformers.AutoTokenizer = AutoTokenizer
    monkeypatch.setitem(sys.modules, "transformers", transformers)

    preview = make_annotator(make_config(model)).preview(QUESTIONS[0])

    assert preview.tokens == len(preview.text)
    assert preview.exact


CPU = {"max_model_len": 8, "max_num_seqs": 4}


@pytest.mark.parametrize(
    ("values", "mode"),
    [({}, "soft"), (CPU, "verdict"), ({**CPU, "max_num_batched_tokens": 32}, "verdict")],
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
