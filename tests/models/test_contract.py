"""The public check of adapters must notice one that promises too much, or keeps something quiet."""

import dataclasses

import numpy as np
import pytest

from adaptntk.models.protocol import Capabilities, Potential, SinglePoint
from adaptntk.testing import check_potential
from tests.conftest import tiny_network


class Wrapped(Potential):
    """A good potential, of which single answers are replaced."""

    declared: dict = {}  # noqa: RUF012

    def __init__(self, inner=None):
        self.inner = inner or tiny_network(numbers=(1, 6, 8, 14))
        self.description = "wrapped"

    def __getattr__(self, name):
        return getattr(self.inner, name)

    fingerprint = property(lambda self: self.inner.fingerprint)
    device = property(lambda self: self.inner.device)
    dtype = property(lambda self: self.inner.dtype)

    @property
    def capabilities(self):
        honest = Capabilities(node_features=True, atom_energies=True)
        return dataclasses.replace(honest, **self.declared)

    def parameters(self):
        return self.inner.parameters()

    def graph(self, atoms):
        return self.inner.graph(atoms)

    def energies(self, graphs):
        return self.inner.energies(graphs)

    def predict(self, structures, *arguments):
        return self.inner.predict(structures, *arguments)

    def copy(self):
        return type(self)(self.inner.copy())


class WrongGradients(Wrapped):
    def energy_gradients(self, graphs):
        return 1.01 * super().energy_gradients(graphs)


class ForeignForces(Wrapped):
    def single_point(self, atoms, gradient=False):
        point = super().single_point(atoms, gradient)
        return SinglePoint(point.energy, -point.forces, gradient=point.gradient)


class SecretStress(Wrapped):
    def single_point(self, atoms, gradient=False):
        return dataclasses.replace(self.inner.single_point(atoms, gradient))


class WrongStress(Wrapped):
    declared = {"stress": True}  # noqa: RUF012

    def single_point(self, atoms, gradient=False):
        point = self.inner.single_point(atoms, gradient)
        return dataclasses.replace(point, stress=None if point.stress is None else 2 * point.stress)


class NoStress(Wrapped):
    declared = {"stress": True}  # noqa: RUF012


class NoCopy(Wrapped):
    def copy(self):
        return self


class TurningFeatures(Wrapped):
    def predict(self, structures, *arguments):
        found = self.inner.predict(structures, *arguments)
        return dataclasses.replace(found, node_features=[np.array(atoms.positions) for atoms in structures])


class SecretFeatures(Wrapped):
    declared = {"node_features": False}  # noqa: RUF012


class NoDropout(Wrapped):
    declared = {"dropout": True}  # noqa: RUF012

    def with_dropout(self, rate):
        return self.copy()

    def dropout_enabled(self):
        return self.inner.dropout_enabled()


class SecretDropout(Wrapped):
    def with_dropout(self, rate):
        return self.copy()


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (WrongGradients, "derivatives of the energies over the parameters"),
        (ForeignForces, "forces must agree"),
        (SecretStress, "capabilities do not say so"),
        (WrongStress, "derivative of the energy over the strain"),
        (NoStress, "declare a stress, but there is none"),
        (NoCopy, "must not change the original"),
        (TurningFeatures, "must not turn"),
        (SecretFeatures, "node_features and the capabilities must agree"),
        (NoDropout, "must differ from call to call"),
        (SecretDropout, "must refuse it with a ModelError"),
    ],
)
def test_lies_are_noticed(kind, message, ethanol_frames, silicon):
    with pytest.raises(AssertionError, match=message):
        check_potential(kind(), ethanol_frames[:2], periodic=silicon)


def test_an_honest_adapter_with_the_slow_answers(ethanol_frames, silicon):
    check_potential(Wrapped(), ethanol_frames[:2], periodic=silicon)
