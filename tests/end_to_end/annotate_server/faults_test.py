"""The openai annotator against a server that behaves badly, or not at all."""

from __future__ import annotations

import pytest

from motif_jax.datasets.verdicts import SINGLE
from motif_jax.labels.annotator import Question, make_annotator
from motif_jax.support.errors import UserError
from tests.end_to_end.annotate_datasets import expected, labels, summary
from tests.reward_fixtures import annotation_config
from tests.tiny_judge import rule


def test_retry_after_is_kept_by_all(run, server, dataset):
    waits = {3: ("Retry-After", "1"), 30: ("retry-after-ms", "700")}

    def behave(number, request):
        return (429, "{}", waits[number]) if number in waits else None

    server.behave = behave
    done = run(openai__retries=3, openai__concurrency=1)
    # Nobody asks in the time that the server wanted for itself.
    assert server.times[3] - server.times[2] >= 1
    assert server.times[30] - server.times[29] >= 0.7
    assert done["retries"] == 2
    assert done["retry_causes"] == {"HTTP 429": 2}
    assert (labels(dataset) == expected(dataset, rule)).all()


def test_what_answers_cost(run):
    prices = {"openai__prices__prompt": 2.0, "openai__prices__completion": 8.0}
    done = run(**prices)
    assert done["cost"] == pytest.approx(done["asked"] * (100 * 2 + 5 * 8) / 1e6)


def test_a_hanging_server_keeps_no_list_from_its_end(server):
    server.met.clear()  # the one request that comes is held
    values = {"annotator": "openai", "openai.base_url": server.url, "openai.model": "judge"}
    config = annotation_config(values)
    annotator = make_annotator(config, SINGLE)
    annotator.start()
    stream = annotator.annotate([Question("0" * 32, ("a",), SINGLE)])
    assert next(stream) is None
    stream.close()
    annotator.close()
    assert not server.met.is_set()
    server.met.set()


CASES = {
    "http 500": (lambda n, r: (500, '{"error": "boom"}'), "answers with HTTP 500"),
    "json": (lambda n, r: (200, {"choices": []}), "returns rubbish"),
    "moved": (
        lambda n, r: (308, "", ("Location", "https://me:word@other.invalid/v1/chat/completions")),
        "on to https://other.invalid/v1: set config.openai.base_url",
    ),
    "request": (lambda n, r: (400, '{"error": "no such field"}'), "refuses the request"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_bad_server_is_one_line_and_all_answers_are_kept(run, server, dataset, case, tmp_path):
    bad, said = CASES[case]
    server.behave = lambda number, request: bad(number, request) if number > 40 else None
    with pytest.raises(UserError, match=said) as caught:
        run()
    assert "\n" not in str(caught.value)
    assert server.url in str(caught.value)
    left = summary(tmp_path / "run")
    assert not left["finished"]
    if case == "http 500":
        assert caught.value.__cause__ is not None
        assert left["asked"] == 40
        assert left["retry_causes"].keys() == {"HTTP 500"}
    server.behave = lambda number, request: None
    done = run()
    assert done["store_hits"] >= 32
    assert done["asked"] + done["store_hits"] == done["questions"]
    assert (labels(dataset) == expected(dataset, rule)).all()
