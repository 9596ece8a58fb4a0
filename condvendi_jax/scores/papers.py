"""The scores: exponentials of entropies, of conditional entropies and of information."""

import jax

from condvendi_jax.data.pairs import Pairs, takes_pairs
from condvendi_jax.entropies import Decomposition, Entropy, PerScore, scores_of
from condvendi_jax.spectra import computation, methods
from condvendi_jax.spectra.computation import AUTO
from condvendi_jax.spectra.methods import Method


@takes_pairs
def decompose(
    pairs: Pairs,
    *,
    order: float = 1,
    truncation: int | None = None,
    method: Method = AUTO,
    unbiased: bool = False,
) -> Decomposition:
    """Splits the diversity of outputs into the part of the model and the part of the prompts.

    Vendi(X) = Conditional-Vendi(X|T) * Information-Vendi(X;T)                          (CV eq. 8)

    Args:
      pairs: the data, or `outputs, prompts, output_kernel=, prompt_kernel=, mesh=` as for `Pairs`.
        Without prompts only H(X) is computed: Vendi.
      order: the Renyi order in (0, inf]; 1 gives Vendi, 2 gives RKE, in one streamed pass.
      truncation: the number of eigenvalues that every entropy keeps (CV eq. 13); all where None.
      method: how to compute eigenvalues: `Auto` (with a key, it estimates where all would take
        long), `Exact`, `Stored` or `MatrixFree`. Order 2 without truncation needs none.
      unbiased: whether order 2 leaves out the pairs of a row with itself, so that scores do not
        grow with n. If most rows answer a prompt that has several answers, scores are those of
        these prompts with any number of answers to each, and prompts with one answer are left out;
        else those of any number of rows. Unless weighted, prompts count once; jit needs prompt_ids.

    Returns:
      A `Decomposition`: three entropies in nats, the scores as effective numbers of modes, and, for
      estimated scores, standard errors and intervals. In float32 the orders other than 2 carry four
      to five digits; enable x64 for more. Differentiable in the arrays and the bandwidths, where
      scores are estimated outside jit only.

    Raises:
      TypeError, ValueError: as `Pairs`; an argument is out of range, a key is needed and missing,
        or the matrices of the method do not fit in memory.

    References:
      CV eq. 5-10 and 13; for a general order CV-early eq. 5.

    Examples:
      Two prompts, each answered with two outputs that the other prompt does not get:

      >>> import condvendi_jax as cv
      >>> outputs, prompts = 2 * [[0], [1], [2], [3]], 2 * [[0], [0], [1], [1]]
      >>> sharp = cv.Gaussian(0.1)
      >>> scores = cv.decompose(outputs, prompts, output_kernel=sharp, prompt_kernel=sharp)
      >>> print(f"{scores.vendi:.2f} = {scores.conditional:.2f} x {scores.information:.2f}")
      4.00 = 2.00 x 2.00
    """
    entropy = Entropy(order=order, truncation=truncation).clamped(pairs.n)
    return computation.score(pairs, entropy, method, unbiased=unbiased)


def _some_scores(
    pairs: Pairs, entropy: Entropy, method: Method, terms: methods.Terms, unbiased: bool = False
) -> PerScore:
    """The scores that some of the terms give."""
    if terms != methods.OUTPUTS and not pairs.paired:
        raise ValueError("prompts: expected embeddings [n, d], received None.")
    wanted = (entropy.clamped(pairs.n),)
    (computed,) = computation.compute(pairs, wanted, method, terms, unbiased=unbiased)
    return scores_of(*computed.values)


@takes_pairs
def conditional_vendi(
    pairs: Pairs, *, order: float = 1, truncation: int | None = None, method: Method = AUTO
) -> jax.Array:
    """exp H(X|T), the effective number of modes that the model adds (CV eq. 6; truncated, eq. 13).

    A scalar in [1, n]; truncated it can fall below 1. Args, Raises: as `decompose`.

    Examples:
      >>> import condvendi_jax as cv
      >>> sharp = {"output_kernel": cv.Gaussian(0.1), "prompt_kernel": cv.Gaussian(0.1)}
      >>> score = cv.conditional_vendi([[0], [0], [1]], [[0], [1], [1]], **sharp)
      >>> print(f"{score:.2f}")  # 2^(2/3)
      1.59
    """
    entropy = Entropy(order, truncation)
    return _some_scores(pairs, entropy, method, methods.GIVEN_PROMPTS).conditional


