"""Writes a page of options for each config when mkdocs builds the site: its head, its keys.

mkdocs calls `on_files` in an environment without the package, whose own runs this file.
"""

from __future__ import annotations

import json
import runpy
import subprocess
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
_INDEX = """# Options

Every key of every stage, from the text that `--config=FILE --help` prints. A key is a flag of the command: `--config.seed=7`.

"""


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages to those of the site."""
    from mkdocs.structure.files import File

    done = subprocess.run(
        [REPOSITORY / ".venv" / "bin" / "python", __file__],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    for name, text in json.loads(done.stdout).items():
        files.append(File.generated(config, name, content=text))
    return files


def pages() -> dict[str, str]:
    """The Markdown of each page by its name in the site."""
    names = [path.stem for path in sorted((REPOSITORY / "configs").glob("*.py"))]
    written = {f"options/{name}.md": _page(name) for name in names}
    links = "\n".join(f"* [{name}]({name}.md)" for name in names)
    return {"options/index.md": f"{_INDEX}{links}\n", **written}


def _page(name: str) -> str:
    from motif_jax import schema

    module = runpy.run_path(str(REPOSITORY / "configs" / f"{name}.py"))
    rows = [
        f"| `{key}` | `{value!r}` | {_cell(allowed)} | {_cell(meaning)} |"
        for key, value, allowed, meaning in schema.described(module["get_config"]())
    ]
    table = "\n".join(["| key | default | may be | meaning |", "|---|---|---|---|", *rows])
    return f"# Options of {name}\n\n```text\n{module['__doc__'].strip()}\n```\n\n{table}\n"


def _cell(text: str) -> str:
    # What a page's author means by these signs, a key's help does not.
    for sign in "|<>*_[]":
        text = text.replace(sign, f"\\{sign}")
    return text


if __name__ == "__main__":
    print(json.dumps(pages()))
