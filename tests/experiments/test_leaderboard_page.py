"""The leaderboard's page and its records of shipped models."""

import json

import pytest

from condvendi_jax import inference
from experiments.language_models import leaderboard

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def board():
    return leaderboard.board()


def test_the_page_is_written_from_the_records(board):
    text = leaderboard.PAGE.read_text(encoding="utf-8")
    assert leaderboard.page(text, board) == text
    assert all(f"|{model}|" in text for model in board.models) and len(board.models) >= 28


def test_a_record_that_breaks_the_protocol_is_named(tmp_path):
    path = next(leaderboard.FOLDER.glob("*.json"))
    record = json.loads(path.read_text(encoding="utf-8"))
    (result,) = (r for r in record["evaluation_results"] if "details" in r["score_details"])
    details = result["score_details"]["details"]
    (name, rows), *_ = details.items()
    whole = json.loads(rows)
    first = next(iter(whole))
    few = whole | {first: [4, whole[first][1]]}
    for changed in (few, {k: v for k, v in whole.items() if k != first}):
        details[name] = json.dumps(changed)
        (tmp_path / path.name).write_text(json.dumps(record))
        with pytest.raises(ValueError, match=f"{path.name}: .* does not follow novelty-100"):
            leaderboard.board(tmp_path)
    for twice in (path.name, "again.json"):
        (tmp_path / twice).write_bytes(path.read_bytes())
    with pytest.raises(ValueError, match="is there twice"):
        leaderboard.board(tmp_path)


def test_records_of_shipped_models_are_computed_again(board):
    """Also from half of the answers: each score lies in the interval of the other."""
    whole, half = leaderboard.records(), leaderboard.records(5)
    for model, record in whole.items():
        path = leaderboard.FOLDER / f"{model.replace('/', '--')}.json"
        committed = json.loads(path.read_text(encoding="utf-8"))
        both = zip(record["evaluation_results"], committed["evaluation_results"], strict=True)
        for one, other in both:
            assert one["evaluation_name"] == f"{leaderboard.PROTOCOL}, version 1"
            scores = (r["score_details"]["score"] for r in (one, other))
            assert next(scores) == pytest.approx(next(scores), rel=1e-4)
    ten, five = board.ranking("conditional", 2), inference.leaderboard(half)
    five = five.ranking("conditional", 2)
    for model in whole:
        for one, two in ((five, ten), (ten, five)):
            low, high = one.intervals[model]
            assert low <= two.values[model] <= high
