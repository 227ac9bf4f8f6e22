"""The page: complete, self-contained, and with the numbers of the run."""

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import ase.io
import numpy as np
import pytest

from adaptntk.campaign.layout import RoundSnapshot, RunDirectory, read_run
from adaptntk.campaign.records import Pick
from adaptntk.data.structures import structure_hash
from adaptntk.errors import InputError
from adaptntk.progress import duration
from adaptntk.report.campaign import campaign_page
from adaptntk.report.campaign_figures import _sensible_scale, rounds_to_draw
from adaptntk.report.campaign_tables import label_shares, limit_table, milli, uncertainty_table
from adaptntk.report.run_progress import status_of
from adaptntk.report.viewer import Candidate, list_candidates, viewer_dataset, worth_showing
from adaptntk.verbs.report import report as write_report
from tests.report.example_run import POOL


@pytest.fixture(scope="module")
def page(run_folder, other_folder) -> str:
    return campaign_page(read_run(run_folder), [read_run(other_folder)])


class Attributes(HTMLParser):
    """All attributes through which a page can load something or lead away, and texts."""

    def __init__(self, page: str):
        super().__init__()
        self.links: list[tuple[str, str, str]] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        loads = {"src", "href", "xlink:href", "srcset", "data", "action", "poster", "background"}
        self.links += [(tag, name, value) for name, value in attrs if name in loads]

    def handle_data(self, data):
        self.texts.append(data)


def test_nothing_is_loaded_from_anywhere(page):
    links = Attributes(page).links
    assert len(links) > 10
    assert all(value.startswith("#") for _, _, value in links), [link for link in links if not link[2].startswith("#")]
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL).group(1)
    assert "url(" not in style
    assert "@import" not in style
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page).group(1)
    assert "default-src 'none'" in policy
    assert "http" not in policy


def test_internal_links_lead_somewhere(page):
    anchors = {value[1:] for tag, name, value in Attributes(page).links if tag == "a" and name == "href"}
    assert len(anchors) == 9
    assert all(f'<section id="{anchor}">' in page for anchor in anchors)


def test_the_numbers_of_the_run_are_there_with_units(page, run_folder, other_folder):
    text = " ".join(Attributes(page).texts)
    for folder in (run_folder, other_folder):
        for number in range(3):
            errors = json.loads((folder / "rounds" / f"0{number}" / "round.json").read_text())["errors"]
            if folder == run_folder or number == 2:
                values = [milli(errors[key]) for key in ("force_rmse", "force_rmse_low", "force_rmse_high")]
                assert f"{values[0]} ({values[1]} .. {values[2]})" in text
    assert json.loads((run_folder / "verdict.json").read_text())["text"] in text
    for words in ("Target reached", "force RMSE (meV/Å)", "energy MAE (meV/atom)", "6 min 38 s", "temperature (K)"):
        assert words in text
    assert "ethanol, random" in text
    assert page.count("<svg") == 5


def test_what_limits_the_model_is_told_of_every_round_that_knows(page, run_folder):
    last = json.loads((run_folder / "rounds" / "02" / "round.json").read_text())
    section = re.search(r'<section id="limit">(.*?)</section>', page, re.DOTALL).group(1)
    assert "Limited by the network." in section
    assert last["limit"]["evidence"][1:] in section
    assert last["limit"]["advice"][1:] in section
    rows = limit_table(read_run(run_folder)).rows
    assert [(row[0], row[-1]) for row in rows] == [("1", "labels"), ("2", "network")]
    assert rows[1][1:5] == (
        *map(milli, (last["learnt"]["train"], last["learnt"]["valid"])),
        milli(last["errors"]["force_rmse"]),
        "2 %",
    )


def test_a_run_of_before_does_not_tell_what_limits_it(run_folder, tmp_path):
    copy = shutil.copytree(run_folder, tmp_path / "run")
    for path in copy.glob("rounds/*/round.json"):
        path.write_text(
            json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k not in ("learnt", "limit")})
        )
    assert "No finished round has told how well its model fits" in campaign_page(read_run(copy))
    assert not any("limited by" in line for line in status_of(read_run(copy)).lines)


