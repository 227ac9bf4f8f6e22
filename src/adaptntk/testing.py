"""Checks that outsiders can run on their own adapters: each raises AssertionError and says what is wrong."""

import json
from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

import numpy as np
import torch
from ase import Atoms

from adaptntk.core.blocks import TensorBlocks
from adaptntk.core.posterior import Posterior
from adaptntk.core.selection.problem import Constraints, Problem, Selection
from adaptntk.errors import InputError, ModelError
from adaptntk.labelers.labeler import Labeler
from adaptntk.models.family import Trainable, as_trainable
from adaptntk.models.protocol import Potential, energy_gradients_one_by_one, parameter_count
from adaptntk.uncertainty.feature_model import FeatureModel
from adaptntk.uncertainty.method import Assessment, Method, MethodState


def check_potential(potential: Potential, structures: Sequence[Atoms], periodic: Atoms | None = None) -> None:
    """Verify that an adapter keeps the contract of `Potential`, and can do what its capabilities declare.

    What it does not declare must not be there: features and energies of atoms None, dropout refused. Give at least two
    molecules that it can evaluate, preferably of different sizes, and a periodic structure when it handles those.
    """
    assert len(structures) >= 2, "give at least two structures"
    tolerance = 1e-9 if potential.dtype == torch.float64 else 2e-4
    _check_parameters(potential)
    _check_batches(potential, structures, tolerance)
    _check_forces(potential, structures[0])
    _check_symmetry(potential, structures[0], periodic, tolerance)
    if periodic is not None:
        _check_stress(potential, periodic)
    _check_single_point(potential, structures[0])
    _check_copies(potential, structures)
    _check_atoms(potential, structures, tolerance)
    _check_dropout(potential, structures[0])
    if potential.capabilities.trainable:
        _check_trainable(as_trainable(potential.copy()), structures, tolerance)


def check_method(method: Method, structures: Sequence[Atoms], pointwise: bool = True) -> None:
    """Verify that a fitted uncertainty method keeps the contract of `Method`.

    Args:
        method: what its ``fit`` returned.
        structures: a dozen or so that it can score, not those it was fitted on.
        pointwise: whether the score of a structure may not depend on the others it is scored with; False for methods
            that draw random numbers for a whole batch.
    """
    assert len(structures) >= 4, "give at least four structures"
    _check_declarations(method)
    copies = [atoms.copy() for atoms in structures]
    before = torch.cat([network.weights() for network in method.state().networks])
    found = method.assess(structures)
    _check_assessment(found, structures)
    assert [*structures] == copies, "the method changed the structures"
    assert np.array_equal(method.assess(structures).score, found.score), "the same question must get the same answer"
    after = torch.cat([network.weights() for network in method.state().networks])
    assert torch.equal(before, after), "the method changed the weights of a network and did not put them back"
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
    return so many different candidates with finite criteria, respect what is excluded and the limit per group, be the
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
            assert len(found.indices) == len(found.criteria) == count, f"{count} picks and criteria were asked for"
            assert len(set(found.indices)) == count, "a candidate was picked twice"
            assert all(0 <= index < len(candidates) for index in found.indices), "a pick is not a candidate"
            assert np.isfinite(found.criteria).all(), "criteria must be finite"
            assert choose(count, constraints).indices == found.indices, "the same seed must give the same picks"
    assert not any(excluded[index] for index in found.indices), "an excluded candidate was picked"
    assert max(np.bincount([groups[index] for index in found.indices])) <= 2, "too many picks of one group"
    assert torch.equal(values, before), "the input was changed"
    try:
        choose(len(candidates), Constraints(excluded))
    except InputError:
        return
    raise AssertionError("more picks than candidates must be refused with an InputError")


def check_labeler(labeler: Labeler, structures: Sequence[Atoms]) -> None:
    """Verify that a labeler keeps the contract of `Labeler`; its forces must be the slope of its energy.

    Give at least two structures that it can label; five labels of small ones are computed.
    """
    assert len(structures) >= 2, "give at least two structures"
    first, second = (atoms.copy() for atoms in structures[:2])
    energy, forces = labeler.label(first)
    assert first == structures[0], "the labeler changed the structure"
    assert np.shape(forces) == (len(first), 3), f"the forces have the shape {np.shape(forces)}"
    assert np.isfinite([energy, *np.ravel(forces)]).all(), "the energy or a force is not finite"
    labeler.label(second)
    again, forces_again = labeler.label(first)
    assert abs(again - energy) < 1e-5, "a label depends on what was labelled before it"
    assert np.allclose(forces, forces_again, atol=1e-4), "a label depends on what was labelled before it"
    atom, axis = np.unravel_index(int(np.abs(forces).argmax()), np.shape(forces))
    force = forces[atom, axis]
    slope = _force(lambda moved: [labeler.label(a)[0] for a in moved], first, atom, axis, 2e-3)
    told = f"the force on atom {atom} is {force:.3f} eV/Å, but the energy falls by {slope:.3f}: unit or sign?"
    assert abs(slope - force) < 0.01 + 0.02 * abs(slope), told


