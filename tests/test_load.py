"""Files are loaded whole, or up to a row that the error names."""

from __future__ import annotations

import datetime as dt
import gzip
import os
import re
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from everview.database import Database
from everview.errors import (
    DataError,
    EverviewError,
    NullNotAllowed,
    UnknownColumn,
    WriteRejected,
    WrongType,
)
from everview.load import csv_files, json_lines, parquet_files, pieces
from everview.load.files import load
from everview.load.reject import Rejects
from everview.stores.base import Observer, Write
from everview.table import Table

COLUMNS = {"id": "BIGINT", "customer": "STRING", "amount": "DECIMAL(12,2)", "day": "DATE"}
ROWS = [
    {"id": 1, "customer": "ada", "amount": Decimal("9.90"), "day": dt.date(2020, 1, 1)},
    {"id": 2, "customer": "", "amount": None, "day": None},
    {"id": 3, "customer": None, "amount": Decimal("-0.05"), "day": None},
    {"id": 4, "customer": 'a "b",\nc 🎉', "amount": Decimal("1.00"), "day": None},
]
CSV = 'ID,customer,amount,day\n1,ada,9.9,2020-01-01\n2,"",,\n3,,-0.05,\n4,"a ""b"",\nc 🎉",1,\n'
JSON = """{"id": 1, "customer": "ada", "amount": "9.90", "day": "2020-01-01"}
{"ID": 2, "customer": ""}

{"id": 3, "customer": null, "amount": -0.05}
{"id": 4, "customer": "a \\"b\\",\\nc 🎉", "amount": 1}
"""


@pytest.fixture
def orders(db: Database) -> Table:
    return db.create_table("orders", COLUMNS, "id", regions=2)


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    set_batch_rows(monkeypatch, 2)


def set_batch_rows(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    for reader in (csv_files, json_lines, parquet_files):
        monkeypatch.setattr(reader, "BATCH_ROWS", rows)


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize("batch", [2, 65_536])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("orders.csv", CSV.encode()),
        ("orders.csv", b"\xef\xbb\xbf" + CSV.replace("\n", "\r\n").encode()),
        ("orders.csv.gz", gzip.compress(CSV.encode())),
        ("orders.jsonl", JSON.encode()),
        ("orders.json", b"\xef\xbb\xbf" + JSON.encode()),
        ("orders.ndjson.gz", gzip.compress(JSON.encode())),
    ],
)
def test_text_files_are_loaded(orders, tmp_path, monkeypatch, name, content, batch):
    set_batch_rows(monkeypatch, batch)
    path = write(tmp_path / name, content)
    assert load(orders, path) == 4
    found = list(orders.scan())
    found[3]["customer"] = found[3]["customer"].replace("\r\n", "\n")
    assert found == ROWS


def test_parquet_files_are_loaded_and_column_order_does_not_matter(orders, tmp_path, small_batches):
    table = pa.Table.from_pylist(ROWS).select(["day", "amount", "id", "customer"])
    pq.write_table(table, tmp_path / "orders.parquet", row_group_size=3)
    seen = []
    assert load(orders, tmp_path / "orders.parquet", progress=lambda *at: seen.append(at)) == 4
    assert list(orders.scan()) == ROWS
    assert seen[-1] == (4, 1.0)


def test_a_format_given_wins_over_the_suffix(orders, tmp_path):
    assert load(orders, write(tmp_path / "orders.txt", CSV), "csv") == 4
    with pytest.raises(DataError, match=r"format \.txt is not known; give the format: parquet"):
        load(orders, tmp_path / "orders.txt")


