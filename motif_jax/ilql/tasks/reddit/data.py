"""Reads the published files of comments: comments_positive.csv, then comments_negative.csv."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple

from motif_jax.core.errors import UserError

FILES = ("comments_positive.csv", "comments_negative.csv")
# Columns, from 0, of comment, score and parent.
COMMENT, SCORE, PARENT = 4, 5, 10


class Comment(NamedTuple):
    """A comment; `score` is upvotes minus downvotes, `parent` the text that it replies to."""

    text: str
    score: int
    parent: str


def read_comments(key: str, folder: str) -> list[Comment]:
    """All comments of both files in `folder`, the first row of each skipped.

    Raises UserError: a file is missing or damaged; it names the config's `key`.
    """
    # Comments may exceed csv's default limit of a field.
    csv.field_size_limit(1 << 27)
    comments = []
    for name in FILES:
        # Comments have line ends of their own, which csv has to see.
        with open(Path(folder) / name, encoding="utf-8-sig", newline="") as file:
            rows = csv.reader(file)
            next(rows, None)
            for row in rows:
                try:
                    comments.append(Comment(row[COMMENT], int(row[SCORE]), row[PARENT]))
                except (IndexError, ValueError):
                    raise UserError(
                        f"config.{key}={folder}: {name}, line {rows.line_num}: must have a comment in column {COMMENT}, its "
                        f"score, a whole number, in column {SCORE}, and its parent in column {PARENT} (counted from 0)"
                    ) from None
    return comments
