"""The openai annotator against a server that behaves badly, or not at all."""

from __future__ import annotations

import pytest

from motif_jax.core.errors import UserError
from motif_jax.core.verdicts import SINGLE
from motif_jax.motif.annotation.annotator import Question, make_annotator
from tests.end_to_end.annotate_datasets import expected, labels, summary
from tests.reward_fixtures import annotation_config
from tests.tiny_judge import rule


def test_a_hanging_server_keeps_no_list_from_its_end(server):
    server.met.clear()  # the one request that comes is held
    values = {"annotator": "openai", "openai.base_url": server.url, "openai.model": "judge"}
    annotator = make_annotator(annotation_config(values), SINGLE)
    annotator.start()
    stream = annotator.annotate([Question("0" * 32, ("a",), SINGLE)])
    assert next(stream) is None
    stream.close()
    annotator.close()
    assert not server.met.is_set()
    server.met.set()


def test_a_bad_server_costs_one_line_and_no_answer(run, server, dataset, tmp_path):
    server.behave = lambda number, request: (500, '{"error": "boom"}') if number > 40 else None
    with pytest.raises(UserError, match="answers with HTTP 500") as caught:
        run()
    assert "\n" not in str(caught.value)
    assert server.url in str(caught.value)
    left = summary(tmp_path / "run")
    assert (left["finished"], left["asked"], left["retry_causes"].keys()) == (
        False,
        40,
        {"HTTP 500"},
    )
    server.behave = lambda number, request: None
    done = run()
    assert done["store_hits"] >= 32
    assert done["asked"] + done["store_hits"] == done["questions"]
    assert (labels(dataset) == expected(dataset, rule)).all()
