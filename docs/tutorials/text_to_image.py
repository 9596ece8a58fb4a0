# %% [markdown]
# # A text-to-image model
#
# **Question.** My model makes pictures for prompts. Are its pictures diverse, or are only my
# prompts diverse? Does it follow the prompts at all?

# %%
import matplotlib.pyplot as plt
import numpy as np

import condvendi_jax as cv

# %% [markdown]
# ## 1. Pictures and prompts
#
# Nine prompts name a colour and a shape, such as "red disc". Each model draws 16 pictures of each:
#
# - `fixed` follows the prompt, and draws the shape always in the same corner.
# - `free` follows the prompt, and draws the shape in any of four corners.
# - `deaf` draws a red disc in any of four corners, whatever the prompt says.

# %%
COLOURS = {"red": (0.9, 0.2, 0.1), "green": (0.1, 0.7, 0.3), "blue": (0.1, 0.3, 0.9)}
SHAPES = ["disc", "frame", "cross"]
PROMPTS = [f"{colour} {shape}" for colour in COLOURS for shape in SHAPES]
rng = np.random.default_rng(0)


def draw(prompt, corner):
    """A picture `[32, 32, 3]`: the shape in one of four corners, a little moved."""
    colour, shape = prompt.split()
    across, down = 9 + 14 * np.array([corner % 2, corner // 2]) + rng.normal(0, 0.2, 2)
    y, x = np.mgrid[:32, :32]
    right, below = abs(x - across), abs(y - down)
    inside = {
        "disc": right**2 + below**2 < 36,
        "frame": abs(np.maximum(right, below) - 5) < 1.5,
        "cross": (np.minimum(right, below) < 1.5) & (np.maximum(right, below) < 6.5),
    }[shape]
    return np.where(inside[..., None], COLOURS[colour], 1.0)


texts = [prompt for prompt in PROMPTS for _ in range(16)]
corners = rng.integers(4, size=len(texts))
pictures = {
    "fixed": [draw(text, 0) for text in texts],
    "free": [draw(text, corner) for text, corner in zip(texts, corners, strict=True)],
    "deaf": [draw("red disc", corner) for corner in corners],
}

# %%
figure, axes = plt.subplots(3, 9, figsize=(9, 3.3))
for row, (model, drawn) in zip(axes, pictures.items(), strict=True):
    for k, ax in enumerate(row):
        ax.imshow(drawn[16 * k])
        ax.set(xticks=[], yticks=[])
    row[0].set_ylabel(model)
for ax, prompt in zip(axes[0], PROMPTS, strict=True):
    ax.set_title(prompt, fontsize=8)

# %% [markdown]
# ## 2. The embeddings
#
# `Blur` averages blocks of 4 x 4 pixels, so that small movements do not count. **For real
# pictures** use a real encoder: `condvendi score pictures --prompts=prompts.csv` embeds a folder of
# pictures and their prompts ([how](../command_line.md#pictures-and-texts)).


# %%
class Blur:
    """The colours of 8 x 8 blocks of a picture, as one vector of 192 numbers."""

    def encode(self, items):
        blocks = 1 - np.stack(items).reshape(len(items), 8, 4, 8, 4, 3).mean(axis=(2, 4))
        vectors = blocks.reshape(len(items), -1)
        return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


encoder = Blur()
outputs = {model: encoder.encode(drawn) for model, drawn in pictures.items()}
prompts = np.eye(9, dtype=np.float32)[[PROMPTS.index(text) for text in texts]]

# %% [markdown]
# The prompts repeat, so any vectors serve that are equal for equal prompts.
#
# ## 3. Choose the bandwidth, then score
#
# Here pictures that differ by a small movement alone should count as the same. Choose a bandwidth
# between their distances and those of other pictures.

# %%
drawn = outputs["fixed"].reshape(9, 16, -1)
same = np.linalg.norm(drawn[:, :8] - drawn[:, 8:], axis=-1)
other = np.linalg.norm(drawn[:, None, 0] - drawn[None, :, 0], axis=-1)[~np.eye(9, dtype=bool)]
print(f"only moved: {same.mean():.2f} on average. Another prompt: {other.min():.2f} or more")

kernels = {"output_kernel": cv.Gaussian(0.25), "prompt_kernel": cv.Indicator()}
comparison = cv.compare(outputs, prompts, **kernels, orders=[2], profile=False)
print("\n".join(str(comparison).splitlines()[:9]))

# %% [markdown]
# **RKE is the product of the other two.**
#
# - `fixed` has an RKE of about ten, and owes it to the prompts: Information-RKE is near 9,
#   Conditional-RKE near 1. Small movements count a little.
# - `free` follows the prompts nearly as well, and has about four pictures for each.
# - `deaf` has a Conditional-RKE above 4, and an Information-RKE near 1: it ignores the prompts. So
#   a measure of quality must stand beside a diversity score.
#
# A wider bandwidth gives a smaller RKE: show the scores [at
# others](../bandwidths.md#all-bandwidths-at-once-profiles), too.
#
# ## 4. Which pictures repeat others?
#
# The influence of a picture is negative if it repeats others of its prompt.

# %%
found = cv.contributions(outputs["free"], prompts, **kernels, order=2)
order = np.argsort(found.influences.conditional)
texts, corners = np.array(texts), np.array(corners)
alike = np.array([np.sum((texts == texts[i]) & (corners == corners[i])) for i in order])
print("pictures of the same prompt in the same corner:")
print("for the nine most redundant pictures", alike[:9])
print("for the nine most unusual pictures  ", alike[-9:])

# %% [markdown]
# Next: [what to report](../what_to_report.md), also the resolution that the encoder saw;
# [bandwidths](../bandwidths.md); and [guidance](guidance.py) for a more diverse sampler.
