"""Formats, tables, charts, curves and verdicts, without a browser."""

from __future__ import annotations

import itertools
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from rich.console import Console

from motif_jax.core.metric_files import Curve
from motif_jax.display import charts, measures, page, plots, text_tables
from motif_jax.display.charts import Interval, Plot, Series
from motif_jax.oni import label_log
from motif_jax.oni.label_log import LabelLog
from motif_jax.oni.label_queue import Label
from motif_jax.reports import hacking, learned_reward, run_report
from motif_jax.reports.learned_reward import LabelLogReport, LearnedText
from motif_jax.reports.training_sections import (
    METRIC_GROUPS,
    dialogues_section,
    language_section,
    training_section,
)
from tests.made_up_runs import HOSTILE, run_data, run_page


def rising(count, times=1.0):
    return Curve(np.arange(float(count)), times * np.arange(count))


def test_a_learned_reward_disagrees_only_where_it_decides():
    texts = [
        LearnedText(f"{label} {said}", 7, 9_000, label, at - 3.5, (0.5, at / 3), said)
        for at, (label, said) in enumerate(itertools.product(("", "no", "yes"), (None, False, True)))
    ]
    texts += [LearnedText("still", None, None, "no", 0.0, (2.0, 2.0)), LearnedText("never", 5, None, "")]
    decided = learned_reward.disagreements(LabelLogReport("", texts=texts))
    assert [text.text for text in decided] == ["no True", "yes False"]
    counts = {"no": rising(4, 0), "yes": rising(4, 3), "tie": rising(4)}
    told = LabelLogReport("classification", counts, rising(4, 50), texts, (1_000, 20_000))
    metrics = dict.fromkeys(("annotator/questions", "reward/texts_met", "x"), rising(3, 5))
    bare = LabelLogReport("retrieval", {}, rising(2, 0), [LearnedText("a", 1, 2, "yes")], (5,))
    shown = page.render("t", "", [learned_reward.section(told, metrics, top=25)])
    # Pairs of "said" and the label disagree in two places.
    assert "no True" in shown
    assert "yes False" in shown
    assert page.render("t", "", [learned_reward.section(bare, {})]).rstrip().endswith("</html>")
    assert learned_reward.section(None, metrics) is None


def test_a_label_log_is_counted_over_steps(tmp_path):
    single = [Label(("a",), 1, tokens=7, step=50, met=20), Label(("b",), 0, tokens=2, step=90, met=60)]
    pair = [Label(("a", "b"), 2, tokens=5, step=30), Label(("a", "c"), 0, step=40)]
    of_pairs = {"first": [0, 1], "second": [0, 0], "tie": [1, 1]}
    wanted = {"single": ({"no": [0, 1], "yes": [1, 1]}, [7, 9]), "pair": (of_pairs, [5, 5])}
    for name, labels in (("single", single), ("pair", pair), ("none", [])):
        (tmp_path / name).mkdir()
        assert learned_reward.read(tmp_path / name, "ranking") is None
        with LabelLog(tmp_path / name / label_log.FILE) as log:
            log.add(labels)
        found = learned_reward.read(tmp_path / name, "ranking")
        counts = {of: curve.y.tolist() for of, curve in found.counts.items()}
        assert (counts, found.tokens and found.tokens.y.tolist()) == wanted.get(name, ({}, None))
        assert all(curve.x.tolist() == [label.step for label in labels] for curve in found.counts.values())
        texts = [LearnedText("a", 20, 50, "yes"), LearnedText("b", 60, 90, "no")]
        assert (found.kind, found.texts) == ("ranking", texts if name == "single" else [])


def test_trainings_from_text_have_a_chart_for_each_number():
    names = "train/loss validation/loss train/q_mean train/q_max train/q_min train/v_x validation/perplexity optimizer/learning_rate"
    names += " games/return policy/kl other/x train/gradient_norm"
    curves = {name: Curve(np.arange(5.0), np.arange(5.0) ** at) for at, name in enumerate(names.split())}
    for of in (dialogues_section, language_section):
        assert of({}) is None
        charted = of(curves).parts
        assert charted
        assert all(plot.lines for plot in charted)
        titles = [plot[0] for plot in charted]
        assert len(titles) == len(set(titles))