def test_runs_are_compared_on_common_test_structures(run_folder, other_folder, tmp_path):
    copies = [Path(shutil.copytree(folder, tmp_path / folder.name)) for folder in (run_folder, other_folder)]
    assert "hold-out force RMSE (meV/Å)" in write_report(run=copies[0], beside=[copies[1]]).path.read_text()
    for number, copy in enumerate(copies):
        for path in copy.glob("rounds/*/round.json"):
            summary = json.loads(path.read_text())
            test = {key: value + 0.3 + number for key, value in summary["errors"].items()}
            path.write_text(json.dumps(summary | {"test": test}))
    text = write_report(run=copies[0], beside=[copies[1]]).path.read_text()
    assert "test force RMSE (meV/Å)" in text
    assert "hold-out structures that existed then" not in text
    for copy in copies:
        last = json.loads((copy / "rounds" / "02" / "round.json").read_text())["test"]["force_rmse"]
        assert milli(last) in text


def test_what_lies_beyond_the_calibration_is_told(page, run_folder, tmp_path):
    assert "Where the uncertainty says little" not in page
    copy = Path(shutil.copytree(run_folder, tmp_path / "run"))
    told = {
        "explored": "7 of 90 frames lie beyond what was calibrated",
        "round": "2 of 30 hold-out structures lie <there>",
    }
    for name, text in told.items():
        path = copy / "rounds" / "01" / f"{name}.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"remarks": [text]}))
    text = campaign_page(read_run(copy))
    assert "Where the uncertainty says little" in text
    assert told["explored"] in text
    assert "hold-out structures lie &lt;there&gt;" in text


def test_error_texts_are_shown_as_they_are(page):
    assert "in 250 iterations &lt;&amp;&gt; &#39;quoted&#39;" in page
    assert "<&>" not in page


def test_the_same_run_gives_the_same_page(page, run_folder, other_folder):
    assert campaign_page(read_run(run_folder), [read_run(other_folder)]) == page


def test_shares_of_labels(run_folder):
    run = read_run(run_folder)
    shares = label_shares(run)
    for group in shares.values():
        assert sum(share.count for share in group) == len(run.labels)
        assert sum(share.percent for share in group) == pytest.approx(100)
    roles = {share.name: share.count for share in shares["By role"]}
    assert roles == {"training": 40, "hold-out": 30, "validation": 10}
    hot = sum(label.temperature == 900 for label in run.labels)
    assert {share.name: share.count for share in shares["By what ended its trajectory"]}["conformal threshold"] == hot


def test_uncertainty_table_against_the_file(run_folder):
    rows = uncertainty_table(read_run(run_folder).rounds).rows
    lines = (run_folder / "rounds" / "02" / "holdout.csv").read_text().splitlines()[1:]
    error, sigma, bound = np.array([[float(x) for x in line.split(",")[1:4]] for line in lines]).T
    predicted, observed = np.sqrt(np.mean(sigma**2)), np.sqrt(np.mean(error**2))
    assert rows[2][3:6] == (f"{1000 * predicted:.1f}", f"{1000 * observed:.1f}", f"{observed / predicted:.2f}")
    assert rows[2][6].startswith(f"{(error <= bound).sum()} of {len(error)} ")


def test_a_run_without_uncertainties(run_folder, tmp_path):
    copy = shutil.copytree(run_folder, tmp_path / "run")
    for place in (copy / "rounds").iterdir():
        (place / "holdout.csv").write_text("hash,force_error,forces_uncertainty,forces_error_bound,energy_error\n")
        summary = json.loads((place / "round.json").read_text())
        summary |= {"spearman": None, "information_per_label": None}
        (place / "round.json").write_text(json.dumps(summary))
        for name in ("pool.xyz", "picks.json", "seconds.json"):
            (place / name).unlink(missing_ok=True)
    page = write_report(run=copy).path.read_text()
    for words in ("No round has compared", "No round has scored", "No step has been timed"):
        assert words in page


