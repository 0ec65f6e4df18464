#!/usr/bin/env bash
# Downloads what a GPU machine without a network lacks, as wheels for its Python: launch/gpu_figures.sh installs them there.
# Such machines come with jax, flax, optax, orbax, chex, pytest and the like; what they lack is below, some 10 MB in all.
#
#   bash launch/gpu_wheels.sh [FOLDER]     FOLDER: where the wheels go, .gpu_wheels by default
#   GPU_WHEELS="nle minigrid"              the packages, with the versions of launch/constraints.txt
#   GPU_PYTHON=3.12                        the Python of that machine
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
at_most 1 "$@"
folder=$(folder_of "${1:-}" .gpu_wheels)
cd "$repository"
packages=${GPU_WHEELS:-nle gymnasium Farama-Notifications minigrid pygame-ce ml_collections tensorboardX}
version=${GPU_PYTHON:-3.12}
python=$repository/.venv/bin/python
[ -x "$python" ] || python=python3

pinned=()
for package in $packages; do
  line=$(grep -i "^$package==" launch/constraints.txt) || { echo "error: $package is not in launch/constraints.txt" >&2; exit 2; }
  pinned+=("$line")
done
# pip takes a wheel only where it is told the very platform that the wheel names.
platforms=(--platform any)
for glibc in 5 12 17 24 27 28 31 34; do platforms+=(--platform "manylinux_2_${glibc}_x86_64"); done
for name in manylinux1 manylinux2010 manylinux2014; do platforms+=(--platform "${name}_x86_64"); done

mkdir -p "$folder"
# Wheels of an earlier call would be installed, too; what else is in the folder is not ours to remove.
others=$(find "$folder" -mindepth 1 -maxdepth 1 ! -name '*.whl' ! -name .downloads -print -quit)
[ -z "$others" ] || die "$folder has more than wheels ($others): name an empty folder"
# The earlier ones stay where these cannot be had. A killed call has left its downloads.
downloads=$folder/.downloads
rm -rf "$downloads"
mkdir "$downloads"
trap 'rm -rf "$downloads"' EXIT
"$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
  --python-version "$version" --implementation cp "${platforms[@]}" --dest "$downloads" "${pinned[@]}" 2>&1 | { grep -v '^WARNING: Location' || true; } >&2
rm -f "$folder"/*.whl
mv "$downloads"/*.whl "$folder"
rmdir "$downloads"
du -sh "$folder" | cut -f1 | sed "s|\$| of wheels in $folder|"
