"""The openai annotator against a server that behaves well: labels, answer modes, costs,
settings.
"""

from __future__ import annotations

import numpy as np
import pytest

from motif_jax.core.errors import UserError
from tests.end_to_end.annotate_datasets import expected, labels, stored
from tests.end_to_end.annotate_server.served import KEY, NAME, reply
from tests.tiny_judge import rule


@pytest.mark.parametrize(
    "mode", ["analysis", pytest.param("verdict", marks=pytest.mark.slow), "soft"]
)
def test_labels_follow_the_server(run, server, dataset, mode, tmp_path):
    server.met.clear()
    done = run(answer__mode=mode)
    assert (labels(dataset) == expected(dataset, rule)).all()
    assert done["asked"] == len(server.requests)
    assert done["prompt_tokens"] == 100 * done["asked"]
    assert 1 < server.max_at_once <= 8
    request = server.requests[0]
    assert (request["temperature"] == 0) == (mode == "soft")
    assert ("structured_outputs" in request) == (mode == "verdict")
    if mode == "soft":
        assert request["messages"][-1]["content"] == '("best_description": "'
        assert request["continue_final_message"] is True
        probabilities = np.load(dataset / "annotations" / NAME / "probabilities.npy")
        winner = probabilities[labels(dataset) == 0][0]
        np.testing.assert_allclose(winner, [0.8, 0.1, 0.1], rtol=1e-5)
        assert done["mean_verdict_mass"] == pytest.approx(1)
    else:
        assert len({one["seed"] for one in server.requests}) == len(server.requests)
    # The key goes to the server and nowhere else.
    assert server.keys == {f"Bearer {KEY}"}
    assert not any(KEY.encode() in path.read_bytes() for path in tmp_path.rglob("*.json*"))
    answers = stored(tmp_path / "store")
    assert len(answers) == done["asked"]
    assert all(len(answer["items"]) == 2 for answer in answers)
    assert all(("text" in answer) == (mode != "soft") for answer in answers)


def test_retry_turn_and_unknown_alone(run, server, dataset):
    def hesitate(number, request):
        turns = request["messages"]
        if "fountain" in turns[1]["content"] and len(turns) < 4:
            return 200, reply("Hm.")
        return None

    server.behave = hesitate
    alone = run(answer__retry=False, name="alone")
    unknown = labels(dataset, "alone") == 3
    assert unknown.any()
    assert alone["merged"]["unknown"] == unknown.sum()
    assert np.isnan(np.load(dataset / "annotations" / "alone" / "probabilities.npy")[unknown]).all()
    # The same command asks nothing; one more attempt asks the unknown ones alone.
    assert run(answer__retry=False, name="alone")["asked"] == 0
    server.behave = lambda number, request: None
    again = run(answer__retry=False, name="alone", attempts=2)
    assert 0 < again["asked"] < 40
    assert again["unknown_share"] == 0
    assert (labels(dataset, "alone") == expected(dataset, rule)).all()
    server.behave = hesitate
    retried = run()
    assert retried["retried_share"] > 0
    assert (labels(dataset, NAME) == expected(dataset, rule)).all()


def test_soft_labels_of_a_server_without_log_probabilities(run, server):
    server.behave = lambda number, request: (200, reply("1"))
    with pytest.raises(UserError, match=r"config\.answer\.mode=soft needs"):
        run(answer__mode="soft")


@pytest.mark.parametrize("word", ["\u25811", "token_id:32"])
def test_pieces_of_a_vocabulary_leave_no_answer_in_the_store(run, server, dataset, word):
    token = {"token": word, "logprob": 0.0}
    raw = {"logprobs": {"content": [{**token, "top_logprobs": [token]}]}}
    server.behave = lambda number, request: (200, reply("", **raw))
    with pytest.raises(UserError, match="a piece of a vocabulary"):
        run(answer__mode="soft")
    server.behave = lambda number, request: None
    done = run(answer__mode="soft")
    assert (done["store_hits"], done["unknown_share"]) == (0, 0)
    assert (labels(dataset) == expected(dataset, rule)).all()
