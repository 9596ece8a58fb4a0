"""Real embeddings that the experiments run on, and the loader for a user's files (README.md).

`experiments.builders` makes the sets anew.
"""

from experiments.data.pairs import PairedEmbeddings, load_files
from experiments.data.sets import SETS, DataSet, load
