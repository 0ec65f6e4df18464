"""Draws faults over the whole package, makes them one at a time, and says which of them no test
notices.

    python tests/force/mutate.py draw             writes the list, mutants.jsonl, from a seed: it is
                                                  committed before any run
    nice python tests/force/mutate.py run --out /tmp/verdicts.jsonl [--whole]

A fault takes a statement out, flips an operator or a condition, or changes a number. Every room of
the package gets one, the others fall where the code is. Each is made in a copy of the working tree
and meets the tests of its own module, tests/ROOM/MODULE_test.py, else those of tests/ROOM that
import it, else all that do: first as `--quick` runs them, then as the default does, each `-x`. A
fault is caught, too, where they do not end in the time that they have, and do end in it without the
fault. With `--whole`, what survives meets all tests of the two sets: the faults are made together,
and what then fails is run again with each of them alone, until nothing fails. A line is written for
each: caught by "quick", by the "default", "survived", or "time" where the tests are too slow; the
same command continues where it stopped. What survives wants a test, or is equivalent: a change that
makes no difference; the first of the SPARE last faults stand in for these. Left alone are
assertions of shapes, texts and type hints.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import dataclasses
import importlib
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.compiling import compile_quickly

REPOSITORY = Path(__file__).parents[2]
LIST = Path(__file__).with_name("mutants.jsonl")
COUNT = 40
SPARE = 8
SEED = 61
# What the tests of one fault get, of processor time and by the clock.
PROCESSOR_SECONDS = 60
CLOCK_SECONDS = 180
SETS = {"quick": ["--quick"], "default": ["-m", "slow and not extra"]}
FLIPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.Pow: ast.Mult, ast.Mod: ast.Add,
}  # fmt: skip
NAMES = {
    "minimum": "maximum",
    "maximum": "minimum",
    "min": "max",
    "max": "min",
    "sum": "max",
    "any": "all",
    "all": "any",
}
# Assertions of shapes, docstrings, and types; zip(strict=True) and dataclass(frozen=True) are
# assertions too.
ALONE = re.compile(
    r"chex\.assert|'|\"|[A-Z][a-z]\w* = |(tuple|list|dict|type|Callable)\[|strict=|frozen="
)
REMOVABLE = (
    ast.Expr
    | ast.Assign
    | ast.AugAssign
    | ast.Raise
    | ast.If
    | ast.For
    | ast.Continue
    | ast.Break
    | ast.Return
)


@dataclasses.dataclass(frozen=True)
class Change:
    """The `number`-th node of a file in the order of `ast.walk`, and what happens to it."""

    file: str
    line: int
    number: int
    kind: str
    text: str


def hidden(tree: ast.Module) -> set[int]:
    """Ids of the nodes that are left alone: type hints, texts, imports and assertions."""
    roots: list[ast.AST] = []
    for node in list(ast.walk(tree))[1:]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            roots += [
                node.returns,
                *(a.annotation for a in ast.walk(node.args) if isinstance(a, ast.arg)),
            ]
        elif isinstance(node, ast.AnnAssign):
            roots.append(node.annotation)
        elif isinstance(
            node, ast.JoinedStr | ast.Import | ast.ImportFrom | ast.Assert
        ) or ALONE.match(ast.unparse(node)):
            roots.append(node)
    return {id(inner) for root in roots if root is not None for inner in ast.walk(root)}


def kind_of(node: ast.AST, often: set[str]) -> str | None:
    """What may happen to a node, None for nothing; `often` are names that are written more than
    once.
    """
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name | ast.Tuple):
        # Without its only value a name is an error wherever it is read: nothing to find out.
        return "removed" if ast.unparse(node.targets[0]) in often else None
    if isinstance(node, REMOVABLE):
        return "removed"
    if isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign):
        return "flipped" if type(node.op) in FLIPS else None
    if isinstance(node, ast.Compare):
        return "flipped" if type(node.ops[0]) in FLIPS else None
    if isinstance(node, ast.UnaryOp | ast.IfExp):
        return "turned"
    if isinstance(node, ast.Attribute) and node.attr in NAMES:
        return "renamed"
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        return "counted"
    return None


def changes(file: Path, root: Path) -> Iterator[Change]:
    """All changes of a file."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    alone = hidden(tree)
    stored = [
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    ]
    often = {name for name in stored if stored.count(name) > 1}
    last = [id(node.body[-1]) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    for number, node in enumerate(ast.walk(tree)):
        ending = id(node) in last and isinstance(node, ast.Return)
        kind = None if id(node) in alone or ending else kind_of(node, often)
        if kind is not None:
            text = ast.unparse(node).splitlines()[0][:100]
            yield Change(str(file.relative_to(root)), node.lineno, number, kind, text)


class Mutator(ast.NodeTransformer):
    """Makes one change."""

    def __init__(self, target: ast.AST, kind: str) -> None:
        self.target = target
        self.kind = kind

    def visit(self, node: ast.AST) -> ast.AST:
        """The node, changed if it is the one."""
        if node is not self.target:
            return self.generic_visit(node)
        new = copy.copy(node)
        if self.kind == "removed":
            return ast.copy_location(ast.Pass(), node)
        if isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign):
            new.op = FLIPS[type(node.op)]()
        elif isinstance(node, ast.Compare):
            new.ops = [FLIPS[type(node.ops[0])](), *node.ops[1:]]
        elif isinstance(node, ast.UnaryOp):
            return node.operand
        elif isinstance(node, ast.IfExp):
            new.body = node.orelse
            new.orelse = node.body
        elif isinstance(node, ast.Attribute):
            new.attr = NAMES[node.attr]
        elif isinstance(node, ast.Constant):
            new.value = (not node.value) if isinstance(node.value, bool) else node.value + 1
        return new


