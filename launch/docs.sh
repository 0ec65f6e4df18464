#!/usr/bin/env bash
# Builds the documentation as a site in site/, with mkdocs in .venv-docs; any warning, such as a dead link, ends it with 1.
#
#   bash launch/docs.sh            builds the site
#   bash launch/docs.sh --serve    shows it at http://127.0.0.1:8000, with search
#   bash launch/docs.sh --install  makes .venv-docs alone
set -euo pipefail
export NO_MKDOCS_2_WARNING=1  # a notice about another program
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
at_most 1 "$@"
cd "$repository"
# Before anything is installed.
case "${1:-}" in
  "" | --install | --serve) ;;
  *) die "docs.sh takes nothing, --serve or --install" ;;
esac

# The package's own environment makes the tables of options.
make_environment "$repository/.venv"
install_package "$repository/.venv" ""
environment="$repository/.venv-docs"
make_environment "$environment"
wanted=$(sha256sum "$repository/launch/site/requirements.txt" | cut -c1-64)
if [ ! -f "$environment/docs.stamp" ] || [ "$(cat "$environment/docs.stamp")" != "$wanted" ]; then
  echo "installing mkdocs into .venv-docs (about half a minute)"
  "$environment/bin/python" -m pip install --quiet --disable-pip-version-check -r launch/site/requirements.txt 2>&1 \
    | { grep -v -e '^WARNING: Location' -e '^WARNING: Running pip as' || true; } >&2 \
    || die "the packages of launch/site/requirements.txt could not be installed; the lines above say why"
  printf '%s' "$wanted" > "$environment/docs.stamp"
fi
case "${1:-}" in
  "") "$environment/bin/mkdocs" build --strict --config-file launch/site/mkdocs.yml && echo "the site is at site/index.html; search needs a server: bash launch/docs.sh --serve shows it at http://127.0.0.1:8000" ;;
  --install) ;;
  --serve) exec "$environment/bin/mkdocs" serve --config-file launch/site/mkdocs.yml --dev-addr 127.0.0.1:8000 ;;
esac
