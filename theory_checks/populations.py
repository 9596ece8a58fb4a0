"""Populations of prompts and outputs with exact spectra, and random ones for the searches.

A mixture has finitely many prompts and, for each, a distribution over outputs. Outputs come in
blocks: within a block any kernel is allowed, different blocks are orthogonal, and a block may stand
for any number of mutually orthogonal copies of itself. So 10^8 equally likely orthogonal images are
one row with `copies=1e8`, and every spectrum stays exact. Lengths are in units of the bandwidth.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import entr, softmax

from theory_checks import numerics


@dataclasses.dataclass(frozen=True)
class Spectrum:
    """Eigenvalues with multiplicities: non-negative `values` `[k]`, each `copies` times `[k]`."""

    values: np.ndarray
    copies: np.ndarray

    def log_norm(self, order: float) -> float:
        """Logarithm of the l_order norm, free of underflow for large orders."""
        top = self.values.max()
        return float(np.log(top) + np.log(self.copies @ (self.values / top) ** order) / order)

    def norm(self, order: float) -> float:
        """The l_order norm."""
        return float(np.exp(self.log_norm(order)))

    def entropy(self, order: float) -> float:
        """Renyi entropy of this order in nats (von Neumann at order 1)."""
        if order == 1:
            return float(self.copies @ entr(self.values))
        return order / (1 - order) * self.log_norm(order)

    def truncated(self, t: int) -> "Spectrum":
        """The t largest entries, shifted to unit sum (the projection of CV Lemma A)."""
        entries = np.repeat(self.values, np.minimum(self.copies, t).astype(int))
        shifted = numerics.truncate(np.pad(entries, (0, t)), t)
        return Spectrum(np.maximum(shifted, 0.0), np.ones(t))


def distance(first: Spectrum, second: Spectrum, order: float) -> float:
    """l_order distance of the sorted spectra, padded with zeros (multiplicities of any size)."""
    cuts, steps = [], []
    for part in (first, second):
        descending = np.argsort(-part.values)
        cuts.append(np.cumsum(part.copies[descending]))
        steps.append(np.append(part.values[descending], 0.0))
    edges = np.unique(np.concatenate([[0.0], *cuts]))
    middle = (edges[1:] + edges[:-1]) / 2
    a, b = (step[np.searchsorted(cut, middle)] for cut, step in zip(cuts, steps, strict=True))
    return float((np.diff(edges) @ np.abs(a - b) ** order) ** (1 / order))


@dataclasses.dataclass(frozen=True)
class Block:
    """Joint atoms (prompt, output) whose outputs are orthogonal to those of every other block.

    Attributes:
        prompts: index of the prompt of each atom, `[r]`.
        weights: probability of each atom, all copies together, `[r]`.
        gram: output kernel between the atoms, `[r, r]`, unit diagonal; 1 for one image.
        copies: number of orthogonal copies among which each weight is shared equally.
    """

    prompts: np.ndarray
    weights: np.ndarray
    gram: np.ndarray | float = 1.0
    copies: float = 1.0


def spectrum(blocks: Sequence[Block], prompt_gram: np.ndarray) -> Spectrum:
    """Eigenvalues of the joint operator of these blocks under this kernel of the prompts."""
    values, copies = [], []
    for block in blocks:
        root = np.sqrt(block.weights)
        kernel = block.gram * prompt_gram[np.ix_(block.prompts, block.prompts)]
        values.append(np.linalg.eigvalsh(root[:, None] * kernel * root) / block.copies)
        copies.append(np.full(len(root), block.copies))
    return Spectrum(np.maximum(np.concatenate(values), 0.0), np.concatenate(copies))


@dataclasses.dataclass
class Mixture:
    """Prompts from a mixture, outputs given the prompt; everything about it is exact.

    Attributes:
        component: the component of each prompt atom, `[p]`, 0 .. m-1.
        location: prompt atoms in units of the bandwidth, `[p, d]`.
        blocks: the joint atoms; their weights sum to 1.
        label: one line that says what the population is.
        bandwidth: the unit of lengths, for formulas that hold it.
        modes: number of components m.
        members: which prompt atoms are of which component, `[m, p]` of zeros and ones.
        same: the kernel that is 1 within components and 0 between them, `[p, p]`.
        prompt_weights: probability of each prompt atom, `[p]`.
        alone: the prompt atoms with one image for all, as blocks.
        prompt_gram: k_T between the prompt atoms, `[p, p]`.
        weights: mixture weights omega, `[m]`.
        mode_spectrum: the mixture weights as a spectrum.
        means: of the components, `[m, d]`.
        mean_gram: k_T between them, `[m, m]`.
        deviations: squared distances of the prompt atoms from their means, `[p]`.
        variances: sigma_i^2 / sigma^2 of each component, `[m]`.
    """

    component: np.ndarray
    location: np.ndarray
    blocks: tuple[Block, ...]
    label: str = ""
    bandwidth: float = 2.0

    def __post_init__(self) -> None:
        """Everything that needs no spectrum."""
        self.modes = int(self.component.max()) + 1
        self.members = np.eye(self.modes)[:, self.component]
        self.same = self.members.T @ self.members
        self.prompt_weights = np.zeros(len(self.component))
        for block in self.blocks:
            np.add.at(self.prompt_weights, block.prompts, block.weights)
        self.alone = (Block(np.arange(len(self.component)), self.prompt_weights),)
        self.prompt_gram = numerics.gaussian(self.location)
        self.weights = self.members @ self.prompt_weights
        self.mode_spectrum = Spectrum(self.weights, np.ones(self.modes))
        self.means = self.members * self.prompt_weights @ self.location / self.weights[:, None]
        self.mean_gram = numerics.gaussian(self.means)
        self.deviations = ((self.location - self.means[self.component]) ** 2).sum(-1)
        self.variances = self.members @ (self.prompt_weights * self.deviations) / self.weights

    @functools.cached_property
    def joint(self) -> Spectrum:
        """Spectrum of C_{X,T}."""
        return spectrum(self.blocks, self.prompt_gram)

    @functools.cached_property
    def prompts(self) -> Spectrum:
        """Spectrum of C_T."""
        return spectrum(self.alone, self.prompt_gram)

    @functools.cached_property
    def outputs(self) -> list[Spectrum]:
        """Spectra of the output operators C_1 .. C_m."""
        parts = [spectrum(self.blocks, np.outer(row, row)) for row in self.members]
        pairs = zip(parts, self.weights, strict=True)
        return [Spectrum(part.values / weight, part.copies) for part, weight in pairs]

    @functools.cached_property
    def stacked(self) -> Spectrum:
        """The papers' lambda-hat: union of omega_i Eigs(C_i)."""
        return spectrum(self.blocks, self.same)

    @functools.cached_property
    def images(self) -> float:
        """Number of distinct outputs."""
        grams = [(np.atleast_2d(block.gram).round(9), block.copies) for block in self.blocks]
        return float(sum(copies * len(np.unique(gram, axis=0)) for gram, copies in grams))

    def gap(self, order: float) -> float:
        """H(X|T) less f^{-1}(E_{I ~ omega^order} f(H(X | G = I))), the mean of CV Theorem 6."""
        conditional = self.joint.entropy(order) - self.prompts.entropy(order)
        return conditional - (self.stacked.entropy(order) - self.mode_spectrum.entropy(order))

    @functools.cached_property
    def collisions(self) -> np.ndarray:
        """P(t) P(t') E[k_X^2 | t, t'] over independent prompt atoms t and t', `[p, p]`."""
        total = np.zeros_like(self.prompt_gram)
        for block in self.blocks:
            squares = np.outer(block.weights, block.weights) * block.gram**2 / block.copies
            np.add.at(total, (block.prompts[:, None], block.prompts), squares)
        return total

    @functools.cached_property
    def pairs(self) -> tuple[np.ndarray, ...]:
        """omega_i omega_j times E_ij[k_T^2], E_ij[k_X^2 k_T^2] and E_ij[k_X^2], `[m, m]` each.

        Over independent pairs of components i and j; no spectrum is computed.
        """
        squares = self.prompt_gram**2
        independent = np.outer(self.prompt_weights, self.prompt_weights)
        kernels = independent * squares, self.collisions * squares, self.collisions
        return tuple(self.members @ kernel @ self.members.T for kernel in kernels)


