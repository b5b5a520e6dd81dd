from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.search import page_rows, write_rows, write_run

from pdf_ops.search import building
from pdf_ops.search.building import LocalDataset, update
from pdf_ops.search.embedded import STATE, EmbeddedIndex
from pdf_ops.search.found import NoIndexError
from pdf_ops.search.query import QueryError, parse


def find(folder, typed, **arguments):
    found = EmbeddedIndex(folder).search(parse(typed), **{"limit": 20} | arguments)
    return {(hit.source_uri.rpartition("/")[2], hit.page) for hit in found.hits}


@pytest.fixture
def dataset(tmp_path):
    write_run(tmp_path / "pages", "one", {"a.pdf": ["red apples", "green pears"], "b.pdf": ["red wine"]})
    return tmp_path / "pages"


@pytest.fixture
def index(tmp_path):
    return tmp_path / "index"


def test_words_phrases_prefixes_and_exclusions_find_the_right_pages(tmp_path, index):
    write_run(
        tmp_path / "pages",
        "one",
        {
            "a.pdf": ["The purchase order of May.", "An order to purchase."],
            "b.pdf": ["Invoice for a purchase", "INVOICES, Überweisung: 5 €", ""],
        },
    )
    update(index, LocalDataset(tmp_path / "pages"))

    assert find(index, "purchase order") == {("a.pdf", 1), ("a.pdf", 2)}
    assert find(index, '"purchase order"') == {("a.pdf", 1)}
    assert find(index, "purchase -order") == {("b.pdf", 1)}
    assert find(index, 'purchase -"purchase order"') == {("a.pdf", 2), ("b.pdf", 1)}
    assert find(index, "invoic*") == {("b.pdf", 1), ("b.pdf", 2)}
    assert find(index, "uberweisung") == {("b.pdf", 2)}
    assert find(index, "nothing") == set()


def test_only_new_files_are_added_and_the_same_again_changes_nothing(dataset, index):
    first = update(index, LocalDataset(dataset))
    again = update(index, LocalDataset(dataset))
    write_run(dataset, "two", {"c.pdf": ["red roses"]}, day=1)
    more = update(index, LocalDataset(dataset))

    assert (first.rows, first.files_added, first.is_changed) == (3, 1, True)
    assert (again.rows, again.rows_added, again.is_changed) == (3, 0, False)
    assert (more.rows, more.rows_added, more.files_added) == (4, 1, 1)
    assert find(index, "red") == {("a.pdf", 1), ("b.pdf", 1), ("c.pdf", 1)}


def test_a_document_read_again_replaces_its_older_rows(dataset, index):
    update(index, LocalDataset(dataset))
    write_run(dataset, "two", {"a.pdf": ["blue apples"]}, day=1)

    built = update(index, LocalDataset(dataset))

    assert (built.rows, built.documents_replaced) == (2, 1)
    assert find(index, "apples") == {("a.pdf", 1)}
    assert find(index, "red") == {("b.pdf", 1)}
    assert find(index, "pears") == set()


def test_a_document_that_has_no_text_any_more_is_not_found_any_more(dataset, index):
    update(index, LocalDataset(dataset))
    write_run(dataset, "two", {"b.pdf": [""]}, day=1)

    update(index, LocalDataset(dataset))

    assert find(index, "wine") == set()


def test_an_older_reading_that_comes_late_does_not_replace_a_newer_one(dataset, index):
    write_run(dataset, "two", {"a.pdf": ["blue apples"]}, day=2)
    update(index, LocalDataset(dataset))
    write_run(dataset, "late", {"a.pdf": ["mouldy apples"], "d.pdf": ["plums"]}, day=1)

    update(index, LocalDataset(dataset))

    assert find(index, "mouldy") == set()
    assert find(index, "blue plums") == set()
    assert find(index, "plums") == {("d.pdf", 1)}


def test_a_long_document_may_begin_in_one_file_and_end_in_the_next(tmp_path, index):
    rows = page_rows("one", {"long.pdf": ["first", "second", "third"]})
    write_rows(tmp_path / "pages/run_date=2026-03-01/run-one-00000.parquet", rows[:2])
    write_rows(tmp_path / "pages/run_date=2026-03-01/run-one-00001.parquet", rows[2:])

    built = update(index, LocalDataset(tmp_path / "pages"))

    assert built.rows == 3
    assert built.documents_replaced == 0


