"""Real embeddings that the experiments run on, and the loader for one's own.

| file | what it is |
|---|---|
| loading.py | `load`: the shipped set by name or one's own files, as `PairedEmbeddings` |
| emoji.npz | (picture, prompt) embeddings of emoji by nine designers |
| build_emoji.py | rebuilds emoji.npz from published packages |
| README.md, ATTRIBUTION.md | fields and measurements; designers, sources, licences |
"""

from experiments.data.loading import PairedEmbeddings, load, load_files

__all__ = ["PairedEmbeddings", "load", "load_files"]