def test_numbers_in_json_keep_all_their_digits(db, tmp_path):
    table = db.create_table("wide", {"id": "BIGINT", "n": "DECIMAL(38,10)"}, "id")
    digits = "1234567890123456789012345678.0123456789"
    line = f'{{"id": 9223372036854775807, "n": {digits}}}'
    assert load(table, write(tmp_path / "wide.jsonl", line)) == 1
    assert table.get(9223372036854775807) == {"id": 9223372036854775807, "n": Decimal(digits)}


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ("id,amount\n1,1\n2,abc\n", r"row 2 \(line 3\), column amount: 'abc' is not a DECIMAL"),
        ('id,customer\n1,"a\nb"\n\nx,c\n', r"row 2 \(line 5\), column id: 'x' is not a BIGINT"),
        (b"id,customer\n1,\xff\n", r"row 1 \(line 2\), column customer: b'\\xff' .*not UTF-8"),
        ("id,customer\n,a\n", r"row 1 \(line 2\), column id: NULL or missing"),
    ],
)
def test_a_value_that_does_not_fit_is_named_by_row_and_line(orders, tmp_path, content, place):
    path = write(tmp_path / "orders.csv", content)
    with pytest.raises(DataError, match=rf"^{path}, {place}.*; no rows were stored$"):
        load(orders, path)
    assert len(orders) == 0


@pytest.mark.parametrize("name", ["orders.csv", "orders.jsonl", "orders.parquet"])
def test_the_error_says_how_many_rows_were_stored_before(orders, tmp_path, small_batches, name):
    amounts = ["1", "2", "3", "4", "x"]
    path = tmp_path / name
    if name.endswith("csv"):
        write(path, "id,amount\n" + "".join(f"{i},{a}\n" for i, a in enumerate(amounts)))
    elif name.endswith("jsonl"):
        write(path, "".join(f'{{"id":{i},"amount":"{a}"}}\n' for i, a in enumerate(amounts)))
    else:
        pq.write_table(pa.table({"id": range(5), "amount": amounts}), path)
    with pytest.raises(WrongType, match=r"(row|line) 5.*the 4 rows of earlier batches"):
        load(orders, path)
    assert len(orders) == 4


class Refusing(Observer):
    def before(self, write: Write) -> None:
        if 3 in write.after.field("id").to_pylist():
            raise ValueError("no threes")


def test_a_refused_write_also_tells_what_was_stored(orders, tmp_path, small_batches):
    orders.attach(Refusing())
    with pytest.raises(EverviewError) as refused:
        load(orders, write(tmp_path / "orders.csv", "id\n1\n2\n3\n"))
    assert isinstance(refused.value, WriteRejected)
    assert "the 2 rows of earlier batches are stored" in refused.value.__notes__[0]


@pytest.mark.parametrize(
    ("name", "content", "error", "message"),
    [
        ("a.csv", "", DataError, "is empty; a CSV file starts with a line of column names"),
        ("a.csv", "id,nope\n1,2\n", UnknownColumn, "line 1: table orders has no column nope"),
        ("a.csv", "customer\nada\n", NullNotAllowed, "line 1: column id is part of the primary"),
        ("a.csv", "id,ID\n1,2\n", DataError, "column id is given twice"),
        ("a.csv", "id,customer\n1,a\n2\n", DataError, r"row 2 \(line 3\): 1 field, but the hea"),
        ("a.csv", "id,customer\n1,a,b\n", DataError, r"row 1 \(line 2\): 3 fields"),
        ("a.csv.gz", "id\n1\n", DataError, "can't be read: Not a gzipped file"),
        ("a.jsonl", '{"id": 1}\n{"id": \n', DataError, "line 2, column 7: not JSON: Expecting"),
        ("a.jsonl", "[1]\n", DataError, "line 1: list instead of an object"),
        ("a.jsonl", b'{"id": 1, "customer": "\xff"}', DataError, "line 1: not UTF-8 text"),
        ("a.jsonl", '\n{"id": 1, "nope": 2}\n', UnknownColumn, "line 2: table orders has no colu"),
        ("a.jsonl", '{"customer": "x"}\n', NullNotAllowed, "line 1, column id: missing"),
        ("a.jsonl", '[{"id": 1},\n{"id": 2}]\n', DataError, "write one object such as"),
        ("a.jsonl", '{"id": ' + "[" * 99_999 + "\n", DataError, "line 1: .* nested too deeply"),
        ("a.jsonl", '{"id": ' + "9" * 5_000 + "}\n", DataError, "line 1: .* too many digits"),
        ("a.parquet", "hello, this is text", DataError, "is not a Parquet file"),
    ],
)
def test_files_that_are_not_what_they_should_be(orders, tmp_path, name, content, error, message):
    with pytest.raises(error, match=message):
        load(orders, write(tmp_path / name, content))
    assert len(orders) == 0


