"""Mixture populations of prompts and outputs with exact spectra, and the search over them.

A population has finitely many prompts and, for each, a distribution over outputs. Outputs come in
blocks: within a block any kernel is allowed, different blocks are orthogonal, and a block may stand
for any number of mutually orthogonal copies of itself. So 10^8 equally likely orthogonal images are
one row with `copies=1e8`, and every spectrum stays exact. Lengths are in units of the bandwidth.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np

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


def gaussian(points: np.ndarray, others: np.ndarray | None = None) -> np.ndarray:
    """Gaussian kernel of bandwidth 1, `[n, m]`."""
    others = points if others is None else others
    squares = ((points[:, None, :] - others[None, :, :]) ** 2).sum(-1)
    return np.exp(-squares / 2)


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
        return gaussian(self.means)

    @functools.cached_property
    def prompt_gram(self) -> np.ndarray:
        """k_T between the prompt atoms, `[p, p]`."""
        return gaussian(self.location)

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

    def outputs_constant(self) -> "Mixture":
        """The same prompts with one and the same output for all."""
        size = len(self.component)
        block = Block(np.arange(size), self.prompt_weights, np.ones((size, size)))
        return Mixture(self.component, self.location, (block,), "constant output")

    def squared_kernel_means(self) -> tuple[np.ndarray, np.ndarray]:
        """E[k_T^2 k_X^2] and E[k_X^2] between independent pairs of components i, j, `[m, m]`."""
        both, outputs = np.zeros((2, self.modes, self.modes))
        for block in self.blocks:
            kx = np.outer(block.weights, block.weights) * block.gram**2 / block.copies
            kt = self.prompt_gram[np.ix_(block.prompts, block.prompts)]
            rows = self.component[block.prompts]
            np.add.at(outputs, (rows[:, None], rows), kx)
            np.add.at(both, (rows[:, None], rows), kx * kt**2)
        scale = np.outer(self.weights, self.weights)
        return both / scale, outputs / scale


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


def _softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


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
    weights = _softmax(3 * parts["weights"])
    share = _softmax(3 * parts["atoms"])
    offsets = parts["offsets"] * 10.0 ** np.clip(parts["spread"] - 0.5, -3, 1)[:, None, None]
    offsets = offsets - (share[..., None] * offsets).sum(1, keepdims=True)
    location = (3 * parts["means"][:, None, :] + offsets).reshape(-1, shape.axes)
    prompt_weights = (weights[:, None] * share).ravel()
    outputs = prompt_weights[:, None] * _softmax(3 * parts["outputs"]).reshape(
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


def climb(
    objective: Callable[[np.ndarray], float],
    start: np.ndarray,
    rng: np.random.Generator,
    steps: int,
) -> np.ndarray:
    """Raise an objective by random steps whose length adapts to success (1/5 rule).

    Half of the proposals move one coordinate, half move all; a NaN never counts as a success.
    """
    best, value, scale = start, objective(start), 0.5
    for step in range(steps):
        move = scale * rng.standard_normal(len(start))
        if step % 2:
            move = np.where(np.arange(len(start)) == rng.integers(len(start)), 3 * move, 0.0)
        candidate = best + move
        reached = objective(candidate)
        if reached > value:
            best, value, scale = candidate, reached, min(2.0 * scale, 4.0)
        else:
            scale = max(0.85 * scale, 1e-3)
    return best
