"""Weights of rows with the largest conditional entropy within a distance of equal weights."""

import jax
import jax.numpy as jnp
import numpy as np

import condvendi_jax as cv
from condvendi_jax.base import checks
from condvendi_jax.entropies.eigenvalues import matmul
from condvendi_jax.spectra.methods import unweighted_grams


def reweight(pairs: cv.Pairs, *, distance: float) -> np.ndarray:
    """The weights `[n]` of largest H(X|T), or H(X), within a distance of equal weights u.

    They keep the share of each prompt and (q - u)' K (q - u) <= distance^2, the squared MMD for the
    product K of both kernels (Wu and Farnia, arXiv 2609.02275, eq. 1). Right to 2e-4 nats, or with
    a warning. Minutes at n = 400, seconds under `Indicator`. A score of q is one of another law.

    Args:
      pairs: the data, without weights. A single output to a prompt keeps its weight.
      distance: the largest MMD; within one of P `Indicator` prompts, sqrt(P) times as much.
    """
    limit = checks.check_number(distance, name="distance", above=0) ** 2
    near, kinds = pairs.gathered(), pairs.prompt_kinds[1]
    blocks = kinds if isinstance(near.kernels[-1], cv.Indicator) else 0 * kinds  # Or one block.
    sizes, multiplier = np.bincount(blocks), jnp.zeros((), near.dtype)
    rows = np.split(np.argsort(blocks, kind="stable"), np.cumsum(sizes)[:-1])
    rows = np.stack([np.resize(block, sizes.max()) for block in rows])  # Copies fill up a block.
    matrix = [*unweighted_grams(near).values()][-1].dense().matrix[rows[:, :, None], rows[:, None]]
    shares = ((np.arange(sizes.max()) < sizes[:, None]) / near.n).astype(near.dtype)
    for _ in range(50):
        q, (squared, gain, gap) = _solve(matrix, shares, kinds[rows], multiplier)
        inward = (limit / max(squared, limit)) ** 0.5
        loss = gap + multiplier * (limit - squared) + (1 - inward) * gain  # At most, by duality.
        if loss <= 2e-4:
            break
        multiplier = multiplier * (squared / limit) ** 0.75 or (loss + gain) / (2 * limit)
    else:
        checks.warn(f"reweight: the entropy may be {loss:.1g} nats below the largest one.")
    return (1 + float(inward) * (near.n * np.bincount(rows.ravel(), np.ravel(q)) - 1)) / near.n


@jax.jit
def _solve(kernel, shares, kinds, multiplier):
    """Mirror descent on multiplier x squared MMD - entropy: q; squared MMD, entropy gained, gap."""
    same = (kinds[:, :, None] == kinds[:, None]).astype(shares.dtype)

    def evaluate(q, steps):
        roots = jnp.sqrt(q)[:, None, :]
        values, vectors = jnp.linalg.eigh(kernel * roots * roots.mT)
        values = jnp.maximum(values, jnp.finfo(q.dtype).eps * jnp.max(values))[:, None, :]
        logs = jnp.sum(matmul(kernel * roots, vectors) ** 2 / values * jnp.log(values), axis=-1)
        moved = matmul(kernel, (q - shares)[:, :, None])[:, :, 0]
        slopes = 2 * multiplier * moved + logs
        above = slopes - jnp.min(jnp.where(same > 0, slopes[:, None], jnp.inf), axis=-1)
        found = jnp.abs(jnp.sum((q - shares) * moved)), -jnp.sum(q * logs), jnp.sum(q * above)
        return q, above, jnp.stack(found), steps

    def step(s):  # So short that the objective falls (docs/proofs.md).
        q = s[0] * jnp.exp(-s[1] / (1 + multiplier * shares.sum(1).max() * (1 - kernel.min())))
        sums = matmul(same, jnp.stack([shares, q], axis=-1))
        return evaluate(q * sums[..., 0] / sums[..., 1], s[3] + 1)

    start = evaluate(shares, 0)
    q, _, found, _ = jax.lax.while_loop(lambda s: (s[2][2] > 1e-4) & (s[3] < 5000), step, start)
    return q, found.at[1].add(-start[2][1])
