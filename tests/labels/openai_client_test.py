"""What one question to a server becomes: the key is never shown or kept, and nothing that a server says is more than an answer."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from motif_jax.datasets.verdicts import SINGLE, UNKNOWN, YES
from motif_jax.labels.annotator import Question, check_annotator, make_annotator
from motif_jax.labels.chat_client import ChatClient
from motif_jax.labels.replies import ServerError
from motif_jax.support.errors import UserError
from tests.reward_fixtures import annotation_config

KEY = "sk-Zq/8Xw0Vb5%Kj7Tn"
ASKED = Question("0" * 32, ("You kill the newt!",), SINGLE)
# Further than anything is shown.
OFFSETS = range(420)


def annotator(**values):
    given = {"annotator": "openai", "openai.model": "judge", "openai.retries": 0}
    return make_annotator(annotation_config({**given, **values}), SINGLE)


@pytest.fixture
def ask(monkeypatch):
    """Asks a question that gets such a reply."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    asking = {mode: annotator(**{"answer.mode": mode}) for mode in ("analysis", "soft")}
    for one in asking.values():
        one.start()

    def ask(status, body, headers=(), mode="analysis"):
        async def post(self, request):
            return SimpleNamespace(status=status, headers=dict(headers)), body.encode()

        monkeypatch.setattr(ChatClient, "_post", post)
        return asking[mode].submit(ASKED).result()

    yield ask
    for one in asking.values():
        one.close()


def reply(content, **more):
    return json.dumps({"choices": [{"message": {"content": content}, **more}]})


# Every place of a reply that is shown where something is wrong: status, body, headers, mode.
FAULTS = {
    "no JSON": lambda said: (200, said),
    "no choices": lambda said: (200, json.dumps({"error": said})),
    "no text": lambda said: (200, reply([said])),
    "no log-probabilities": lambda said: (200, reply("", logprobs={"content": [{"token": said}]}), (), "soft"),
    "too likely": lambda said: (200, reply("", logprobs={"content": [{"token": said, "top_logprobs": [{"token": "yes", "logprob": 709}]}]}), (), "soft"),
    "401": lambda said: (401, said),
    "500": lambda said: (500, said),
    "escaped": lambda said: (400, json.dumps(said).replace("/", "\\/").replace("Z", "\\u005A")),
    "moved": lambda said: (308, "", {"location": f"https://other/{said}"}),
    "moved, escaped": lambda said: (308, "", {"location": f"https://other/{said}".replace("%", "%25").replace("/", "%2F")}),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_no_part_of_the_key_is_shown(ask, fault):
    parts = ["".join(part) for part in zip(*(KEY[place:] for place in range(4)), strict=False)]
    # Blanks are taken out of what is shown, so that what is behind many comes to its front.
    for before in (*("x" * offset for offset in OFFSETS), "\n" * 9990):
        with pytest.raises(ServerError) as caught:
            ask(*FAULTS[fault](before + KEY))
        assert not [part for part in parts if part in str(caught.value) + caught.value.cause], len(before)


def test_what_a_server_refuses_for_its_content_has_no_verdict(ask):
    for status in (400, 403, 422):
        assert ask(status, "the content filter was triggered").label == UNKNOWN
    with pytest.raises(ServerError):
        ask(404, "the content filter was triggered")
    with pytest.raises(ServerError, match=r"refuses the request, or the key of .*_KEY, with HTTP 403"):
        ask(403, "no")


def test_a_preview_shows_the_turns_and_about_how_many_tokens_they_have():
    shown, begun = (annotator(**{"answer.mode": mode}).preview(ASKED) for mode in ("analysis", "soft"))
    assert shown.text.startswith("[system]\n")
    assert begun.text.endswith('{"text": "You kill the newt!"}\n[assistant]\n("good_news": "')
    assert (len(shown.text), shown.tokens, shown.exact) == (4 * shown.tokens - 3, shown.tokens, False)


def test_no_key_is_kept_with_a_conversation(ask):
    for offset in OFFSETS:
        answer = ask(200, reply("x" * offset + f'{KEY}\n("good_news": "Yes")'))
        assert answer.label == YES
        assert KEY not in str(answer)
    assert "x***" in str(answer.turns)


def test_nothing_that_a_server_says_steers_the_terminal(ask):
    said = "\x1b]0;owned\x07\x9b2J\u202e"
    for said_so in ((500, said), (308, "", {"location": f"http://{said}"}), (200, reply([said]))):
        with pytest.raises(ServerError, match="owned") as caught:
            ask(*said_so)
        assert str(caught.value).isprintable()
        assert "everything answered so far is kept" in str(caught.value)
        assert caught.value.cause.isprintable()


def test_further_fields_replace_nothing_that_a_question_is():
    given = {"annotator": "openai", "openai.model": "judge", "openai.extra_body": '{"top_k": 5}'}
    config = annotation_config(given)
    check_annotator(config, SINGLE)
    own = '{"top_k": 5, "model": "other"}'
    config = replace(config, openai=replace(config.openai, extra_body=own))
    with pytest.raises(UserError, match=r"config\.openai\.extra_body=.* must be without model and messages"):
        check_annotator(config, SINGLE)
