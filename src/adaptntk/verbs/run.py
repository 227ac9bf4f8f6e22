"""``adaptntk run``"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from adaptntk.progress import Show
from adaptntk.verbs.settings import option, verb
from adaptntk.verbs.shared import CampaignFile, Workers

if TYPE_CHECKING:
    from adaptntk.campaign.records import RoundSummary, Verdict


class RunSettings(CampaignFile, Workers):
    resume: bool = option("Go on with a campaign that was begun.", False)
    retry_failed: bool = option("With --resume: try again what could not be labelled.", False)
    output: Path | None = option("The run directory, instead of the file's.", None, short="-o")
    executor: str | None = option("serial, local or dask, instead of the file's.", None)
    device: str | None = option("auto, cpu, cuda, cuda:1, ..., instead of the file's.", None)


class RunReport(NamedTuple):
    folder: Path
    verdict: "Verdict"

    def lines(self) -> Iterable[str]:
        yield f"stop ({self.verdict.reason}): {self.verdict.text}"
        yield f"everything is in {self.folder}; next: adaptntk report {self.folder}"


@verb(RunSettings)
def run(settings: RunSettings, show: Show) -> RunReport:
    """Run a campaign: explore, select, label, retrain, until its verdict. Can be interrupted at any moment."""
    from adaptntk.campaign.config import Overrides
    from adaptntk.campaign.loop import run_campaign

    instead = Overrides(settings.executor, settings.workers, settings.scheduler, settings.device, settings.output)
    how = settings.resume, instead, show.progress, lambda s: show.line(round_line(s)), settings.retry_failed
    return RunReport(*run_campaign(settings.config, *how))


def round_line(summary: "RoundSummary") -> str:
    """What came out of a round."""
    errors, labels, told = summary.errors, summary.labels, summary.information_per_label
    parts = f"{labels.train} train, {labels.valid} valid, {labels.holdout} hold-out"
    given = labels.train + labels.valid + labels.holdout - summary.labels_spent
    bought = f"{summary.labels_spent} labels bought" + (f", {given} given" if given > 0 else "")
    return (
        f"round {summary.round}: {bought} ({parts}; {labels.quarantined} failed), "
        f"force RMSE {errors.force_rmse:.4f} eV/Å ({errors.force_rmse_low:.4f} .. {errors.force_rmse_high:.4f})"
        + ("" if told is None else f", {told:.2f} nats per label")
        + ("" if summary.limit is None else f", {summary.limit.verdict}")
    )