def test_viewer_data_are_those_of_the_pool(run_folder):
    run = read_run(run_folder)
    shown = worth_showing(list_candidates(run))
    dataset = viewer_dataset("test", shown)
    frames = [
        atoms for number in (1, 2) for atoms in ase.io.read(run_folder / "rounds" / f"0{number}" / "pool.xyz", ":")
    ]
    properties = {name: entry["values"] for name, entry in dataset["properties"].items()}
    assert np.allclose(properties["uncertainty"], [1000 * atoms.info["forces_uncertainty"] for atoms in frames])
    assert properties["temperature"] == [atoms.info["temperature"] for atoms in frames]
    assert dataset["properties"]["uncertainty"]["units"] == "meV/Å"
    assert properties["fate"].count("picked") == 20
    assert properties["fate"].count("label failed") == 2
    for atoms, entry, candidate in zip(frames, dataset["structures"], shown, strict=True):
        assert np.allclose(np.array([entry["x"], entry["y"], entry["z"]]).T, atoms.positions, atol=6e-4)
        assert candidate.hash == structure_hash(candidate.read())
    assert dataset["settings"]["pinned"] == [int(np.argmax(properties["uncertainty"]))]


def test_viewer_falls_back_to_scores_where_a_round_has_no_calibration(run_folder, tmp_path):
    copy = shutil.copytree(run_folder, tmp_path / "run")
    path = copy / "rounds" / "01" / "pool.xyz"
    path.write_text(re.sub(r" forces_uncertainty=\S+", "", path.read_text()))
    properties = viewer_dataset("test", list_candidates(read_run(copy)))["properties"]
    first = ase.io.read(path, 0).info["ntk_variance"]
    assert properties["uncertainty"]["values"][0] == pytest.approx(first)
    assert "units" not in properties["uncertainty"]


@pytest.mark.parametrize(("count", "size", "expected"), [(100_000, 9, 2000), (5000, 400, 500), (30, 9, 30)])
def test_the_viewer_is_limited_and_keeps_the_picks(count, size, expected):
    pick = Pick("a", 0, 0.1, 0.2)
    pool = [
        Candidate(Path("pool.xyz"), 0, size, i, 1, {}, pick if i % 200 == 7 else None, "picked") for i in range(count)
    ]
    shown = worth_showing(pool)
    assert len(shown) == expected
    assert len({candidate.number for candidate in shown}) == expected
    assert sum(c.pick is not None for c in shown) == min(expected, sum(c.pick is not None for c in pool))
    numbers = np.array([candidate.number for candidate in shown])
    assert numbers.min() < count / 10
    assert numbers.max() > 0.9 * count - 1


def test_the_page_says_how_many_structures_it_shows(run_folder):
    page = campaign_page(read_run(run_folder), max_structures=30)
    assert "Shown are 30 of 90 candidates, among them 22 of 22 picks." in page


def test_few_panels_of_many_rounds(run_folder):
    first = read_run(run_folder).rounds[0]
    run = RunDirectory(run_folder)
    many = [RoundSnapshot(run.round(number), holdout=first.holdout) for number in range(20)]
    assert [entry.number for entry in rounds_to_draw([*many, RoundSnapshot(run.round(20))])] == [0, 6, 13, 19]


def test_axes_are_logarithmic_where_that_helps():
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    _sensible_scale(axes, "x", [50, 80])
    _sensible_scale(axes, "y", [30, 300])
    assert (axes.get_xscale(), axes.get_yscale()) == ("linear", "log")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"), (0.00042, "0.42 ms"), (0.0042, "4.2 ms"), (0.00996, "10 ms"), (0.042, "42 ms"), (0.9996, "1.0 s"),
        (9.96, "10 s"), (62.4, "62 s"), (119.6, "2 min 0 s"), (3725, "1 h 2 min"), (7199.9, "2 h 0 min"),
    ],
)  # fmt: skip
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_two_runs_of_the_same_name_are_told_apart(run_folder, tmp_path):
    copy = shutil.copytree(run_folder, tmp_path / "again")
    page = campaign_page(read_run(run_folder), [read_run(copy)])
    assert "ethanol (again)" in page
    assert f"ethanol ({run_folder.name})" in page


def test_a_damaged_pool_is_named(run_folder, tmp_path):
    copy = shutil.copytree(run_folder, tmp_path / "run")
    path = copy / "rounds" / "01" / "pool.xyz"
    path.write_text(path.read_text().replace("9\n", "nine\n", 1))
    with pytest.raises(InputError, match=r"pool\.xyz: cannot be read"):
        write_report(run=copy)
    assert not (copy / "report.html").exists()


def test_pool_size(run_folder):
    assert len(list_candidates(read_run(run_folder))) == 2 * POOL
