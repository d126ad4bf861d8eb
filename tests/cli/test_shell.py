"""The shell: statements over several lines, words, errors that don't end it, pipes that do."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import everview
from everview.cli import main
from everview.cli.shell import Session
from tests.sql.duck_engine import DuckEngine


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("everview.engines.engine.start", lambda *_: DuckEngine())
    path = str(tmp_path / "shop.ev")
    with everview.open(path, create=True) as db:
        db.create_table("items", {"id": "INT", "name": "STRING"}, "id")
    return path


def piped(shop: str, text: str | bytes) -> Result:
    return CliRunner().invoke(main, ["shell", shop], input=text, catch_exceptions=False)


def test_statements_go_over_lines_and_end_with_semicolons(
    shop: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with everview.open(shop) as db:
        session = Session(db)
        for line in ("INSERT INTO items\n", "VALUES (1, 'a;\n", "b') -- c;\n", ";\n"):
            assert capsys.readouterr().out == "", "it is not complete"
            assert session.take(line)
        assert capsys.readouterr().out == "1 row inserted\n"
        assert db.table("items").get(1) == {"id": 1, "name": "a;\nb"}
        session.take("SELECT id FROM items; SELECT name FROM items;\n")
        assert capsys.readouterr().out.count("1 row\n") == 2


def test_words_are_words_only_where_a_statement_would_begin(
    shop: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with everview.open(shop) as db:
        session = Session(db)
        assert session.take("status;\n")
        assert "| items |" in capsys.readouterr().out
        assert session.take("help\n")
        assert "maintain" in capsys.readouterr().out
        assert session.take("maintain\n")
        assert capsys.readouterr().out.startswith("there are no views yet")
        assert session.take("SELECT 1 AS\n")
        assert session.take("quit\n")
        assert session.take(";\n")
        assert "| quit |" in capsys.readouterr().out
        assert not session.take("quit\n")


def test_a_pipe_ends_at_the_first_error_and_may_lack_the_last_semicolon(shop: str) -> None:
    done = piped(shop, "INSERT INTO items VALUES (1, 'a');\nSHOW TABLES")
    assert done.exit_code == 0
    assert done.stdout.startswith("1 row inserted\n")
    assert "| items |" in done.stdout
    done = piped(shop, "DELETE FROM items;\nSELEC 1;\nDROP TABLE items;\n")
    assert done.exit_code == 1
    assert done.stdout == "1 row deleted\n"
    assert done.stderr.startswith("error[EV601]: ")
    assert piped(shop, b"SELECT '\xff';").stderr.startswith("error[EV601]: the statements are not")


def test_on_a_terminal_errors_and_ctrl_c_do_not_end_it(shop: str, tmp_path: Path) -> None:
    terminal, other = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", "from everview.cli import main; main()", "shell", shop],
        stdin=other,
        stdout=other,
        stderr=other,
        env=os.environ | {"HOME": str(tmp_path), "TERM": "dumb"},
        start_new_session=True,
        # the terminal is to be the one that sends it Ctrl-C
        preexec_fn=lambda: os.close(os.open(os.ttyname(0), os.O_RDWR)),
    )
    os.close(other)

    def until(pattern: str) -> str:
        seen = b""
        while not re.search(pattern.encode(), seen):
            assert select.select([terminal], [], [], 30)[0], seen
            seen += os.read(terminal, 1000)
        return seen.decode()

    until("everview> ")
    os.write(terminal, b"SELEC 1;\n")
    assert "error[EV601]" in until("everview> $")
    os.write(terminal, b"DROP TABLE\n")
    until(r"\.\.\.> $")
    time.sleep(0.5)  # Python doesn't notice it between the prompt and its wait for keys
    os.write(terminal, b"\x03")
    assert "interrupted" in until("everview> $")
    os.write(terminal, b"SHOW TABLES;\n")
    assert "items" in until("everview> $")
    os.write(terminal, b"\x04")
    assert process.wait(30) == 0
    os.close(terminal)
    assert (tmp_path / ".everview_history").read_text().splitlines()[-1] == "SHOW TABLES;"
