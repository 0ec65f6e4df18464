"""The tiny language models of tests/lm, for the tests of this folder too."""

from tests.lm.conftest import loaded, worded

__all__ = ["loaded", "worded"]
