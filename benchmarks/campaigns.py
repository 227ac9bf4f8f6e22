"""``python -m benchmarks campaign``: whole campaigns beside one another, labels and all."""

import dataclasses

from adaptntk.campaign.side_by_side import PLANS, Entrant, prepare_campaigns
from adaptntk.core.selection.registry import check_selector
from adaptntk.errors import InputError
from adaptntk.report.comparison import Curve, compare_curves, comparison_table
from adaptntk.verbs.report import report
from benchmarks.harness.experiment import experiment, find_plan, run_all
from benchmarks.harness.record import save_outcome
from benchmarks.settings import Campaigns, listed


def run(settings: Campaigns) -> str:
    """Campaigns that differ in how they select, with the same budget; how many labels each needs for the same error.

    All models are tested on the same frames of GFN2-xTB dynamics, which no campaign sees. The last error of ``random``
    is what the others have to reach. Interrupted and called again, it goes on where it was.
    """
    plan = find_plan(PLANS, settings.preset, settings.seeds)
    methods, seeds = listed(settings.methods), range(settings.seeds)
    for method in methods:
        check_selector(method)
    if "random" not in methods:
        raise InputError("the method random must be among those compared: the others are measured by it")
    identity = {"molecule": settings.molecule, "preset": settings.preset, "plan": dataclasses.asdict(plan)}
    with experiment(settings.output, identity) as folder:
        entrants = [Entrant(folder, method, seed, settings.device) for seed in seeds for method in methods]
        prepare_campaigns(plan, settings.molecule, entrants)
        run_all(entrants, settings.jobs, settings.device)
        curves = {
            method: [Curve.of_run(entrant.run_folder) for entrant in entrants if entrant.method == method]
            for method in methods
        }
        summary = compare_curves(curves)
        table = comparison_table(curves, summary)
        contents = {method: [curve.content() for curve in found] for method, found in curves.items()}
        results = {"preset": settings.preset, "seeds": list(seeds), "curves": contents, "summary": summary}
        save_outcome(folder, results, table, campaign={"summary": summary})
        first, *others = [entrant.run_folder for entrant in entrants if entrant.seed == 0]
        report(run=first, output=folder / "report.html", beside=others)
    return f"{table}\nwrote {folder / 'results.json'}, table.md and report.html"
