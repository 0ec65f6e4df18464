"""The label of a message or a pair, from a judge's answer."""

from __future__ import annotations

from motif_jax.core.verdicts import FIRST, PAIR, TIE, YES, Form
from motif_jax.motif.annotation.labels import TURNED
from motif_jax.motif.annotation.store import StoredAnswer


def judged_label(form: Form, answer: StoredAnswer, is_turned: bool) -> tuple[int, float | None]:
    """Label and probability of texts from the answer about them, or about their reverse order
    (`is_turned`).
    """
    label = int(TURNED[answer.label]) if is_turned else answer.label
    if answer.probabilities is None:
        return label, None
    if form is PAIR:
        # A tie counts half for each of the two.
        probability = answer.probabilities[FIRST] + answer.probabilities[TIE] / 2
    else:
        probability = answer.probabilities[YES]
    # The first of the question is the second of the texts.
    return label, 1.0 - probability if is_turned else probability