def _force(energies: Callable[[list[Atoms]], Any], atoms: Atoms, atom: Any, axis: Any, step: float) -> float:
    """By how much the energy falls when an atom moves along an axis."""
    moved = [atoms.copy(), atoms.copy()]
    moved[0].positions[atom, axis] += step
    moved[1].positions[atom, axis] -= step
    plus, minus = energies(moved)
    return (minus - plus) / (2 * step)


def _check_declarations(method: Method) -> None:
    """What `fit` and files rely on."""
    assert isinstance(method.name, str), "a method must have a name"
    assert is_dataclass(method.Options), "Options must be a dataclass"
    options = fields(method.Options)
    needed = [item.name for item in options if item.default is MISSING and item.default_factory is MISSING]
    assert not needed, f"every option must have a default: {', '.join(needed)}"
    assert isinstance(method.uses_training_labels, bool), "uses_training_labels must be True or False"
    assert method.potential is method.state().networks[0], "the first network of the state must be the potential"
    featured = method.features is None or isinstance(method.features, FeatureModel)
    assert featured, "features must be a FeatureModel, or None where there are only scores"


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
    # Of other methods the number of training structures is not known here.
    sizes = {} if method.features is None else {"n": len(method.features.blocks)}
    method.stored.check(settings, tensors, sizes | {"P": parameter_count(method.potential)})
    restored = type(method).restore(MethodState(state.networks, tensors, settings)).assess(structures).score
    assert np.allclose(restored, found.score, rtol=1e-6), "a method restored from its state must give the same scores"


def _check_parameters(potential: Potential) -> None:
    names = [name for name, _ in potential.parameters()]
    assert names, "the potential has no trainable parameters"
    assert len(set(names)) == len(names), "parameter names must be unique"
    assert names == [name for name, _ in potential.parameters()], "the order of the parameters must not change"
    assert all(tensor.requires_grad for _, tensor in potential.parameters()), "parameters must require gradients"
    assert len(potential.fingerprint) == 64, "the fingerprint must be a SHA-256 in hexadecimal"


def _check_batches(potential: Potential, structures: Sequence[Atoms], tolerance: float) -> None:
    copies = [atoms.copy() for atoms in structures]
    graphs = [potential.graph(atoms) for atoms in structures]
    together, predicted = potential.energies(graphs).detach(), potential.predict(structures)
    assert [*structures] == copies, "the potential changed the structure it was given"
    assert together.shape == (len(structures),), "energies must be one number per structure"
    single = torch.cat([potential.energies([graph]) for graph in graphs]).detach()
    allowed = tolerance * (float(single.abs().max()) + 1.0)
    assert torch.allclose(together, single, rtol=0, atol=allowed), "a batch must give what single calls give"
    difference = predicted.energies - single.double().cpu().numpy()
    assert np.abs(difference).max() <= allowed, "predict and energies must agree"
    rows = potential.energy_gradients(graphs)
    assert rows.shape == (len(graphs), parameter_count(potential)), "one gradient per structure, over all parameters"
    assert bool(torch.isfinite(rows).all()), "gradients must be finite"
    assert bool((rows != 0).any()), "the energy must depend on the parameters"
    expected = energy_gradients_one_by_one(potential, graphs)
    error = float((rows - expected).norm() / expected.norm())
    assert error < 100 * tolerance, "energy_gradients must be the derivatives of the energies over the parameters"
    again, passing = potential.gradients_and_predictions(graphs)
    assert float((again - rows).norm() / rows.norm()) < 100 * tolerance, "the same gradients must come with predictions"
    if passing is not None:
        assert np.abs(passing.energies - predicted.energies).max() <= allowed, "energies must agree with predict"
        close = (np.allclose(a, b, rtol=1e-3, atol=1e-4) for a, b in zip(passing.forces, predicted.forces, strict=True))
        assert all(close), "forces must agree with predict"
    assert all(potential.gradient_memory(graph) >= 0 for graph in graphs), "memory must be a number of bytes"


