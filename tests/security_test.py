"""What must not happen whatever is read, served or shown: no code of others runs, no secret is told, no page runs a game's words."""

from __future__ import annotations

import ast
import csv
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest

from motif_jax.support.errors import UserError
from tests import made_up_runs
from tests.made_up_runs import HOSTILE, run_data
from tests.processes import REPOSITORY, ended, free_port, launch, wait_until

SOURCES = [*sorted((REPOSITORY / "motif_jax").rglob("*.py")), *sorted((REPOSITORY / "configs").glob("*.py"))]
# Calls that run what they read. Of a shell: what a file names would be a command.
FORBIDDEN = re.compile(
    r"(c?pickle|dill|cloudpickle|marshal|shelve|joblib|jsonpickle|pandas|pd)\.(loads?|open|Unpickler|read_pickle)"
    r"|torch\.load|eval|exec|compile|os\.(system|popen)|yaml\.(unsafe_load|full_load|load_all|unsafe_load_all)|(builtins\.)?__import__"
    r"|.*\.(read_pickle|Unpickler)"
)
SAFE_LOADERS = ("yaml.BaseLoader", "yaml.SafeLoader", "yaml.CSafeLoader")


def calls(path: Path) -> Iterator[tuple[int, str, dict[str, str]]]:
    """Line, name and keyword arguments of every call in a file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            given = {word.arg: ast.unparse(word.value) for word in node.keywords if word.arg}
            yield node.lineno, ast.unparse(node.func), given


def dangerous(name: str, given: dict[str, str]) -> bool:
    if name == "yaml.load":
        return given.get("Loader") not in SAFE_LOADERS
    return (
        FORBIDDEN.fullmatch(name) is not None
        or given.get("allow_pickle", "False") != "False"
        or given.get("shell", "False") != "False"
        or given.get("trust_remote_code", "False") == "True"
        or (given.get("weights_only") == "False")
    )


@pytest.mark.slow
def test_nothing_of_foreign_origin_is_unpickled_or_evaluated() -> None:
    found = [
        f"{path.relative_to(REPOSITORY)}:{line} {name}"
        for path in SOURCES
        for line, name, given in calls(path)
        if dangerous(name, given)
    ]
    assert not found


def opens_to_write(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Call) and re.search(r"(^|\.)open$", ast.unparse(node.func))):
        return False
    given = [*node.args, *(word.value for word in node.keywords if word.arg == "mode")]
    texts = [part.value for each in given for part in ast.walk(each) if isinstance(part, ast.Constant)]
    # Not 'x': it opens new files alone, and follows no link.
    return any(re.fullmatch(r"[rbt]*[wa+][bt+]*", str(text)) for text in texts)


@pytest.mark.slow
def test_every_file_that_is_written_is_opened_as_a_regular_one() -> None:
    own = "reports/movie.py"  # in a folder that it has just made
    found = [
        f"{path}:{node.lineno}"
        for path in SOURCES
        if not str(path).endswith(own)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if opens_to_write(node) and "opener=regular_file" not in ast.unparse(node)
    ]
    assert not found


@pytest.mark.parametrize(
    "code",
    ["pickle.loads(x)", "eval(x)", "np.load(x, allow_pickle=True)", "yaml.load(x, Loader=yaml.Loader)", "run(x, shell=True)", "torch.load(x)"],
)  # fmt: skip
def test_what_would_be_found(code: str, tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text(code)
    assert any(dangerous(name, given) for _, name, given in calls(tmp_path / "code.py"))


# Names that would lead out of the folder that a file describes.
OUTSIDE = ("../outside", "/outside", "a/../../outside", "..", "")


@pytest.mark.parametrize("name", OUTSIDE)
def test_an_imported_dataset_writes_nowhere_but_into_its_folder(name: str, tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    from motif_jax.datasets.pairs import parquet
    from motif_jax.datasets.pairs.dataset import PairsDataset
    from tests.reward_fixtures import make_dataset

    make_dataset(tmp_path / "dataset", pairs=4, messages=3)
    for _ in parquet.write(PairsDataset.open(tmp_path / "dataset"), tmp_path / "good.parquet"):
        pass
    whole = pyarrow.parquet.read_table(tmp_path / "good.parquet")
    described = json.loads(whole.schema.metadata[b"described"])
    kinds = {
        "array": {**described, "arrays": {**described["arrays"], name: described["arrays"]["data/blstats"]}},
        "manifest": {**described, "manifests": {"test": {name: {}}}},
        "manifest of": {**described, "manifests": {name: {"shard-00000-of-00001.json": {}}}},
    }
    tables = [
        whole.replace_schema_metadata({**whole.schema.metadata, b"described": json.dumps(text).encode()})
        for text in kinds.values()
    ]
    renamed = [
        f"preference/{name}" if column == "preference/test" else column for column in whole.column_names
    ]
    tables.append(whole.rename_columns(renamed).replace_schema_metadata(whole.schema.metadata))
    before = sorted(tmp_path.rglob("*"))
    for changed in tables:
        pyarrow.parquet.write_table(changed, tmp_path / "bad.parquet")
        with pytest.raises(UserError):
            list(parquet.read(tmp_path / "bad.parquet", tmp_path / "new" / "folder"))
    assert (
        sorted(path for path in tmp_path.rglob("*") if path.name not in ("bad.parquet", "new", "folder"))
        == before
    )


@pytest.mark.parametrize("name", OUTSIDE)
def test_the_weights_of_a_model_lie_in_its_folder(name: str, tmp_path: Path) -> None:
    from motif_jax.language.weights import INDEX, Tensors

    (tmp_path / "outside").write_text("")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / INDEX).write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(UserError, match="which is not in the folder"):
        Tensors(tmp_path / "model")


def test_hosts_of_one_machine_listen_to_nobody_else(tmp_path: Path) -> None:
    port = free_port()
    flags = [
        f"--config.hosts.coordinator=localhost:{port}",
        "--config.hosts.count=2",
        "--config.hosts.index=0",
    ]
    program = launch(tmp_path / "run", "train_agent.py:recall", *flags, log=tmp_path / "log")

    def places() -> set[str]:
        open_now = psutil.Process(program.pid).net_connections("inet")
        return {
            one.laddr.ip.removeprefix("::ffff:")
            for one in open_now
            if one.status == psutil.CONN_LISTEN and one.laddr.port == port
        }

    with ended([program]):
        wait_until(places, "the first host listens")
        assert places() == {"127.0.0.1"}


def test_servers_of_ours_listen_on_this_machine_alone_by_default() -> None:
    from tests.reward_fixtures import load_config
    from tests.stage_inputs import CONFIGS, variants

    hosts = {
        name: load_config(name, variant).get("host")
        for name in CONFIGS
        if name.startswith("serve_")
        for variant in variants(name)
    }
    assert set(hosts.values()) == {"127.0.0.1"}
    assert len(hosts) == 1
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


def run_page(folder: Path) -> str:
    return made_up_runs.run_page(run_data(folder), HOSTILE)


def run_table(folder: Path) -> str:
    data = run_data(folder)
    data.title, data.labels = HOSTILE, {HOSTILE: {"first": 1}}
    return made_up_runs.run_texts(data)["report.md"]


def test_a_message_is_no_formula_of_a_table() -> None:
    from motif_jax.stages import explain_reward

    numbers = dict.fromkeys(("raw", "normalised", "paid"), np.ones(1))
    reward = SimpleNamespace(**numbers, disagreement=None, evaluations=(), history=())
    header, row = csv.reader(explain_reward._table(["=HYPERLINK(A1)"], [1], [reward]).splitlines())
    assert dict(zip(header, row, strict=True))["message"] == "'=HYPERLINK(A1)"


def test_markdown_holds_no_html_of_others(tmp_path: Path) -> None:
    from markdown_it import MarkdownIt

    page = Page(MarkdownIt("commonmark").enable("table").render(run_table(tmp_path)))
    assert HOSTILE in page.data
    assert not page.scripts
    assert "bold" not in page.bold


def test_pages_show_what_games_models_and_servers_say_as_text(tmp_path: Path) -> None:
    page = Page(run_page(tmp_path))
    assets = [
        path.read_text(encoding="utf-8") for path in (REPOSITORY / "motif_jax/reports/assets").glob("*.js")
    ]
    assert HOSTILE in page.data
    assert all(script in assets for script in page.scripts), "a program that is none of ours"
    assert not page.handlers
    assert "bold" not in page.bold
