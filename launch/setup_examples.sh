#!/usr/bin/env bash
# Sets up .venv-examples: PyTorch for the CPU, transformers, Stable-Baselines3 and what runs a notebook, on top of .venv, whose packages it
# sees. For docs/examples/ and their tests. About a minute and 1 GB; kept until launch/examples-requirements.txt, launch/examples-hashes.txt
# or launch/constraints.txt changes.
#
#   bash launch/setup_examples.sh
#
# Exit code 3: a package was not found (the last line names the remedy).
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
at_most 0 "$@"

wanted_packages="$repository/launch/examples-requirements.txt"
base="$repository/.venv"
venv="$repository/.venv-examples"
stamp="$venv/requirements.sha256"

# One set-up at a time: a second one waits here and then finds the work done.
alone_with "$wanted_packages"

make_environment "$base"
# Asked from elsewhere: in the repository itself Python finds motif_jax without its being installed.
if ! (cd / && "$base/bin/python" -c 'import motif_jax' >/dev/null 2>&1); then install_package "$base" ""; fi
wanted=$(cat "$wanted_packages" "$repository/launch/examples-hashes.txt" "$repository/launch/constraints.txt" | sha256sum | cut -c1-64)
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then exit 0; fi

printf 'installing PyTorch, transformers and Stable-Baselines3 into .venv-examples (about a minute, 1 GB)\n'
rm -rf "$venv"
MOTIF_JAX_PYTHON="$base/bin/python" make_environment "$venv"
packages() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }
# Behind its own packages, with the .pth files of an editable installation.
printf 'import site; site.addsitedir(%s)\n' "'$(packages "$base")'" >"$(packages "$venv")/motif_jax_environment.pth"
install() {
  "$venv/bin/python" -m pip install -qq --disable-pip-version-check --no-deps "$@"
}
# Every file but torch's has a hash that launch/lock.sh wrote down.
if ! install "$(grep '^torch==' "$wanted_packages")" || ! install --require-hashes --requirement "$repository/launch/examples-hashes.txt"; then
  echo "error: a package of launch/examples-requirements.txt was not found; for torch give pip PyTorch's CPU index" \
    "(PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu) or a folder with its wheel (PIP_FIND_LINKS=DIR)" \
    "and run bash launch/setup_examples.sh again" >&2
  exit 3
fi
(cd / && "$venv/bin/python" -c 'import motif_jax, stable_baselines3, torch, transformers, nbclient, ipykernel') || die "the examples' environment does not import"
printf '%s' "$wanted" >"$stamp"
