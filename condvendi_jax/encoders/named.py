"""Encoders by name: models of sentence-transformers, open_clip and timm, in torch."""

import hashlib
import importlib
import json
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from condvendi_jax.base import checks, extras, files

PREFIXES = ("st:", "open_clip:", "timm:")


class NamedEncoder:
    """An `Encoder` by the name of a model; `details` say what its embeddings depend on."""

    def __init__(self, spec: str, *, kind: Any = None, device: Any = None, batch_size: int = 32):
        self._size = checks.check_count(batch_size, name="batch_size", minimum=1)
        prefix, _, name = spec.partition(":")
        self._kind = kind or ("images" if prefix == "timm" else "texts")
        package = "sentence_transformers" if prefix == "st" else prefix
        with extras.needed("encoders", package=f"{package} or torch", purpose=spec):
            torch, module = map(importlib.import_module, ("torch", package))
            kept = importlib.import_module("huggingface_hub.constants").HF_HUB_CACHE
        device = device or torch.accelerator.current_accelerator(check_available=True) or "cpu"
        local = (folder := files.expanded(name)).exists()
        if not local and (folder := files.expanded(name.partition("@")[0])).is_dir():
            raise ValueError(f"{folder} is a folder, which has no revisions.")
        name, _, revision = (str(folder), "", "") if local else name.partition("@")
        with torch.random.fork_rng(devices=[]):  # Weights that a file lacks have one digest, too.
            torch.manual_seed(0)
            loaded = _LOADERS[prefix](torch, module, name, revision or None, self._kind, device)
        network, self._rows, told, self._tokenizer = loaded
        network.float().to(device).eval()
        hub = "models--" + told.pop("hub", name).partition("@")[0].replace("/", "--")
        known = files.expanded(kept) / hub / "refs" / (revision or "main")
        told["revision"] = known.read_text().strip() if known.is_file() else revision or None
        told["weights"] = _digest(network, folder)
        version = next(f"{key} {told[key][:8]}" for key in ("revision", "weights") if told[key])
        self.name = f"{prefix}:{folder.name if local else name} ({version})"
        sample = ["a"] if self._kind == "texts" else [np.full((64, 64, 3), 127, np.uint8)]
        self.dimension = self.encode(sample).shape[1]
        told["versions"] = {package: module.__version__, "torch": str(torch.__version__)}
        self.details = json.loads(json.dumps(told, default=lambda part: part.to_dict()))

    def describe_cut(self, items: Sequence[str]) -> str | None:
        """A sentence with the number of texts that are longer than the model reads."""
        limit, read = self.details.get("tokens"), self._tokenizer
        read = getattr(read, "tokenizer", read)  # open_clip wraps those of transformers.
        ends = getattr(read, "num_special_tokens_to_add", lambda: 2)()
        split = getattr(read, "tokenize", getattr(read, "encode", str))
        cut = sum(len(split(text)) + ends > limit for text in items) if limit else 0
        words = f"are longer than the {limit} tokens that {self.name} reads; the rest is ignored."
        return f"{cut:,} of {len(items):,} texts {words}" if cut else None

    def encode(self, items: Sequence[Any]) -> np.ndarray:
        """Embed n texts, or pictures uint8 `[height, width, 3]`, as the model's rows `[n, d]`."""
        torch, image = map(importlib.import_module, ("torch", "PIL.Image"))
        order = sorted(range(len(items)), key=lambda row: len(items[row]))
        done = []
        for start in range(0, len(order), self._size):  # Of similar lengths.
            batch = [items[row] for row in order[start : start + self._size]]
            if self._kind == "images":
                batch = [image.fromarray(np.asarray(picture)) for picture in batch]
            with torch.inference_mode():
                done.append(torch.as_tensor(self._rows(batch)).float().cpu().numpy())
        return np.concatenate(done)[np.argsort(order)]


def _digest(network: Any, folder: Any) -> str:
    """The start of the SHA-256 of all weights, and of settings and vocabularies in a folder."""
    digest = hashlib.sha256()
    for name, weights in sorted(network.state_dict().items()):
        digest.update(f"{name} {[*weights.shape]}".encode() + weights.cpu().numpy().tobytes())
    for path in sorted(p for p in folder.rglob("*") if p.suffix in (".json", ".txt", ".model")):
        digest.update(os.fsencode(path.relative_to(folder)) + path.read_bytes())
    return digest.hexdigest()[:16]


# Each returns the model, a function from a batch to its rows, what to tell, and the tokenizer.
def _st(torch: Any, module: Any, name: str, revision: Any, kind: str, device: Any) -> tuple:
    network = module.SentenceTransformer(name, revision=revision, device=str(device))
    told = {type(part).__name__: part.get_config_dict() for part in network}
    told |= {"normalised": "Normalize" in told}
    if isinstance(network.max_seq_length, int):  # Else it reads any length.
        told["tokens"] = network.max_seq_length
    told["hub"] = name if "/" in name else f"sentence-transformers/{name}"
    told["pictures"] = getattr(getattr(network[0], "processor", None), "image_processor", None)
    run, read = network.encode, network.tokenizer
    return network, lambda b: run(b, batch_size=len(b), show_progress_bar=False), told, read


def _open_clip(torch: Any, module: Any, name: str, revision: Any, kind: str, device: Any) -> tuple:
    arch, _, weights = (f"{name}@{revision}" if revision else name).partition("/")
    known = module.get_pretrained_cfg(arch, weights)
    if ":" in arch:  # hf-hub or local-dir.
        arch, weights = f"{arch}/{weights}", None
    quick = bool(known.get("quick_gelu"))  # Of a tag's activation, open_clip only warns.
    network, see = module.create_model_from_pretrained(arch, weights, force_quick_gelu=quick)
    told = {"normalised": False, "hub": known.get("hf_hub", arch[7:]).strip("/")}
    if kind == "images":
        told["pictures"], run = network.visual.preprocess_cfg, network.encode_image
        return network, lambda b: run(torch.stack([*map(see, b)]).to(device)), told, None
    read = module.get_tokenizer(arch)
    told["tokens"] = read.context_length
    return network, lambda batch: network.encode_text(read(batch).to(device)), told, read


def _timm(torch: Any, module: Any, name: str, revision: Any, kind: str, device: Any) -> tuple:
    if kind == "texts":
        raise ValueError("it reads pictures, not texts.")
    hub = (name if "/" in name else f"timm/{name}") + (f"@{revision}" if revision else "")
    source = name if module.is_model(name) and not revision else f"hf-hub:{hub}"
    source = f"local-dir:{name}" if os.path.isdir(name) else source
    network = module.create_model(source, pretrained=True, num_classes=0)
    told = {"pictures": module.data.resolve_model_data_config(network), "normalised": False}
    told["hub"] = network.pretrained_cfg.get("hf_hub_id") or hub
    read = module.data.create_transform(**told["pictures"], is_training=False)
    return network, lambda b: network(torch.stack([*map(read, b)]).to(device)), told, None


_LOADERS = {"st": _st, "open_clip": _open_clip, "timm": _timm}
