#!/usr/bin/env bash
# Installs Chromium and its driver by apt for the tests that open the project's pages, where they are missing.
#
#   bash launch/setup_browser.sh
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
at_most 0 "$@"
if command -v chromium >/dev/null 2>&1 && command -v chromedriver >/dev/null 2>&1; then exit 0; fi
if ! command -v apt-get >/dev/null 2>&1 || [ "$(id -u)" -ne 0 ]; then
  echo "no Chromium with its driver here: install them (Debian: apt-get install chromium chromium-driver)" >&2
  exit 1
fi
echo "installing Chromium and its driver by apt, for the whole system, for the tests that open pages (--no-apt: not)"
export DEBIAN_FRONTEND=noninteractive
install_browser() { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium chromium-driver fonts-dejavu-core; }
if ! messages=$(install_browser 2>&1); then
  printf '%s\n' "$messages" "error: apt-get could not install chromium, the lines above say why" >&2
  exit 1
fi