# --- Populations by hand: a table of prompts and images, different images orthogonal --------------


def listed(
    location: Any,
    table: Any,
    *,
    component: Sequence[int] | None = None,
    copies: Any = 1.0,
    label: str = "",
) -> Mixture:
    """The population of a table of probabilities.

    Args:
        location: prompts in bandwidths, `[p]` or `[p, d]`.
        table: P(prompt, image), `[p, images]`, or `[p]` for one image.
        component: of each prompt; where not given, each is a component of its own.
        copies: number of orthogonal images that each column stands for: one number, or `[images]`.
        label: one line that says what the population is.
    """
    location, table = (np.reshape(np.asarray(x, float), (len(x), -1)) for x in (location, table))
    blocks = []
    for column, many in zip(table.T, np.broadcast_to(copies, table.shape[1]), strict=True):
        rows = np.flatnonzero(column)
        blocks.append(Block(rows, column[rows], copies=float(many)))
    component = range(len(table)) if component is None else component
    return Mixture(np.array(component), location, tuple(blocks), label)


def rare_mode(
    p: float, q: float, step: float, copies: float, count: int = 1, start: float = 0.0
) -> Mixture:
    """Rare prompts that always show one image e, and a frequent, diverse one that may show it too.

    The frequent prompt shows e with probability q, else one of `copies` equally likely orthogonal
    images; `count` prompts of probability p each, `step` apart from `start` on, always show e. The
    collisions of e decide the order-2 entropy although e is rare.
    """
    first = start + step
    others = "another" if count == 1 else f"{count} others, {step:g} sigma from each other,"
    label = (
        f"a prompt shows image e with probability {q:g}, else one of {copies:g} orthogonal images; "
        f"{others} of probability {p:g}, {first:g} sigma away, always e"
    )
    location, common = [0.0, *(start + step * np.arange(1, count + 1))], 1 - count * p
    table = [[common * q, common * (1 - q)]] + [[p, 0.0]] * count
    return listed(location, table, copies=(1, copies), label=label)


