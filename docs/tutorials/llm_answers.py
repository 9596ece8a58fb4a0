# %% [markdown]
# # Answers of language models
#
# **Question.** I asked several language models the same prompts, several times each. Which model
# gives more different answers to a prompt? For which prompts does it repeat itself?
#
# ## 1. The records
#
# A record is one line of JSON: a prompt and its answers. Here are records of three models:
#
# - `cautious` has three stories for each animal, but only one of the snail.
# - `inventive` has eight stories for each animal.
# - `deaf` has eight stories of the crow, and tells them whatever the prompt is.
#
# `read_records` reads [many formats](../command_line.md#records-of-language-models).

# %%
import json
import pathlib
import tempfile
import textwrap

import numpy as np

import condvendi_jax as cv

folder = pathlib.Path(tempfile.mkdtemp())
ANIMALS = ["fox", "owl", "whale", "bee", "horse", "snail", "wolf", "crow", "otter", "mole"]
ANIMALS += ["bear", "cat", "deer", "duck", "eel", "frog", "goat", "hare", "ibis", "jay", "koala"]
ANIMALS += ["lion", "moth", "newt", "orca", "pig", "quail", "rat", "seal", "toad"]
STORIES = ["sings in a rock band", "opens a bakery", "builds a rocket and flies to the moon"]
STORIES += ["wins a chess tournament", "is elected mayor", "paints the church tower blue"]
STORIES += ["loses a tooth and cannot sleep", "finds a treasure map in a library"]
rng = np.random.default_rng(0)
for model, kinds in {"cautious": 3, "inventive": 8, "deaf": 8}.items():
    lines = []
    for animal in ANIMALS:
        told = "crow" if model == "deaf" else animal
        known = 1 if (model, animal) == ("cautious", "snail") else kinds
        answers = [f"The {told} {STORIES[k]}." for k in rng.integers(known, size=8)]
        lines.append(
            json.dumps({"prompt": f"Tell a story about the {animal}.", "answers": answers})
        )
    (folder / f"{model}.jsonl").write_text("\n".join(lines), encoding="utf-8")

records = cv.read_records(folder / "*.jsonl")
print(records.answers["inventive"][:2])

# %% [markdown]
# ## 2. Compare
#
# `compare` takes texts. It embeds the answers by all-MiniLM-L6-v2 ([install
# it](../command_line.md#pictures-and-texts)). Prompts repeat, so they are equal or different.

# %%
comparison = cv.compare(records.answers, records.prompts, orders=[2])
print(comparison)

# %% [markdown]
# - **Conditional-RKE** is the number of different answers to one prompt: near 2.8 for `cautious`,
#   7 to 9 for the others. "Differ, of 8" is the papers' score: how many of the answers differ.
# - **RKE** is the number of different answers to all prompts together.
# - `inventive` and `deaf` share a letter: they cannot be told apart by Conditional-RKE. **A high
#   score alone is no sign of quality.** Information-RKE is near 1 for `deaf`, which ignores the
#   prompts.

# %%
information = comparison.ranking("information", order=2).values
print({model: round(score, 1) for model, score in information.items()})

# %% [markdown]
# `cautious` is behind at every bandwidth.

# %%
comparison.profile.plot()

# %% [markdown]
# ## 3. Prompt by prompt
#
# The prompts for which a model repeats itself stand first: for `cautious`, the snail.

# %%
table = cv.prompt_table(comparison.pairs["cautious"], order=2, labels=records.prompts["cautious"])
print(table)

# %% [markdown]
# ## 4. A page with the answers
#
# A click on a prompt shows its answers side by side ([an example](../example_report.html)). For
# your files, `condvendi report *.jsonl --output=answers.html` is all of this tutorial.

# %%
page = folder / "answers.html"
cv.report.html(comparison, page, outputs=records.answers, prompts=records.prompts)

# %% [markdown]
# ## What to report
#
# Beside this paragraph, report the temperature, and how you treated empty answers.

# %%
print(textwrap.fill(cv.report.latex(comparison, encoder="all-MiniLM-L6-v2").paragraph, 100))

# %% [markdown]
# Next: [what to report](../what_to_report.md), [bandwidths](../bandwidths.md), and [a metric for
# Inspect](../integrations.md).
