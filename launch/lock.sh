#!/usr/bin/env bash
# Writes launch/requirements.txt and launch/requirements-test.txt: what setup.cfg asks for, and the tests besides, in the versions of
# launch/constraints.txt, with the hash of each file of theirs for all platforms. For whoever has changed one of the two; uv does it
# (.venv-lock), and needs a network.
#
#   bash launch/lock.sh
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$repository"

make_environment "$repository/.venv-lock"
pip_into "$repository/.venv-lock" 'uv>=0.5'

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# What builds the package is hashed, too.
printf 'setuptools>=68\nwheel\n' >"$folder/build.in"
lock() {
  "$repository/.venv-lock/bin/uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
    --constraint launch/constraints.txt "$@"
}
lock setup.cfg "$folder/build.in" --output-file "$folder/all.txt"
lock setup.cfg "$folder/build.in" --extra test --output-file "$folder/test.txt"
"$repository/.venv-lock/bin/python" - "$folder" <<'PYTHON'
import re
import sys
from pathlib import Path

folder = Path(sys.argv[1])
# Where the scripts do not run.
elsewhere = re.compile(r"; .*== '(win32|emscripten|nt)'")
packages = {}
for name in ("all", "test"):
    found = re.findall(r"^(\S+)==(\S.*(?:\n .*)*)", (folder / f"{name}.txt").read_text(), re.MULTILINE)
    packages[name] = {package: rest for package, rest in found if not elsewhere.search(rest)}
besides = {package: rest for package, rest in packages["test"].items() if package not in packages["all"]}
head = "# Written by launch/lock.sh: {}. With the hashes of their files, to be installed by --require-hashes --no-deps.\n"
written = {
    "requirements.txt": ("what the package needs", packages["all"]),
    "requirements-test.txt": ("what its tests need besides", besides),
}
for name, (what, lines) in written.items():
    Path("launch", name).write_text(head.format(what) + "".join(f"{package}=={rest}\n" for package, rest in lines.items()))
    print(f"launch/{name}: {len(lines)} packages")
PYTHON
