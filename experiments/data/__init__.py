"""Real embeddings that the experiments run on, and the loader for one's own.

| file | what it is |
|---|---|
| pairs.py | `PairedEmbeddings`: outputs, prompts and labels; `load_files`: one's own |
| sets.py | the registry: every data set with its loader, builder, licence and description |
| NAME.npz | the sets: embeddings, labels, what was cut and where it comes from |
| wordings.py | the prompts of the sets of ten kinds |
| pictures.py, strokes.py | pictures outside the project; drawings as strokes |
| repository.py | the files of a public repository at one commit |
| mixture.py | a mixture of Gaussian mixtures, of any size |
| README.md, ATTRIBUTION.md | fields and measurements; designers, sources, licences |

`experiments.builders` makes the sets anew.
"""

from experiments.data.pairs import PairedEmbeddings, load_files
from experiments.data.sets import SETS, DataSet, load

__all__ = ["SETS", "DataSet", "PairedEmbeddings", "load", "load_files"]
