"""The charts of a run's trainings, and what a page without folders says."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from motif_jax.core.metric_files import Curve
from motif_jax.display import charts, page
from motif_jax.reports import report
from motif_jax.reports.run_data import RunData
from motif_jax.reports.training_sections import (
    METRIC_GROUPS,
    dialogues_section,
    language_section,
    training_section,
)
from tests.made_up_runs import run_data, run_page

TEXT_METRICS = (
    "train/loss", "validation/loss", "train/q_mean", "train/q_max", "train/q_min", "train/v_x", "validation/perplexity",
    "optimizer/learning_rate", "games/return", "other/x", "train/gradient_norm",
)  # fmt: skip


@pytest.mark.parametrize("section_of", [dialogues_section, language_section])
def test_trainings_from_text_have_a_chart_for_each_number(section_of) -> None:
    curves = {
        name: Curve(np.arange(5.0), np.arange(5.0) ** power)
        for power, name in enumerate(TEXT_METRICS)
    }

    charted = section_of(curves).parts

    titles = [plot.title for plot in charted]
    assert charted
    assert all(plot.lines for plot in charted)
    assert len(titles) == len(set(titles))


@pytest.mark.parametrize("section_of", [dialogues_section, language_section])
def test_a_run_without_a_training_has_no_section_of_it(section_of) -> None:
    assert section_of({}) is None


@pytest.mark.parametrize("section_of", [dialogues_section, language_section])
def test_a_single_row_of_metrics_has_no_chart(section_of) -> None:
    curves = {name: Curve(np.ones(1), np.ones(1)) for name in TEXT_METRICS}

    assert "no metric has changed yet" in "".join(section_of(curves).parts)


def test_an_agents_single_row_of_metrics_has_no_chart() -> None:
    metrics = {"policy/entropy": Curve(np.ones(1), np.ones(1))}

    parts = training_section(RunData("t", metrics=metrics)).parts

    assert "no metric has changed yet" in "".join(parts)


def test_curves_of_a_chart_say_each_how_they_were_averaged() -> None:
    curves = {
        "train/loss": Curve(np.arange(600.0), np.arange(600.0)),
        "validation/loss": Curve(np.arange(5.0), np.arange(5.0)),
    }

    (plot,) = language_section(curves).parts

    first, second = plot.method.split(". ")
    assert first.startswith("training: mean over each of 120 stretches")
    assert first.endswith("n = 600")
    assert second == "held out: every value; n = 5"


def test_curves_averaged_alike_say_so_once() -> None:
    curve = Curve(np.arange(5.0), np.arange(5.0))

    (plot,) = language_section({"train/loss": curve, "validation/loss": curve}).parts

    assert plot.method == "every value; n = 5"


def test_groups_of_metrics_are_metrics_with_their_units(repository):
    units = {}
    for line in (repository / "docs" / "metrics.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        for name in re.findall(r"`([a-z_]+/[a-z_]+)`", cells[1] if len(cells) > 3 else ""):
            units[name] = f"{cells[2]}; {cells[3]}"
    for unit, members in METRIC_GROUPS.values():
        for name in members:
            assert name in units
            # The page and docs/metrics.md must agree on which side of the coefficients a number
            # lies.
            assert ("before" in unit) == ("before" in units[name]), name
            assert ("with its coefficient" in unit) == ("with their coefficients" in units[name]), (
                name
            )


def test_every_chart_of_a_run_is_a_picture_too(tmp_path: Path) -> None:
    by_file = page.plots(report.sections(run_data(tmp_path)))

    paths = charts.write(tmp_path / "plots", {"a": by_file["reward_by_message"]})

    assert {
        "training_return",
        "metric_intrinsic_against_extrinsic_reward",
        "reward_by_message",
        "evaluation_return",
    } <= set(by_file)
    assert paths[0].read_bytes().startswith(b"\x89PNG")


def test_lines_of_a_chart_are_named_in_its_legend(tmp_path: Path) -> None:
    by_file = page.plots(report.sections(run_data(tmp_path)))

    assert [line.name for line in by_file["metric_policy_lag"].lines] == ["mean", "largest"]
    assert [line.name for line in by_file["training_return"].lines] == [""], "its title says it"


def test_the_page_says_what_is_missing() -> None:
    text = run_page(RunData(title="Nothing"))

    for part in ("evaluation", "agent run", "reward run", "dataset"):
        assert f"no {part} was given" in text
    assert "Episodes" not in text


def test_the_menu_lists_the_sections() -> None:
    text = run_page(RunData(title="Nothing"))

    menu = text.partition("<nav>")[2].partition("</nav>")[0]
    assert re.findall(r'<a href="#([^"]+)">', menu) == re.findall(r'<section id="([^"]+)">', text)


def test_a_page_shows_four_training_charts_and_folds_the_rest(tmp_path: Path) -> None:
    section = training_section(run_data(tmp_path))

    unfolded = [part.title for part in section.parts if isinstance(part, page.Plot)]
    [fold] = [part for part in section.parts if isinstance(part, page.Fold)]
    assert unfolded == ["intrinsic return", "return", "dungeon level", "game score"]
    assert {"speed", "losses", "time/updates"} <= {plot.title for plot in fold.parts}


@pytest.mark.slow
def test_what_never_changes_is_a_sentence_and_no_chart(tmp_path: Path) -> None:
    data = run_data(tmp_path)

    titles = [plot.title for plot in page.plots([training_section(data)]).values()]
    assert "experience level" not in titles
    sentence = "The same in every episode: gold 3, experience level 1, length 800, success rate 0."
    assert sentence in run_page(data)


@pytest.mark.slow
def test_bands_are_explained_once_on_a_page(tmp_path: Path) -> None:
    data = run_data(tmp_path)

    assert run_page(data).count("95 % interval of their mean") == 1


def test_a_chart_as_a_file_says_how_it_was_averaged(tmp_path: Path) -> None:
    plot = page.plots(report.sections(run_data(tmp_path)))["training_return"]

    note = charts.picture(plot, alone=True).get_supxlabel().replace("\n", " ")
    assert "stretches of steps" in note
    assert "stretches of steps" not in charts.figure(plot)