def test_a_file_that_was_written_again_replaces_what_it_held(dataset, index):
    update(index, LocalDataset(dataset))
    write_run(dataset, "one", {"a.pdf": ["yellow apples", "green pears"]})

    built = update(index, LocalDataset(dataset))

    assert (built.rows, built.files_added, built.files_removed) == (2, 1, 1)
    assert find(index, "red") == set()
    assert find(index, "yellow") == {("a.pdf", 1)}


def test_rows_of_a_file_that_is_gone_are_gone(dataset, index):
    gone = write_run(dataset, "two", {"c.pdf": ["red roses"]}, day=1)
    update(index, LocalDataset(dataset))
    gone.unlink()

    update(index, LocalDataset(dataset))

    assert find(index, "roses") == set()


def test_an_update_that_died_in_the_middle_is_made_good_by_the_next(dataset, index, monkeypatch):
    write_run(dataset, "two", {"c.pdf": ["roses"] * 30}, day=1)
    rows_of, taken = building.rows_of, []

    def breaks(path):
        for row in rows_of(path):
            taken.append(row)
            if len(taken) == 10:
                raise OSError("the machine is gone")
            yield row

    monkeypatch.setattr(building, "rows_of", breaks)
    with pytest.raises(OSError, match="gone"):
        update(index, LocalDataset(dataset))
    monkeypatch.undo()

    built = update(index, LocalDataset(dataset))

    assert built.rows == 33
    assert built.files_added == 1


@pytest.mark.parametrize("state", [b"{", b'{"built_at": "x", "rows": 1, "format": 0, "engine": "0"}'])
def test_an_index_of_another_version_is_built_anew(dataset, index, state):
    update(index, LocalDataset(dataset))
    (index / STATE).write_bytes(state)

    with pytest.raises(NoIndexError, match="pdf-ops index"):
        EmbeddedIndex(index)
    assert update(index, LocalDataset(dataset)).rows_added == 3
    assert find(index, "wine") == {("b.pdf", 1)}


def test_rebuilding_gives_the_same_index(dataset, index):
    write_run(dataset, "two", {"a.pdf": ["blue apples"]}, day=1)
    update(index, LocalDataset(dataset))
    before = find(index, "apples"), find(index, "red")

    built = update(index, LocalDataset(dataset), is_rebuild=True)

    assert built.rows_added == 4
    assert (find(index, "apples"), find(index, "red")) == before


def test_a_folder_with_something_else_in_it_is_left_alone(dataset, tmp_path):
    (tmp_path / "precious.txt").write_text("mine")

    with pytest.raises(NoIndexError, match="holds something else"):
        update(tmp_path, LocalDataset(dataset))

    assert (tmp_path / "precious.txt").exists()


def test_a_file_without_page_rows_is_named(tmp_path, index):
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "pages").mkdir()
    pq.write_table(pa.table({"page": [1]}), tmp_path / "pages" / "x.parquet")

    with pytest.raises(NoIndexError, match=r"x\.parquet .* lacks"):
        update(index, LocalDataset(tmp_path / "pages"))


def test_without_tantivy_it_says_what_to_install(dataset, index, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tantivy", None)

    with pytest.raises(NoIndexError, match="requirements"):
        update(index, LocalDataset(dataset))


def test_hits_come_a_page_at_a_time_and_each_once(tmp_path, index):
    write_run(tmp_path / "pages", "one", {f"{number}.pdf": ["apples"] for number in range(25)})
    update(index, LocalDataset(tmp_path / "pages"))
    searcher = EmbeddedIndex(index)

    pages = [searcher.search(parse("apples"), limit=10, offset=offset) for offset in (0, 10, 20)]

    assert [len(page.hits) for page in pages] == [10, 10, 5]
    assert [page.has_more for page in pages] == [True, True, False]
    assert {page.total for page in pages} == {25}
    assert len({hit.source_uri for page in pages for hit in page.hits}) == 25


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(typed=st.text(max_size=60))
def test_hostile_syntax_is_a_query_or_refused_and_nothing_else(searcher, typed):
    try:
        query = parse(typed)
    except QueryError:
        return
    searcher.search(query, limit=5)


@pytest.fixture(scope="module")
def searcher(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    write_run(folder / "pages", "one", {"a.pdf": ["some text \x00 with (odd) [characters] AND more"]})
    update(folder / "index", LocalDataset(folder / "pages"))
    return EmbeddedIndex(folder / "index")


def test_a_word_as_long_as_a_page_is_no_reason_to_fail(tmp_path, index):
    write_run(tmp_path / "pages", "one", {"a.pdf": ["x" * 100_000 + " apples"]})
    update(index, LocalDataset(tmp_path / "pages"))

    assert find(index, "apples") == {("a.pdf", 1)}