@takes_pairs
def information_vendi(
    pairs: Pairs, *, order: float = 1, truncation: int | None = None, method: Method = AUTO
) -> jax.Array:
    """exp I(X;T), the effective number of modes that is due to the prompts (CV eq. 7).

    A scalar; at orders other than 1 it may fall below 1. Args, Raises: as `decompose`.

    Examples:
      >>> import condvendi_jax as cv
      >>> sharp = {"output_kernel": cv.Gaussian(0.1), "prompt_kernel": cv.Gaussian(0.1)}
      >>> score = cv.information_vendi([[0], [0], [1]], [[0], [1], [1]], **sharp)
      >>> print(f"{score:.2f}")  # 3 / 2^(4/3)
      1.19
    """
    return _some_scores(pairs, Entropy(order, truncation), method, methods.ALL_TERMS).information


@takes_pairs
def conditional_rke(pairs: Pairs, *, unbiased: bool = False) -> jax.Array:
    """||K_T||_F^2 / ||K_X o K_T||_F^2, `conditional_vendi` at order 2 (CV eq. 9 and 11).

    A scalar in [1, n], exact at any n; it may exceed n if `unbiased`. Args, Raises: as `decompose`.

    Examples:
      >>> import condvendi_jax as cv
      >>> sharp = {"output_kernel": cv.Gaussian(0.1), "prompt_kernel": cv.Gaussian(0.1)}
      >>> print(cv.conditional_rke([[0], [0], [1]], [[0], [1], [1]], **sharp).round(2))  # 5 / 3
      1.67
    """
    return _some_scores(pairs, Entropy(2), AUTO, methods.GIVEN_PROMPTS, unbiased).conditional


@takes_pairs
def information_rke(pairs: Pairs, *, unbiased: bool = False) -> jax.Array:
    """n^2 ||K_X o K_T||^2 / (||K_X||^2 ||K_T||^2), `information_vendi` at order 2 (CV eq. 11).

    A scalar, exact at any n. Args, Raises: as `decompose`.

    Examples:
      >>> import condvendi_jax as cv
      >>> sharp = {"output_kernel": cv.Gaussian(0.1), "prompt_kernel": cv.Gaussian(0.1)}
      >>> print(cv.information_rke([[0], [0], [1]], [[0], [1], [1]], **sharp).round(1))  # 27 / 25
      1.1
    """
    return _some_scores(pairs, Entropy(2), AUTO, methods.ALL_TERMS, unbiased).information


@takes_pairs
def vendi(
    pairs: Pairs, *, order: float = 1, truncation: int | None = None, method: Method = AUTO
) -> jax.Array:
    """exp H(X), the effective number of modes of outputs of any prompts (CV eq. 3).

    A scalar in [1, n]. Args, Raises: as `decompose`; `kernel=` is short for `output_kernel=`.

    Examples:
      >>> import condvendi_jax as cv
      >>> print(f"{cv.vendi([[0], [0], [1], [2]], kernel=cv.Gaussian(0.1)):.3f}")  # 2^1.5
      2.828
    """
    return _some_scores(pairs, Entropy(order, truncation), method, methods.OUTPUTS).vendi


@takes_pairs
def rke(pairs: Pairs, *, unbiased: bool = False) -> jax.Array:
    """||K / n||_F^-2, the Renyi kernel entropy score: `vendi` at order 2 (CV eq. 4).

    A scalar in [1, n], exact at any n; it may exceed n if `unbiased`. Args, Raises: as `vendi`.

    Examples:
      >>> import condvendi_jax as cv
      >>> print(f"{cv.rke([[0], [0], [1], [2]], kernel=cv.Gaussian(0.1)):.3f}")  # 8 / 3
      2.667
    """
    return _some_scores(pairs, Entropy(2), AUTO, methods.OUTPUTS, unbiased).vendi
