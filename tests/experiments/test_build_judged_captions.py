"""The builder of judged captions, on a small repository."""

import numpy as np
import pytest
from small_repositories import make, repository

from experiments.builders import captions

pytestmark = pytest.mark.slow
OWN = {
    "a.jpg": ["A Dog runs", "two dogs", "a red dog", "it runs", "a pet"],
    "b.jpg": [f"{word} men" for word in ("some", "one", "three", "four", "few")],
}


def test_judgements_and_changed_captions_are_paired_with_photographs(tmp_path, monkeypatch):
    monkeypatch.setattr(captions, "FIRST_CAPTIONS", tmp_path / "captions.npz")
    np.savez(captions.FIRST_CAPTIONS, outputs=np.array([[0.8, 0.6], [0, 1]], "f2"))
    lines = [f"{n}#{k}\t{text}" for n, own in OWN.items() for k, text in enumerate(own)]
    files = {
        "Flickr8k.token.txt": "\n".join(lines).encode(),
        "ExpertAnnotations.txt": b"a.jpg\tb.jpg#2\t1\t2\t4\nb.jpg\tb.jpg#2\t4\t4\t4",
        "CrowdFlowerAnnotations.txt": b"b.jpg\ta.jpg#2\t0.25\t1\t3\nb.jpg\tb.jpg#2\t1\t3\t0",
    }
    clone = repository(tmp_path / "t", "a/t", files)
    found, *_, texts = make(captions, tmp_path, clone, name="judged_captions")
    labels = found.labels  # Without experts' judgements of a photograph's own captions.
    assert labels["people"][:8].tolist() == [1, 2, 4, 0.25, 1, 2, 1, 0]
    assert labels["photograph"][:6].tolist() == [0, 0, 0, 1, 1, 0]
    assert labels["task"][2:6].tolist() == ["expert", "crowd", "crowd", "object"]
    written = ["three men"] * 3 + ["a red dog", "three men", "A Dog runs", "a pet"]
    np.testing.assert_allclose(found.outputs[:7], texts.rows(written), atol=2.0**-8)
    np.testing.assert_allclose(found.prompts[:4:3], [[0.8, 0.6], [0, 1]], atol=1e-3)
    assert "two men" in texts.given  # The only number that no caption has.
    # The nearest of a photograph's captions, but for the caption itself.
    others = texts.rows([text for text in OWN["b.jpg"] if text != "three men"])
    nearest = (others @ texts.rows(["three men"])[0]).max()
    assert labels["metric_reference"][4] == pytest.approx(nearest, abs=1e-6)