def test_missing_files_and_directories_are_said_to_be_so(orders, tmp_path):
    with pytest.raises(DataError, match="there is no file"):
        load(orders, tmp_path / "nope.csv")
    with pytest.raises(DataError, match="is a directory; load the files in it"):
        load(orders, tmp_path)


def test_a_damaged_parquet_file_is_said_to_be_so(orders, tmp_path):
    path = tmp_path / "orders.parquet"
    pq.write_table(pa.table({"id": [1, 2, 3]}), path)
    content = bytearray(path.read_bytes())
    content[4:30] = bytes(26)
    with pytest.raises(DataError, match=r"is damaged: .*; no rows were stored"):
        load(orders, write(path, bytes(content)))


def test_a_pipe_is_refused_since_files_are_read_twice(orders, tmp_path):
    os.mkfifo(tmp_path / "orders.csv")
    with pytest.raises(DataError, match="not a regular file"):
        load(orders, tmp_path / "orders.csv")


@pytest.mark.parametrize("content", ["id,customer\n", "id,customer", "id"])
def test_a_header_without_rows_loads_nothing(orders, tmp_path, content):
    assert load(orders, write(tmp_path / "orders.csv", content)) == 0


def test_long_values_cross_the_blocks_of_the_csv_reader(orders, tmp_path, monkeypatch):
    monkeypatch.setattr(csv_files, "CSV_BLOCK", 100_000)
    long = "é" * 30_000
    content = "id,customer\n" + "".join(f"{i},{long}{i}\n" for i in range(20))
    assert load(orders, write(tmp_path / "orders.csv", content)) == 20
    assert orders.get(19)["customer"] == f"{long}19"
    huge = f"id,customer\n1,{'x' * 400_000}\n"
    with pytest.raises(DataError, match="a row is longer than"):
        load(orders, write(tmp_path / "huge.csv", huge))


@pytest.mark.parametrize(
    ("name", "delimiter"), [("a.tsv", None), ("a.TSV.gz", None), ("a.csv", "\t"), ("a.csv", ";")]
)
def test_other_delimiters_are_given_or_told_by_the_suffix(orders, tmp_path, name, delimiter):
    separator = delimiter or "\t"
    text = CSV.replace(",", separator).replace(f'""{separator}\n', '"",\n').encode()
    path = write(tmp_path / name, gzip.compress(text) if name.endswith("gz") else text)
    assert load(orders, path, delimiter=delimiter) == 4
    assert list(orders.scan()) == ROWS
    lame = write(tmp_path / "b.csv", f"id{separator}customer\n1{separator}a\n2\n")
    with pytest.raises(DataError, match=r"row 2 \(line 3\): 1 field, but .* quote fields that con"):
        load(orders, lame, delimiter=separator)


def test_a_delimiter_that_is_none_is_refused(orders, tmp_path):
    path = write(tmp_path / "a.csv", CSV)
    for delimiter in (";;", "", "é", "\n", '"'):
        with pytest.raises(DataError, match="give one ASCII character"):
            load(orders, path, delimiter=delimiter)
    with pytest.raises(DataError, match="is not a CSV file"):
        load(orders, write(tmp_path / "a.jsonl", JSON), delimiter=";")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("id;customer\n1;a\n", "line 1: 'id;customer' is one column; if ';' separates"),
        ("id|customer", "if '|' separates its columns, give that as the delimiter"),
        ("id,customer\n1,a\n".encode("utf-16"), "is not UTF-8 text but, it seems, UTF-16"),
    ],
)
def test_a_header_that_other_programs_write_is_recognised(orders, tmp_path, content, message):
    with pytest.raises(DataError, match=re.escape(message)):
        load(orders, write(tmp_path / "a.csv", content))


