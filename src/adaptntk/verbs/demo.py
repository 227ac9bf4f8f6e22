"""``adaptntk demo``: two campaigns on a molecule, labels and all, that differ only in how they select."""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from adaptntk.files import locked, make_folder
from adaptntk.progress import Show, duration
from adaptntk.verbs.settings import option, verb
from adaptntk.verbs.shared import Device


class DemoSettings(Device):
    output: Path = option("Folder to write to.", Path("demo"), short="-o")
    molecule: str = option("Any molecule that adaptntk data md can build.", "ethanol")
    preset: str = option("cpu, or smoke for a quick look.", "cpu")


class DemoReport(NamedTuple):
    """What both campaigns reached, and where to look."""

    table: str
    sentence: str
    campaign: Path
    run: Path
    page: Path
    seconds: float

    def lines(self) -> Iterable[str]:
        yield f"\n{self.table}"
        yield self.sentence
        yield f"the campaign as a file: {self.campaign}   its state: adaptntk status {self.run}"
        yield f"done in {duration(self.seconds)}; open {self.page}"


@verb(DemoSettings)
def demo(settings: DemoSettings, show: Show) -> DemoReport:
    """A campaign with AdaptNTK beside one that selects at random: simulate, select, label with GFN2-xTB, retrain."""
    from adaptntk.campaign.side_by_side import Entrant, find_plan, prepare_campaigns
    from adaptntk.execution import choose_workers, run_jobs
    from adaptntk.report.comparison import Curve, compare_curves, comparison_table, labels_sentence
    from adaptntk.verbs.report import report

    began = time.perf_counter()
    plan = find_plan(settings.preset)
    folder = make_folder(settings.output)
    entrants = [Entrant(folder, method, 0, settings.device) for method in ("adaptntk", "random")]
    ours, random = entrants
    with locked(folder):
        prepare_campaigns(plan, settings.molecule, entrants)
        for _ in run_jobs(Entrant.run, entrants, choose_workers(len(entrants), None, settings.device)):
            pass
        curves = {entrant.method: [Curve.of_run(entrant.run_folder)] for entrant in entrants}
        summary = compare_curves(curves)
        page = report(run=ours.run_folder, output=folder / "report.html", beside=[random.run_folder]).path
    sentence = labels_sentence(curves["random"][0], summary["adaptntk"]["labels_to_random"][0])
    seconds = time.perf_counter() - began
    return DemoReport(comparison_table(curves, summary), sentence, ours.config, ours.run_folder, page, seconds)
