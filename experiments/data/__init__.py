"""Real embeddings that the experiments run on, and the loader for one's own.

| file | what it is |
|---|---|
| pairs.py | `PairedEmbeddings`: outputs, prompts and labels; `load_files`: one's own |
| sets.py | the registry: every data set with its loader, builder, licence and description |
| NAME.npz | the sets: embeddings, labels, what was cut and where it comes from |
| building.py | what builders share: repositories, embedding, cutting, writing |
| build_NAME.py | rebuilds a set from its public source |
| wordings.py | the prompts of the sets of ten kinds |
| mixture.py | a mixture of Gaussian mixtures, of any size |
| README.md, ATTRIBUTION.md | fields and measurements; designers, sources, licences |
"""

from experiments.data.pairs import PairedEmbeddings, load_files
from experiments.data.sets import SETS, DataSet, load

__all__ = ["SETS", "DataSet", "PairedEmbeddings", "load", "load_files"]
