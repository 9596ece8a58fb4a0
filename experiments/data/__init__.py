"""Real embeddings that the experiments run on, and the loader for one's own.

| file | what it is |
|---|---|
| pairs.py | `PairedEmbeddings`: outputs, prompts and labels; `load_files`: one's own |
| sets.py | the registry: every data set with its loader, builder, licence and description |
| emoji.npz | (picture, prompt) embeddings of emoji by nine designers |
| build_emoji.py | rebuilds emoji.npz from published packages |
| mixture.py | a mixture of Gaussian mixtures, of any size |
| README.md, ATTRIBUTION.md | fields and measurements; designers, sources, licences |
"""

from experiments.data.pairs import PairedEmbeddings, load_files
from experiments.data.sets import SETS, DataSet, load

__all__ = ["SETS", "DataSet", "PairedEmbeddings", "load", "load_files"]
