"""What a user may choose of a network, by name, with what it is; needs no torch."""

SIZES = {
    "channels": "Features of an atom, for each order.",
    "max_ell": "Highest order of the spherical harmonics.",
    "hidden_ell": "Highest order of the features of atoms.",
    "correlation": "Atoms in a product, less one.",
    "interactions": "Layers of messages.",
    "cutoff": "How far an atom sees, Å.",
}
