"""Where the geometry enters the fast twin: as data, with its first derivatives beside it.

Training differentiates forces over parameters, never over positions. So what the harmonics and the radial functions
are, and how they change with the vectors between atoms, are constants of a pass: they enter as ``f + f' dx``, with
``dx`` zero but differentiable. That spares the second derivatives of all these functions. Derivatives of forces over
positions are not to be had from it.
"""

from typing import Any

import torch
from torch import Tensor

from adaptntk.models.mace.stock import BesselBasis, o3
from adaptntk.models.mace.tape import Leaf, current_pass


class Harmonics(Leaf):
    """e3nn's spherical harmonics of the directions of all pairs, as the convolution wants them.

    The slopes of a harmonic polynomial of degree l are made of those of degree l - 1: the constant says how, and
    beside it the degrees, and the signs of the harmonics in the opposite direction.
    """

    def __init__(self, stock: Any) -> None:
        super().__init__(stock)
        degrees = [degree for degree in stock._ls_list for _ in range(2 * degree + 1)]
        solid = o3.SphericalHarmonics(stock._ls_list, normalize=False, normalization=stock.normalization)
        points = torch.randn(4 * len(degrees), 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        slopes = torch.autograd.functional.jacobian(lambda x: solid(x).sum(0), points).transpose(0, 1)
        values, slopes = solid(points), slopes.flatten(1)
        # Normal equations, refined once: torch's least squares ends with other last bits each time.
        gram, found = values.T @ values, torch.zeros(len(degrees), slopes.shape[1], dtype=torch.float64)
        for _ in range(2):
            found += torch.linalg.solve(gram, values.T @ (slopes - values @ found))
        numbers = torch.tensor([degrees, [(-1) ** degree for degree in degrees]], dtype=torch.float64)
        self.constant = torch.cat([found.flatten(), numbers.flatten()])

    @staticmethod
    def handles(stock: Any) -> bool:
        return isinstance(stock, o3.SphericalHarmonics) and stock._is_range_lmax and stock.normalize

    def forward(self, vectors: Tensor) -> Tensor:
        points = vectors.detach()
        values = self.stock(points)
        count = values.shape[1]
        slopes, degrees, opposite = self.constant_like(points).split([3 * count**2, count, count])
        if current_pass().slopes:
            lengths = torch.linalg.vector_norm(points, dim=1, keepdim=True).clamp_min(1e-12)
            along = (degrees * values).unsqueeze(2) * (points / lengths).unsqueeze(1)
            jacobian = ((values @ slopes.view(count, -1)).view(-1, count, 3) - along) / lengths.unsqueeze(2)
            values = torch.baddbmm(values.unsqueeze(2), jacobian, (vectors - points).unsqueeze(2)).squeeze(2)
        slots = self.layout.slots
        return values if slots is None else torch.cat([values, values * opposite]).index_select(0, slots.directed)


class RadialEmbedding(Leaf):
    """MACE's Bessel functions of the lengths of all pairs, times its cutoff.

    With ``stacked`` the slopes come as more rows (see `RadialNet`).
    """

    def __init__(self, stock: Any, stacked: bool) -> None:
        super().__init__(stock)
        self.stacked = stacked
        self.reach, self.power = float(stock.cutoff_fn.r_max), int(stock.cutoff_fn.p)

    @staticmethod
    def handles(stock: Any) -> bool:
        """There must be nothing to learn in it."""
        return isinstance(getattr(stock, "bessel_fn", None), BesselBasis) and not any(True for _ in stock.parameters())

    def forward(self, lengths: Tensor, *about: Tensor) -> tuple[Tensor, Tensor | None]:
        points, batch, stock = lengths.detach(), current_pass(), self.stock
        if not batch.slopes:
            return stock(points, *about)
        stretch = lengths - points
        cutoff, falling = self._cutoff(points)
        values, slopes = self._bessel(points, about)
        apart = None
        if getattr(stock, "apply_cutoff", True):
            values, slopes = values * cutoff, torch.addcmul(values * falling, slopes, cutoff)
        else:
            apart = torch.addcmul(cutoff, falling, stretch)
        if not self.stacked or batch.tape is not None:
            return torch.addcmul(values, slopes, stretch), apart
        batch.stretch = stretch
        return torch.cat([values, slopes]), apart

    def _cutoff(self, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """1 - (p+1)(p+2)/2 x^p + p(p+2) x^(p+1) - p(p+1)/2 x^(p+2) within x < 1, and its slope."""
        p, x = self.power, lengths / self.reach
        inside = x < 1
        power = x ** (p - 1) * inside
        polynomial = (x * (-p * (p + 1) / 2) + p * (p + 2)).mul_(x).sub_((p + 1) * (p + 2) / 2)
        slope = -p * (p + 1) * (p + 2) / (2 * self.reach)
        return torch.addcmul(inside.to(x), power * x, polynomial), power * (1 - x).square_().mul_(slope)

    def _bessel(self, lengths: Tensor, about: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """Of the transformed length u: sin(k u) / u with MACE's factor, and its slope."""
        stock, u, slope = self.stock.bessel_fn, lengths, torch.ones_like(lengths)
        if hasattr(self.stock, "distance_transform"):
            with torch.enable_grad():
                lengths = lengths.clone().requires_grad_(True)
                u = self.stock.distance_transform(lengths, *about)
                (slope,) = torch.autograd.grad(u.sum(), lengths)
                u = u.detach()
        k, over_u = stock.bessel_weights, stock.prefactor / u
        ku = k * u
        values = torch.sin(ku) * over_u
        return values, (torch.cos(ku) * (k * stock.prefactor) - values) * (slope / u)
