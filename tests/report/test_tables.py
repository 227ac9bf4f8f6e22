"""Tables as text."""

from adaptntk.report.tables import aligned


def test_columns_are_even_and_cells_stay_as_they_are():
    rows = [["selection", "force RMSE (meV/Å)"], ["adaptntk", "2.3 [1, 2] [bold]"], ["σ :smile:", "–"], ["", "  x"]]
    assert aligned(rows) == [
        "| selection | force RMSE (meV/Å) |",
        "|-----------|--------------------|",
        "| adaptntk  | 2.3 [1, 2] [bold]  |",
        "| σ :smile: | –                  |",
        "|           |   x                |",
    ]
    assert len(aligned([["a" * 300, "b"], ["c", "d" * 300]])) == 3
