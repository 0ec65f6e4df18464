"""How long the sentences of the pages are, and which words of the glossary's left column they
use.
"""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

from markdown_it import MarkdownIt

REPOSITORY = Path(__file__).parent.parent
GLOSSARY = REPOSITORY / "docs" / "glossary.md"
LONGEST = 35
MEAN = 20

_LEFT_OUT = re.compile(
    # tables that a program writes
    r"<!-- (?P<name>[a-z_]+)\b[^>]*-->.*?<!-- (?:/(?P=name)|(?P=name): end) -->"
    r"|^\$\$.*?^\$\$"
    r"|<!--.*?-->",
    flags=re.MULTILINE | re.DOTALL,
)
_CODES = re.compile(r"CODE(?:(?:, | and | or |, and |/| )CODE)*")
_NO_END = re.compile(r"\b(et al|e\.g|i\.e|vs|etc|cf|Fig|Sec|No|App)\.(?= )")


def paragraphs(text: str) -> list[str]:
    """Running text of a Markdown page: paragraphs, headings, list items and table cells, with CODE
    for stretches of code.
    """
    blocks = MarkdownIt("commonmark").enable("table").parse(_LEFT_OUT.sub("\n", text))
    replacements = {"code_inline": "CODE", "softbreak": " ", "hardbreak": " ", "html_inline": ""}
    texts = [
        "".join(replacements.get(part.type, part.content) for part in block.children or ())
        for block in blocks
        if block.type == "inline"
    ]
    return [_CODES.sub("CODE", paragraph) for paragraph in texts]


def sentences(text: str) -> list[str]:
    """Sentences of a page; a paragraph, a list item or a table cell ends one."""
    plain = [_NO_END.sub(r"\1", paragraph) for paragraph in paragraphs(text)]
    sentences_of = [sentence for one in plain for sentence in re.split(r"(?<=[.!?])[)\"'*]* ", one)]
    return [sentence for sentence in sentences_of if re.search(r"[A-Za-z]{2}", sentence)]


def length(sentence: str) -> int:
    """Words of a sentence; a stretch of code is one, numbers and signs are none."""
    return sum(bool(re.search(r"[A-Za-z]", word)) for word in sentence.split())


def measure(text: str) -> tuple[float, str]:
    """The mean length of a page's sentences of three words or more, and the longest one."""
    counted = [sentence for sentence in sentences(text) if length(sentence) >= 3] or [""]
    return sum(map(length, counted)) / len(counted), max(counted, key=length)


@functools.cache
def refused_words() -> list[str]:
    """What docs and messages do not say, from the last column of the table of docs/glossary.md."""
    rows = re.findall(
        r"^\| [^|]+ \| [^|]+ \| ([^|]+) \|$", GLOSSARY.read_text(encoding="utf-8"), flags=re.M
    )
    return [
        phrase.strip()
        for instead in rows[1:]
        for phrase in instead.split(", ")
        if phrase.strip() != "–"
    ]


def odd_words(text: str) -> list[str]:
    """Phrases of the glossary's last column in the running text of a page, what is quoted left
    out.
    """
    text = re.sub(r'"[^"\n]*"', "", "\n".join(paragraphs(text)))
    return [word for word in refused_words() if re.search(rf"\b{re.escape(word)}\b", text, re.I)]


def messages(source: str) -> list[tuple[int, str]]:
    """(line, text) of what a module's `UserError(...)` and `print(...)` say, values left out."""
    faults = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("UserError", "print"):
            parts = [
                part.value
                for argument in node.args
                for part in ast.walk(argument)
                if isinstance(part, ast.Constant) and isinstance(part.value, str)
            ]
            faults.append((node.lineno, "".join(parts)))
    return faults
