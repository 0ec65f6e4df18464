"""Escaped answers say the same as plain ones."""

from __future__ import annotations

import pytest

from motif_jax.core.verdicts import NO, SECOND, SINGLE, TIE, YES
from motif_jax.motif.annotation.escapes import plain
from motif_jax.motif.annotation.parsing import AnswerParser
from motif_jax.motif.annotation.prompts import load_prompt, prompt_path

PARSE = AnswerParser(load_prompt(prompt_path("default", ""), "defaultgoal", "analysis").answer)
SINGLE_FORM = load_prompt(
    prompt_path("default", "", SINGLE), "defaultgoal", "analysis", SINGLE
).answer

SECONDS = {
    "Markdown": r'("best\_description": "2")',
    "Markdown, all signs": r"\(\"best\_description\"\: \"2\"\)",
    "HTML": "(&quot;best_description&quot;: &quot;2&quot;)",
    "HTML, numbers": "(&#34;best&#95;description&#x22;: &#34;2&#34;)",
    "HTML, twice": "(&amp;quot;best_description&amp;quot;: &amp;quot;2&amp;quot;)",
    "JSON in a text": r'"I think.\n(\"best_description\": \"2\")"',
    "JSON, codes": r"\u0022best_description\u0022: \u00222\u0022",
    "URL": "%22best%5Fdescription%22:%20%222%22",
    "LaTeX": r"$\text{best\_description}: \boxed{2}$",
    "LaTeX, the verdict alone": r"\boxed{2}",
    "fullwidth": "（＂ｂｅｓｔ＿ｄｅｓｃｒｉｐｔｉｏｎ＂：＂２＂）",
    "digits of another script": "best_description: ٢",
    "bold digits": "best_description: 𝟐",
    "a keycap": "best_description: 2️⃣",
    "unseen characters": "best\u200b_description:\ufeff 2",
    "curly marks": "(“best_description”: “2”)",
    "a hyphen that does not break": "best\u2011description: 2",
    "no joint": "bestDescription: 2",
    "an element": "<best_description>2</best_description>\n1. because of this",
    "an object": '{"best_description": {"value": "2"}}',
    "a list": '{"best_description": ["2"]}',
    "a decimal": '{"best_description": 2.0}',
}


@pytest.mark.parametrize("text", SECONDS.values(), ids=SECONDS)
def test_an_escaped_verdict_counts(text):
    assert PARSE(text) == SECOND


@pytest.mark.parametrize(
    "text", ['{"best_description": null}', '```json\n{\n  "best_description":\n  null\n}\n```']
)
def test_null_is_the_tie(text):
    assert PARSE(text) == TIE


def test_truth_values_are_yes_and_no():
    parse = AnswerParser(SINGLE_FORM)
    assert parse('{"good_news": true}') == YES
    assert parse('{"good_news": false}') == NO


def test_what_is_not_escaped_stays():
    assert plain("You kill the newt! $5 & 7 < 9, 100%") == "You kill the newt! $5 & 7 < 9, 100%"