def far_prompts(p: float, distance_: float, copies: float, axes: int = 1) -> Mixture:
    """One component: diverse at its mean; with probability p one fixed image, at scattered prompts.

    The scattered prompts are +- distance on each of `axes` axes, equally likely, so that the mean
    stays at the origin.
    """
    count = 2 * axes
    location = distance_ * np.concatenate([np.zeros((1, axes)), np.eye(axes), -np.eye(axes)])
    label = (
        f"one component: at its mean (probability {1 - p:g}) one of {copies:.0f} orthogonal images;"
        f" at {count} prompts {distance_:g} sigma away always one and the same image"
    )
    table = [[0, 1 - p]] + [[p / count, 0]] * count
    return listed(location, table, component=[0] * (count + 1), copies=(1, copies), label=label)


def one_component(
    distance_: float, own: bool = True, share: float = 0.5, copies: float = 1.0
) -> Mixture:
    """One component of two prompts, with images of their own or the same `copies` images."""
    shown = "an image each" if own else f"the same {copies:g} image(s)"
    label = (
        f"one component: prompts {distance_:g} sigma apart of shares {1 - share:g} and {share:g}, "
        f"{shown}"
    )
    table = np.diag([1 - share, share]) if own else [1 - share, share]
    return listed([0, distance_], table, component=[0, 0], copies=copies, label=label)


def two_prompts(kernel: float, own: bool = True) -> Mixture:
    """Two equally likely prompts with this kernel value: an image each, or one for both."""
    shown = "each always its own orthogonal image" if own else "one and the same image"
    label = f"two equally likely prompts, k_T = {kernel:.4g}, {shown}"
    table = np.eye(2) / 2 if own else [0.5, 0.5]
    return listed([0, np.sqrt(-2 * np.log(kernel))], table, label=label)


def square(t: int) -> Mixture:
    """t far prompts, each with the same t images, all equally likely."""
    label = f"{t} equally likely prompts 9 sigma apart, each shows {t} images equally often"
    return listed(9.0 * np.arange(t), np.full((t, t), 1 / t**2), label=label)


