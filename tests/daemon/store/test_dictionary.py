"""Numbers of texts, asked for one by one and many at once."""

import pytest

from opd.store.database import open_writer
from opd.store.dictionary import Dictionary


@pytest.fixture
def connection(tmp_path):
    """A new store."""
    connection = open_writer(tmp_path)
    yield connection
    connection.close()


def test_texts_learned_at_once_have_one_number_each(connection):
    """However it is asked for, a text keeps its number, over dictionaries too."""
    first = Dictionary(connection)
    old = first.name("old")
    texts = [f"text {i}" for i in range(1200)]
    first.learn(["old", *texts, *texts[:5], "broken \udcff"])
    numbers = [first.name(text) for text in ("old", *texts, "broken \udcff")]
    assert numbers[0] == old
    assert len(set(numbers)) == len(numbers)
    again = Dictionary(connection)
    again.learn(texts)
    assert [again.name(text) for text in ("old", *texts, "broken \udcff")] == numbers
    stored = dict(connection.execute("SELECT id, text FROM names"))
    assert len(stored) == len(numbers)
    assert stored[numbers[1]] == "text 0"
    assert stored[numbers[-1]] == "broken \\xff"