def changed(source: str, change: Change) -> str:
    """The source with the change made.

    Raises:
      ValueError: the source is another than that from which the change was drawn.
    """
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    target = nodes[change.number] if change.number < len(nodes) else None
    if target is None or ast.unparse(target).splitlines()[0][:100] != change.text:
        raise ValueError(f"{change.file} has changed since its faults were drawn: draw them again")
    return ast.unparse(ast.fix_missing_locations(Mutator(target, change.kind).visit(tree)))


@contextlib.contextmanager
def made(root: Path, faults: list[Change]) -> Iterator[None]:
    """The faults, at most one a file, stand in the files of `root` in the block."""
    sources = {fault: (root / fault.file).read_text(encoding="utf-8") for fault in faults}
    try:
        for fault, source in sources.items():
            (root / fault.file).write_text(changed(source, fault), encoding="utf-8")
        yield
    finally:
        for fault, source in sources.items():
            (root / fault.file).write_text(source, encoding="utf-8")


def tests_of(file: str, root: Path) -> list[str]:
    """The module's own test file, else those of its package's that import it, else all that do."""
    package = Path(file).parent.name
    module = Path(file).stem
    folder = root / "tests" / Path(file).parent.relative_to("motif_jax")
    module_test = folder / f"{module}_test.py"
    uses = re.compile(rf"\b{package}\.{module}\b|{package} import .*\b{module}\b|\b{module}\.[a-z]")

    def users(where: Path) -> list[Path]:
        paths = [
            path for path in sorted(where.rglob("*_test.py")) if "end_to_end" not in path.parts
        ]
        return [path for path in paths if uses.search(path.read_text(encoding="utf-8"))]

    tests = [module_test] if module_test.exists() else users(folder) or users(root / "tests")
    return [str(path) for path in tests]


def draw(root: Path) -> list[Change]:
    """One fault of every room, and so many more of the whole package that they are COUNT, and SPARE
    ones.
    """
    by_folder: dict[str, list[Change]] = {}
    for file in sorted((root / "motif_jax").rglob("*.py")):
        parts = file.relative_to(root / "motif_jax").parts
        if len(parts) > 1:
            by_folder.setdefault(parts[0], []).extend(changes(file, root))
    chance = random.Random(SEED)
    candidates = [faults for _, faults in sorted(by_folder.items()) if faults]
    drawn = [chance.choice(faults) for faults in candidates]
    others = [fault for faults in candidates for fault in faults if fault not in drawn]
    more = chance.sample(others, COUNT + SPARE - len(drawn))
    first = sorted(drawn + more[:-SPARE], key=lambda fault: (fault.file, fault.number))
    return first + more[-SPARE:]


def passes(root: Path, tests: list[str], flags: list[str]) -> bool | None:
    """Whether the tests pass in a process of their own; None when its time is over."""
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_SECONDS, PROCESSOR_SECONDS + 1))
        os.chdir(root)
        sys.path.insert(0, str(root))
        log = os.open(root / "tests.log", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        pytest = importlib.import_module("pytest")
        os._exit(int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *flags, *tests])))
    end = time.monotonic() + CLOCK_SECONDS
    while True:
        process, status = os.waitpid(child, os.WNOHANG)
        if process != 0:
            break
        if time.monotonic() > end:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
        time.sleep(0.1)
    # 5: no tests were collected.
    return None if os.WIFSIGNALED(status) else os.WEXITSTATUS(status) in (0, 5)


def by_its_own(root: Path, fault: Change) -> str:
    """Which set of its own module's tests notices, or that none does."""
    tests = tests_of(fault.file, root)
    for name, flags in SETS.items():
        with made(root, [fault]):
            passed = passes(root, tests, flags) if tests else True
        if passed is None and passes(root, tests, flags) is None:
            return "time"
        if passed is not True:
            return name
    return "survived"


