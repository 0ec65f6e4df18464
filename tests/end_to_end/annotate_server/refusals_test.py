"""What a server refuses of one question: its content, its length, its answer limit."""

from __future__ import annotations

import numpy as np
import pytest

from motif_jax.datasets.verdicts import UNKNOWN
from tests.end_to_end.annotate_datasets import expected, labels
from tests.end_to_end.annotate_server.served import reply
from tests.tiny_judge import rule

FILTERED = {
    "error": {
        "message": "The response was filtered due to the prompt triggering the content management policy.",
        "code": "content_filter",
        "innererror": {"code": "ResponsibleAIPolicyViolation"},
    }
}


@pytest.mark.parametrize(
    "refusal",
    [(400, FILTERED), (200, reply(None, finish_reason="content_filter") | {"usage": {"prompt_tokens": 10**6, "completion_tokens": 0}})],
)  # fmt: skip
def test_a_question_that_a_content_filter_refuses_is_unknown_and_counted(run, server, dataset, refusal):
    def behave(number, request):
        return refusal if "newt" in "".join(server.captions(request)) else None

    server.behave = behave
    done = run(keep_conversations=True)
    assert done["finished"]
    assert 0 < done["refused"] < done["asked"]
    assert done["unknown_notes"] == {"refused by the server's content filter": done["refused"]}
    assert done["prompt_tokens"] // 10**6 == done["refused"] * (refusal[0] == 200), (
        "what they took is counted"
    )
    got, messages = labels(dataset), np.load(dataset / "data" / "message.npy")[:, :, 0]
    newt = np.array([b"newt" in first.tobytes() + second.tobytes() for first, second in messages])
    want = expected(dataset, rule)
    equal = (messages[:, 0] == messages[:, 1]).all(-1)
    assert (got == np.where(newt & ~equal, UNKNOWN, want)).all()


def test_a_prompt_that_is_too_long_is_unknown(run, server, dataset):
    long = {"error": {"message": "This model's maximum context length is 10 tokens."}}
    server.behave = lambda number, request: (400, long) if number == 5 else None
    done = run()
    assert done["unknown_notes"] == {"prompt too long for the model": 1}
    assert (labels(dataset) == 3).sum() >= 1


def test_an_answer_longer_than_the_context_is_left_to_the_server(run, server, dataset):
    said = "max_tokens=4096 cannot be greater than max_model_len=512. Please request fewer output tokens."
    refusal = {"error": {"message": said}}
    server.behave = lambda number, request: (400, refusal) if "max_tokens" in request else None
    assert run()["answer_limit"] == "the server's own"
    assert (labels(dataset) == expected(dataset, rule)).all()


UNSUPPORTED = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."


def test_a_server_with_another_name_for_the_answer_limit_is_given_that(run, server, dataset):
    refusal = (400, {"error": {"message": UNSUPPORTED}})
    server.behave = lambda number, request: refusal if "max_tokens" in request else None
    done = run(answer__mode="verdict")
    assert done["answer_limit"] == "max_completion_tokens"
    assert (labels(dataset) == expected(dataset, rule)).all()
    limits = {
        request.get("max_completion_tokens") for request in server.requests if "max_tokens" not in request
    }
    assert limits == {request["max_tokens"] for request in server.requests if "max_tokens" in request}
