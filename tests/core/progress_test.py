"""The progress line of a stage: counts, rates, times, and how they are printed."""

from __future__ import annotations

import io

import pytest

from motif_jax.core.progress import Progress, format_number, format_seconds


class Clock:
    """A clock in place of the module `time`; moves where a test moves it."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("motif_jax.core.progress.time", clock)
    return clock


def test_progress_says_count_rate_and_time_left(clock: Clock) -> None:
    stream = io.StringIO()
    with Progress(2000, "pairs", "annotate", initial=5, stream=stream) as progress:
        # Until the first are done programs are compiled.
        for seconds, done, fields in (
            (3, 5, {}),
            (9, 5, {}),
            (12, 45, {"loss": 0.123456}),
            (5, 65, {}),
            (5, 89, {"a_b": 1234}),
            (10, 139, {}),
            (10, 199, {}),
            (20, 319, {"last": "\x1b]0;owned\x07"}),
        ):
            clock.now += seconds
            progress.update(done, **fields)
        progress.log("a note\nof \x1b[2J")
        clock.now += 1
        progress.update(2004)  # the last batch may go beyond
    assert stream.getvalue().splitlines() == [
        "annotate  5 / 2,000 pairs  0 %",
        "annotate  45 / 2,000 pairs  2 %  loss 0.123",
        "annotate  89 / 2,000 pairs  4 %  4.4 pairs/s  7 min 14 s left  loss 0.123  a b 1,234",
        "annotate  139 / 2,000 pairs  7 %  4.7 pairs/s  6 min 36 s left  loss 0.123  a b 1,234",
        "annotate  199 / 2,000 pairs  10 %  5.13 pairs/s  5 min 51 s left  loss 0.123  a b 1,234",
        r"annotate  319 / 2,000 pairs  16 %  5.75 pairs/s  4 min 52 s left  loss 0.123  a b 1,234  last \x1b]0;owned\x07",
        "a note",
        r"of \x1b[2J",
        r"annotate  2,004 / 2,000 pairs  100 %  60.2 pairs/s  took 1 min 15 s  loss 0.123  a b 1,234  last \x1b]0;owned\x07",
    ]


def test_units_that_end_together_have_the_whole_times_rate(clock: Clock) -> None:
    stream = io.StringIO()
    with Progress(18, "questions", "annotate", stream=stream) as progress:
        clock.now += 9
        progress.update(17)
        clock.now += 0.001
        progress.update(18)

    assert stream.getvalue() == "annotate  18 / 18 questions  100 %  2 questions/s  took 9 s\n"


def test_a_slow_unit_has_a_line_every_ten_seconds(clock: Clock) -> None:
    stream = io.StringIO()
    with Progress(8, "episodes", "play", initial=3, stream=stream) as progress:
        for seconds, steps in ((6, 32), (6, 64), (6, 96), (6, 128)):
            clock.now += seconds
            progress.show(steps=steps)
        clock.now += 1
        progress.update(4, steps=130)
        clock.now += 40
        progress.update(6)

    assert stream.getvalue().splitlines() == [
        "play  3 / 8 episodes  38 %  steps 64",
        "play  3 / 8 episodes  38 %  steps 128",
        "play  6 / 8 episodes  75 %  0.05 episodes/s  40 s left  steps 130",
    ]


def test_on_a_terminal_a_line_is_written_over(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    with Progress(10, "steps", "train", stream=stream) as progress:
        progress.update(4, loss=1.0)
        progress.log("a [b]note")
        clock.now += 8
        progress.update(9)
    first, last = stream.getvalue().split("a [b]note\n")
    assert (first.count("\n"), last.count("\n")) == (0, 1)
    assert last.endswith(
        "\r\x1b[2Ktrain  9 / 10 steps  90 %  0.625 steps/s  2 s left  loss 1\n\x1b[?25h"
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (200, "3 min 20 s"),
        (3599, "59 min 59 s"),
        (3600, "1 h"),
        (3 * 3600 + 120, "3 h 2 min"),
        (47 * 3600, "47 h"),
        (48 * 3600, "2 d"),
        (4 * 86400 + 3600, "4 d 1 h"),
    ],
)
def test_times_have_their_two_largest_units(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (12345.6, "12,346"),
        (1000.0, "1,000"),
        (999.4, "999"),
        (0.000123456, "0.000123"),
        (7, "7"),
        (0.0, "0"),
        (1234567, "1,234,567"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        ("a", "a"),
    ],
)
def test_numbers_have_three_digits_and_whole_ones_all(number: float | str, text: str) -> None:
    assert format_number(number) == text
