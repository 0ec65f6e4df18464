"""Files of a dataset of tokens.

tokens.npy              uint16 or int32 [tokens]  all items, concatenated
offsets.npy             int64 [items + 1]         item i is tokens[offsets[i] : offsets[i + 1]]
token_columns/NAME.npy  [tokens]                  a number for each token, such as a reward
item_columns/NAME.npy   [items]                   a number for each item, such as the length of its
                                                  prompt
tokens.json             the tokenizer, counts, digests, origin of the texts; written last
"""

from __future__ import annotations

from typing import Any

import numpy as np

MANIFEST = "tokens.json"
STAGING = ".part"  # suffix of a dataset's folder while it is written
TOKENS = "tokens"
OFFSETS = "offsets"
TOKEN_COLUMNS = "token_columns"
ITEM_COLUMNS = "item_columns"


def token_dtype(vocab_size: int) -> np.dtype[Any]:
    """The smallest dtype of tokens of the vocabulary."""
    return np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.int32)
