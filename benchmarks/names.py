"""What people call the methods, and their colours in all figures."""

TITLES = {
    "ntk": "NTK",
    "error_model": "NTK + error model",
    "ensemble": "ensemble of 3",
    "dropout": "MC dropout",
    "evidential": "evidential",
    "last_layer": "last layer (LLPR)",
    "distance": "distance",
    "energy": "predicted energy",
    "force_size": "size of the force",
    "adaptntk": "AdaptNTK",
    "adaptntk+forces": "AdaptNTK, with forces",
    "topb": "NTK, top-B",
    "lcmd": "LCMD",
    "adaptntk+lcmd": "shortlist, then LCMD",
    "maxdist": "MaxDist",
    "kmeans++": "k-means++",
    "bait": "BAIT",
    "bait+forces": "BAIT for forces",
    "qbc": "QBC (ensemble)",
    "mcd": "MC dropout",
    "swag": "SWAG",
    "edl": "evidential",
    "llpr": "last layer (LLPR)",
    "random": "random",
    "standard": "adaptntk, standard",
    "fast-1x": "adaptntk, fast, 1 x small",
    "standard-10x": "adaptntk, standard, 10 x small",
    "fast": "adaptntk, fast",
    "small": "adaptntk, small (of before)",
    "mace_run_train": "mace_run_train",
    "mace_run_train-10": "mace_run_train, batches of 10",
}
# Paul Tol's palette for people who do not see all colours; controls are grey.
COLOURS = {
    "ntk": "#4477AA",
    "error_model": "#332288",
    "ensemble": "#EE6677",
    "dropout": "#228833",
    "evidential": "#CCBB44",
    "swag": "#88CCEE",
    "last_layer": "#AA3377",
    "distance": "#DDAA33",
    "energy": "#555555",
    "force_size": "#BBBBBB",
    "random": "#888888",
    "adaptntk": "#4477AA",
    "adaptntk+forces": "#0077BB",
    "topb": "#66CCEE",
    "lcmd": "#AA3377",
    "adaptntk+lcmd": "#332288",
    "maxdist": "#DDAA33",
    "kmeans++": "#999933",
    "bait": "#228833",
    "bait+forces": "#009988",
    "qbc": "#EE6677",
    "mcd": "#117733",
    "edl": "#CCBB44",
    "llpr": "#882255",
    "standard": "#4477AA",
    "fast-1x": "#CCBB44",
    "standard-10x": "#66CCEE",
    "fast": "#228833",
    "small": "#888888",
    "mace_run_train": "#EE6677",
    "mace_run_train-10": "#AA3377",
}


def title(method: str) -> str:
    """Options (``ntk:dim=64``) follow in brackets, the dimension of a sketch (``adaptntk@64``) after a comma."""
    name, *options = method.split(":")
    name, _, dim = name.partition("@")
    shown = TITLES.get(name, name)
    if options:
        return f"{shown.removesuffix(' of 3')} ({', '.join(options)})"
    return f"{shown}, p = {dim}" if dim.isdigit() else f"{shown}, {dim}" if dim else shown
