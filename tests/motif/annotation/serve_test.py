"""What the served lexicon replies: to this project's questions, and to anything else."""

from __future__ import annotations

from motif_jax.core.verdicts import SINGLE
from motif_jax.motif import serve_annotator
from motif_jax.motif.annotation.config import AnnotatorConfig
from motif_jax.motif.annotation.prompts import MODES, load_prompt, prompt_path
from motif_jax.motif.annotation.serve import ChatJudge, handle
from tests.recorded_outputs import assert_matches_packed_recording
from tests.reward_fixtures import load_config

GOLD = "$ - 24 gold pieces."
ASKED = [{}, {"response_format": {"type": "json_schema"}}, {"logprobs": True}]
BODIES = [
    b"",
    b"[1]",
    b"{}",
    b'{"model": "gpt"}',
    b'{"model": "lexicon"}',
    b'{"model": "lexicon", "messages": [1, {"role": "user", "content": 7}]}',
]


def test_what_is_replied_to_each_request(tmp_path, record):
    path, lines = tmp_path / "own.yaml", []
    text = prompt_path("default", "", SINGLE).read_text().replace("  gold:", "  shiny:")
    path.write_text(text.replace('{"text": {item}}', "The line: {item}"))
    judge = ChatJudge(AnnotatorConfig(), "lexicon", str(path))
    for method, route in (
        ("GET", "/v1/models/"),
        ("GET", "/v1/other"),
        ("POST", "/v1/models"),
        ("GET", "/v1/chat/completions"),
    ):
        lines += [str(handle(judge, method, route, b""))]
    lines += [str(handle(judge, "POST", "/v1/chat/completions", body)) for body in BODIES]
    own, ours = (load_prompt(path, goal, "verdict", SINGLE) for goal in ("shiny", "combat"))
    prompts = [load_prompt(prompt_path("default", ""), "gold", mode) for mode in MODES]
    talks = [own.conversation(GOLD), ours.retried(ours.conversation(GOLD), "Hm.")]
    talks += [prompt.conversation("You kill the newt!", GOLD) for prompt in prompts]
    talks += [[{"role": "user", "content": "Hello?"}]]
    other = load_prompt(prompt_path("reworded", "", SINGLE), "stairs", "soft", SINGLE)
    talks += [prompts[0].conversation(GOLD, GOLD), other.conversation(GOLD)]
    asked = ({"model": "lexicon", "messages": talk, **more} for talk in talks for more in ASKED)
    lines += [f"{judge.reply(request)}" for request in asked]
    assert_matches_packed_recording("served", {"lines": "\n".join(lines)}, record)


def test_the_line_of_the_start_says_who_is_served(monkeypatch, capsys, record):
    monkeypatch.setenv("A_KEY", "sk-1")

    async def serve(handle, host, port, latency_seconds, listening, key, open_to_all):
        print(host, port, latency_seconds, key, open_to_all)
        listening(80)

    monkeypatch.setattr(serve_annotator.http_server, "serve", serve)
    for values in ({}, {"key_variable": "A_KEY", "open_to_all": True}, {"host": "::", "open_to_all": True}):
        assert serve_annotator.run(load_config("serve_annotator", "", values), None) == 0
    printed = capsys.readouterr().out
    assert printed.count("sk-1") == 1, "only what the test says"
    assert_matches_packed_recording("served_starts", {"printed": printed}, record)