@pytest.mark.parametrize(
    "content",
    [
        'id,customer\n1,a\n2,"b\n3,c\n',
        'id,customer\n1,"a ""b"""\n2,"b""\n3,c\n',
        'id,customer\n1,"a\n\nb"\n2,"',
    ],
)
def test_a_quote_that_is_never_closed_does_not_swallow_the_rest(orders, tmp_path, content):
    path = write(tmp_path / "orders.csv", content)
    line = content[: content.index('2,"')].count("\n") + 1
    with pytest.raises(DataError, match=rf"line {line}: a quote is opened in this row and never"):
        load(orders, path)
    assert len(orders) == 0


def test_an_odd_quote_within_a_field_is_a_character(orders, tmp_path):
    assert load(orders, write(tmp_path / "orders.csv", 'id,customer\n1,6" nail\n2,x\n')) == 2
    assert orders.get(1)["customer"] == '6" nail'


def test_whole_numbers_may_be_written_as_floats_are(orders, tmp_path):
    assert load(orders, write(tmp_path / "orders.csv", "id\n1.0\n-2.\n3.00\n4\n")) == 4
    assert [row["id"] for row in orders.scan()] == [-2, 1, 3, 4]
    with pytest.raises(WrongType, match=r"'1.5' is not a BIGINT; it has a fraction"):
        load(orders, write(tmp_path / "orders.csv", "id\n1.5\n"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (",id\n0,1\n", "line 1: column 1 has no name; leave it out (in pandas, with index=False)"),
        ("id, customer\n1, a\n", "table orders has no column ' customer'; it has id, cust"),
        ("id,more\n1,a\n", "remove it from the file, or add it to the table with ALTER TABLE"),
    ],
)
def test_a_column_that_is_not_the_tables_says_what_to_do(orders, tmp_path, content, message):
    with pytest.raises(UnknownColumn, match=re.escape(message)):
        load(orders, write(tmp_path / "orders.csv", content))


BAD_CSV = 'id,customer,amount,day\n1,ada,9.9,2020-01-01\nx,bob,1,\n3,"a\nb",zzz,\n4,eve,1\n\n5,,,\n'
BAD_JSON = (
    '{"id": 1, "customer": "ada"}\n{"id": "x", "customer": "bob"}\n\n{"id": 3, "nope": 1}\n'
    '{"id": 4\n[1]\n{}\n{"id": 5}\n'
)


def test_rows_of_csv_that_do_not_fit_are_put_aside_and_loaded_when_mended(orders, tmp_path):
    for name, content in [
        ("a.csv", BAD_CSV.encode()),
        ("a.csv.gz", gzip.compress(BAD_CSV.encode())),
    ]:
        path, aside = write(tmp_path / name, content), tmp_path / f"{name}.bad.csv"
        with Rejects(aside) as rejects:
            assert load(orders, path, rejects=rejects) == 2
        assert rejects.count == 3
        assert [row["id"] for row in orders.scan(columns=["id"])] == [1, 5]
        text = aside.read_text()
        assert text.startswith("rejected_line,rejected_reason,id,customer,amount,day\n3,")
        assert "line 3, column id: " in text
        assert '",x,bob,1,\n4,"' in text
        assert '",3,"a\nb",zzz,\n6,"' in text
        assert text.endswith(
            "3 fields, but the header has 4; quote fields that contain ','\",4,eve,1\n"
        )
        mended = text.replace(",x,bob", ",2,bob").replace("zzz", "7").replace("eve,1\n", "eve,1,\n")
        assert load(orders, write(tmp_path / "mended.csv", mended)) == 3
        assert [row["id"] for row in orders.scan(columns=["id"])] == [1, 2, 3, 4, 5]
        assert orders.get(3)["customer"] == "a\nb"
        orders.delete([2, 3, 4])


