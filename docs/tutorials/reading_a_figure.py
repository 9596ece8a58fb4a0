# %% [markdown]
# # Read a figure of a paper
#
# **Question.** A paper shows diversity scores of several models, or scores against the number of
# samples. What may I conclude from the figure, and what not?
#
# Ask four questions of it, and [answer them](../what_to_report.md) below a figure of your own. The
# numbers come from [studies](../studies/index.md) of emoji: a prompt is a name, such as "spider",
# and an output is a designer's drawing of it.

# %%
import matplotlib.pyplot as plt
import numpy as np

from experiments.lab import registry, runner, store


def committed(study, folder):
    """The saved result of a study: arrays with named axes."""
    study = registry.load(study)
    paths = {path.name: path for path in runner.run_folders(study, runner.COMMITTED)}
    return store.read_run(paths[folder], study).found


# %% [markdown]
# ## 1. How many samples?
#
# The study `convergence` computes scores of 250 to 11,822 drawings, as figure 2 of the paper does.

# %%
growth = committed("convergence", "convergence-gaussian")
entropy = growth.entropy.sel(term="joint") - growth.entropy.sel(term="prompts")
conditional = np.exp(entropy).mean("repeat")  # Over three random orders of the drawings.
curves = {
    "Vendi": ("Conditional-Vendi", "#0072B2", "o-"),
    "Vendi, t = 200": ("Conditional-Vendi, 200 eigenvalues", "#56B4E9", "D-"),
    "RKE": ("Conditional-RKE", "#D55E00", "s-"),
}
figure, ax = plt.subplots(figsize=(6, 3.3), layout="constrained")
for curve, (label, colour, mark) in curves.items():
    of = conditional.sel(rule="variance", curve=curve).dropna("n")
    of = of.sel(n=[250, 500, 1000, 2000, 4000, 7000, 11822])
    ax.plot(of.n, of, mark, color=colour, label=label, ms=4)
    print(f"{label}: {of.sel(n=1000):.2f} at n = 1,000, {of.sel(n=11822):.2f} at n = 11,822")
ax.set(xscale="log", xlabel="number of drawings n", ylabel="score", ylim=(0, None))
_ = ax.legend()

# %% [markdown]
# Conditional-Vendi nearly triples, although the drawings come from the same designers. So compare
# scores of order 1 at equal n only: "11.9" is not a number of drawings for a name, but a number at
# this n. The papers' Conditional-RKE, and the truncated score, settle early.
#
# ## 2. Which bandwidth?
#
# The same drawings, the same n, three common rules for the bandwidths:

# %%
last = conditional.sel(curve="Vendi", n=11822)
for rule in last.rule.values:
    print(f"rule {rule}: Conditional-Vendi {last.sel(rule=rule):.1f}")

# %% [markdown]
# If a paper does not name its bandwidths, compare the points within one figure, at most.
#
# ## 3. Is the order of the models real?
#
# The study `bandwidth` scores eight designers at 17 bandwidths, as multiples of the rule's, and
# tests every two of them. `sign` is 1 or -1 where the test tells the two apart, and 0 elsewhere.

# %%
swept = committed("bandwidth", "bandwidth").sel(order="RKE", score="Conditional")
sign = swept.sign.sel(sweep="outputs")
apart = (sign != 0).any("multiple")
turns = (sign > 0).any("multiple") & (sign < 0).any("multiple")
print(f"{apart.sizes['pair']} pairs, told apart at some bandwidth: {int(apart.sum())}")
print(f"pairs whose order turns round: {int(turns.sum())}")

# %% [markdown]
# Some pairs cannot be told apart at any bandwidth, and the order of two pairs depends on it.
#
# ## 4. Is the score near its limits?
#
# We look at a pair whose curves cross.

# %%
scored = swept.sel(sweep="outputs")
ratio = scored.value.sel(model="Noto") / scored.value.sel(model="OpenMoji")
told = sign.sel(pair="Noto, OpenMoji") != 0
limit = scored.saturated.sel(model=["Noto", "OpenMoji"]).any("model")

figure, ax = plt.subplots(figsize=(6, 3.3), layout="constrained")
ax.plot(ratio.multiple, ratio, color="#999999", lw=1)
for rows, colour, mark, label in (
    (limit, "#999999", "x", "near a limit, not tested"),
    (~limit & ~told, "#0072B2", "o", "cannot be told apart"),
    (told, "#D55E00", "s", "told apart"),
):
    ax.plot(ratio.multiple[rows], ratio[rows], mark, color=colour, label=label)
ax.axhline(1, color="black", lw=0.8)
ax.set(xscale="log", xlabel="bandwidth / that of the rule", ylabel="Noto / OpenMoji")
_ = ax.legend()
print(f"{int(limit.sum())} of {limit.size} bandwidths are near a limit")

# %% [markdown]
# At small bandwidths nearly all drawings count as different, and at large ones as the same. **Equal
# scores near these limits do not show equal models.** Between them, Noto is below at small
# bandwidths, which may be chance, and above at larger ones, which the test shows. A crossing alone
# is no finding.
#
# Next: [bandwidths](../bandwidths.md#all-bandwidths-at-once-profiles), and
# [theory](../theory.md): which statements of the papers hold.
