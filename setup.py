"""The build, which setup.cfg describes, and one step more: data files of the repository go into the
package.
"""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

# Below motif_jax/_copies in what is built; `motif_jax.core.resources` finds them there.
COPIED = (
    "configs/*.py",
    "configs/probes/*.json",
    "configs/prompts/**/*.yaml",
    "docs/examples/doorkey/**/*",
    "third_party/hack_font_tiles/*",
    "third_party/minihack/*",
    "third_party/wordle_words/*",
)


class BuildWithCopies(build_py):
    """Copies the files, unless the package stays where it is (an editable installation)."""

    def run(self) -> None:
        """Builds the package, then copies into what was built."""
        super().run()
        if not self.editable_mode:
            paths = (path for pattern in COPIED for path in sorted(Path().glob(pattern)))
            for file in filter(Path.is_file, paths):
                target = Path(self.build_lib, "motif_jax", "_copies", file)
                self.mkpath(str(target.parent))
                self.copy_file(str(file), str(target))


setup(cmdclass={"build_py": BuildWithCopies})
