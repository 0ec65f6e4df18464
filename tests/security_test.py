"""What must not happen whatever is read, served or shown: no code of others runs, no secret is
told, no page runs a game's words.
"""

from __future__ import annotations

import ast
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import TypeGuard

import psutil
import pyarrow.parquet
import pytest
from markdown_it import MarkdownIt

from motif_jax.core.errors import UserError
from motif_jax.lm.weights import INDEX, Tensors
from motif_jax.motif.pairs import parquet
from motif_jax.motif.pairs.dataset import PairsDataset
from tests import made_up_runs
from tests.made_up_runs import HOSTILE, run_data
from tests.processes import REPOSITORY, ended, free_port, launch, wait_until
from tests.reward_fixtures import load_config, make_dataset
from tests.stage_inputs import CONFIGS, variants

SOURCES = [
    *sorted((REPOSITORY / "motif_jax").rglob("*.py")),
    *sorted((REPOSITORY / "configs").glob("*.py")),
]
# Calls that run what they read. Of a shell: what a file names would be a command.
DANGEROUS = re.compile(
    r"\b(c?pickle|dill|cloudpickle|marshal|shelve|joblib|jsonpickle)\.(loads?|open|Unpickler)\(|read_pickle\(|torch\.load\("
    r"|(?<![\w.])(?<!def )(eval|exec|compile|__import__)\(|\bos\.(system|popen)\(|yaml\.(unsafe|full)_load|yaml\.load_all"
    r"|Loader=yaml\.(Unsafe|Full)?Loader|(allow_pickle|shell|trust_remote_code)=True|weights_only=False"
)


def opens_to_write(node: ast.AST) -> TypeGuard[ast.Call]:
    if not (isinstance(node, ast.Call) and re.search(r"(^|\.)open$", ast.unparse(node.func))):
        return False
    arguments = [*node.args, *(word.value for word in node.keywords if word.arg == "mode")]
    texts = [
        part.value
        for argument in arguments
        for part in ast.walk(argument)
        if isinstance(part, ast.Constant)
    ]
    # Not 'x': it opens new files alone, and follows no link.
    return any(re.fullmatch(r"[rbt]*[wa+][bt+]*", str(text)) for text in texts)


@pytest.mark.slow
def test_no_foreign_code_runs_and_only_regular_files_are_written() -> None:
    dangerous = {}
    irregular = []
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        if match := DANGEROUS.search(text):
            dangerous[path] = match[0]
        if path.match("play/films/movie.py"):  # which writes into a folder that it has just made
            continue
        opened = [node for node in ast.walk(ast.parse(text)) if opens_to_write(node)]
        regular = re.compile(r"opener=(files\.)?regular_file\b")
        irregular += [
            (path, node.lineno) for node in opened if not regular.search(ast.unparse(node))
        ]
    assert dangerous == {}
    assert irregular == []


# Names that would lead out of the folder that a file describes.
OUTSIDE = ("../outside", "/outside", "a/../../outside", "..", "")


@pytest.mark.parametrize("name", OUTSIDE)
def test_an_imported_dataset_writes_nowhere_but_into_its_folder(name: str, tmp_path: Path) -> None:
    make_dataset(tmp_path / "dataset", pairs=4, messages=3)
    for _ in parquet.write(PairsDataset.open(tmp_path / "dataset"), tmp_path / "good.parquet"):
        pass
    table = pyarrow.parquet.read_table(tmp_path / "good.parquet")
    described = json.loads(table.schema.metadata[b"described"])
    known = table.schema.metadata
    tables = [
        table.replace_schema_metadata(
            {**known, b"described": json.dumps(described | change).encode()}
        )
        for change in (
            {"arrays": {**described["arrays"], name: described["arrays"]["data/blstats"]}},
            {"manifests": {"test": {name: {}}}},
            {"manifests": {name: {"shard-00000-of-00001.json": {}}}},
        )
    ]
    renamed = [
        column.replace("preference/test", f"preference/{name}") for column in table.column_names
    ]
    tables.append(table.rename_columns(renamed).replace_schema_metadata(known))
    before = set(tmp_path.rglob("*"))
    for changed in tables:
        pyarrow.parquet.write_table(changed, tmp_path / "bad.parquet")
        with pytest.raises(UserError):
            list(parquet.read(tmp_path / "bad.parquet", tmp_path / "new" / "folder"))
    created = {path.relative_to(tmp_path).as_posix() for path in set(tmp_path.rglob("*")) - before}
    assert created <= {"bad.parquet", "new", "new/folder"}


