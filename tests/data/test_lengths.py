"""Lengths of sequences: published statistics, files, and what is refused."""

from pathlib import Path

import numpy as np
import pytest

from taut.data.lengths import PUBLISHED, load_lengths
from taut.errors import DataError


def test_published_statistics_are_met() -> None:
    """Mean and quantiles of the chat data, the deciles of the recipes, the bins of the articles."""
    chat = load_lengths("chat-sft")
    assert chat.mean == pytest.approx(687.7, rel=2e-3)
    assert chat.quantile(0.5) == pytest.approx(357, rel=0.01)
    assert chat.quantile(0.9) == pytest.approx(1058, rel=0.01)
    assert float(chat.shares[-1]) >= 410 / 24690
    recipes = load_lengths("recipe-sft")
    assert [recipes.quantile(k / 10) for k in (1, 5, 9)] == pytest.approx([192, 274, 467], rel=0.01)
    articles = load_lengths("wikipedia")
    assert float(articles.shares[articles.tokens <= 1024].sum()) == pytest.approx(0.8238, abs=1e-3)
    mix = load_lengths("long-mix")
    assert float(mix.shares[mix.tokens > 8192].sum()) == pytest.approx(0.1)
    assert all(published.source for published in PUBLISHED.values())


def test_a_file_holds_lengths_or_a_histogram(tmp_path: Path) -> None:
    """Repeated lines count, as do counts; remarks and a header do not."""
    listed, counted = tmp_path / "lengths.txt", tmp_path / "lengths.csv"
    listed.write_text("# drawn\n10\n\n20\n10\n")
    counted.write_text("length,count\n20,1\n10, 2\n30,0\n")
    for path in (listed, counted):
        found = load_lengths(path)
        assert found.tokens.tolist() == [10, 20]
        assert found.shares.tolist() == pytest.approx([2 / 3, 1 / 3])
        assert found.mean == pytest.approx(40 / 3)
        assert "3 sequences" in found.source


def test_draws_follow_the_shares() -> None:
    """The share of every drawn length is that of the distribution, and a seed gives the same draws."""
    found = load_lengths("recipe-sft")
    drawn = found.draw(np.random.default_rng(1), 200_000)
    assert float(drawn.mean()) == pytest.approx(found.mean, rel=0.01)
    assert float((drawn <= 274).mean()) == pytest.approx(0.5, abs=0.01)
    assert np.array_equal(drawn[:50], found.draw(np.random.default_rng(1), 200_000)[:50])


def test_longer_sequences_are_left_out_by_their_share(tmp_path: Path) -> None:
    """The rest adds up to 1 again, and the source says what went; nothing at all is refused."""
    path = tmp_path / "l"
    path.write_text("10,3\n50,1\n")
    cut = load_lengths(path).up_to(20)
    assert (cut.tokens.tolist(), cut.shares.tolist()) == ([10], [1.0])
    assert "25 % of the sequences are longer than 20" in cut.source
    with pytest.raises(DataError, match="shortest sequence has 10 tokens, expected at most 5"):
        cut.up_to(5)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no length, expected one length a line"),
        ("# none\n\n", "holds no length"),
        ("12\n-3\n", "line 2: length is -3, expected a whole number from 1"),
        ("0\n", "line 1: length is 0, expected"),
        ("12\nmany\n", "line 2: length is many, expected"),
        ("1.5\n", "line 1: length is 1.5, expected"),
        ("nan\n", "line 1: length is nan, expected"),
        ("999999999\n", "expected a whole number from 1 to 100000000"),
        ("length,count\n10,0\n20,0\n", "all counts are 0, expected at least one sequence"),
        ("10,-1\n", "line 1: count is -1, expected a whole number from 0"),
        ("10,\n", "line 1: count is empty, expected"),
        ("10,2,3\n", "line 1: holds 3 cells, expected one length a line, or length,count"),
    ],
)
def test_bad_lines_are_refused_in_one(tmp_path: Path, text: str, words: str) -> None:
    """The file, the line, the value, and what was expected."""
    path = tmp_path / "lengths.csv"
    path.write_text(text)
    with pytest.raises(DataError) as refused:
        load_lengths(path)
    assert words in str(refused.value)
    assert str(path) in str(refused.value)


def test_a_name_that_is_none_is_refused_with_the_nearest() -> None:
    """Of a data set, and of a file."""
    with pytest.raises(DataError, match=r"chat-sf: no such file, expected one length a line.*chat-sft"):
        load_lengths("chat-sf")
    with pytest.raises(DataError, match=r"none\.csv: No such file"):
        load_lengths("none.csv")
