"""A language model in this process as the annotator."""

from __future__ import annotations

import json
import string

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tokenizers

from motif_jax import lm
from motif_jax.core.errors import UserError
from motif_jax.core.verdicts import PAIR, SINGLE, UNKNOWN
from motif_jax.lm import next_token
from motif_jax.lm.tokens import TOKENS_OF_BATCH
from motif_jax.motif import model_judge
from motif_jax.motif.annotation import openai_client
from motif_jax.motif.annotation.annotator import Question, check_annotator, make_annotator
from motif_jax.motif.annotation.chat import TOO_LONG
from motif_jax.motif.annotation.openai_client import Reply
from motif_jax.motif.model_judge import Prefill
from motif_jax.nets import products
from tests import made_up_judge
from tests.lm.gguf import gguf_writing
from tests.reward_fixtures import annotation_config

TEXTS = ("You kill the newt!", "", "You see here a key.", 'The door is locked. It\'s "shut".')
PAIRS = [(first, second) for first in TEXTS for second in TEXTS if first != second]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return made_up_judge.write(tmp_path_factory.mktemp("judge") / "made-up")


@pytest.fixture
def config(folder):
    def make(**values):
        model_values = {"annotator": "model", "model.model": str(folder), "model.dtype": "float32"}
        return annotation_config({**model_values, "answer.minimum_mass": 0.0, **values})

    return make


def asked(config, form, questions):
    annotator = make_annotator(config, form)
    annotator.start()
    try:
        answers = dict(answer for answer in annotator.annotate(questions) if answer is not None)
    finally:
        annotator.close()
    return [answers[position] for position in range(len(questions))]


class Server:
    """A server's reply by a language model: ChatML written out, and the log-probabilities of every
    token.
    """

    def __init__(self, folder) -> None:
        self._model = lm.load(folder)
        self._log_probs = jax.jit(self._next)

    def _next(self, params, tokens, last):
        model = self._model.model
        valid = (jnp.arange(tokens.shape[1]) <= last)[None]
        states = model.prefill(params, tokens, valid)[0].after
        return jax.nn.log_softmax(model.logits(params, states[:, last]))[0]

    async def post(self, session, url, request):
        turns = "".join(
            f"<|im_start|>{turn['role']}\n{turn['content']}<|im_end|>\n"
            for turn in request["messages"]
        )
        prompt = turns.removesuffix("<|im_end|>\n")
        (row,) = self._model.tokenizer.encode([prompt], special=False)
        tokens = np.pad(row, (0, 500 - len(row)))[None]
        log_probs = np.asarray(self._log_probs(self._model.params, tokens, len(row) - 1))
        order = np.argsort(-log_probs)
        pieces = self._model.tokenizer.pieces(order)
        pairs = zip(pieces, order, strict=True)
        top = [{"token": piece, "logprob": float(log_probs[token])} for piece, token in pairs]
        choice = {
            "message": {"content": ""},
            "logprobs": {"content": [{**top[0], "top_logprobs": top}]},
        }
        return Reply(200, {}, json.dumps({"choices": [choice]}).encode())


@pytest.mark.slow
@pytest.mark.parametrize("form", [PAIR, SINGLE])
def test_answers_are_those_of_a_server_with_the_same_model(
    form, folder, config, monkeypatch
) -> None:
    texts = PAIRS if form is PAIR else [(text,) for text in TEXTS]
    questions = [Question(f"{number:032x}", items, form) for number, items in enumerate(texts)]
    server = Server(folder)
    monkeypatch.setattr(openai_client, "post", server.post)
    same = {"answer.mode": "soft", "prompt.version": "small", "answer.minimum_mass": 0.0}
    by_server = asked(
        annotation_config({"annotator": "openai", "openai.model": "m", **same}), form, questions
    )
    here = asked(config(), form, questions)
    expected = np.array([answer.probabilities for answer in by_server])
    np.testing.assert_allclose([answer.probabilities for answer in here], expected, atol=1e-3)
    np.testing.assert_allclose([a.mass for a in here], [a.mass for a in by_server], atol=1e-3)
    assert [answer.label for answer in here] == [answer.label for answer in by_server]
    assert np.ptp(expected, axis=0).max() > 1e-2  # the questions differ, so that their answers can


@pytest.mark.slow
def test_what_prompts_share_counts_as_cached(config) -> None:
    (answer,) = asked(config(), PAIR, [Question("0" * 32, PAIRS[0])])
    prompt, completion, cached = answer.tokens
    assert completion == 1
    assert prompt - cached < 100 < cached


def test_a_prompt_longer_than_the_model_is_unknown(config) -> None:
    short, long = asked(
        config(), PAIR, [Question("0" * 32, PAIRS[0]), Question("1" * 32, ("x" * 900, "y"))]
    )
    assert short.label != UNKNOWN
    assert (long.label, long.note) == (UNKNOWN, TOO_LONG)


def test_its_own_defaults_are_soft_and_small(config) -> None:
    identity = make_annotator(config()).identity
    assert identity["mode"] == "soft"
    assert identity["prompt"]["answer"] == "Message {verdict}"


def test_dtype_and_weights_are_part_of_the_identity(config, tmp_path) -> None:
    other = made_up_judge.write(tmp_path / "made-up", seed=1)
    identities = [
        config(),
        config(**{"model.dtype": "bfloat16"}),
        config(**{"model.model": str(other)}),
    ]
    assert (
        len({json.dumps(make_annotator(judge_config).identity) for judge_config in identities}) == 3
    )


def test_a_judges_dtype_on_a_cpu_is_float32(config) -> None:
    assert make_annotator(config(**{"model.dtype": "auto"})).identity["dtype"] == "float32"


