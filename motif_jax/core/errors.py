"""The error type for users."""

from __future__ import annotations

from collections.abc import Iterator


class UserError(Exception):
    """Something the user can put right: a bad value, a missing folder, a refused resume.

    The message is one line that names what is wrong (key and value, or path) and the remedy.
    `motif_jax.launch` prints it and ends with exit code 2; everything else is a bug and shows its
    traceback.
    """

    def __init__(self, message: str) -> None:
        # Quoted values and errors of libraries may have several lines, or escape sequences that a
        # terminal obeys.
        super().__init__(printable(" ".join(message.split())))


def printable(text: str) -> str:
    """`text` with characters that a terminal would obey, such as the beginning of an escape
    sequence, written as \\x1b.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def first_line(error: BaseException) -> str:
    """The first line of an error's message that is not blank, else its type: libraries' messages
    may have pages.
    """
    for line in str(error).splitlines():
        if line.strip():
            return line.strip()
    return type(error).__name__


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yields an error, its cause or context, and so on."""
    visited: set[int] = set()  # an error that a thread raised again may be its own context
    while error is not None and id(error) not in visited:
        visited.add(id(error))
        yield error
        # The context counts although `from None` hides it: behind a file that could not be written
        # lies the full disk that `launch` looks for.
        error = error.__cause__ or error.__context__
