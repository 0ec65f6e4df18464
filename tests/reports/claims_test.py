"""How claims are read: their methods, whose names may end as a margin does, and their margins."""

from __future__ import annotations

import pytest

from motif_jax.core.errors import UserError
from motif_jax.reports import study


@pytest.mark.parametrize(
    ("text", "less", "margin"),
    [
        ("a > b-2 - 0.1: success", "b-2", -0.1),
        ("a > b-2: success", "b-2", 0.0),
        ("a > b + 0.3: success", "b", 0.3),
    ],
)
def test_a_claims_margin_is_above_or_below_the_other_method(
    text: str, less: str, margin: float
) -> None:
    claim = study.parsed_claims(text, ["a", "b", "b-2"])[0]

    assert (claim.less, claim.margin) == (less, margin)
    assert str(claim) == text


@pytest.mark.parametrize(
    ("text", "methods", "more", "less", "margin"),
    [
        ("lr=1e-4 > lr=1e+3: r", ["lr=1e-4", "lr=1e", "lr=1e+3"], "lr=1e-4", "lr=1e+3", 0.0),
        ("a > a+1: r", ["a", "a+1"], "a", "a+1", 0.0),
        ("a+1 > a + 1: r", ["a", "a+1"], "a+1", "a", 1.0),
        ("a+1 > a - 0.5: r", ["a", "a+1"], "a+1", "a", -0.5),
    ],
)
def test_a_name_may_end_as_a_margin_does(
    text: str, methods: list[str], more: str, less: str, margin: float
) -> None:
    (claim,) = study.parsed_claims(text, methods)

    assert (claim.more, claim.less, claim.measure, claim.margin) == (more, less, "r", margin)


def test_a_claim_of_an_unknown_method_is_refused() -> None:
    with pytest.raises(UserError, match=r"^config.claims=combat > silver: kills: must be 'A > B:"):
        study.parsed_claims("combat > silver: kills", ["combat", "gold"])
