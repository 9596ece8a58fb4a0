"""Populations of prompts and outputs with exact spectra, and random ones for the searches.

A mixture has finitely many prompts and, for each, a distribution over outputs. Outputs come in
blocks: within a block any kernel is allowed, different blocks are orthogonal, and a block may stand
for any number of mutually orthogonal copies of itself. So 10^8 equally likely orthogonal images are
one row with `copies=1e8`, and every spectrum stays exact. Lengths are in units of the bandwidth.
"""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from theory_checks import numerics

_NEGLIGIBLE = 1e-300


@dataclasses.dataclass(frozen=True)
class Spectrum:
    """Eigenvalues with multiplicities.

    Attributes:
        values: distinct entries, `[k]`, non-negative.
        copies: how often each occurs, `[k]`.
    """

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
            kept = self.values > _NEGLIGIBLE
            values = self.values[kept]
            return float(-self.copies[kept] @ (values * np.log(values)))
        return order / (1 - order) * self.log_norm(order)

    def truncated(self, t: int) -> "Spectrum":
        """The t largest entries, shifted to unit sum (the projection of CV Lemma A)."""
        order = np.argsort(-self.values)
        values, copies = self.values[order], self.copies[order]
        before = np.concatenate([[0.0], np.cumsum(copies)[:-1]])
        kept = np.clip(t - before, 0.0, copies)
        missing = 1.0 - kept @ values
        zeros = t - kept.sum()
        values, kept = np.append(values, 0.0), np.append(kept, zeros)
        return Spectrum(np.maximum(values + missing / t, 0.0), kept)

    def scaled(self, weight: float) -> "Spectrum":
        """Every entry times a weight."""
        return Spectrum(weight * self.values, self.copies)

    def sorted(self) -> np.ndarray:
        """All entries in decreasing order, `[sum of copies]` (small spectra only)."""
        return np.sort(np.repeat(self.values, self.copies.astype(int)))[::-1]


