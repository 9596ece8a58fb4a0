"""Encoders by name: tiny random models, saved and loaded by the packages themselves."""

import json
import os
import shutil
import subprocess
import sys

import fake_encoders
import numpy as np
import pytest

from condvendi_jax.base.extras import MissingExtra
from condvendi_jax.cli import __main__
from condvendi_jax.cli.inputs import Inputs
from condvendi_jax.encoders.embedding import embed, load_encoder
from condvendi_jax.encoders.named import PREFIXES
from condvendi_jax.inference.datasets import Dataset

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh", "cat", "dog", "red"]
TEXTS = ["a cat", "red dog b c", "d", "a cat a dog", "h g f e"]
PICTURES = [
    np.random.default_rng(k).integers(0, 256, (20 + 9 * k, 40, 3), np.uint8) for k in range(5)
]
SEEN = {"[32, 32]", "[3, 32, 32]"}  # Of one case each.
COMMIT = "0123456789" * 4
PACKAGES = ("torch", "transformers", "sentence_transformers", "timm", "open_clip")


@pytest.mark.parametrize("prefix", PREFIXES)
def test_missing_package_names_the_extra(prefix, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    words = r"torch, which is not installed; .*pip install -e '\.\[encoders\]'"
    with pytest.raises(MissingExtra, match=words):
        load_encoder(f"{prefix}a/b")


def test_names_and_details_are_told():
    encoder = fake_encoders.Means()
    loaded = load_encoder(None, lambda: encoder)
    assert "text_encoder_details" not in loaded.described("texts")
    encoder.details = {"weights": "1"}
    assert loaded.described("images")["image_encoder_details"] == {"weights": "1"}
    read = Inputs(Dataset({}), {}, {}, loaded.described("texts"), [], 0.0)
    assert read.encoders() == "means (texts)"


def _bert(folder):
    """A BERT of 16 numbers a token, which reads 8 tokens."""
    import transformers

    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"vocab_size": len(WORDS), "intermediate_size": 24, "max_position_embeddings": 8}
    transformers.BertModel(transformers.BertConfig(**sizes)).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    read = transformers.BertTokenizerFast(str(folder / "vocab.txt"), model_max_length=8)
    read.save_pretrained(folder)


def _sentences(folder):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    parts = [Transformer(str(folder / "bert")), Pooling(16), Normalize()]
    SentenceTransformer(modules=parts, device="cpu").save(str(folder / "st"))


def _timm(folder):
    import timm

    sizes = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 2}
    sizes |= {"proj_drop_rate": 0.5}  # Of training only.
    model = timm.create_model("vit_tiny_patch16_224", num_classes=3, **sizes)
    timm.models.save_for_hf(model, folder / "timm", model_args=sizes)


