"""``python -m benchmarks reactions``: reaction paths in a file in the layout of Transition-1X.

Reactant and product of each small organic reaction are relaxed and joined by a climbing nudged elastic band; every
image of every iteration is kept. Needs RDKit (``pip install '.[benchmarks]'``).
"""

from adaptntk.errors import InputError
from adaptntk.execution import choose_workers
from adaptntk.files import check_writable
from benchmarks.reactions.paths import make_reactions
from benchmarks.reactions.recipes import REACTIONS
from benchmarks.reactions.transition1x import write_transition1x
from benchmarks.settings import ReactionPaths, listed


def run(settings: ReactionPaths) -> str:
    """Make all reactions, or those with one of some words in their names."""
    check_writable(settings.output)
    words = None if settings.only is None else listed(settings.only)
    recipes = [recipe for recipe in REACTIONS if words is None or any(word in recipe.name for word in words)]
    if not recipes:
        raise InputError(f"no reaction has a name with {settings.only!r} in it")
    paths, failures = make_reactions(recipes, choose_workers(len(recipes), settings.jobs, "cpu"), settings.seed)
    if len(paths) < 3:
        raise InputError(f"only {len(paths)} of {len(recipes)} reactions gave a path; at least three are needed")
    write_transition1x(settings.output, paths, settings.seed)
    frames = sum(len(path.energies) for path in paths)
    made = f"{len(paths)} reactions, {frames:,} frames, {len(failures)} reactions dropped"
    dropped = [f"dropped {failure.name}: {failure.reason}" for failure in failures]
    return "\n".join([*dropped, f"wrote {settings.output}: {made}"])