def stack(spectra: Sequence[Spectrum]) -> Spectrum:
    """Union of spectra: that of a direct sum."""
    values = np.concatenate([part.values for part in spectra])
    return Spectrum(values, np.concatenate([part.copies for part in spectra]))


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
        gram: output kernel between the atoms, `[r, r]`, unit diagonal.
        copies: number of orthogonal copies among which each weight is shared equally.
    """

    prompts: np.ndarray
    weights: np.ndarray
    gram: np.ndarray
    copies: float = 1.0

    def spectrum(self, prompt_gram: np.ndarray) -> Spectrum:
        """Eigenvalues of the joint operator on this block."""
        root = np.sqrt(self.weights)
        kernel = self.gram * prompt_gram[np.ix_(self.prompts, self.prompts)]
        values = np.linalg.eigvalsh(root[:, None] * kernel * root) / self.copies
        return Spectrum(np.maximum(values, 0.0), np.full(len(values), self.copies))

    def restricted(self, kept: np.ndarray, scale: float) -> "Block":
        """The atoms whose prompts are kept, their weights divided by scale."""
        rows = np.flatnonzero(kept[self.prompts])
        gram = self.gram[np.ix_(rows, rows)]
        return Block(self.prompts[rows], self.weights[rows] / scale, gram, self.copies)


@dataclasses.dataclass(frozen=True)
class Mixture:
    """Prompts from a mixture, outputs given the prompt; everything about it is exact.

    Attributes:
        component: the component of each prompt atom, `[p]`, 0 .. m-1.
        location: prompt atoms in units of the bandwidth, `[p, d]`.
        blocks: the joint atoms; their weights sum to 1.
        label: one line that says what the population is.
    """

    component: np.ndarray
    location: np.ndarray
    blocks: tuple[Block, ...]
    label: str = ""

    @property
    def modes(self) -> int:
        """Number of components m."""
        return int(self.component.max()) + 1

    @functools.cached_property
    def prompt_weights(self) -> np.ndarray:
        """Probability of each prompt atom, `[p]`."""
        total = np.zeros(len(self.component))
        for block in self.blocks:
            np.add.at(total, block.prompts, block.weights)
        return total

    @functools.cached_property
    def weights(self) -> np.ndarray:
        """Mixture weights omega, `[m]`."""
        return np.bincount(self.component, self.prompt_weights, minlength=self.modes)

    @functools.cached_property
    def means(self) -> np.ndarray:
        """Component means, `[m, d]`."""
        total = np.zeros((self.modes, self.location.shape[1]))
        np.add.at(total, self.component, self.prompt_weights[:, None] * self.location)
        return total / self.weights[:, None]

    @functools.cached_property
    def variances(self) -> np.ndarray:
        """sigma_i^2 / sigma^2 of each component, `[m]`."""
        squares = ((self.location - self.means[self.component]) ** 2).sum(-1)
        total = np.bincount(self.component, self.prompt_weights * squares, minlength=self.modes)
        return total / self.weights

    @property
    def variance(self) -> float:
        """sum_i omega_i sigma_i^2 / sigma^2."""
        return float(self.weights @ self.variances)

    @functools.cached_property
    def mean_gram(self) -> np.ndarray:
        """k_T between the component means, `[m, m]`."""
        return numerics.gaussian(self.means)

    @functools.cached_property
    def prompt_gram(self) -> np.ndarray:
        """k_T between the prompt atoms, `[p, p]`."""
        return numerics.gaussian(self.location)

    @functools.cached_property
    def joint(self) -> Spectrum:
        """Spectrum of C_{X,T}."""
        return stack([block.spectrum(self.prompt_gram) for block in self.blocks])

    def _prompts(self, kept: np.ndarray) -> Spectrum:
        weights = self.prompt_weights[kept] / self.prompt_weights[kept].sum()
        root = np.sqrt(weights)
        values = np.linalg.eigvalsh(root[:, None] * self.prompt_gram[np.ix_(kept, kept)] * root)
        return Spectrum(np.maximum(values, 0.0), np.ones(len(values)))

    @functools.cached_property
    def prompts(self) -> Spectrum:
        """Spectrum of C_T."""
        return self._prompts(np.arange(len(self.component)))

    def prompts_given(self, i: int) -> Spectrum:
        """Spectrum of the prompt operator of component i."""
        return self._prompts(np.flatnonzero(self.component == i))

    def _given(self, i: int, prompt_gram: np.ndarray) -> Spectrum:
        parts = [block.restricted(self.component == i, self.weights[i]) for block in self.blocks]
        return stack([part.spectrum(prompt_gram) for part in parts if len(part.prompts)])

    def joint_given(self, i: int) -> Spectrum:
        """Spectrum of the joint operator of component i."""
        return self._given(i, self.prompt_gram)

    @functools.cached_property
    def outputs(self) -> list[Spectrum]:
        """Spectra of the output operators C_1 .. C_m."""
        flat = np.ones_like(self.prompt_gram)
        return [self._given(i, flat) for i in range(self.modes)]

    @functools.cached_property
    def stacked(self) -> Spectrum:
        """The papers' lambda-hat: union of omega_i Eigs(C_i)."""
        return stack([s.scaled(w) for s, w in zip(self.outputs, self.weights, strict=True)])

    @functools.cached_property
    def mode_spectrum(self) -> Spectrum:
        """The mixture weights as a spectrum."""
        return Spectrum(self.weights, np.ones(self.modes))

    @property
    def images(self) -> float:
        """Number of distinct outputs."""
        return float(sum(b.copies * len(np.unique(b.gram.round(9), axis=0)) for b in self.blocks))

    def conditional(self, order: float) -> float:
        """H_order(X | T), the population's matrix-based conditional entropy."""
        return self.joint.entropy(order) - self.prompts.entropy(order)

    def aggregate(self, order: float) -> float:
        """f^{-1}(E_{I ~ omega^order} f(H(X | G = I))): the power mean of CV Theorem 6."""
        if order == 1:
            return float(self.weights @ [part.entropy(1) for part in self.outputs])
        return self.stacked.entropy(order) - self.mode_spectrum.entropy(order)

    def gap(self, order: float) -> float:
        """Conditional entropy less its aggregation."""
        return self.conditional(order) - self.aggregate(order)

    @functools.cached_property
    def pairs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """omega_i omega_j times E_ij[k_T^2], E_ij[k_X^2 k_T^2] and E_ij[k_X^2], `[m, m]` each.

        Over independent pairs of components i and j; no spectrum is computed.
        """
        prompts, joint, outputs = np.zeros((3, self.modes, self.modes))
        p, c = self.prompt_weights, self.component
        np.add.at(prompts, (c[:, None], c), np.outer(p, p) * self.prompt_gram**2)
        for block in self.blocks:
            kx = np.outer(block.weights, block.weights) * block.gram**2 / block.copies
            rows = c[block.prompts]
            np.add.at(outputs, (rows[:, None], rows), kx)
            kt = self.prompt_gram[np.ix_(block.prompts, block.prompts)]
            np.add.at(joint, (rows[:, None], rows), kx * kt**2)
        return prompts, joint, outputs


