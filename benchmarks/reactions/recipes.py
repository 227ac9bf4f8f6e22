"""Small closed-shell organic reactions, each a molecule and the bonds that change in it."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Recipe:
    """One elementary step.

    Args:
        name: of the reaction.
        reactant: SMILES; atoms that take part are numbered.
        bonds: new order of the bond between two numbered atoms, 0 where it breaks.
        charges: formal charges of numbered atoms in the product, where they change.
    """

    name: str
    reactant: str
    bonds: dict[tuple[int, int], int]
    charges: dict[int, int] = field(default_factory=dict)


# A hydrogen moves from atom 3 to atom 1 over the double bond, which moves from 1-2 to 2-3.
_SHIFT = {(1, 2): 1, (2, 3): 2, (3, 4): 0, (1, 4): 1}
# H (5) and a leaving group (3) go from neighbouring atoms and leave together.
_ELIMINATION = {(1, 5): 0, (2, 3): 0, (3, 5): 1, (1, 2): 2}
# Hydrogen from neighbouring atoms.
_DEHYDROGENATION = {(1, 2): 0, (3, 4): 0, (1, 4): 1, (2, 3): 2}
# A three-membered ring opens and a hydrogen moves to the freed carbon.
_RING_SHIFT = {(1, 3): 0, (2, 4): 0, (1, 4): 1, (2, 3): 2}
# A four-membered ring with a double bond opens to a diene.
_RING_OPENING = {(1, 4): 0, (1, 2): 2, (2, 3): 1, (3, 4): 2}
# A hydrogen (4) on atom 2 goes to the group (3) that leaves atom 1.
_LOSS = {(2, 4): 0, (1, 3): 0, (3, 4): 1, (1, 2): 2}
# H (1) and a group (3) leave the carbon of a carbonyl as one molecule, carbon monoxide stays.
_DECARBONYLATION = {(1, 2): 0, (2, 3): 0, (1, 3): 1, (2, 5): 3}
_MONOXIDE = {2: -1, 5: 1}
# A four-membered ring falls into two double bonds.
_RETRO_TWO_TWO = {(1, 4): 0, (2, 3): 0, (1, 2): 2, (3, 4): 2}
_SIGMATROPIC = {(3, 4): 0, (1, 6): 1, (1, 2): 1, (2, 3): 2, (4, 5): 2, (5, 6): 1}

REACTIONS = (
    Recipe("vinyl alcohol to acetaldehyde", "[CH2:1]=[CH:2][O:3][H:4]", _SHIFT),
    Recipe("propen-2-ol to acetone", "[CH2:1]=[C:2](C)[O:3][H:4]", _SHIFT),
    Recipe("propen-1-ol to propanal", "C[CH:1]=[CH:2][O:3][H:4]", _SHIFT),
    Recipe("buten-2-ol to butanone", "[CH2:1]=[C:2](CC)[O:3][H:4]", _SHIFT),
    Recipe("formamidic acid to formamide", "[NH:1]=[CH:2][O:3][H:4]", _SHIFT),
    Recipe("acetimidic acid to acetamide", "[NH:1]=[C:2](C)[O:3][H:4]", _SHIFT),
    Recipe("ethenamine to ethanimine", "[CH2:1]=[CH:2][NH:3][H:4]", _SHIFT),
    Recipe("formaldoxime to nitrosomethane", "[CH2:1]=[N:2][O:3][H:4]", _SHIFT),
    Recipe("thioformic acid, S to O", "[O:1]=[CH:2][S:3][H:4]", _SHIFT),
    Recipe("formic acid, proton transfer", "[O:1]=[CH:2][O:3][H:4]", _SHIFT),
    Recipe("acetic acid, proton transfer", "[O:1]=[C:2](C)[O:3][H:4]", _SHIFT),
    Recipe("nitrous acid, proton transfer", "[O:1]=[N:2][O:3][H:4]", _SHIFT),
    Recipe("formamidine, proton transfer", "[NH:1]=[CH:2][NH:3][H:4]", _SHIFT),
    Recipe("ethenediol to glycolaldehyde", "O[CH:1]=[CH:2][O:3][H:4]", _SHIFT),
    Recipe("propyne to allene", "[CH:1]#[C:2][CH2:3][H:4]", {(1, 2): 2, (2, 3): 2, (3, 4): 0, (1, 4): 1}),
    Recipe(
        "malonaldehyde, proton transfer",
        "[O:1]=[CH:2]/[CH:3]=[CH:4]\\[O:5][H:6]",
        {(1, 2): 1, (2, 3): 2, (3, 4): 1, (4, 5): 2, (5, 6): 0, (1, 6): 1},
    ),
    Recipe("ethanol, loss of water", "[CH2:1]([H:5])[CH2:2][OH:3]", _ELIMINATION),
    Recipe("propan-2-ol, loss of water", "[CH2:1]([H:5])[CH:2](C)[OH:3]", _ELIMINATION),
    Recipe("propan-1-ol, loss of water", "C[CH:1]([H:5])[CH2:2][OH:3]", _ELIMINATION),
    Recipe("ethanediol, loss of water", "O[CH:1]([H:5])[CH2:2][OH:3]", _ELIMINATION),
    Recipe("fluoroethane, loss of hydrogen fluoride", "[CH2:1]([H:5])[CH2:2][F:3]", _ELIMINATION),
    Recipe("chloroethane, loss of hydrogen chloride", "[CH2:1]([H:5])[CH2:2][Cl:3]", _ELIMINATION),
    Recipe("ethanamine, loss of ammonia", "[CH2:1]([H:5])[CH2:2][NH2:3]", _ELIMINATION),
    Recipe("acetic acid to ketene", "[CH2:1]([H:5])[C:2](=O)[OH:3]", _ELIMINATION),
    Recipe("acetamide to ketene", "[CH2:1]([H:5])[C:2](=O)[NH2:3]", _ELIMINATION),
    Recipe("formic acid, loss of hydrogen", "[H:1][C:2](=O)[O:3][H:4]", _DEHYDROGENATION),
    Recipe("methanol, loss of hydrogen", "[H:1][CH2:2][O:3][H:4]", _DEHYDROGENATION),
    Recipe("ethanol, loss of hydrogen", "[H:1][CH:2](C)[O:3][H:4]", _DEHYDROGENATION),
    Recipe("methanamine, loss of hydrogen", "[H:1][CH2:2][NH:3][H:4]", _DEHYDROGENATION),
    Recipe("formamide, loss of hydrogen", "[H:1][C:2](=O)[NH:3][H:4]", _DEHYDROGENATION),
    Recipe("formic acid, loss of water", "[H:1][C:2](=[O:5])[OH:3]", _DECARBONYLATION, _MONOXIDE),
    Recipe("formamide, loss of ammonia", "[H:1][C:2](=[O:5])[NH2:3]", _DECARBONYLATION, _MONOXIDE),
    Recipe("acetaldehyde to methane", "[H:1][C:2](=[O:5])[CH3:3]", _DECARBONYLATION, _MONOXIDE),
    Recipe("formaldehyde to hydrogen", "[H:1][C:2](=[O:5])[H:3]", _DECARBONYLATION, _MONOXIDE),
    Recipe("carbonic acid, loss of water", "O=[C:1]([O:2][H:4])[OH:3]", _LOSS),
    Recipe("carbamic acid, loss of ammonia", "O=[C:1]([O:2][H:4])[NH2:3]", _LOSS),
    Recipe("methanediol, loss of water", "[CH2:1]([O:2][H:4])[OH:3]", _LOSS),
    Recipe("aminomethanol, loss of water", "[CH2:1]([NH:2][H:4])[OH:3]", _LOSS),
    Recipe("ethanediol-1,1, loss of water", "C[CH:1]([O:2][H:4])[OH:3]", _LOSS),
    Recipe(
        "ethyl formate to ethene",
        "[O:1]=[CH:2][O:3][CH2:4][CH2:5][H:6]",
        {(3, 4): 0, (5, 6): 0, (1, 6): 1, (1, 2): 1, (2, 3): 2, (4, 5): 2},
    ),
    Recipe("cyclopropane to propene", "[CH2:1]1[CH:2]([H:4])[CH2:3]1", _RING_SHIFT),
    Recipe("oxirane to acetaldehyde", "[CH2:1]1[CH:2]([H:4])[O:3]1", _RING_SHIFT),
    Recipe("methyloxirane to acetone", "[CH2:1]1[C:2](C)([H:4])[O:3]1", _RING_SHIFT),
    Recipe("methyloxirane to propanal", "C[CH:1]1[CH:2]([H:4])[O:3]1", _RING_SHIFT),
    Recipe("aziridine to ethanimine", "[CH2:1]1[CH:2]([H:4])[NH:3]1", _RING_SHIFT),
    Recipe("thiirane to ethanethial", "[CH2:1]1[CH:2]([H:4])[S:3]1", _RING_SHIFT),
    Recipe("cyclobutene to butadiene", "[CH2:1]1[CH:2]=[CH:3][CH2:4]1", _RING_OPENING),
    Recipe("3-methylcyclobutene to pentadiene", "[CH:1]1(C)[CH:2]=[CH:3][CH2:4]1", _RING_OPENING),
    Recipe("1-methylcyclobutene to isoprene", "[CH2:1]1[C:2](C)=[CH:3][CH2:4]1", _RING_OPENING),
    Recipe("oxete to propenal", "[O:1]1[CH:2]=[CH:3][CH2:4]1", _RING_OPENING),
    Recipe("thiete to propenethial", "[S:1]1[CH:2]=[CH:3][CH2:4]1", _RING_OPENING),
    Recipe(
        "cyclohexadiene to hexatriene",
        "[CH2:1]1[CH:2]=[CH:3][CH:4]=[CH:5][CH2:6]1",
        {(1, 6): 0, (1, 2): 2, (2, 3): 1, (3, 4): 2, (4, 5): 1, (5, 6): 2},
    ),
    Recipe(
        "cyclohexene to butadiene and ethene",
        "[CH2:1]1[CH:2]=[CH:3][CH2:4][CH2:5][CH2:6]1",
        {(4, 5): 0, (1, 6): 0, (1, 2): 2, (2, 3): 1, (3, 4): 2, (5, 6): 2},
    ),
    Recipe(
        "dihydropyran to propenal and ethene",
        "[O:1]1[CH:2]=[CH:3][CH2:4][CH2:5][CH2:6]1",
        {(4, 5): 0, (1, 6): 0, (1, 2): 2, (2, 3): 1, (3, 4): 2, (5, 6): 2},
    ),
    Recipe("oxetane to formaldehyde and ethene", "[CH2:1]1[O:2][CH2:3][CH2:4]1", _RETRO_TWO_TWO),
    Recipe("propiolactone to ethene", "O=[C:1]1[O:2][CH2:3][CH2:4]1", _RETRO_TWO_TWO),
    Recipe("allyl vinyl ether, Claisen", "[CH2:1]=[CH:2][O:3][CH2:4][CH:5]=[CH2:6]", _SIGMATROPIC),
    Recipe("hexadiene, Cope", "[CH2:1]=[CH:2][CH2:3][CH2:4][CH:5]=[CH2:6]", _SIGMATROPIC),
    Recipe(
        "pentadiene, hydrogen shift",
        "[CH2:1]=[CH:2]/[CH:3]=[CH:4]\\[CH2:5][H:6]",
        {(5, 6): 0, (1, 6): 1, (1, 2): 1, (2, 3): 2, (3, 4): 1, (4, 5): 2},
    ),
    Recipe("methyl isocyanide to acetonitrile", "[CH3:1][N+:2]#[C-:3]", {(1, 2): 0, (1, 3): 1}, {2: 0, 3: 0}),
    Recipe("hydrogen isocyanide to hydrogen cyanide", "[H:1][N+:2]#[C-:3]", {(1, 2): 0, (1, 3): 1}, {2: 0, 3: 0}),
    Recipe("ethyl isocyanide to propionitrile", "C[CH2:1][N+:2]#[C-:3]", {(1, 2): 0, (1, 3): 1}, {2: 0, 3: 0}),
)
