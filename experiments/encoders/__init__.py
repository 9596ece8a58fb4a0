"""Real pretrained models in Flax NNX: texts and pictures -> embeddings.

| module | what it holds |
|---|---|
| interface.py | the `Encoder` protocol, and how to plug in another model |
| minilm.py | all-MiniLM-L6-v2, texts -> 384-d unit vectors |
| efficientnet.py | EfficientNet-Lite0, pictures -> 1280-d ImageNet features |
| weights.py | finding and reading the published weights without importing their packages |
"""

from experiments.encoders.efficientnet import load_efficientnet
from experiments.encoders.interface import Encoder
from experiments.encoders.minilm import load_minilm

__all__ = ["Encoder", "load_efficientnet", "load_minilm"]
