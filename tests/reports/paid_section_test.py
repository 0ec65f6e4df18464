"""The section of a run's page about what its training paid for."""

from __future__ import annotations

import pytest

from motif_jax.display.charts import Plot
from motif_jax.display.page import Table
from motif_jax.reports.training_sections import paid_section
from motif_jax.rl.paid_texts import PaidRow, PaidText

# First all goes to the door, at the end three quarters to the key.
ROWS = [
    PaidRow(100, 2.0, [PaidText("door", 2, 2.0)]),
    PaidRow(200, 0.0, []),
    PaidRow(1000, 4.0, [PaidText("key", 6, 3.0), PaidText("", 1, 1.0)]),
]


def parts() -> tuple[Plot, Table]:
    section = paid_section(ROWS)
    assert section is not None
    plot, table = section.parts
    return plot, table


def test_a_line_has_a_texts_share_of_each_rows_pay() -> None:
    plot, _ = parts()

    lines = {line.name: line.y.tolist() for line in plot.lines}
    assert lines == {"key": [0.0, 75.0], "door": [100.0, 0.0], "(no message)": [0.0, 25.0]}


def test_the_table_has_the_last_tenth_of_the_training() -> None:
    _, table = parts()

    assert table.title == "what was paid most between steps 200 and 1,000"
    assert table.texts() == [("key", "75.0 %", "3", "6"), ("(no message)", "25.0 %", "1", "1")]


@pytest.mark.parametrize("rows", [[], ROWS[1:2]])
def test_without_payments_there_is_no_section(rows: list[PaidRow]) -> None:
    assert paid_section(rows) is None


def test_a_long_training_has_lines_of_sixty_points() -> None:
    section = paid_section(
        [PaidRow(step, 1.0, [PaidText("door", 1, 1.0)]) for step in range(1, 1001)]
    )

    assert section is not None
    assert section.parts[0].lines[0].y.tolist() == [100.0] * 60