def _open_clip(folder):
    import open_clip
    import torch

    seen = {"image_size": 32, "layers": 2, "width": 24, "head_width": 12, "patch_size": 8}
    read = {"context_length": 7, "vocab_size": 49408, "width": 24, "heads": 2, "layers": 2}
    sizes = {"embed_dim": 12, "vision_cfg": seen, "text_cfg": read}
    (folder / "tiny.json").write_text(json.dumps(sizes))
    open_clip.add_model_config(folder / "tiny.json")
    torch.save(open_clip.create_model("tiny").state_dict(), folder / "tiny.pt")
    (folder / "open_clip").mkdir()
    shutil.copy(folder / "tiny.pt", folder / "open_clip" / "open_clip_pytorch_model.bin")
    saved = json.dumps({"model_cfg": sizes, "preprocess_cfg": {}})
    (folder / "open_clip" / "open_clip_config.json").write_text(saved)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder of models; without the packages, or without --slow, none are made."""
    for package in PACKAGES:
        pytest.importorskip(package)
    import torch

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("models")
    (folder / "bert").mkdir()
    _bert(folder / "bert")
    for make in (_sentences, _timm, _open_clip):
        make(folder)
    return folder


def _st_directly(folder, kind):
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder / "st"), device="cpu")
    return lambda text: model.encode([text])[0]


def _timm_directly(folder, kind):
    import timm

    model = timm.create_model(f"local-dir:{folder}/timm", pretrained=True).eval()
    config = timm.data.resolve_model_data_config(model)
    see = timm.data.create_transform(**config, is_training=False)
    return lambda x: model.forward_head(model.forward_features(see(_pil(x))[None]), True)[0]


def _open_clip_directly(folder, kind):
    import open_clip

    model, _, see = open_clip.create_model_and_transforms("tiny", f"{folder}/tiny.pt")
    model.eval()
    if kind == "texts":
        return lambda text: model.encode_text(open_clip.tokenize([text], 7))[0]
    return lambda picture: model.encode_image(see(_pil(picture))[None])[0]


def _pil(picture):
    from PIL import Image

    return Image.fromarray(picture)


CASES = {
    "st:{}/st": ("texts", _st_directly, {"normalised": True, "tokens": 8}),
    "timm:{}/timm": ("images", _timm_directly, {"normalised": False}),
    "open_clip:tiny/{}/tiny.pt": ("texts", _open_clip_directly, {"tokens": 7}),
    "open_clip:tiny/{}/tiny.pt ": ("images", _open_clip_directly, {"normalised": False}),
}
slow = pytest.mark.slow
loud = pytest.mark.filterwarnings("default")  # The warnings of the packages are not ours.


@slow
@loud
@pytest.mark.parametrize("case", CASES)
def test_rows_are_those_of_the_package_for_every_batch_size(case, models):
    import torch

    kind, directly, told = CASES[case]
    spec = case.strip().format(models)
    items = TEXTS if kind == "texts" else PICTURES
    row = directly(models, kind)
    with torch.no_grad():
        expected = np.stack([np.asarray(row(item)) for item in items])
    names = set()
    for size in (1, 2, 32):
        named = {"kind": kind, "device": "cpu", "batch_size": size}
        encoder = load_encoder(spec, named=named).encoder
        rows = encoder.encode(items)
        assert rows.dtype == np.float32 and rows.shape == (5, encoder.dimension)
        np.testing.assert_allclose(rows, expected, rtol=1e-4, atol=1e-5)
        names.add(encoder.name)
    assert len(names) == 1, "weights that the checkpoint lacks differ"
    details = encoder.details
    assert details.items() >= told.items() and details["revision"] is None
    assert encoder.name.endswith(f"(weights {details['weights'][:8]})")
    assert details["versions"]["torch"] == torch.__version__
    if kind == "images":
        assert set(map(json.dumps, details["pictures"].values())) & SEEN
    # The row of one item must tell it from others, or the comparison says nothing.
    assert np.abs(np.diff(expected, axis=0)).max(axis=1).min() > 1e-3


@slow
@loud
@pytest.mark.parametrize("spec", [case for case, (kind, *_) in CASES.items() if kind == "texts"])
def test_texts_longer_than_the_model_reads_are_counted(spec, models):
    encoder = load_encoder(spec.format(models), named={"device": "cpu"}).encoder
    room = encoder.details["tokens"] - 2  # Without the marks of beginning and end.
    texts = [" ".join("abcdefgh"[:count]) for count in (1, room, room + 1, room + 2)]
    words = f"2 of 4 texts are longer than the {room + 2} tokens that {encoder.name} reads"
    assert (encoder.describe_cut(texts) or "").startswith(words)
    assert encoder.describe_cut(texts[:2]) is None
    rows = encoder.encode(texts)
    assert np.abs(rows[2] - rows[3]).max() < 1e-5 < np.abs(rows[1] - rows[0]).max()


@slow
@loud
@pytest.mark.parametrize("changed", ["nothing", "weights", "vocabulary"])
def test_a_changed_model_of_the_same_name_has_other_rows_in_the_cache(changed, models, tmp_path):
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "model"
    shutil.copytree(models / "st", folder)

    def kept():
        loaded = load_encoder(f"st:{folder}", named={"device": "cpu"})
        embed(TEXTS, loaded, kind="texts", cache=tmp_path / "cache")
        return len([*(tmp_path / "cache").iterdir()])

    assert kept() == kept() == 1
    if changed == "weights":
        path = next(folder.rglob("model.safetensors"))
        weights = load_file(path)
        weights["embeddings.word_embeddings.weight"][5, 3] += 0.1
        save_file(weights, path, metadata={"format": "pt"})
    elif changed == "vocabulary":
        path = next(folder.rglob("tokenizer.json"))
        path.write_text(path.read_text().replace('"cat"', '"cow"'))
    assert kept() == (1 if changed == "nothing" else 2)


@slow
@loud
def test_what_cannot_be_used_is_one_line(models, tmp_path, monkeypatch):
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    for spec, kind, words in (
        ("st:nobody/nothing", None, "connect"),
        ("timm:nothing", None, "Hub"),
        ("open_clip:nothing/openai", None, "Model config for 'nothing' not found"),
        ("open_clip:ViT-B-32", None, "could not be loaded"),
        (f"timm:{models}/timm", "texts", "reads pictures, not texts"),
        (f"st:{models}/st", "images", "image"),
    ):
        with pytest.raises(ValueError, match=words) as error:
            load_encoder(spec, named={"kind": kind, "device": "cpu"})
        told = str(error.value)
        assert told.startswith(f"{spec}: could not be made: ") and "\n" not in told
        assert len(told) < 700
    (tmp_path / "texts.txt").write_text("a\nb\n")
    words = [f"{tmp_path}/texts.txt", f"--text_encoder=st:{models}/st", "--encoder_device=moon"]
    with pytest.raises(ValueError, match="could not be made: RuntimeError: .*moon"):
        __main__.main(["", "score", *words])


@slow
@loud
def test_activation_is_that_of_the_tag(models, monkeypatch):
    """OpenAI's weights need QuickGELU, which the configuration of their architecture lacks."""
    import open_clip
    import torch

    tags = {"quick": {"file": f"{models}/tiny.pt", "quick_gelu": True}}
    monkeypatch.setitem(open_clip.pretrained._PRETRAINED, "tiny", tags)
    model = open_clip.create_model("tiny", f"{models}/tiny.pt", force_quick_gelu=True).eval()
    other = open_clip.create_model("tiny", f"{models}/tiny.pt").eval()
    tokens = open_clip.tokenize(TEXTS, 7)
    with torch.no_grad():
        expected, wrong = (m.encode_text(tokens).numpy() for m in (model, other))
    rows = load_encoder("open_clip:tiny/quick", named={"device": "cpu"}).encoder.encode(TEXTS)
    np.testing.assert_allclose(rows, expected, rtol=1e-4, atol=1e-5)
    assert np.abs(rows - wrong).max() > 1e-3