def test_numbers_and_those_at_axes_are_short():
    values = (0.0, 12345.6, 0.12345, -3.0, 250.4, 2e-5, float("nan"))
    assert " ".join(map(measures.format_value, values)) == "0 12,346 0.123 -3 250 2.0e-05 n/a"
    values = (0, 0.001, 0.0009, 999, 1000, -1500, 2e6, 3e9)
    assert " ".join(map(charts.short, values)) == "0 0.001 9.0e-04 999 1k -1.5k 2M 3G"


def test_charts_of_like_names_are_files_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr(plots, "draw", lambda plot: {"png": plot})
    written = plots.write(tmp_path, {"A/b": b"1", "a?b": b"2", "a b": b"3", "..": b"4", "x" * 101: b"5"})
    assert [path.stem for path in written] == ["A_b", "a_b-2", "a_b-3", "_", "x" * 100]
    assert [path.read_bytes() for path in written] == [b"1", b"2", b"3", b"4", b"5"]


def test_tables_show_text_literally():
    header, rows = ("a|b", "c_d"), [("[x|y\nz", '*[red]50%[/red] & $1 \\ {}<~^>#"\x1b')]
    console = Console(width=90, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(text_tables.terminal(header, rows, "[bold]title"))
    assert "*[red]50%[/red] & $1" in console.export_text()
    assert "\x1b" not in console.export_text(clear=False)
    latex = text_tables.latex(header, rows, "A 95 %\n\ntable", "tab:x")
    for escaped in (r"50\%", r"\& \$1", r"\{\}", r"c\_d", r"A 95 \%"):
        assert escaped in latex
    markdown = text_tables.markdown(header, rows)
    assert r"a\|b" in markdown
    assert len(markdown.strip().splitlines()) == 3, "a cell has no line breaks"


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\t=1", "\r=1"])
def test_a_spreadsheet_takes_no_text_for_a_formula(text):
    assert text_tables.csv_cell(text) == f"'{text}"
    assert text_tables.csv_cell(f"a{text}") == f"a{text}"


def test_charts_are_valid_and_say_when_empty():
    x = np.arange(5.0)
    y = np.array([1, np.nan, 3, 4, 2])
    lines = [Series(HOSTILE, x, y, y - 1, y + 1), Series("b", x[:1], y[:1])]
    drawn = charts.inline(charts.picture(Plot("d", "x", "y <unit>", lines)), "d")
    root = ElementTree.fromstring(drawn)
    assert "".join(root.itertext()).count(charts.plain(HOSTILE).strip()) == 1
    assert "nan" not in drawn.lower()
    assert "<script" not in drawn
    [line, *_] = [e.get("d") for e in root.iter() if "stroke: var(--c0)" in e.get("style", "") and e.get("d")]
    assert line.count("M") == 2, "a gap where a value is missing"
    assert "no data" in charts.figure(Plot("d", "x", "y", [Series("", x, x * np.nan)]))
    intervals = [Interval(HOSTILE, 1, 0.5, 2), Interval("one", 5, np.nan, np.nan), Interval("b", 0, 0, 0)]
    drawn = charts.inline(charts.picture(Plot("d", "x", "", intervals=intervals)), "d")
    titles = [e.text for e in ElementTree.fromstring(drawn).iter() if e.tag.endswith("title")]
    assert titles == [f"{HOSTILE}: 1 [0.5, 2]", "one: 5 [n/a]", "b: 0 [0, 0]"]


def test_more_reward_with_less_progress_is_a_sign_of_hacking():
    def side(reward, depth, count=20):
        found = {"intrinsic_return": np.full(count, reward), "xlvl": np.zeros(count)}
        return found if depth is None else found | {"dlvl": np.full(count, depth)}

    cases = {
        (1.0, 1.0): "",
        (0.0, 3.0): "",
        (3.0, 1.0): "bad",
        (3.0, 3.0): "good",
        (3.0, 2.0): "",
        (3.0, None): "",
    }
    assert hacking.judge_training({}).line.startswith("Not checked for reward hacking")
    for now, kind in cases.items():
        verdict, few = (hacking.judge(side(1.0, 2.0), side(*now, count), ("a", "b")) for count in (20, 19))
        assert (verdict.kind, few.kind) == (kind, ""), now
        assert few.line == "Not checked for reward hacking: 19 episodes on one side, at least 20 are needed."
        assert "from a (n = 20) to b (n = 20), intrinsic return 1 to " in verdict.line


def test_a_training_is_judged_by_its_first_and_last_fifth():
    steps = np.arange(101.0)
    reward = np.where(steps <= 20, 1.0, np.where(steps >= 80, 3.0, 50.0))
    reward[[10, 90]] = np.nan
    curves = {"intrinsic_return": Curve(steps, reward), "dlvl": Curve(steps, 1 / reward)}
    verdict = hacking.judge_training(curves)
    assert verdict.line == (
        "Sign of reward hacking: from the first 20 % of training (n = 20) to the last 20 % (n = 20), intrinsic return 1 to 3 rises "
        "while dungeon level 1.00 to 0.33 falls."
    )


def test_groups_of_metrics_are_metrics_with_their_units(repository):
    listed = {}
    for line in (repository / "docs" / "metrics.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        for name in re.findall(r"`([a-z_]+/[a-z_]+)`", cells[1] if len(cells) > 3 else ""):
            listed[name] = f"{cells[2]}; {cells[3]}"
    for unit, members in METRIC_GROUPS.values():
        for name in members:
            assert name in listed
            # The page and docs/metrics.md must agree on which side of the coefficients a number lies.
            assert ("before" in unit) == ("before" in listed[name]), name
            assert ("with its coefficient" in unit) == ("with their coefficients" in listed[name]), name


def test_every_chart_of_a_run_is_a_picture_too(tmp_path):
    found = page.plots(run_report.sections(run_data(tmp_path)))
    wanted = "training_return metric_intrinsic_against_extrinsic_reward reward_by_message evaluation_return"
    assert set(wanted.split()) <= set(found)
    assert [line.name for line in found["metric_policy_lag"].lines] == ["mean", "largest"]
    written = plots.write(tmp_path / "plots", {"a": found["reward_by_message"]})
    assert written[0].read_bytes().startswith(b"\x89PNG")


def test_the_page_says_what_is_missing():
    shown = run_page(run_report.RunData(title="Nothing"))
    for part in ("evaluation", "agent run", "reward run", "dataset"):
        assert f"no {part} was given" in shown
    menu = shown.partition("<nav>")[2].partition("</nav>")[0]
    assert re.findall(r'<a href="#([^"]+)">', menu) == re.findall(r'<section id="([^"]+)">', shown)
    assert "Episodes" not in shown


def test_a_page_shows_four_charts_of_the_training_and_folds_the_rest(tmp_path):
    section = training_section(run_data(tmp_path))
    shown = [part for part in section.parts if isinstance(part, page.Plot)]
    assert [plot.title for plot in shown] == ["intrinsic return", "game score", "dungeon level", "scout"]
    [fold] = [part for part in section.parts if isinstance(part, page.Fold)]
    assert {"return", "speed", "losses", "time/updates"} <= {plot.title for plot in fold.parts}


def test_what_never_changes_is_a_sentence_and_no_chart(tmp_path):
    data = run_data(tmp_path)
    assert "experience level" not in [plot.title for plot in page.plots([training_section(data)]).values()]
    told = "The same in every episode: gold 3, experience level 1, length 800, success rate 0."
    assert told in run_page(data)


def test_how_curves_are_averaged_is_said_once_on_a_page_and_below_each_file(tmp_path):
    data = run_data(tmp_path)
    assert run_page(data).count("95 % interval of their mean") == 1
    drawn = page.plots(run_report.sections(data))["training_return"]
    assert "stretches of steps" in drawn.method
    assert "stretches of steps" not in charts.figure(drawn)
    assert "stretches of steps" in charts.picture(drawn, alone=True)._supxlabel.get_text().replace("\n", " ")


def test_a_long_label_stays_beside_its_axes():
    line = Series("a line", np.arange(3.0), np.arange(3.0))
    plot = Plot("t", "x", "reward a step, before its coefficient", [line])
    figure = charts.picture(plot)
    figure.draw_without_rendering()
    label = figure.axes[0].yaxis.label.get_window_extent()
    legend = figure.legends[0].get_window_extent()
    assert label.y1 <= legend.y0
