"""Checks that outsiders can run on their own adapters: each raises AssertionError and says what is wrong."""

import json
from collections.abc import Callable, Sequence

import numpy as np
import torch
from ase import Atoms

from adaptntk.core.blocks import TensorBlocks
from adaptntk.core.posterior import Posterior
from adaptntk.core.selection.problem import Constraints, Problem, Selection
from adaptntk.errors import InputError
from adaptntk.models.protocol import Potential, parameter_count
from adaptntk.uncertainty.method import Assessment, Method, MethodState


def check_potential(potential: Potential, structures: Sequence[Atoms], periodic: Atoms | None = None) -> None:
    """Verify that an adapter keeps the contract of `Potential`.

    Args:
        potential: the adapter.
        structures: at least two molecules it can evaluate, preferably of different sizes.
        periodic: a periodic structure, when the potential handles those.
    """
    assert len(structures) >= 2, "give at least two structures"
    tolerance = 1e-9 if potential.dtype == torch.float64 else 2e-4
    _check_parameters(potential)
    _check_no_mutation(potential, structures)
    _check_batches(potential, structures, tolerance)
    _check_forces(potential, structures[0])
    _check_symmetry(potential, structures[0], tolerance)
    _check_one_atom(potential, structures[0])
    if periodic is not None:
        _check_periodic_shift(potential, periodic, tolerance)


def check_method(method: Method, structures: Sequence[Atoms], pointwise: bool = True) -> None:
    """Verify that a fitted uncertainty method keeps the contract of `Method`.

    Args:
        method: what its ``fit`` returned.
        structures: a dozen or so that it can score, not those it was fitted on.
        pointwise: whether the score of a structure may not depend on the others it is scored with; False for methods
            that draw random numbers for a whole batch.
    """
    assert len(structures) >= 4, "give at least four structures"
    copies = [atoms.copy() for atoms in structures]
    weights = _weights(method)
    found = method.assess(structures)
    _check_assessment(found, structures)
    assert all(a == b for a, b in zip(structures, copies, strict=True)), "the method changed the structures"
    assert np.array_equal(method.assess(structures).score, found.score), "the same question must get the same answer"
    assert all(torch.equal(a, b) for a, b in zip(_weights(method), weights, strict=True)), (
        "the method changed the weights of a network and did not put them back"
    )
    _check_state(method, structures, found)
    if pointwise:
        tolerance = 1e-3 * float(np.abs(found.score).max())
        backwards = method.assess(structures[::-1]).score[::-1]
        assert np.allclose(backwards, found.score, rtol=1e-2, atol=tolerance), "the order must not change the scores"
        alone = method.assess(structures[1:2]).score[0]
        assert np.isclose(alone, found.score[1], rtol=1e-2, atol=tolerance), "a single structure must score as in a set"


def check_rule(rule: Callable[[Problem], Selection]) -> None:
    """Verify that a rule for choosing batches keeps the contract of a selector.

    It is tried on random features, with one row and with several rows per structure: whatever it prefers, it must
    return so many different candidates with finite scores, respect what is excluded and the limit per group, be the
    same when asked again, leave its input alone, and refuse what cannot be satisfied.
    """
    for rows, asked in ((1, 1), (3, 2)):
        _check_rule(rule, rows, asked)


def _check_rule(rule: Callable[[Problem], Selection], rows: int, asked: int) -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(100, rows, 12, generator=generator, dtype=torch.float64)
    training, candidates = TensorBlocks(values[:30], asked), TensorBlocks(values[30:], asked)
    before = values.clone()
    posterior = Posterior.fit(training, 0.1)

    def choose(count: int, constraints: Constraints) -> Selection:
        return rule(Problem.of_features(posterior, training, candidates, count, constraints, seed=3))

    excluded = [index % 3 == 0 for index in range(len(candidates))]
    groups = [index % 7 for index in range(len(candidates))]
    for count in (1, 9):
        for constraints in (Constraints(), Constraints(excluded, groups=groups, per_group_max=2)):
            found = choose(count, constraints)
            assert len(found.indices) == len(found.scores) == count, f"{count} picks and scores were asked for"
            assert len(set(found.indices)) == count, "a candidate was picked twice"
            assert all(0 <= index < len(candidates) for index in found.indices), "a pick is not a candidate"
            assert np.isfinite(found.scores).all(), "scores must be finite"
            assert choose(count, constraints).indices == found.indices, "the same seed must give the same picks"
    assert not any(excluded[index] for index in found.indices), "an excluded candidate was picked"
    assert max(np.bincount([groups[index] for index in found.indices])) <= 2, "too many picks of one group"
    assert torch.equal(values, before), "the input was changed"
    try:
        choose(len(candidates), Constraints(excluded))
    except InputError:
        return
    raise AssertionError("more picks than candidates must be refused with an InputError")


def _check_assessment(found: Assessment, structures: Sequence[Atoms]) -> None:
    assert found.kind in ("variance", "std"), "the kind of a score must be 'variance' or 'std'"
    for name in ("score", "energies"):
        values = getattr(found, name)
        assert values.shape == (len(structures),), f"{name} must be one number per structure"
        assert np.isfinite(values).all(), f"{name} must be finite"
    assert (found.score >= 0).all(), "a score is a variance or a standard deviation and cannot be negative"
    assert len(set(found.score.tolist())) > 1, "the score is the same for all structures"
    shapes = [forces.shape for forces in found.forces]
    assert shapes == [(len(atoms), 3) for atoms in structures], "forces must be three numbers per atom"
    assert all(np.isfinite(forces).all() for forces in found.forces), "forces must be finite"


