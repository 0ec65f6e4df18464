"""Measures how the package reads: names, density, comments, docstrings, imports, recordings.

    python tests/force/house.py [--by-folder] [--names]

The figures are signs of what a reader meets, no aims. `--by-folder` adds a line for each folder of
the package, `--names` lists every vague binding with its file and line.
"""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PACKAGE = REPOSITORY / "motif_jax"
# Participles and pronouns that tell a reader nothing about a value.
VAGUE = {
    "found", "given", "said", "told", "place", "most", "whole", "each", "own", "there", "what", "good", "kept", "made", "seen",
}  # fmt: skip
COMMANDS = ("rl.train_agent", "ilql.train_text", "motif.train_reward")


@dataclass
class Counts:
    """What is counted in one or more files."""

    code_lines: int = 0
    comments: int = 0
    bindings: int = 0
    vague_bindings: int = 0
    tuple_assignments: int = 0
    public_functions: int = 0
    documented_functions: int = 0

    def add(self, other: Counts) -> None:
        for field in fields(self):
            total = getattr(self, field.name) + getattr(other, field.name)
            setattr(self, field.name, total)

    def line(self, name: str) -> str:
        """One row of the table."""
        thousands = max(self.code_lines, 1) / 1000
        return (
            f"{name:24} {self.code_lines:7} lines of code"
            f"  vague {100 * self.vague_bindings / max(self.bindings, 1):5.2f} %"
            f"  tuple assignments {self.tuple_assignments / thousands:5.1f} / 1,000"
            f"  comments {self.comments / thousands / 10:5.1f} / 100"
            f"  documented {100 * self.documented_functions / max(self.public_functions, 1):4.0f} %"
        )


def bindings(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """(name, line) of every variable, argument, loop variable and `as` name that a module binds."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.name, node.lineno


def code_and_comments(text: str) -> tuple[int, int]:
    """(lines that hold code, comments that are no instruction to a tool)."""
    lines: set[int] = set()
    comments = 0
    ignored = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            is_instruction = token.string.startswith(("# noqa", "# type:", "# fmt:"))
            comments += not is_instruction
        elif token.type not in ignored:
            lines.update(range(token.start[0], token.end[0] + 1))
    docstring_lines = 0
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and node.body
        ):
            first = node.body[0]
            is_text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
            if is_text and isinstance(first.value.value, str):
                docstring_lines += (first.end_lineno or first.lineno) - first.lineno + 1
    return len(lines) - docstring_lines, comments


def public_functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Functions of a module and methods of its public classes whose names begin with a letter."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith(
            "_"
        ):
            yield node
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            for member in node.body:
                is_function = isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef)
                if is_function and not member.name.startswith("_"):
                    yield member


def count(text: str) -> Counts:
    """The counts of one file."""
    tree = ast.parse(text)
    counts = Counts()
    counts.code_lines, counts.comments = code_and_comments(text)
    for name, _ in bindings(tree):
        counts.bindings += 1
        counts.vague_bindings += name.strip("_") in VAGUE
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
            counts.tuple_assignments += any(
                isinstance(target, ast.Tuple) for target in node.targets
            )
    for function in public_functions(tree):
        counts.public_functions += 1
        counts.documented_functions += ast.get_docstring(function) is not None
    return counts


def module_names() -> dict[str, Path]:
    """Dotted name, without the package's own -> file."""
    names = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if parts[-1] == "__init__":
            parts = parts[:-1]
        names[".".join(parts)] = path
    return names


def imported_modules(path: Path, names: dict[str, Path]) -> set[str]:
    """Modules of the package that a file imports anywhere, inside functions too."""
    imported = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if (
            isinstance(node, ast.ImportFrom)
            and node.module
            and node.module.partition(".")[0] == "motif_jax"
        ):
            module = node.module.partition(".")[2]
            for alias in node.names:
                member = f"{module}.{alias.name}".strip(".")
                imported.add(member if member in names else module)
    return imported & names.keys()


def closure(module: str, names: dict[str, Path]) -> set[str]:
    """A module and all that it imports, directly or not, packages' own pages apart."""
    reached: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += imported_modules(names[name], names)
    return {name for name in reached if names[name].name != "__init__.py"}


def recordings() -> list[Path]:
    """Files that tests compare outputs with."""
    return [path for path in (REPOSITORY / "tests" / "recorded").rglob("*") if path.is_file()]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--by-folder", action="store_true", help="add a line for each folder")
    parser.add_argument("--names", action="store_true", help="list vague names with their places")
    options = parser.parse_args()

    for root in (PACKAGE, REPOSITORY / "tests"):
        total = Counts()
        by_folder: dict[str, Counts] = {}
        for path in sorted(root.rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            counts = count(text)
            total.add(counts)
            by_folder.setdefault(path.relative_to(root).parts[0], Counts()).add(counts)
            if options.names:
                for name, line in bindings(ast.parse(text)):
                    if name.strip("_") in VAGUE:
                        print(f"{path.relative_to(REPOSITORY)}:{line} {name}")
        print(total.line(root.name))
        if options.by_folder:
            for folder, counts in by_folder.items():
                print(counts.line(f"  {folder}"))

    names = module_names()
    for command in COMMANDS:
        print(f"modules behind {command}: {len(closure(command, names))}")
    print(f"recordings: {len(recordings())}")


if __name__ == "__main__":
    main()
