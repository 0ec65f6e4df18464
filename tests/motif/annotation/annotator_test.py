"""Annotators from outside the package, and their options."""

from __future__ import annotations

import pytest

from motif_jax.core import entry_points
from motif_jax.core.errors import UserError
from motif_jax.core.verdicts import FIRST, SECOND
from motif_jax.motif.annotation.annotator import (
    Annotator,
    Answer,
    Question,
    check_keys_of_others,
    make_annotator,
    own_options,
)
from motif_jax.motif.annotation.config import AnnotationConfig
from motif_jax.schema import read_section
from tests.reward_fixtures import annotation_config, load_config

OWN = f"{__name__}:Favourite"


class Favourite(Annotator):
    """Prefers the text that its option names."""

    def __init__(self, config, form, dataset):
        self.identity = {"annotator": "favourite"}
        self.short_name = "favourite"
        self._text = own_options(config)["text"]

    def annotate(self, questions):
        for position, question in enumerate(questions):
            yield position, Answer(FIRST if question.items[0] == self._text else SECOND)


@pytest.fixture(autouse=True)
def trusted(monkeypatch):
    monkeypatch.setenv("MOTIF_JAX_TRUST", "")
    entry_points.trust([OWN])


def made(options):
    return make_annotator(annotation_config({"annotator": OWN, "options": options}))


def test_options_reach_an_annotator_of_ones_own():
    answers = made('{"text": "b"}').annotate([Question("0" * 32, ("a", "b"))])
    assert [answer.label for _, answer in answers] == [SECOND]


def test_answers_under_other_options_are_others():
    identities = [made(f'{{"text": "{text}"}}').identity for text in "aab"]
    assert identities[0] == identities[1] != identities[2]


@pytest.mark.parametrize(
    ("annotator", "key", "reader"),
    [
        ("lexicon", "openai.model", "openai"),
        ("random", "lexicon.file", "lexicon"),
        ("openai", "model.model", "model"),
        ("model", "vllm.model", "vllm"),
    ],
)
def test_a_model_of_an_annotator_not_chosen_is_refused(annotator, key, reader):
    config = annotation_config({"annotator": annotator, key: "mine"})
    words = (
        f"config.{key}='mine': must be left at '': the annotator {reader} reads it, not {annotator}"
    )
    with pytest.raises(UserError, match=f"^{words}$"):
        check_keys_of_others(config)


@pytest.mark.parametrize(
    ("variant", "annotator"),
    [("crafter", "model"), ("minigrid", "openai"), ("faithful", "lexicon"), ("", OWN)],
)
def test_what_variants_set_is_left_to_any_annotator(variant, annotator):
    config = load_config("annotate", variant, {"annotator": annotator})
    check_keys_of_others(read_section(AnnotationConfig, config))
