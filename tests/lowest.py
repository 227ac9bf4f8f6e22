"""Constraints that make pip install the lowest versions which pyproject.toml allows: ``python tests/lowest.py``."""

import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
# The test tools, and torch: in the versions of constraints.txt. There are CPU wheels of torch for one version alone
# where this runs, and the CUDA builds of the others are too large to try: the bound of torch is not tested.
AS_USUAL = {"torch", "pytest", "pytest-xdist", "hypothesis", "packaging"}


def lowest() -> list[str]:
    """One exact version per line."""
    usual = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split())
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    bounds = {}
    for requirement in map(Requirement, declared):
        (bounds[requirement.name],) = (s.version for s in requirement.specifier if s.operator == ">=")
    return [f"{name}=={version}" for name, version in {**bounds, **{name: usual[name] for name in AS_USUAL}}.items()]


if __name__ == "__main__":
    sys.stdout.write("\n".join(lowest()) + "\n")
