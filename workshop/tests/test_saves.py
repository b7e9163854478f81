"""The changes of a file that count as a save."""

from pathlib import Path

from workshop.session import SaveWatcher


def test_file_counts_as_saved_after_two_equal_polls(tmp_path: Path) -> None:
    file = tmp_path / "ex01.py"
    file.write_text("old")
    saves = SaveWatcher(tmp_path)
    assert [saves.find_saved_files() for _ in range(2)] == [[], []]
    file.write_text("")  # as an editor that writes in parts leaves it for a moment
    assert [saves.find_saved_files() for _ in range(2)] == [[], []]
    file.write_text("begun")
    assert saves.find_saved_files() == []
    file.write_text("begun and done")
    assert saves.find_saved_files() == []
    assert [saves.find_saved_files() for _ in range(2)] == [[file], []]


def test_file_replaced_by_an_editor_counts_as_saved_once(tmp_path: Path) -> None:
    file = tmp_path / "ex01.py"
    file.write_text("old")
    saves = SaveWatcher(tmp_path)
    file.rename(tmp_path / "ex01.py~")
    assert saves.find_saved_files() == []
    file.write_text("new text")
    assert [saves.find_saved_files() for _ in range(3)] == [[], [file], []]


def test_files_written_by_the_workshop_are_no_saves(tmp_path: Path) -> None:
    file = tmp_path / "ex01.py"
    saves = SaveWatcher(tmp_path)
    file.write_text("shipped")
    saves.ignore(file)
    assert [saves.find_saved_files() for _ in range(2)] == [[], []]
    saves.ignore(tmp_path / "ex02.py")  # not there
