from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from motif_jax.core.errors import UserError
from motif_jax.core.verdicts import UNKNOWN, YES
from motif_jax.ilql.tasks.reddit.task import Reddit
from motif_jax.motif.annotation.annotator import Answer
from motif_jax.motif.annotation.lexicon import LexiconAnnotator
from motif_jax.motif.annotation.text_judge import TextJudge, annotator_config
from tests import made_up_judge


def options_of(**options: Any) -> dict[str, Any]:
    return Reddit(options).options


def test_a_lexicon_reads_no_prompt() -> None:
    config = annotator_config(options_of(), "rude")

    assert config.goal == "rude"
    assert config.prompt.file == ""
    assert config.lexicon.file == "comments.yaml"


def test_a_model_answers_greedily_by_the_prompt_about_toxicity() -> None:
    config = annotator_config(options_of(annotator="vllm", model="m"), "toxic")

    assert Path(config.prompt.file).parts[-2:] == ("comments", "toxicity.yaml")
    assert config.answer.mode == "soft"
    assert config.sampling.temperature == 0.0
    assert config.vllm.model == "m"


def test_a_model_in_this_process_is_that_of_the_task(tmp_path: Path) -> None:
    model = made_up_judge.write(tmp_path / "model")
    judge = TextJudge(
        "reddit", options_of(annotator="model", model=str(model), store=str(tmp_path / "store"))
    )

    judge.check("rude")

    assert judge.loads_model
    assert annotator_config(options_of(annotator="model", model="m"), "rude").model.model == "m"


def test_a_server_has_the_address_and_prompt_of_the_task() -> None:
    options = options_of(annotator="openai", server="http://a", model="m", prompt="p.yaml")

    config = annotator_config(options, "rude")

    assert config.openai.base_url == "http://a"
    assert config.openai.model == "m"
    assert config.prompt.file == "p.yaml"


def test_an_unknown_answer_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = Answer(UNKNOWN)
    monkeypatch.setattr(LexiconAnnotator, "annotate", lambda self, questions: iter([(0, unknown)]))
    judge = TextJudge("reddit", options_of(store=str(tmp_path)))

    with pytest.raises(
        UserError, match=r"config\.reddit\.annotator: has no answer to whether 'x{40}' is rude:"
    ):
        judge.probabilities("rude", ["x" * 50])


def test_an_unclear_answer_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [Answer(UNKNOWN), Answer(YES)]
    monkeypatch.setattr(
        LexiconAnnotator, "annotate", lambda self, questions: iter([(0, answers.pop(0))])
    )

    assert TextJudge("reddit", options_of(store=str(tmp_path))).probabilities("rude", ["x"]) == {
        "x": 1.0
    }
    assert not answers


def test_what_was_unclear_before_a_stop_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(answer: Answer) -> Any:
        monkeypatch.setattr(
            LexiconAnnotator, "annotate", lambda self, questions: iter([(0, answer)])
        )
        return TextJudge("reddit", options_of(store=str(tmp_path))).probabilities("rude", ["x"])

    monkeypatch.setattr("motif_jax.motif.annotation.text_judge.ATTEMPTS", 1)
    with pytest.raises(UserError, match="has no answer"):
        ask(Answer(UNKNOWN))
    monkeypatch.setattr("motif_jax.motif.annotation.text_judge.ATTEMPTS", 3)
    assert ask(Answer(YES)) == {"x": 1.0}


def test_a_new_judge_opens_no_store(tmp_path: Path) -> None:
    judge = TextJudge("reddit", options_of(store=str(tmp_path / "store")))

    judge.check("rude")

    assert not judge.loads_model
    assert not (tmp_path / "store").exists()