@pytest.fixture
def hub(models, tmp_path):
    """The environment of a hub's cache, as downloads leave it, and no network."""
    kept = {"sentence-transformers--tiny": ("st", "v1"), "own--clip": ("open_clip", "main")}
    kept |= {"own--timm": ("timm", "v1")}
    for name, (source, revision) in kept.items():
        folder = tmp_path / "hub" / f"models--{name}"
        shutil.copytree(models / source, folder / "snapshots" / COMMIT)
        (folder / "refs").mkdir()
        (folder / "refs" / revision).write_text(COMMIT)
    return os.environ | {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": f"{tmp_path}/hub"}


@slow
@loud
def test_command_names_model_revision_and_details_everywhere(models, hub, tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join([*TEXTS, "a b c d e f g h"]))
    (tmp_path / "pictures").mkdir()
    for k in range(6):
        _pil(PICTURES[k % 5] // (1 + k // 5)).save(tmp_path / "pictures" / f"{k}.png")
    words = "pictures --prompts=texts.txt --image_encoder=timm:own/timm@v1 --rule=median --order=2"
    words += " --text_encoder=st:tiny@v1 --encoder_device=cpu --encoder_batch_size=2"
    words += " --cache=cache --json=out.json --latex=out.tex"
    command = [sys.executable, "-m", "condvendi_jax.cli", "score", *words.split()]
    ended = subprocess.run(command, cwd=tmp_path, env=hub, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert "1 of 6 texts are longer than the 8 tokens that st:tiny (rev" in ended.stderr
    inputs = json.loads((tmp_path / "out.json").read_text())["inputs"]
    for role, name in (("image", "timm:own/timm"), ("text", "st:tiny")):
        assert inputs[f"{role}_encoder"] == f"{name} (revision 01234567)"
        details = inputs[f"{role}_encoder_details"]
        assert details["revision"] == COMMIT and len(details["weights"]) == 16
        assert (tmp_path / "out.tex").read_text().count(f"{name} (revision") == 1
    assert inputs["text_encoder_details"]["Pooling"]["pooling_mode"] == "mean"
    assert inputs["image_encoder_details"]["pictures"]["mean"] == [0.5, 0.5, 0.5]


@slow
@loud
def test_revisions_of_a_hub_are_loaded_and_named(hub):
    program = """if True:
        import sys
        from condvendi_jax.encoders.embedding import load_encoder
        for spec in sys.argv[1:]:
            kind = "texts" if spec[:3] == "st:" else "images"
            named = {"kind": kind, "device": "cpu"}
            print(load_encoder(spec, named=named).encoder.details["revision"])
    """
    specs = ["timm:own/timm@v1", "open_clip:hf-hub:own/clip", "st:tiny@v1"]
    command = [sys.executable, "-c", program, *specs]
    ended = subprocess.run(command, env=hub, capture_output=True, text=True)
    assert ended.stdout.split() == [COMMIT] * 3, ended.stderr
    absent = subprocess.run([*command[:3], "st:tiny@v2"], env=hub, capture_output=True, text=True)
    assert absent.returncode and "st:tiny@v2: could not be made: " in absent.stderr
