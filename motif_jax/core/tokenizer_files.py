"""Reads a tokenizer.json from an untrusted source."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from tokenizers import Tokenizer

from motif_jax.core.errors import UserError


def read(path: str | os.PathLike[str]) -> Tokenizer:
    """Opens a tokenizer.json, without the padding and truncation that it may ask for. Raises UserError: it cannot be read."""
    try:
        with working(str(path)):
            backend = Tokenizer.from_file(str(path))
    except UserError:
        raise
    except Exception as error:  # tokenizers raises plain Exception
        raise UserError(f"{path} cannot be read: {error}") from None
    backend.no_padding()
    backend.no_truncation()
    return backend


@contextlib.contextmanager
def working(source: str) -> Iterator[None]:
    """Raises UserError where the tokenizer `source` panics in the block, as on a regular expression that backtracks forever."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # the compiled library does not export its class
            raise
        raise UserError(f"{source} cannot be used: one of its regular expressions fails ({error})") from None