def cores(shares: Sequence[float], step: float, copies: float) -> Mixture:
    """Equally likely modes: a prompt that shows a common image, and a far one with its own ones."""
    m, share = len(shares), np.array(shares)
    table = np.zeros((2 * m, m + 1))
    table[:m, 0], table[m:, 1:] = share / m, np.diag(1 - share) / m
    location = [*(step * np.arange(m)), *(1e3 * np.arange(1, m + 1))]
    component, many = [*range(m)] * 2, [1.0] + [copies] * m
    label = "cores with a common image"
    return listed(location, table, component=component, copies=many, label=label)


def straggler(p: float, separation: float, copies: float) -> Mixture:
    """Two diverse modes; each shows e with probability p, the second then at the first's prompt."""
    label = f"two modes {separation:g} sigma apart; with probability {p:g} the second is the first"
    table = np.array([[p, 1 - p, 0], [p, 0, 0], [0, 0, 1 - p]]) / 2
    location, many = [0, 0, separation / (1 - p)], (1, copies, copies)
    return listed(location, table, component=[0, 1, 1], copies=many, label=label)


def aligned(means: Sequence[float]) -> Mixture:
    """Single prompts with an image each; the weights are the top eigenvector of [k_T^2]."""
    gram = numerics.gaussian(np.array(means, float)[:, None])
    top = np.abs(np.linalg.eigh(gram**2)[1][:, -1])
    return listed(means, np.diag(top / top.sum()), label="top eigenvector")


def typical(separation: float, spread: float = 0.0) -> Mixture:
    """Three modes of weights 1/2, 3/10, 1/5 with several images each, prompts +- spread."""
    corners = separation * np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(0.75)]])
    table = np.array([[0.3, 0.2, 0.0], [0.03, 0.0, 0.27], [0.0, 0.04, 0.16]])
    offsets = [[-spread, 0.0], [spread, 0.0]] if spread else [[0.0, 0.0]]
    location = np.concatenate([corners + offset for offset in offsets])
    count = len(offsets)
    table, component = np.tile(table, (count, 1)) / count, [0, 1, 2] * count
    label = f"three modes {separation:g} sigma apart, prompts +- {spread:g} sigma"
    return listed(location, table, component=component, copies=(1, 1, 50), label=label)


# --- Random populations for the searches ----------------------------------------------------------


class Shape(NamedTuple):
    """Size of a random population: how many of each it has, in so many dimensions.

    The outputs of each letter have an arbitrary kernel; a flat block of any size comes on top.
    """

    modes: int
    atoms: int
    letters: int
    axes: int = 1

    @property
    def sections(self) -> list[tuple[int, ...]]:
        """Shapes of the parts of a parameter vector, in the order of `decode`."""
        m, a, e, d = self
        return [(m,), (m, d), (m,), (m, a), (m, a, d), (m, a, e + 1), (e, e), (1,)]

    @property
    def dimension(self) -> int:
        """Length of a parameter vector."""
        return sum(map(math.prod, self.sections))


SHAPES = (Shape(1, 3, 2), Shape(2, 1, 2), Shape(2, 2, 2), Shape(3, 1, 2), Shape(3, 2, 1, 2))
POINT_SHAPES = (Shape(1, 1, 1), Shape(2, 1, 1), Shape(2, 1, 2), Shape(3, 1, 2), Shape(4, 1, 2, 2))


def decode(theta: np.ndarray, shape: Shape) -> Mixture:
    """Population of a parameter vector whose entries are of order one.

    Weights and conditional probabilities range over many decades, spreads from 10^-3 to several
    bandwidths, flat blocks from one image to 10^10.
    """
    ends = np.cumsum([math.prod(section) for section in shape.sections])
    parts = zip(np.split(theta, ends[:-1]), shape.sections, strict=True)
    weights, means, spread, shares, offsets, outputs, features, size = (
        part.reshape(section) for part, section in parts
    )
    share = softmax(3 * shares, axis=-1)
    offsets = offsets * 10.0 ** np.clip(spread - 0.5, -3, 1)[:, None, None]
    offsets = offsets - (share[..., None] * offsets).sum(1, keepdims=True)
    location = (3 * means[:, None] + offsets).reshape(-1, shape.axes)
    atoms = softmax(3 * weights, axis=-1)[:, None] * share
    joint = (atoms[..., None] * softmax(3 * outputs, axis=-1)).reshape(len(location), -1)
    features = np.eye(shape.letters) + features
    features /= np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-9)
    gram = np.tile(features @ features.T, (len(location),) * 2)
    np.fill_diagonal(gram, 1.0)
    prompts = np.arange(len(location))
    copies = float(np.round(10.0 ** np.clip(np.abs(2 + 2 * size[0]), 0, 10)))
    blocks = (
        Block(np.repeat(prompts, shape.letters), joint[:, :-1].ravel(), gram),
        Block(prompts, joint[:, -1], copies=copies),
    )
    component = np.repeat(np.arange(shape.modes), shape.atoms)
    return Mixture(component, location, blocks, bandwidth=0.5 if theta[0] > 0 else 2.0)


