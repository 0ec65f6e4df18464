"""Tests of the package; this file is there as opensimplex, which Crafter needs, installs a package
of the same name.
"""
