# %% [markdown]
# # Answers of language models
#
# **Question.** I asked several language models the same prompts, several times each. Which model
# gives more different answers to a prompt? For which prompts does it repeat itself?
#
# **At the end** you have a table with errors, a picture by prompt, and one page of HTML with the
# answers behind the numbers.

# %%
import json
import pathlib
import tempfile
import zlib

import matplotlib.pyplot as plt
import numpy as np

import condvendi_jax as cv

folder = pathlib.Path(tempfile.mkdtemp())

# %% [markdown]
# ## 1. The records
#
# A record is one line of JSON: a prompt and its answers. Here we write records of three models
# whose behaviour we know:
#
# - `cautious` has two stories for each animal, but only one of the snail.
# - `inventive` has six stories for each animal.
# - `deaf` has six stories, and tells them whatever the prompt is.
#
# With your own models, skip this step. [The command
# line](../command_line.md#records-of-language-models) lists the formats that `read_records` reads.

# %%
ANIMALS = ["fox", "owl", "whale", "bee", "horse", "snail", "wolf", "crow", "otter", "mole"]
ACTIONS = ["sings", "hides", "paints", "digs", "waits", "travels"]
rng = np.random.default_rng(0)


def story(model, animal):
    """One answer of a model to the prompt with this animal."""
    kind = rng.integers(2 if model == "cautious" else 6)
    if model == "cautious" and animal == "snail":
        kind = 0
    told = ANIMALS[kind] if model == "deaf" else animal
    return f"The {told} {ACTIONS[kind]}."


for model in ("cautious", "inventive", "deaf"):
    lines = []
    for animal in ANIMALS:
        answers = [story(model, animal) for _ in range(24)]
        lines.append(json.dumps({"prompt": f"Tell a story: {animal}.", "answers": answers}))
    (folder / f"{model}.jsonl").write_text("\n".join(lines), encoding="utf-8")

records = cv.read_records(folder / "*.jsonl")
print({model: len(answers) for model, answers in records.answers.items()})
print(records.answers["inventive"][:3])

# %% [markdown]
# ## 2. The embeddings
#
# The scores need a vector for each text. `Words` is a small encoder for this page: two texts are
# close if they share words. **For real answers** use a real encoder: `from condvendi_jax.encoders
# import load_minilm` and `encoder = load_minilm()`, after [its
# installation](../command_line.md#pictures-and-texts).


# %%
class Words:
    """Counts words, in 224 places, and scales each text to length one."""

    def encode(self, texts):
        vectors = np.zeros((len(texts), 224), np.float32)
        for row, text in enumerate(texts):
            for word in text.lower().strip(".").split():
                vectors[row, zlib.crc32(word.encode()) % 224] += 1
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


encoder = Words()
outputs = {model: encoder.encode(texts) for model, texts in records.answers.items()}
prompts = {model: encoder.encode(texts) for model, texts in records.prompts.items()}

# %% [markdown]
# ## 3. Compare
#
# Two kernels decide the scores. The bandwidth of the outputs says how far apart two answers must be
# to count as different. Two stories of one animal have a distance of 0.8, and we want to count them
# as different: 0.3 is small enough. [Bandwidths](../bandwidths.md) says how to choose it for real
# texts. The prompts repeat, and only equal prompts should count as the same: that is the kernel
# `Indicator`.

# %%
kernels = {"output_kernel": cv.Gaussian(0.3), "prompt_kernel": cv.Indicator()}
comparison = cv.compare(outputs, prompts, **kernels, orders=[2])
print(comparison)

# %% [markdown]
# How to read it:
#
# - **Conditional-RKE** is the number of different answers to one prompt: below 2 for `cautious`,
#   which has one of the snail, and about 6 for the others. In brackets is the papers' score, which
#   24 answers keep below 6.
# - **Information-RKE** says how much of the diversity the prompts explain. It is near 10, the
#   number of prompts, for the models that follow them, and near 1 for `deaf`.
# - Models with a common letter cannot be told apart. `inventive` and `deaf` share one in the column
#   Conditional-RKE: **a high conditional score alone is no sign of quality.** Look at both columns.
#
# ## 4. Prompt by prompt
#
# `prompt_table` scores the answers to each prompt alone. The first rows are the prompts for which a
# model repeats itself most: for `cautious`, the snail.

# %%
tables = {
    model: cv.prompt_table(
        outputs[model], prompts[model], **kernels, order=2, labels=records.prompts[model]
    )
    for model in outputs
}
print(tables["cautious"])

# %%
figure, ax = plt.subplots(figsize=(7, 3.5))
styles = {"cautious": ("#0072B2", "o"), "inventive": ("#D55E00", "s"), "deaf": ("#009E73", "^")}
for model, (colour, mark) in styles.items():
    scores = [of.score for of in tables[model].prompts]  # In the order of the prompts.
    ax.plot(ANIMALS, scores, mark, color=colour, label=model)
ax.set(ylabel="different answers (RKE)", ylim=(0.8, 9.5), title="24 answers to each prompt")
_ = ax.legend(loc="upper center", ncols=3)

# %% [markdown]
# ## 5. A page with the answers
#
# The page opens in a browser without a network. A click on a prompt shows its answers side by side,
# with repetitions joined. [Here is an example](../example_report.html).

# %%
page = folder / "answers.html"
cv.report.html(comparison, page, outputs=records.answers, prompts=records.prompts, encoder="Words")
print(f"{page.stat().st_size / 1000:.0f} kB")

# %% [markdown]
# ## What to report
#
# Report the number of prompts and of answers to each, the encoder, the kernels and bandwidths, the
# order, the errors, the temperature, and how you treated empty answers. `report` writes the first
# part:

# %%
print(cv.report.latex(comparison, encoder="Words (224 places)").paragraph)

# %% [markdown]
# Next: [what to report](../what_to_report.md), [bandwidths](../bandwidths.md),
# [errors](../errors.md), [contributions](../contributions.md), and [a metric for
# Inspect](../integrations.md).