# --- Populations of pairs on a few atoms: a sample is a vector of frequencies ---------------------


@dataclasses.dataclass(frozen=True)
class Population:
    """Pairs of an output and a prompt on k atoms, given by their Grams and weights.

    Attributes:
        name: for the report.
        gram_x: `[k, k]`, unit diagonal.
        gram_t: `[k, k]`, unit diagonal.
        weights: `[k]`.
    """

    name: str
    gram_x: np.ndarray
    gram_t: np.ndarray
    weights: np.ndarray

    @property
    def joint(self) -> np.ndarray:
        """Gram of the pairs."""
        return self.gram_x * self.gram_t

    def dimension(self, gram: np.ndarray) -> int:
        """Dimension of the feature space that the atoms span."""
        return int(np.linalg.matrix_rank(gram, tol=1e-9))

    def frequencies(self, rng: np.random.Generator, n: int, trials: int) -> np.ndarray:
        """Frequencies of the atoms in `trials` samples of size n, `[trials, k]`."""
        return rng.multinomial(int(n), self.weights / self.weights.sum(), size=trials) / n

    def norms(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Hilbert-Schmidt norms of C_XT and C_T under these weights (a batch of them)."""
        return tuple(
            np.sqrt(np.einsum("...i,ij,...j->...", weights, gram**2, weights))
            for gram in (self.joint, self.gram_t)
        )

    def conditional_rke(self, weights: np.ndarray) -> np.ndarray:
        """|C_T|^2 / |C_XT|^2 under these weights."""
        joint, prompts = self.norms(weights)
        return (prompts / joint) ** 2

    def conditional_entropy(self, weights: np.ndarray, t: int | None = None) -> np.ndarray:
        """H(X|T) at order 1, truncated to t eigenvalues where given."""
        spectra = [numerics.spectrum(gram, weights) for gram in (self.joint, self.gram_t)]
        if t is not None:
            spectra = [numerics.truncate(part, min(t, len(self.weights))) for part in spectra]
        joint, prompts = map(numerics.entropy, spectra)
        return joint - prompts


def product(name: str, p_x: list[float], p_t: list[float]) -> Population:
    """Independent outputs and prompts on orthogonal values."""
    same_x, same_t = np.ones((len(p_x),) * 2), np.ones((len(p_t),) * 2)
    gram_x, gram_t = np.kron(np.eye(len(p_x)), same_t), np.kron(same_x, np.eye(len(p_t)))
    return Population(name, gram_x, gram_t, np.outer(p_x, p_t).ravel())


@functools.cache
def finite_populations() -> tuple[Population, ...]:
    """Independent, determined, smooth, and one frequent prompt with rare very diverse ones."""
    rng = np.random.default_rng(7)
    gram_x, gram_t = (numerics.gaussian(rng.normal(size=(8, 2))) for _ in range(2))
    smooth = Population("smooth", gram_x, gram_t, rng.dirichlet(np.ones(8)))
    groups = np.array([0, 0, 0, 1, 1, 2, 3, 4, 5])
    same = (groups[:, None] == groups).astype(float)
    rare = np.array([0.25, 0.2, 0.15, 0.15, 0.1, 0.06, 0.05, 0.03, 0.01])
    features = numerics.unit_features(rng, 9, 2)
    return (
        product("independent", [0.5, 0.3, 0.2], [0.6, 0.4]),
        product("uniform", [0.25] * 4, [0.5, 0.5]),
        product("skewed", [0.9, 0.05, 0.05], [0.95, 0.05]),
        smooth,
        Population("repeated prompts", np.eye(9), same, rare),
        Population("low dimension", features @ features.T, same, rare),
    )
