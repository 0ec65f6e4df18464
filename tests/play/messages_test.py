from __future__ import annotations

import itertools

import numpy as np

from motif_jax.motif.annotation.captions import decode_message
from motif_jax.play import messages
from motif_jax.play.messages import MessageTally, as_text, message_of


def test_a_shown_message_can_be_read_back():
    pieces = (b"\\", b"x", b"0", b"a", b"5c", b"41", b"\n", b"\xe9", b"\x7f", b" ", b"\0")
    raw = [b"".join(some) for some in itertools.product(pieces, repeat=4)]
    raw += [bytes([byte]) for byte in range(256)]
    for message in raw:
        shown = as_text(message)
        assert shown.isascii()
        assert shown.isprintable()
        assert message_of(shown) == decode_message(np.frombuffer(message, np.uint8))


def test_texts_of_any_script_are_shown_and_come_back():
    for text in ("你赢了", "Ты умер!", "can’t 🔑", "a\\x41 \\u4f60", "tab\t\x1b[31m", "\u202eabc"):
        shown = as_text(text.encode())
        assert shown.isprintable()
        assert message_of(shown) == text
    assert as_text("你赢了".encode()) == "你赢了"
    assert as_text(b"caf\xe9") == "caf\\xe9"


def test_the_messages_of_an_episode_come_back() -> None:
    tallies = [MessageTally("You kill it!", 3, reward=2.5, total=4.0), MessageTally("", 7)]
    assert messages.unpack(messages.pack(tallies)) == tallies