def failing(root: Path, tests: list[str], flags: list[str]) -> list[str]:
    """The tests, or files that cannot be imported, which fail on two workers."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n2",
        "--dist=worksteal",
        "-p",
        "no:cacheprovider",
    ]
    ended = subprocess.run([*command, *flags, *tests], cwd=root, capture_output=True, text=True)
    return re.findall(
        r"^(?:FAILED|ERROR) (\S+?\.py(?:::.+?)?)(?: - .*)?$", ended.stdout, re.MULTILINE
    )


def by_all(root: Path, faults: list[Change]) -> Iterator[tuple[Change, str]]:
    """What the whole sets say of the faults."""
    for name, flags in SETS.items():
        waiting = faults
        faults = []
        while waiting:
            joint = list({fault.file: fault for fault in waiting}.values())
            with made(root, joint):
                failed = failing(root, ["tests"], flags)
            # What fails without a fault, too, says nothing.
            always = failing(root, failed, flags) if failed else []
            failed = [test for test in failed if test not in always]
            caught = []
            for fault in joint if failed else ():
                with made(root, [fault]):
                    if failing(root, failed, ["-x", *flags]):
                        caught.append(fault)
                        yield fault, name
            faults += [] if caught else joint
            waiting = [fault for fault in waiting if fault not in (caught or joint)]
    yield from ((fault, "survived") for fault in faults)


def listed(root: Path) -> list[Change]:
    """The committed list; an error where the code has moved on since it was drawn."""
    faults = [Change(**json.loads(line)) for line in LIST.read_text(encoding="utf-8").splitlines()]
    stale = [fault for fault in faults if fault not in changes(root / fault.file, root)]
    if stale:
        sys.exit(
            f"the code has changed since the list was drawn, for instance {stale[0].file}: draw again"
        )
    return faults


def report(out: Path, fault: Change, verdict: str) -> None:
    """Prints a verdict and writes it; a later line of a fault stands above an earlier one."""
    print(f"{verdict:9}{fault.file}:{fault.line} {fault.kind}: {fault.text}", flush=True)
    with out.open("a", encoding="utf-8") as file:
        file.write(json.dumps(dataclasses.asdict(fault) | {"verdict": verdict}) + "\n")


def run(out: Path, *, all_tests: bool) -> None:
    """Makes each fault of the list that `out` does not name, and writes its verdict."""
    root = Path(tempfile.mkdtemp(prefix="mutants-"))
    os.environ.update(
        PYTHONPATH=str(root), PYTHONDONTWRITEBYTECODE="1", JAX_PLATFORMS="cpu", JAX_NUM_CPU_DEVICES="4",
        JAX_COMPILATION_CACHE_DIR=str(Path(tempfile.gettempdir()) / "mutants-programs"),
        JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0", JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES="-1",
    )  # fmt: skip
    compile_quickly()
    sys.dont_write_bytecode = True
    for name in (
        "jax",
        "jax.numpy",
        "flax.linen",
        "optax",
        "chex",
        "pytest",
        "hypothesis",
        "ml_collections",
    ):
        importlib.import_module(name)  # once for all faults: processes are forked from this one
    try:
        ignored = shutil.ignore_patterns(".git", ".venv*", "__pycache__", ".*_cache", "runs")
        shutil.copytree(REPOSITORY, root, ignore=ignored, dirs_exist_ok=True)
        lines = out.read_text(encoding="utf-8").splitlines() if out.exists() else []
        verdicts = {}
        for line in lines:
            *fault_fields, verdict = json.loads(line).values()
            verdicts[Change(*fault_fields)] = verdict
        for fault in listed(root):
            if fault not in verdicts:
                verdicts[fault] = by_its_own(root, fault)
                report(out, fault, verdicts[fault])
        if all_tests:
            for fault, verdict in by_all(
                root, [fault for fault in verdicts if verdicts[fault] == "survived"]
            ):
                report(out, fault, verdict)
    finally:
        shutil.rmtree(root)


def main() -> None:
    """Reads the arguments."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("draw", "run"))
    parser.add_argument(
        "--out", type=Path, default=Path("mutants.jsonl"), help="where verdicts are written"
    )
    parser.add_argument(
        "--whole", action="store_true", help="all tests for what its module's do not notice"
    )
    options = parser.parse_args()
    if options.command == "draw":
        lines = (json.dumps(dataclasses.asdict(fault)) + "\n" for fault in draw(REPOSITORY))
        LIST.write_text("".join(lines), encoding="utf-8")
    else:
        run(options.out.resolve(), all_tests=options.whole)


if __name__ == "__main__":
    main()
