"""An annotator whose answers are all the first, and which may fail on the way."""

from __future__ import annotations

from motif_jax.core.errors import UserError
from motif_jax.core.verdicts import FIRST
from motif_jax.motif.annotation.annotator import Annotator, Answer


class Scripted(Annotator):
    """Answers in reverse order, and fails after so many answers."""

    identity = {"annotator": "scripted"}
    short_name = "scripted"

    def __init__(self, fails_after=None):
        self.fails_after = fails_after

    def annotate(self, questions):
        for answered, position in enumerate(reversed(range(len(questions)))):
            if answered == self.fails_after:
                raise UserError("the server is gone")
            yield position, Answer(FIRST)
