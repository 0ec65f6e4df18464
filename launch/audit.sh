#!/usr/bin/env bash
# Asks a service for known weaknesses of every package that launch/constraints.txt pins (pip-audit, in .venv-audit; docs/reliability.md).
#
#   bash launch/audit.sh [SERVICE]      pypi (the default) or osv; needs a network that reaches it
#
# Exit code 1: there are some, the table names them. 3: nothing could be asked.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
at_most 1 "$@"
cd "$repository"
service=${1:-pypi}
case $service in pypi | osv) ;; *) die "SERVICE=$service: must be pypi or osv" ;; esac

make_environment "$repository/.venv-audit"
if ! pip_into "$repository/.venv-audit" 'pip-audit>=2.7'; then
  echo "error: pip-audit was not found (no network, or an index that lacks it?)" >&2
  exit 3
fi

# Every pinned package is looked up as it stands there: nothing is installed.
answer=$(mktemp)
trap 'rm -f "$answer"' EXIT
status=0
"$repository/.venv-audit/bin/python" -m pip_audit --requirement launch/constraints.txt --no-deps --disable-pip \
  --vulnerability-service "$service" --progress-spinner off --format json --output "$answer" || status=$?
unanswered() {
  echo "error: the service $service gives no answer, the lines above say why: try bash launch/audit.sh osv, or from another network" >&2
  exit 3
}
[ -s "$answer" ] || unanswered
status=0
"$repository/.venv-audit/bin/python" - "$answer" <<'PYTHON' || status=$?
import json
import sys

# A package that the service does not know is no package without weaknesses.
packages = json.load(open(sys.argv[1]))["dependencies"]
weak = [(package, each) for package in packages for each in package.get("vulns", [])]
for package, each in weak:
    print(f"{package['name']} {package['version']}: {each['id']}, mended in {', '.join(each['fix_versions']) or 'no version yet'}")
unknown = [package["name"] for package in packages if "skip_reason" in package]
if len(unknown) == len(packages):
    sys.exit(3)
print(f"{len(packages) - len(unknown)} packages looked up, {len(weak)} known weaknesses" + (f"; not known there: {', '.join(unknown)}" if unknown else ""))
sys.exit(bool(weak))
PYTHON
[ "$status" -ne 3 ] || unanswered
exit "$status"
