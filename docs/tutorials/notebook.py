"""Makes notebooks of pages: their commands are cells, all else is text.

python docs/tutorials/notebook.py
"""

import json
import re
from pathlib import Path

PAGES = [Path(__file__).with_name(name) for name in ("my_environment.md", "judge_on_a_laptop.md")]
_BASH = re.compile(r"^```bash\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
# Where the commands are given, and what their `python` is.
_FIRST = 'import os\nimport sys\n\nos.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]\n%cd ../..'


def notebook(page: str) -> str:
    """The notebook of a page, as the text of its file."""
    # A text stands between each two blocks of commands, and before the first.
    parts = [part.strip() for part in _BASH.split(page)]
    cells = [_cell("markdown", parts[0]), _cell("code", _FIRST)]
    for position, part in enumerate(parts[1:], start=1):
        if not part:
            continue
        is_command = position % 2 == 1
        cells.append(_cell("code", f"%%bash\n{part}") if is_command else _cell("markdown", part))
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    content = {
        "cells": cells,
        "metadata": {"kernelspec": kernel},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _cell(kind: str, text: str) -> dict[str, object]:
    code = {"execution_count": None, "outputs": []} if kind == "code" else {}
    return {"cell_type": kind, "metadata": {}, "source": text.splitlines(keepends=True), **code}


if __name__ == "__main__":
    for page in PAGES:
        page.with_suffix(".ipynb").write_text(
            notebook(page.read_text(encoding="utf-8")), encoding="utf-8"
        )