# ---------------------------------------------------------------------------------------------
# Populations by hand.


def point_modes(
    means: np.ndarray,
    weights: np.ndarray,
    outputs: np.ndarray,
    *,
    copies: float = 1.0,
    label: str = "",
) -> Mixture:
    """Every component is a single prompt; outputs from a shared orthogonal alphabet.

    Args:
        means: prompts, `[m, d]`, in bandwidths.
        weights: mixture weights, `[m]`.
        outputs: P(letter | component), `[m, letters]`.
        copies: number of orthogonal images that the last letter stands for.
        label: one line that says what the population is.
    """
    means, outputs = np.asarray(means, float), np.asarray(outputs, float)
    joint = np.asarray(weights, float)[:, None] * outputs
    blocks = []
    for letter in range(outputs.shape[1]):
        rows = np.flatnonzero(joint[:, letter] > 0)
        many = copies if letter == outputs.shape[1] - 1 else 1.0
        blocks.append(Block(rows, joint[rows, letter], np.ones((len(rows), len(rows))), many))
    return Mixture(np.arange(len(means)), means, tuple(blocks), label)


def rare_mode(p: float, q: float, separation: float, copies: float) -> Mixture:
    """A rare prompt that always shows one image, which the common, diverse prompt shows too.

    Prompt 1 (probability 1-p) shows image e with probability q, else one of `copies` equally likely
    orthogonal images; prompt 2 (probability p) always shows e. The collisions of e decide the
    order-2 entropy although e is rare.
    """
    label = (
        f"two prompts {separation:g} sigma apart; the first (probability {1 - p:g}) shows image e "
        f"with probability {q:g}, else one of {copies:.0f} orthogonal images; the second always e"
    )
    outputs = np.array([[q, 1 - q], [1.0, 0.0]])
    means = np.array([[0.0], [separation]])
    return point_modes(means, np.array([1 - p, p]), outputs, copies=copies, label=label)


def far_prompts(p: float, distance_: float, copies: float, axes: int = 1) -> Mixture:
    """One component: diverse at its mean; with probability p one fixed image, at scattered prompts.

    The scattered prompts are +- distance on each of `axes` axes, equally likely, so that the mean
    stays at the origin.
    """
    arms = np.concatenate([np.eye(axes), -np.eye(axes)]) * distance_
    location = np.concatenate([np.zeros((1, axes)), arms])
    count = 2 * axes
    diverse = Block(np.array([0]), np.array([1 - p]), np.ones((1, 1)), copies)
    fixed = Block(np.arange(1, count + 1), np.full(count, p / count), np.ones((count, count)))
    label = (
        f"one component: at its mean (probability {1 - p:g}) one of {copies:.0f} orthogonal images;"
        f" at {count} prompts {distance_:g} sigma away always one and the same image"
    )
    return Mixture(np.zeros(count + 1, int), location, (diverse, fixed), label)


def two_prompts(kernel: float, images: int = 2) -> Mixture:
    """Two equally likely prompts with this kernel value: an image each, or one for both."""
    means = np.array([[0.0], [np.sqrt(-2 * np.log(kernel))]])
    shown = "each always its own orthogonal image" if images == 2 else "one and the same image"
    label = f"two equally likely prompts, k_T = {kernel:.4g}, {shown}"
    outputs = np.eye(2) if images == 2 else np.ones((2, 1))
    return point_modes(means, np.array([0.5, 0.5]), outputs, label=label)


def rare_modes(count: int, p: float, step: float, copies: float, start: float = 0.0) -> Mixture:
    """A diverse frequent prompt, and rare ones `step` apart that always show an image e.

    With `start` = 0 the frequent prompt is their neighbour and shows e with probability p too.
    """
    means = np.concatenate([[0.0], start + step * np.arange(1, count + 1)])[:, None]
    outputs = np.array([[0.0 if start else p, 1.0 if start else 1 - p]] + [[1.0, 0.0]] * count)
    label = (
        f"a prompt with {copies:.0e} images and {count} rare prompts (probability {p:g} each, "
        f"{step:g} sigma apart, from {start + step:g} sigma on) that always show one image"
        + ("" if start else f", which the first shows with probability {p:g} too")
    )
    weights = np.array([1 - count * p] + [p] * count)
    return point_modes(means, weights, outputs, copies=copies, label=label)