def _check_state(method: Method, structures: Sequence[Atoms], found: Assessment) -> None:
    """What goes into a file must be enough to bring the method back."""
    state = method.state()
    assert state.networks, "the state must name the network that predicts"
    assert all(isinstance(tensor, torch.Tensor) for tensor in state.tensors.values()), "tensors must be tensors"
    settings = json.loads(json.dumps(state.settings))
    tensors = {name: tensor.detach().clone() for name, tensor in state.tensors.items()}
    restored = type(method).restore(MethodState(state.networks, tensors, settings))
    assert np.allclose(restored.assess(structures).score, found.score, rtol=1e-6), (
        "a method restored from its state must give the same scores"
    )


def _weights(method: Method) -> list[torch.Tensor]:
    return [p.detach().clone() for network in method.state().networks for _, p in network.parameters()]


def _check_parameters(potential: Potential) -> None:
    names = [name for name, _ in potential.parameters()]
    assert names, "the potential has no trainable parameters"
    assert len(set(names)) == len(names), "parameter names must be unique"
    assert names == [name for name, _ in potential.parameters()], "the order of the parameters must not change"
    assert all(tensor.requires_grad for _, tensor in potential.parameters()), "parameters must require gradients"
    assert len(potential.fingerprint) == 64, "the fingerprint must be a SHA-256 in hexadecimal"


def _check_no_mutation(potential: Potential, structures: Sequence[Atoms]) -> None:
    copies = [atoms.copy() for atoms in structures]
    potential.predict(structures)
    potential.energies([potential.graph(atoms) for atoms in structures])
    for atoms, copy in zip(structures, copies, strict=True):
        assert atoms == copy, "the potential changed the structure it was given"


def _check_batches(potential: Potential, structures: Sequence[Atoms], tolerance: float) -> None:
    graphs = [potential.graph(atoms) for atoms in structures]
    together = potential.energies(graphs)
    assert together.shape == (len(structures),), "energies must be one number per structure"
    single = torch.cat([potential.energies([graph]) for graph in graphs])
    scale = float(single.detach().abs().max()) + 1.0
    assert torch.allclose(together, single, rtol=0, atol=tolerance * scale), "a batch must give what single calls give"
    predicted = potential.predict(structures)
    assert np.allclose(predicted.energies, single.detach().double().cpu().numpy(), rtol=0, atol=tolerance * scale), (
        "predict and energies must agree"
    )
    rows = potential.energy_gradients(graphs)
    assert rows.shape == (len(graphs), parameter_count(potential)), "one gradient per structure, over all parameters"
    assert bool(torch.isfinite(rows).all()), "gradients must be finite"
    assert bool((rows != 0).any()), "the energy must depend on the parameters"


def _check_forces(potential: Potential, atoms: Atoms) -> None:
    step = 1e-4 if potential.dtype == torch.float64 else 1e-2
    forces = potential.predict([atoms]).forces[0]
    for atom, axis in ((0, 0), (len(atoms) - 1, 2)):
        moved = [atoms.copy(), atoms.copy()]
        moved[0].positions[atom, axis] += step
        moved[1].positions[atom, axis] -= step
        plus, minus = potential.predict(moved).energies
        difference = abs((minus - plus) / (2 * step) - forces[atom, axis])
        allowed = 1e-5 if potential.dtype == torch.float64 else 5e-2
        assert difference <= allowed * (1 + np.abs(forces).max()), "forces must be minus the gradient of the energy"


def _check_symmetry(potential: Potential, atoms: Atoms, tolerance: float) -> None:
    rotated = atoms.copy()
    rotated.rotate(40, (1, 2, 3), center=(0.1, 0.2, 0.3))
    rotated.translate((3.0, -2.0, 1.0))
    shuffled = atoms[np.random.default_rng(0).permutation(len(atoms))]
    for name, other in (("rotation and translation", rotated), ("permutation", shuffled)):
        energies = potential.predict([atoms, other]).energies
        assert abs(energies[0] - energies[1]) <= tolerance * (1 + abs(energies[0])), f"energy changes by {name}"


def _check_one_atom(potential: Potential, atoms: Atoms) -> None:
    predicted = potential.predict([Atoms(atoms.symbols[:1], positions=[[1.0, 2.0, 3.0]])])
    assert np.isfinite(predicted.energies).all(), "a single atom must have a finite energy"
    assert np.allclose(predicted.forces[0], 0.0), "a single atom must have no forces"


def _check_periodic_shift(potential: Potential, atoms: Atoms, tolerance: float) -> None:
    shifted = atoms.copy()
    shifted.positions[0] += np.asarray(atoms.cell)[0]
    energies = potential.predict([atoms, shifted]).energies
    assert abs(energies[0] - energies[1]) <= tolerance * (1 + abs(energies[0])), (
        "moving an atom by a lattice vector must not change the energy"
    )