def test_rows_of_json_that_do_not_fit_are_put_aside_and_loaded_when_mended(orders, tmp_path):
    aside = tmp_path / "bad.jsonl"
    with Rejects(aside) as rejects:
        assert load(orders, write(tmp_path / "a.jsonl", BAD_JSON), rejects=rejects) == 2
    assert rejects.count == 5
    text = aside.read_text()
    heads = re.findall(r'^{"rejected_line": (\d+), "rejected_reason": "', text, re.M)
    assert heads == ["2", "4", "5", "6", "7"]
    assert text.splitlines()[3].endswith('"rejected_text": "[1]"}')
    lines = text.splitlines()
    mended = [lines[0].replace('"id": "x"', '"id": 2'), lines[1].replace('"nope"', '"amount"')]
    assert load(orders, write(tmp_path / "mended.jsonl", "\n".join(mended))) == 2
    assert [row["id"] for row in orders.scan(columns=["id"])] == [1, 2, 3, 5]


def test_rows_of_parquet_that_do_not_fit_are_put_aside_as_json(orders, tmp_path):
    rows = pa.table({"id": [1, 2, None, 4], "amount": ["1", "x", "2", "3"], "customer": [None] * 4})
    pq.write_table(rows, tmp_path / "a.parquet")
    with Rejects(tmp_path / "bad.jsonl") as rejects:
        assert load(orders, tmp_path / "a.parquet", rejects=rejects) == 2
    lines = (tmp_path / "bad.jsonl").read_text().splitlines()
    assert [line.partition(",")[0] for line in lines] == [
        '{"rejected_line": 2',
        '{"rejected_line": 3',
    ]
    assert lines[0].endswith('"id": 2, "amount": "x", "customer": null}')


@pytest.mark.parametrize("quote", ["", '"'])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_rejected_rows_are_found_wherever_chunks_end(orders, tmp_path, monkeypatch, quote, end):
    monkeypatch.setattr(pieces, "CHUNK", 64)
    bad = set(range(3, 200, 7))
    lines = [
        f"{i if i not in bad else 'x'},{quote}c{quote and end}{i}{quote},{i}.5," for i in range(200)
    ]
    path = write(tmp_path / "a.csv", "id,customer,amount,day" + end + end.join(lines))
    with Rejects(tmp_path / "bad.csv") as rejects:
        assert load(orders, path, rejects=rejects) == 200 - len(bad)
    assert rejects.count == len(bad)
    assert {row["id"] for row in orders.scan(columns=["id"])} == set(range(200)) - bad
    told = re.findall(r"^(\d+),\"", (tmp_path / "bad.csv").read_text(), re.M)
    each = 2 if quote else 1
    assert [int(line) for line in told] == [2 + i * each for i in sorted(bad)]


def test_a_quote_that_is_never_closed_is_one_rejected_row(orders, tmp_path):
    path = write(tmp_path / "a.csv", 'id,customer\n1,ada\n2,"bob\n3,eve\n')
    with Rejects(tmp_path / "bad.csv") as rejects:
        assert load(orders, path, rejects=rejects) == 1
    assert "never closed" in (tmp_path / "bad.csv").read_text()


def test_without_bad_rows_there_is_no_file_and_one_that_is_there_is_left(orders, tmp_path):
    with Rejects(tmp_path / "bad.csv") as rejects:
        assert load(orders, write(tmp_path / "a.csv", CSV), rejects=rejects) == 4
    assert not (tmp_path / "bad.csv").exists()
    write(tmp_path / "bad.csv", "mine")
    with pytest.raises(DataError, match="exists already"):
        Rejects(tmp_path / "bad.csv")
    with pytest.raises(DataError, match=r"written as csv; give their file the suffix \.csv"):
        load(orders, tmp_path / "a.csv", rejects=Rejects(tmp_path / "bad.jsonl"))