def square(t: int) -> Mixture:
    """t far prompts, each with the same t images, all equally likely."""
    label = f"{t} equally likely prompts 9 sigma apart, each shows {t} images equally often"
    means, flat = 9.0 * np.arange(t)[:, None], np.full(t, 1 / t)
    return point_modes(means, flat, np.full((t, t), 1 / t), label=label)


def one_component(
    distance_: float, own: bool = True, share: float = 0.5, copies: float = 1.0
) -> Mixture:
    """One component of two prompts, with images of their own or the same `copies` images."""
    gram = np.eye(2) if own else np.ones((2, 2))
    block = Block(np.arange(2), np.array([1 - share, share]), gram, copies)
    shown = "an image each" if own else f"the same {copies:g} image(s)"
    label = (
        f"one component: prompts {distance_:g} sigma apart of shares {1 - share:g} and {share:g}, "
    )
    label += shown
    return Mixture(np.zeros(2, int), np.array([[0.0], [distance_]]), (block,), label)


def cores(shares: Sequence[float], step: float, copies: float) -> Mixture:
    """Equally likely modes: a prompt that shows a common image, and a far one with its own ones."""
    m, share = len(shares), np.asarray(shares, float)
    location = np.concatenate([step * np.arange(m), 1e3 * np.arange(1, m + 1)])[:, None]
    blocks = [Block(np.arange(m), share / m, np.ones((m, m)))]
    for i in range(m):
        blocks.append(Block(np.array([m + i]), (1 - share[i : i + 1]) / m, np.ones((1, 1)), copies))
    return Mixture(np.tile(np.arange(m), 2), location, tuple(blocks), "cores with a common image")


def straggler(p: float, separation: float, copies: float) -> Mixture:
    """Two diverse modes; each shows e with probability p, the second then at the first's prompt."""
    location = np.array([[0.0], [0.0], [separation / (1 - p)]])
    shared = Block(np.array([0, 1]), np.array([p, p]) / 2, np.ones((2, 2)))
    own = [Block(np.array([i]), np.array([1 - p]) / 2, np.ones((1, 1)), copies) for i in (0, 2)]
    label = f"two modes {separation:g} sigma apart; with probability {p:g} the second is the first"
    return Mixture(np.array([0, 1, 1]), location, (shared, *own), label)


def aligned(means: Sequence[float]) -> Mixture:
    """Single prompts with an image each; the weights are the top eigenvector of [k_T^2]."""
    points = np.array(means, float)[:, None]
    top = np.abs(np.linalg.eigh(numerics.gaussian(points) ** 2)[1][:, -1])
    return point_modes(points, top / top.sum(), np.eye(len(points)), label="top eigenvector")


def typical(separation: float, spread: float = 0.0) -> Mixture:
    """Three modes of weights 1/2, 3/10, 1/5 with several images each, prompts +- spread."""
    corners = separation * np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(0.75)]])
    outputs = np.array([[0.6, 0.4, 0.0], [0.1, 0.0, 0.9], [0.0, 0.2, 0.8]])
    weights = np.array([0.5, 0.3, 0.2])
    if not spread:
        return point_modes(corners, weights, outputs, copies=50)
    location = np.concatenate([corners - [spread, 0], corners + [spread, 0]])
    joint = np.tile(weights[:, None] * outputs, (2, 1)) / 2
    blocks = []
    for letter, copies in enumerate((1.0, 1.0, 50.0)):
        rows = np.flatnonzero(joint[:, letter])
        blocks.append(Block(rows, joint[rows, letter], np.ones((len(rows),) * 2), copies))
    return Mixture(np.tile(np.arange(3), 2), location, tuple(blocks))


# ---------------------------------------------------------------------------------------------
# Random populations and the search for violations.


