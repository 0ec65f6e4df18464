"""Messages are divided into sentences, as texts and as rows of bytes."""

from __future__ import annotations

import numpy as np
import pytest

from motif_jax.core import sentences

WIDTH = 64


def rows(*messages: str, encoding: str = "utf-8") -> np.ndarray:
    """uint8 [N, WIDTH], zero-padded."""
    data = b"".join(message.encode(encoding).ljust(WIDTH, b"\0") for message in messages)
    return np.frombuffer(data, np.uint8).reshape(-1, WIDTH)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("", [""]),
        ("You see here a key.", ["You see here a key."]),
        (
            "You faint from lack of food.  You regain consciousness.",
            ["You faint from lack of food.", "You regain consciousness."],
        ),
        ("You open the door. You walk out!", ["You open the door.", "You walk out!"]),
        ('"Who are you?" You flee.', ['"Who are you?"', "You flee."]),
        ("What do you want to eat? [abc or ?*]", ["What do you want to eat? [abc or ?*]"]),
        ("It costs 1.5 gold... and more.", ["It costs 1.5 gold... and more."]),
    ],
)
def test_a_message_is_split_into_its_sentences(message: str, expected: list[str]) -> None:
    assert [part.decode() for part in sentences.split_bytes(message.encode())] == expected


def test_rows_divide_as_messages_and_list_each_sentence_once() -> None:
    divided = sentences.split_rows(
        rows("You wait.  You sleep.", "You sleep.", "You sleep.  You wait.  You wait.")
    )

    np.testing.assert_array_equal(divided.sentences, rows("You wait.", "You sleep."))
    assert divided.of_message == [(0, 1), (1,), (1, 0, 0)]


@pytest.mark.parametrize("message", ["", " You wait. ", "no full stop", "   "])
def test_a_message_of_one_sentence_stays_as_it_is(message: str) -> None:
    divided = sentences.split_rows(rows(message))

    np.testing.assert_array_equal(divided.sentences, rows(message))
    assert divided.of_message == [(0,)]


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_bytes_of_any_encoding_stay_as_they_are(encoding: str) -> None:
    divided = sentences.split_rows(rows("Ce café est fermé. Vous êtes fatigué.", encoding=encoding))

    np.testing.assert_array_equal(
        divided.sentences, rows("Ce café est fermé.", "Vous êtes fatigué.", encoding=encoding)
    )


def test_no_messages_have_no_sentences() -> None:
    divided = sentences.split_rows(np.zeros((0, WIDTH), np.uint8))

    assert divided.sentences.shape == (0, WIDTH)
    assert divided.of_message == []


def test_blanks_of_unicode_divide_nothing() -> None:
    first = "You see A.\u00a0You see B."

    assert sentences.split_bytes(f"{first}  You see C.".encode()) == [
        first.encode(),
        b"You see C.",
    ]