def test_how_verdicts_are_read_is_part_of_the_identity(config, tmp_path, monkeypatch) -> None:
    before = make_annotator(config()).identity
    assert before["parsing"] == "token_probabilities"
    assert before["reading"]["turns"] == "chat template"
    assert before["reading"]["prefill"] == "Message"
    backend = made_up_judge.tokenizer()
    for verdict, tokens in zip("ABN", before["reading"]["tokens"], strict=True):
        assert {backend.decode([token]).strip().upper() for token in tokens} == {verdict}

    # As after a change of `find_prefill`.
    other = Prefill("Message", [tokens[:1] for tokens in before["reading"]["tokens"]])
    monkeypatch.setattr(model_judge, "find_prefill", lambda prompts: other)
    assert make_annotator(config()).identity != before


def test_a_moved_folder_is_the_same_model(config, tmp_path) -> None:
    moved = made_up_judge.write(tmp_path / "elsewhere" / "made-up")
    assert (
        make_annotator(config()).identity
        == make_annotator(config(**{"model.model": str(moved)})).identity
    )


def test_files_that_are_not_read_do_not_make_another_model(config, tmp_path) -> None:
    model = made_up_judge.write(tmp_path / "made-up")
    before = make_annotator(config(**{"model.model": str(model)})).identity

    # As transformers and vLLM put them into the hub's cache.
    for name in ("merges.txt", "spiece.model", "pytorch_model.bin"):
        (model / name).write_text("x")

    assert make_annotator(config(**{"model.model": str(model)})).identity == before


def test_a_folder_of_one_gguf_file_is_that_file(config, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    model = made_up_judge.write(tmp_path / "made-up")
    file = gguf_writing.write(model, tmp_path / "packed" / "judge.gguf")

    identities = []
    for name in (file, file.parent):
        named = config(**{"model.model": str(name)})
        check_annotator(named, PAIR)
        identities.append(make_annotator(named).identity["revision"])

    assert identities[0] == identities[1]


def test_a_tokenizer_that_drops_the_verdicts_is_refused(config, tmp_path) -> None:
    model = made_up_judge.write(tmp_path / "made-up", template=None)
    # Small letters alone: without a token for unknown ones the library leaves capitals out.
    letters = {letter: number for number, letter in enumerate(string.ascii_lowercase)}
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(letters, []))
    backend.save(str(model / "tokenizer.json"))
    with pytest.raises(
        UserError, match="no single token of this model distinguishes A, B, N after 'Message '"
    ):
        check_annotator(config(**{"model.model": str(model)}))


def with_special_tokens(folder, single: str):
    """A base model whose tokenizer adds the special tokens of `single`, a template of the library
    `tokenizers`.
    """
    model = made_up_judge.write(folder, template=None)
    backend = tokenizers.Tokenizer.from_file(str(model / "tokenizer.json"))
    special = [(name, backend.token_to_id(name)) for name in made_up_judge.SPECIAL]
    backend.post_processor = tokenizers.processors.TemplateProcessing(
        single, special_tokens=special
    )
    backend.save(str(model / "tokenizer.json"))
    return model


def test_no_special_token_stands_after_a_prompt(config, tmp_path) -> None:
    question = Question("0" * 32, PAIRS[0])
    shares = []
    for name, single in (("closed", "<|endoftext|> $A <|im_end|>"), ("open", "<|endoftext|> $A")):
        model = with_special_tokens(tmp_path / name, single)
        named = config(**{"model.model": str(model)})
        check_annotator(named)
        (answer,) = asked(named, PAIR, [question])
        shares.append((answer.probabilities, answer.tokens[0]))
    assert shares[0] == shares[1]


@pytest.mark.parametrize(
    ("dtype", "multiplies", "says"),
    [
        ("float32", True, True),
        ("auto", True, True),
        ("float32", False, False),
        ("bfloat16", True, False),
    ],
)
def test_a_judge_in_float32_names_the_bfloat16_of_its_processor(
    config, capsys, monkeypatch, dtype, multiplies, says
) -> None:
    monkeypatch.setattr(products, "has_bfloat16_products", lambda: multiplies)
    annotator = make_annotator(config(**{"model.dtype": dtype}))
    annotator.start()
    annotator.close()
    assert capsys.readouterr().out.count("model.dtype=bfloat16") == says


def test_a_base_model_reads_plain_text(config, tmp_path) -> None:
    base = made_up_judge.write(tmp_path / "base", template=None)
    annotator = make_annotator(config(**{"model.model": str(base)}))
    text = annotator.preview(Question("0" * 32, PAIRS[0])).text
    assert text.startswith("You judge messages of a game.")
    assert text.endswith("A or B?\n\nMessage")


def test_the_dry_run_counts_the_models_own_tokens(config) -> None:
    question = Question("0" * 32, PAIRS[0])
    (answer,) = asked(config(), PAIR, [question])
    assert make_annotator(config()).preview(question).tokens == answer.tokens[0]


@pytest.mark.parametrize(("values", "batch"), [({}, 16), ({"model.batch": 3}, 3)])
def test_a_batch_suits_the_cpu_unless_it_is_named(config, monkeypatch, values, batch) -> None:
    batches = []
    monkeypatch.setattr(model_judge, "NextToken", lambda *arguments: batches.append(arguments[-1]))
    make_annotator(config(**values)).start()
    assert batches == [batch]


def test_the_largest_batch_is_what_its_tokens_allow() -> None:
    prompts = [[1] * 32] * 1000

    def largest(batch: int) -> int:
        return max(part.width * part.size for part in next_token.batches(prompts, batch))

    assert largest(64) < largest(128) == largest(256) == TOKENS_OF_BATCH