def _step(potential: Potential) -> tuple[float, float]:
    """Of differences of energies, and how much they may be wrong."""
    return (1e-4, 1e-5) if potential.dtype == torch.float64 else (1e-2, 5e-2)


def _check_forces(potential: Potential, atoms: Atoms) -> None:
    step, allowed = _step(potential)
    forces = potential.predict([atoms]).forces[0]
    for atom, axis in ((0, 0), (len(atoms) - 1, 2)):
        slope = _force(lambda moved: potential.predict(moved).energies, atoms, atom, axis, step)
        difference = abs(slope - forces[atom, axis])
        assert difference <= allowed * (1 + np.abs(forces).max()), "forces must be minus the gradient of the energy"
    alone = potential.predict([Atoms(atoms.symbols[:1], positions=[[1.0, 2.0, 3.0]])])
    assert np.isfinite(alone.energies).all(), "a single atom must have a finite energy"
    assert np.allclose(alone.forces[0], 0.0), "a single atom must have no forces"


def _check_symmetry(potential: Potential, atoms: Atoms, periodic: Atoms | None, tolerance: float) -> None:
    rotated = atoms.copy()
    rotated.rotate(40, (1, 2, 3), center=(0.1, 0.2, 0.3))
    rotated.translate((3.0, -2.0, 1.0))
    shuffled = atoms[np.random.default_rng(0).permutation(len(atoms))]
    same = [
        (atoms, rotated, "energy changes by rotation and translation"),
        (atoms, shuffled, "energy changes by permutation"),
    ]
    if periodic is not None:
        shifted = periodic.copy()
        shifted.positions[0] += np.asarray(periodic.cell)[0]
        same.append((periodic, shifted, "moving an atom by a lattice vector must not change the energy"))
    for one, other, wrong in same:
        first, second = potential.predict([one, other]).energies
        assert abs(first - second) <= tolerance * (1 + abs(first)), wrong


def _check_stress(potential: Potential, atoms: Atoms) -> None:
    stress = potential.single_point(atoms).stress
    if not potential.capabilities.stress:
        assert stress is None, "there is a stress, but the capabilities do not say so"
        return
    assert stress is not None, "the capabilities declare a stress, but there is none"
    assert stress.shape == (3, 3), "the stress must be a 3 x 3 tensor"
    step, allowed = _step(potential)
    strained = [atoms.copy(), atoms.copy()]
    for other, factor in zip(strained, (1 + step, 1 - step), strict=True):
        other.set_cell(np.asarray(atoms.cell) * factor, scale_atoms=True)
    plus, minus = potential.predict(strained).energies
    error = abs((plus - minus) / (2 * step * atoms.get_volume()) - np.trace(stress))
    wrong = "the stress must be the derivative of the energy over the strain, by volume"
    assert error <= allowed * (1 + np.abs(stress).max()), wrong


def _check_single_point(potential: Potential, atoms: Atoms) -> None:
    predicted = potential.predict([atoms])
    row = potential.energy_gradients([potential.graph(atoms)])
    for gradient in (False, True):
        point = potential.single_point(atoms, gradient)
        assert np.isclose(point.energy, predicted.energies[0], rtol=1e-6), "single_point and predict must agree"
        assert np.allclose(point.forces, predicted.forces[0], rtol=1e-3, atol=1e-4), "the forces must agree too"
        assert point.stress is None or atoms.pbc.all(), "only what is periodic in all directions has a stress"
        if not gradient:
            assert point.gradient is None, "a gradient that was not asked for"
            continue
        assert point.gradient is not None, "the gradient was asked for"
        error = float((point.gradient - row).norm() / row.norm())
        assert error < 1e-3, "the gradient of single_point must be that of energy_gradients"


