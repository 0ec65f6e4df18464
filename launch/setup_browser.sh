#!/usr/bin/env bash
# Sees to a Chromium for the tests that open the project's pages: takes the one that is there, else asks apt for it.
set -euo pipefail
for name in chromium chromium-browser google-chrome; do
  command -v "$name" >/dev/null 2>&1 && exit 0
done
if ! command -v apt-get >/dev/null 2>&1 || [ "$(id -u)" -ne 0 ]; then
  echo "no Chromium here: install the package 'chromium' (Debian: apt-get install chromium)" >&2
  exit 1
fi
echo "installing Chromium for the browser tests"
export DEBIAN_FRONTEND=noninteractive
{ apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core; } >/dev/null 2>&1 \
  || { echo "apt-get could not install chromium" >&2; exit 1; }
