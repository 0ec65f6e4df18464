"""The page of tokens: what is in it, and how it looks in a real browser."""

from __future__ import annotations

import numpy as np
import pytest

from motif_jax.display import token_page
from motif_jax.display.token_page import TokenText
from tests import browser
from tests.made_up_runs import HOSTILE

PIECES = [
    *"You| see| here| a| key|.\n".split("|"),
    HOSTILE,
    "",
    "x" * 200,
    " the",
    "</script>",
    "\u2028end",
]


def texts() -> list[TokenText]:
    draws = np.random.default_rng(0)
    log_probs = -draws.exponential(2.0, len(PIECES))
    log_probs[0] = np.nan
    rows = {
        "log-probability (nats)": log_probs,
        "entropy (nats)": draws.exponential(1.0, len(PIECES)),
    }
    more = {
        "value": draws.normal(size=len(PIECES)),
        f"advantage {HOSTILE}": draws.normal(size=len(PIECES)),
    }
    tiled = {name: np.tile(row, 12) for name, row in (rows | more).items()}
    return [
        TokenText(HOSTILE, PIECES, rows, start=6, note=f"by {HOSTILE}"),
        TokenText("with values", PIECES * 12, tiled),
        TokenText("bare", ["only", " words"], {}),
        TokenText("nothing", [], {}),
    ]


def test_what_texts_say_is_never_markup() -> None:
    page = token_page.render(texts(), f"Tokens of {HOSTILE}", HOSTILE)
    assert HOSTILE not in page
    # The page's own scripts and data alone end scripts.
    assert page.count("</script>") == page.count("<script")


def test_the_page_of_no_texts_says_so() -> None:
    assert "no text" in token_page.render([], "Tokens", "")


def test_the_largest_number_of_all_texts_has_the_full_colour() -> None:
    several = [
        TokenText("one", ["a"], {"value": [-3.0]}),
        TokenText("two", ["b"], {"value": [2.0]}),
    ]
    assert '{"scales":{"value":3.0}}' in token_page.render(several, "Tokens", "")


def test_a_row_of_zeros_has_a_scale() -> None:
    page = token_page.render([TokenText("zeros", ["a", "b"], {"value": [0.0, 0.0]})], "Tokens", "")
    assert '{"scales":{"value":1.0}}' in page


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokens")
    page = token_page.render(texts(), "Token by token", "tiny")
    (folder / "tokens.html").write_text(page, encoding="utf-8")
    with browser.open_browser() as driver:
        driver.get(f"file://{folder}/tokens.html")
        yield driver, folder


_TOKENS = """
return [...document.querySelectorAll('#text-1-tokens .token')].slice(0, 12).map(t =>
  [t.textContent, t.classList.contains('below') ? -1 : t.classList.contains('above') ? 1 : 0,
   Number(getComputedStyle(t).getPropertyValue('--share'))])
"""


@pytest.mark.browser
@pytest.mark.parametrize(("width", "dark"), [(1400, False), (420, True)])
def test_it_fits_and_can_be_read(opened, width, dark):
    driver, folder = opened
    for opens in (False, True):
        driver.execute_script(
            "for (const d of document.querySelectorAll('details')) d.open = arguments[0]", opens
        )
        name = f"tokens-{width}-{'dark' if dark else 'light'}{'-open' if opens else ''}.png"
        browser.check_look(driver, folder / name, width, dark)


@pytest.mark.browser
def test_the_chosen_row_colours_tokens_that_show_their_numbers(opened):
    driver, _ = opened
    rows = texts()[1].rows
    scale = {name: np.nanmax(np.abs(row)) for name, row in rows.items()}
    for name in (next(iter(rows)), "value"):
        driver.execute_script(
            "const s = document.getElementById('token-row'); s.value = arguments[0]; s.dispatchEvent(new Event('change'));",
            name,
        )
        shown = driver.execute_script(_TOKENS)
        for (_, sign, share), value in zip(shown, rows[name], strict=False):
            assert sign == (0 if np.isnan(value) else np.sign(value))
            assert share == pytest.approx(
                0 if np.isnan(value) else abs(value) / scale[name], abs=2e-3
            )
    assert shown[6][0] == HOSTILE
    driver.execute_script("document.querySelectorAll('#text-1-tokens .token')[4].focus()")
    tip = driver.find_element("css selector", ".token-tip").text
    assert '" key"' in tip
    for name, row in rows.items():
        assert f"{name}: {float(f'{row[4]:.4g}'):g}" in tip
