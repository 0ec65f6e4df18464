"""The tiny language models of tests/lm, for the tests of this folder too."""

from tests.lm.conftest import all_compiled_quickly, loaded, worded

__all__ = ["all_compiled_quickly", "loaded", "worded"]
