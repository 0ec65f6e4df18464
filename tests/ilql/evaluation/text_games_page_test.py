"""The page of games token by token: colours of guesses, numbers below tokens, and how it looks in a
real browser.
"""

from __future__ import annotations

import re
from typing import Any

from motif_jax.ilql.evaluation import text_games_page
from tests.made_up_runs import HOSTILE

PLAN = {
    "environment": "wordle", "policy": HOSTILE, "seed": 3, "values": True,
    "decode": {
        "kind": "rerank", "batches": 2, "width": 4, "advantages": True, "advantage_weight": 16.0, "advantage_clip": 0.0,
        "logits": False,
    },
}  # fmt: skip


def game(index: int, tokens: bool) -> dict[str, Any]:
    colours = ["<b><y><b><b><g>", "<y><b><b><b><g>", HOSTILE, "<g><g><g><g><g>"]
    guesses = ["raise", "abide", "ab<g>", "angle"]
    texts = [text for turn in zip(guesses, colours, strict=True) for text in turn]
    rewards = [-1.0, None, -1.0, None, -1.0, None, 0.0, None]
    row: dict[str, Any] = {
        "index": index, "length": 4, "success": 1.0, "divergence": 3.25,
        "dialogue": {"texts": texts, "rewards": rewards, "terminal": True},
    }  # fmt: skip
    if tokens:
        numbers = {
            name: [0.5 + offset, 0.25, -1, 2, 3, 4]
            for offset, name in enumerate(("steered", "policy", "v", "q"))
        }
        numbers |= {"by_policy": [*"slate", "</a>"], "by_values": [*"crane", "</a>"]}
        row["tokens"] = [{"pieces": [*text, "</a>"], **numbers} for text in guesses]
        row["tokens"][2]["pieces"] = ["a", "b", "<g>", "</a>", "</a>", "</a>"]
    return row


def test_what_games_say_is_never_markup() -> None:
    page = text_games_page.render([game(0, True), game(1, False)], PLAN)
    assert HOSTILE not in page
    assert page.count("</script>") == page.count("<script")


def test_guesses_of_a_game_without_tokens_are_shown_whole() -> None:
    page = text_games_page.render([game(0, False)], PLAN)

    shown = re.sub(r"<[^>]*>", "", page)
    for guess in ("raise", "abide", "angle"):
        assert guess in shown.replace(" ", "").replace("\n", "")


def test_games_without_success_or_divergence_are_shown() -> None:
    policy_alone = PLAN | {
        "values": False,
        "decode": {"kind": "sample", "advantages": False, "logits": True},
    }
    lost = game(2, True) | {"success": 0.0}
    other = game(3, False) | {"success": None}
    del lost["divergence"]
    for one in (lost, other):
        one["dialogue"]["texts"][3::2] = ["", "plain", "<b><y>"]

    page = text_games_page.render([lost, other], policy_alone)

    assert page.rstrip().endswith("</html>")
    assert "plain" in page
    # Of the lost game it is not known.
    assert page.count("divergence from the policy 3.25 nats") == 1


def test_a_page_without_games_is_whole() -> None:
    page = text_games_page.render([], PLAN | {"decode": None})

    assert page.rstrip().endswith("</html>")
