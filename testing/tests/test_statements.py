"""Tests of the functions that shorten an SQL statement to one line of a timeline."""

import pytest

from testing.probes import MAX_STATEMENT_CHARACTERS, read_statement, shorten_statement


@pytest.mark.parametrize(
    ("sql", "params", "line"),
    [
        (
            'SELECT "shop_stock"."id", "shop_stock"."amount" FROM "shop_stock" '
            'WHERE "shop_stock"."id" = %s LIMIT 21',
            (1,),
            "SELECT shop_stock WHERE id = 1",
        ),
        (
            'SELECT "s"."id" FROM "s" WHERE "s"."id" = %s ORDER BY "s"."id" ASC FOR UPDATE',
            (1,),
            "SELECT s WHERE id = 1 FOR UPDATE",
        ),
        (
            'UPDATE "s" SET "amount" = ("s"."amount" - %s) WHERE "s"."amount" >= %s',
            (1, 1),
            "UPDATE s SET amount = (amount - 1) WHERE amount >= 1",
        ),
        (
            'INSERT INTO "s" ("buyer") VALUES (%s) RETURNING "s"."id"',
            ("100 %",),
            "INSERT s ('100 %')",
        ),
        (
            'UPDATE "s" SET "a" = %s, "b" = %s WHERE "c" LIKE \'%%\'',
            ("%s %%", 1),
            "UPDATE s SET a = '%s %%', b = 1 WHERE c LIKE '%'",
        ),
        ('DELETE FROM "s" WHERE "s"."id" = %s', (7,), "DELETE FROM s WHERE id = 7"),
        ("SELECT 1", None, "SELECT 1"),
        ("SELECT `s`.`id` FROM `s`", None, "SELECT s"),
    ],
)
def test_statement_is_shown_with_values_and_without_columns(
    sql: str, params: tuple[object, ...] | None, line: str
) -> None:
    assert shorten_statement(sql, params) == line


class QuotedByCursor:
    """A statement whose text depends on the cursor, as with psycopg and psycopg2."""

    def as_string(self, cursor: object) -> str:
        return f"SELECT {cursor}"


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        ("SELECT 1", "SELECT 1"),
        (b"SELECT 1", "SELECT 1"),
        (b"SELECT '\xff'", "SELECT '\ufffd'"),
        (QuotedByCursor(), "SELECT 7"),
        (1, "1"),
    ],
)
def test_statement_of_any_type_has_a_text(statement: object, text: str) -> None:
    assert read_statement(statement, 7) == text


def test_long_statement_is_cut() -> None:
    assert len(shorten_statement("SELECT " + "x" * 200)) == MAX_STATEMENT_CHARACTERS


def test_executemany_shows_the_first_row_and_a_count() -> None:
    rows = [(1, 7), (2, 8), (3, 9)]
    sql = 'UPDATE "stock" SET "amount" = %s WHERE "id" = %s'
    assert (
        shorten_statement(sql, rows, many=True)
        == "UPDATE stock SET amount = 1 WHERE id = 7 (and 2 more)"
    )
    assert shorten_statement(sql, rows[:1], many=True) == "UPDATE stock SET amount = 1 WHERE id = 7"