@pytest.mark.parametrize("name", OUTSIDE)
def test_the_weights_of_a_model_lie_in_its_folder(name: str, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / INDEX).write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(UserError, match="which is not in the folder"):
        Tensors(tmp_path / "model")


@pytest.mark.extra
def test_hosts_of_one_machine_listen_to_nobody_else(tmp_path: Path) -> None:
    port = free_port()
    hosts = {"coordinator": f"localhost:{port}", "count": 2, "index": 0}
    flags = [f"--config.hosts.{key}={value}" for key, value in hosts.items()]
    program = launch(tmp_path / "run", "train_agent.py:recall", *flags, log=tmp_path / "log")

    def places() -> set[str]:
        here = psutil.Process(program.pid).net_connections("inet")
        here = [one for one in here if one.status == psutil.CONN_LISTEN and one.laddr.port == port]
        return {one.laddr.ip.removeprefix("::ffff:") for one in here}

    with ended([program]):
        wait_until(places, "the first host listens")
        assert places() == {"127.0.0.1"}


def test_servers_of_ours_listen_on_this_machine_alone_by_default() -> None:
    servers = [name for name in CONFIGS if name.startswith("serve_")]
    hosts = {
        load_config(name, variant).get("host") for name in servers for variant in variants(name)
    }
    assert hosts == {"127.0.0.1"}
    script = (REPOSITORY / "launch" / "llm_server.sh").read_text(encoding="utf-8")
    assert '--host "${LLM_HOST:-127.0.0.1}"' in script


class Page(HTMLParser):
    """What a browser would see of a page: its elements, its programs and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.scripts: list[str] = []
        self.handlers: list[str] = []
        self.bold = self.data = ""
        self._inside: list[tuple[str, bool]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        self._inside.append((tag, dict(attrs).get("type") == "application/json"))

    def handle_endtag(self, tag: str) -> None:
        while self._inside and self._inside.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        tag, is_json = self._inside[-1] if self._inside else ("", False)
        if tag == "script" and not is_json:
            self.scripts.append(data)
        self.bold += data if tag == "b" else ""
        self.data += data


@pytest.mark.slow
def test_pages_show_what_games_models_and_servers_say_as_text(tmp_path: Path) -> None:
    data = run_data(tmp_path)
    shown = made_up_runs.run_page(data, HOSTILE)
    assert not re.findall(r"""(?:src|href)=["'](?:https?:)?//""", shown), "nothing is fetched"
    assert "default-src 'none'" in shown
    assert set(re.findall(r'href="#([^"]+)"', shown)) <= set(re.findall(r'\bid="([^"]+)"', shown))
    html = Page(shown)
    data.title = HOSTILE
    data.labels = {HOSTILE: {"first": 1}}
    table = made_up_runs.run_texts(data)["report.md"]
    markdown = Page(MarkdownIt("commonmark").enable("table").render(table))
    assert markdown.scripts == []
    scripts = (REPOSITORY / "motif_jax/display/assets").glob("*.js")
    assets = {path.read_text(encoding="utf-8") for path in scripts}
    assert set(html.scripts) <= assets, "a program that is none of ours"
    assert html.handlers == []
    for page in (markdown, html):
        assert HOSTILE in page.data
        assert "bold" not in page.bold