def _check_copies(potential: Potential, structures: Sequence[Atoms]) -> None:
    before = potential.predict(structures).energies
    weights = potential.weights()
    assert weights.shape == (parameter_count(potential),), "weights must be all parameters in one row"
    copied = potential.copy()
    assert np.array_equal(copied.predict(structures).energies, before), "a copy must predict the same"
    assert copied.built_like(potential), "a copy must be built like the original"
    copied.set_weights(1.1 * weights)
    changed = copied.predict(structures).energies
    assert not np.allclose(changed, before, rtol=1e-9), "set_weights on a copy must change what it predicts"
    assert np.array_equal(potential.predict(structures).energies, before), "a copy must not change the original"
    copied.set_weights(weights)
    assert np.allclose(copied.predict(structures).energies, before), "set_weights must put the weights back"
    in_turn = [said.energies for said in copied.predict_in_turn(structures, [1.1 * weights, weights])]
    assert np.allclose(in_turn, [changed, before]), "predict_in_turn must give what set_weights and predict give"


def _check_atoms(potential: Potential, structures: Sequence[Atoms], tolerance: float) -> None:
    """Energies and features of the atoms, where they are declared."""
    declared = potential.capabilities
    turned = [atoms.copy() for atoms in structures]
    for atoms in turned:
        atoms.rotate(40, (1, 2, 3))
    found, again = potential.predict(structures), potential.predict(turned)
    for name, values in (("node_features", found.node_features), ("atom_energies", found.atom_energies)):
        assert (values is not None) == vars(declared)[name], f"{name} and the capabilities must agree"
    for atoms, energy, parts in zip(structures, found.energies, found.atom_energies or (), strict=False):
        assert parts.shape == (len(atoms),), "one energy per atom"
        assert np.isclose(parts.sum(), energy, rtol=max(tolerance, 1e-6)), "the energies of the atoms must add up"
    widths = set()
    for atoms, rows, other in zip(structures, found.node_features or (), again.node_features or (), strict=False):
        assert rows.ndim == 2, "node features must be one row per atom"
        assert len(rows) == len(atoms), "node features must be one row per atom"
        assert np.allclose(rows, other, rtol=1e-3, atol=1e-3 * np.abs(rows).max()), "node features must not turn"
        widths.add(rows.shape[1])
    assert len(widths) <= 1, "node features must be equally many for all atoms"


def _check_dropout(potential: Potential, atoms: Atoms) -> None:
    if not potential.capabilities.dropout:
        try:
            potential.with_dropout(0.5)
        except ModelError:
            return
        raise AssertionError("a potential that does not declare dropout must refuse it with a ModelError")
    sampled = potential.with_dropout(0.5)
    with sampled.dropout_enabled(), torch.random.fork_rng():
        torch.manual_seed(0)
        energies = {float(sampled.predict([atoms]).energies[0]) for _ in range(8)}
    assert len(energies) > 1, "with dropout the energy must differ from call to call"
    for other in (sampled, potential):
        settled = [float(other.predict([atoms]).energies[0]) for _ in range(2)]
        assert settled[0] == settled[1], "dropout must end with dropout_enabled, and stay out of the original"


def _check_trainable(potential: Trainable, structures: Sequence[Atoms], tolerance: float) -> None:
    graphs = [potential.graph(atoms) for atoms in structures]
    predicted = potential.predict(structures)
    isolated = np.array([sum(potential.isolated_energies[z] for z in a.numbers.tolist()) for a in structures])
    allowed = 10 * tolerance * (1 + np.abs(predicted.energies).max())

    def same(energies: Any) -> bool:
        return np.allclose(energies, predicted.energies, rtol=0, atol=allowed)

    for training in (False, True):
        energies, forces, *_ = potential.training_outputs(graphs, training)
        assert same(energies.detach().double().cpu().numpy() + isolated), "training_outputs and predict must agree"
        equal = np.allclose(forces.detach().cpu(), np.concatenate(predicted.forces), rtol=1e-3, atol=1e-4)
        assert equal, "the forces of training_outputs and predict must agree"
        assert forces.requires_grad or not training, "forces must be differentiable while training"
    for atoms, graph in zip(structures, graphs, strict=True):
        expected = potential.single_point(atoms).stress if potential.capabilities.stress else None
        if expected is not None:
            stress = potential.training_outputs([graph], True, stress=True).stress
            assert stress is not None, "a potential that declares stress must give it while training"
            equal = np.allclose(stress[0].detach().cpu(), expected, rtol=1e-3, atol=1e-5)
            assert equal, "the stress of training_outputs and of single_point must agree"
    alone = potential.interaction_energies(graphs).detach().double().cpu().numpy()
    assert same(alone + isolated), "interaction_energies must agree too"
    potential.shift_energies(0.5)
    moved = potential.predict(structures).energies - [0.5 * len(atoms) for atoms in structures]
    assert same(moved), "shift_energies must add the constant to every atom"
