# %% [markdown]
# # Curate a data set
#
# **Question.** I collected answers to my prompts from three sources. Which rows repeat others, for
# which prompts do I need more, and which 60 rows should I keep?

# %%
import zlib

import numpy as np

import condvendi_jax as cv

# %% [markdown]
# ## 1. The rows
#
# The prompts ask for a dish with one of ten vegetables. We make the rows, so we know their faults:
#
# - `web` knows four ways to cook, but 15 of its rows for "pumpkin" are copies of one answer, and
#   for "leek" it has one answer only.
# - `bot` always says "grilled ... with rice".
# - `cooks` know four other ways to cook.

# %%
VEGETABLES = ["leek", "pumpkin", "carrot", "potato", "kale", "beet", "corn", "bean", "peas", "okra"]
COOKED = ["fried", "boiled", "baked", "raw", "stuffed", "pickled", "smoked", "mashed"]
SIDES = ["rice", "bread", "lentils"]
rng = np.random.default_rng(0)


def dish(source, vegetable):
    """One answer of a source to the prompt with this vegetable."""
    if source == "bot" or (source == "web" and vegetable == "leek"):
        return f"grilled {vegetable} with rice"
    way = rng.integers(4) + (4 if source == "cooks" else 0)
    return f"{COOKED[way]} {vegetable} with {SIDES[rng.integers(3)]}"


prompts = np.repeat(VEGETABLES, 20)  # Each source answers each prompt 20 times.
texts = {name: [dish(name, of) for of in prompts] for name in ("web", "bot", "cooks")}
copies = np.flatnonzero(prompts == "pumpkin")[:15]
for row in copies:
    texts["web"][row] = "boiled pumpkin with onions"

# %% [markdown]
# `encode` counts words. **For real texts** take `condvendi_jax.encoders.load_minilm().encode`
# ([installation](../command_line.md#pictures-and-texts)).


# %%
def encode(texts):
    """Vectors `[n, 224]` of length one: texts are close if they share words."""
    vectors = np.zeros((len(texts), 224), np.float32)
    for row, text in enumerate(texts):
        for word in text.split():
            vectors[row, zlib.crc32(word.encode()) % 224] += 1
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


outputs = {name: encode(of) for name, of in texts.items()}
asked = encode(prompts.tolist())
kernels = {"output_kernel": cv.Gaussian(0.4), "prompt_kernel": cv.Indicator()}

# %% [markdown]
# ## 2. Which rows are redundant?
#
# The influence of a row is negative if it repeats other rows of its prompt:

# %%
found = cv.contributions(outputs["web"], asked, **kernels, order=2)
order = np.argsort(found.influences.conditional)
worst = order[:35]
print(
    f"among the 35 most redundant rows: {np.sum(prompts[worst] == 'leek')} of 20 for leek, "
    f"{np.isin(copies, worst).sum()} of 15 copies"
)

# %% [markdown]
# A row is redundant only beside the others. Remove a few rows, and compute the influences again.
#
# ## 3. Which prompts need more variety?

# %%
table = cv.prompt_table(outputs["web"], asked, **kernels, order=2, labels=prompts)
print(table)

# %% [markdown]
# Ask for more answers to the prompts at the top.
#
# ## 4. Which 60 rows should I keep?
#
# `select` adds the row that raises the score most, again and again; `per_prompt` limits the rows of
# a prompt.

# %%
rows, of_all = np.concatenate(list(outputs.values())), np.concatenate([asked] * 3)
chosen = cv.select(rows, of_all, k=60, per_prompt=6, **kernels)
random = []
for _ in range(20):  # Six random rows of each prompt, twenty times.
    groups = [np.flatnonzero(np.tile(prompts, 3) == name) for name in VEGETABLES]
    drawn = np.concatenate([rng.choice(group, 6, replace=False) for group in groups])
    random.append(float(cv.conditional_rke(rows[drawn], of_all[drawn], **kernels)))
print(f"chosen: {chosen.scores[-1]:.2f}, random: {np.mean(random):.2f}, at most {max(random):.2f}")
taken = np.repeat(list(outputs), len(asked))[chosen.rows]
print({name: int(np.sum(taken == name)) for name in outputs})

# %% [markdown]
# Errors and nonsense are diverse, too. Remove them first.
#
# Report what you removed and by which number, the limit of rows a prompt, the score of a random
# subset, and [the rest](../what_to_report.md).
#
# Next: [contributions](../contributions.md) compares `select` with other methods.
