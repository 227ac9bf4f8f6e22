"""How large the experiments with learning curves are, and what is trained in them."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from adaptntk.training.recipe import PRESETS, Recipe
from benchmarks.data.tasks import Sizes, Task


@dataclass(frozen=True)
class Plan:
    """The size of the experiment."""

    recipe: Recipe
    sizes: dict[str, Sizes]
    options: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)

    def sizes_of(self, task: Task) -> Sizes:
        """Of a molecule or of reactions."""
        return self.sizes["reactions" if task.reactions is not None else "molecule"]

    def recipe_of(self, task: Task) -> Recipe:
        """Of every training."""
        recipe, epochs = self.recipe, self.sizes_of(task).epochs
        if epochs is not None:
            recipe = dataclasses.replace(recipe, epochs=epochs)
        # Where compositions differ, total energies per atom say what a molecule is made of and nothing else.
        return recipe if task.reactions is None else dataclasses.replace(recipe, element_energies=True)


PLANS = {
    "cpu": Plan(
        dataclasses.replace(PRESETS["small"], epochs=60, batch_size=5),
        {
            "molecule": Sizes(pool=3000, valid=50, test=1000, cold_share=0.9),
            # So small a network learns neither heteroatoms nor larger molecules from 200 labels.
            "reactions": Sizes(pool=3000, valid=50, test=1000, epochs=100, elements="CHO", largest=10),
        },
    ),
    "paper": Plan(
        PRESETS["paper"],
        {
            "molecule": Sizes(pool=74_900, valid=100, test=25_000, checkpoints=20),
            "reactions": Sizes(pool=75_000, valid=100, test=25_000, checkpoints=20),
        },
    ),
    "smoke": Plan(
        dataclasses.replace(PRESETS["tiny"], epochs=5),
        {
            "molecule": Sizes(pool=100, valid=20, test=40, initial=16, batch=8, checkpoints=2, cold_share=0.8),
            "reactions": Sizes(pool=160, valid=20, test=40, initial=16, batch=8, checkpoints=2),
        },
        {"ensemble": {"members": 2}, "dropout": {"passes": 3}, "swag": {"draws": 3}, "evidential": {"steps": 50}},
    ),
}