@dataclasses.dataclass(frozen=True)
class Shape:
    """Size of a random population: what the entries of a parameter vector mean.

    Attributes:
        modes: number of components.
        atoms: prompts a component.
        letters: outputs with an arbitrary kernel; one flat block of any size comes on top.
        axes: dimension of the prompt space.
    """

    modes: int = 2
    atoms: int = 2
    letters: int = 2
    axes: int = 1

    @functools.cached_property
    def sections(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of each part of the parameter vector."""
        m, a, e, d = self.modes, self.atoms, self.letters, self.axes
        return {
            "weights": (m,), "means": (m, d), "spread": (m,), "atoms": (m, a), "offsets": (m, a, d),
            "outputs": (m, a, e + 1), "features": (e, e), "copies": (1,),
        }  # fmt: skip

    @property
    def dimension(self) -> int:
        """Length of a parameter vector."""
        return sum(int(np.prod(shape)) for shape in self.sections.values())


SHAPES = (
    Shape(1, 3, 2), Shape(2, 1, 2), Shape(2, 2, 2), Shape(3, 1, 2), Shape(3, 2, 1, 2),
)  # fmt: skip
POINT_SHAPES = (Shape(2, 1, 1), Shape(2, 1, 2), Shape(3, 1, 2), Shape(4, 1, 2, 2))


def decode(theta: np.ndarray, shape: Shape) -> Mixture:
    """Population of a parameter vector whose entries are of order one.

    Weights and conditional probabilities range over many decades, spreads from 10^-3 to several
    bandwidths, flat blocks from one image to 10^10.
    """
    parts, start = {}, 0
    for name, size in shape.sections.items():
        stop = start + int(np.prod(size))
        parts[name] = theta[start:stop].reshape(size)
        start = stop
    weights = numerics.softmax(3 * parts["weights"])
    share = numerics.softmax(3 * parts["atoms"])
    offsets = parts["offsets"] * 10.0 ** np.clip(parts["spread"] - 0.5, -3, 1)[:, None, None]
    offsets = offsets - (share[..., None] * offsets).sum(1, keepdims=True)
    location = (3 * parts["means"][:, None, :] + offsets).reshape(-1, shape.axes)
    prompt_weights = (weights[:, None] * share).ravel()
    outputs = prompt_weights[:, None] * numerics.softmax(3 * parts["outputs"]).reshape(
        len(prompt_weights), -1
    )
    features = np.eye(shape.letters) + parts["features"]
    features /= np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-9)
    rows = np.repeat(np.arange(len(location)), shape.letters)
    letters = np.tile(np.arange(shape.letters), len(location))
    gram = (features @ features.T)[np.ix_(letters, letters)]
    np.fill_diagonal(gram, 1.0)
    copies = float(np.round(10.0 ** np.clip(np.abs(2 + 2 * parts["copies"][0]), 0, 10)))
    size = len(location)
    blocks = (
        Block(rows, outputs[:, :-1].ravel(), gram),
        Block(np.arange(size), outputs[:, -1], np.ones((size, size)), copies),
    )
    component = np.repeat(np.arange(shape.modes), shape.atoms)
    label = f"{shape.modes} components of {shape.atoms} prompts, found by search"
    return Mixture(component, location, blocks, label)


# ---------------------------------------------------------------------------------------------
# Populations of pairs on a few atoms: a sample is a vector of frequencies.


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
        parts = []
        for gram in (self.joint, self.gram_t):
            eigenvalues = numerics.spectrum(gram, weights)
            keep = None if t is None else min(t, len(gram))
            parts.append(
                numerics.entropy(
                    eigenvalues if keep is None else numerics.truncate(eigenvalues, keep)
                )
            )
        return parts[0] - parts[1]


def product(name: str, p_x: list[float], p_t: list[float]) -> Population:
    """Independent outputs and prompts on orthogonal values."""
    weights = np.outer(p_x, p_t).ravel()
    x, t = (np.ravel(index) for index in np.indices((len(p_x), len(p_t))))
    same = [(v[:, None] == v[None, :]).astype(float) for v in (x, t)]
    return Population(name, same[0], same[1], weights)


@functools.cache
def finite_populations() -> tuple[Population, ...]:
    """Independent, determined, smooth, and one frequent prompt with rare very diverse ones."""
    rng = np.random.default_rng(7)
    smooth = Population(
        "smooth", numerics.gaussian(rng.normal(size=(8, 2))),
        numerics.gaussian(rng.normal(size=(8, 2))), rng.dirichlet(np.ones(8)),
    )  # fmt: skip
    groups = np.array([0, 0, 0, 1, 1, 2, 3, 4, 5])
    same = (groups[:, None] == groups[None, :]).astype(float)
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
