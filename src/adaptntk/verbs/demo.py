"""``adaptntk demo``: two campaigns on a molecule, labels and all, that differ only in how they select."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adaptntk.progress import Show
from adaptntk.verbs.settings import option, verb
from adaptntk.verbs.shared import Device


@dataclass(frozen=True, kw_only=True)
class DemoSettings(Device):
    """How large the demonstration is."""

    output: Path = option("Folder to write to.", Path("demo"), short="-o")
    molecule: str = option("Any molecule that adaptntk data md can build.", "ethanol")
    preset: str = option("cpu, or smoke for a quick look.", "cpu")


@dataclass(frozen=True)
class DemoReport:
    """What both campaigns reached, and where to look."""

    results: dict[str, Any]
    table: str
    folder: Path
    output: Path
    seconds: float

    def lines(self) -> Iterable[str]:
        yield f"\n{self.table}"
        yield self.sentence
        file = f"{self.output / self.folder.name}.yaml"
        yield f"the campaign as a file: {file}   its state: adaptntk status {self.folder}"
        yield f"done in {self.seconds:.0f} s; open {self.output / 'report.html'}"

    @property
    def sentence(self) -> str:
        """What the comparison says."""
        curves, needed = self.results["curves"], self.results["summary"]["adaptntk"]["labels_to_random"][0]
        spent = curves["random"][0]["labels"][-1]
        reached = 1000 * curves["random"][0]["force_rmse"][-1]
        if needed is None:
            return f"{spent} labels did not bring AdaptNTK to what {spent} random ones reach ({reached:.0f} meV/Å)"
        return f"{needed:.0f} labels of AdaptNTK do what {spent} random ones do ({reached:.0f} meV/Å)"


@verb(DemoSettings)
def demo(settings: DemoSettings, show: Show) -> DemoReport:
    """A campaign with AdaptNTK beside one that selects at random: simulate, select, label with GFN2-xTB, retrain."""
    from benchmarks.campaigns import benchmark_campaign, campaign_table, run_folder

    began = time.perf_counter()
    results = benchmark_campaign(settings.output, settings.molecule, settings.preset, seeds=1, device=settings.device)
    folder = run_folder(settings.output, "adaptntk", 0)
    return DemoReport(results, campaign_table(results), folder, settings.output, time.perf_counter() - began)
