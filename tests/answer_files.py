"""Files of answers: what tests write in the current folder, and what comes out of them."""

import json
import pathlib
import warnings

import condvendi_jax as cv


def write(name, *rows):
    """Writes lines in the current folder: texts and bytes as they are, and others as JSON."""
    path = pathlib.Path.cwd() / name
    path.parent.mkdir(exist_ok=True, parents=True)
    texts = [r if isinstance(r, (str, bytes)) else json.dumps(r, ensure_ascii=False) for r in rows]
    path.write_bytes(b"\n".join(t if isinstance(t, bytes) else t.encode() for t in texts))
    return path


def read(path, **fields):
    """Rows as (model, prompt, answer), and what was skipped, which is said, as (line, reason)."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = cv.read_records(path, **fields)
    assert len(caught) == bool(found.skipped)
    for skipped in found.skipped[:10]:
        assert str(skipped) in str(caught[0].message)
    rows = [
        (model, *row)
        for model, answers in found.answers.items()
        for row in zip(found.prompts[model], answers, strict=True)
    ]
    return rows, [(skipped.line, skipped.reason) for skipped in found.skipped]
