"""The first recorded dialogues that rank_text ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from motif_jax.ilql import rank_text
from motif_jax.ilql.dialogues import parquet
from motif_jax.ilql.dialogues.dialogue import Dialogue, Dialogues
from motif_jax.ilql.evaluation.config import RankTextConfig


@pytest.mark.parametrize(("limit", "expected"), [(1, 2), (2, 2), (3, 3), (4, 4), (9, 4)])
def test_the_first_dialogues_end_with_a_complete_group(
    tmp_path: Path, limit: int, expected: int
) -> None:
    """The first two dialogues are one group."""
    groups = ({"group": 0}, {"group": 0}, {"group": 1}, {})
    dialogues = [Dialogue(("a",), (0.0,), True, group) for group in groups]
    parquet.write(tmp_path / "dialogues.parquet", [Dialogues.of(dialogues)], {})
    config = RankTextConfig(data=str(tmp_path), dialogues=limit)

    assert len(rank_text.read_dialogues(config)) == expected
