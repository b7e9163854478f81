"""The changes of a file that count as a save."""

from pathlib import Path

from workshop.session import SaveWatcher


def poll_twice(saves: SaveWatcher) -> tuple[list[Path], list[Path]]:
    """Return the saved files that each of two polls in a row finds."""
    return saves.find_saved_files(), saves.find_saved_files()


def test_file_counts_as_saved_after_two_equal_polls(tmp_path: Path) -> None:
    file = tmp_path / "ex01.py"
    file.write_text("old")
    saves = SaveWatcher(tmp_path)
    assert poll_twice(saves) == ([], [])
    file.write_text("")  # the state of a file for a moment, if an editor writes it in parts
    assert poll_twice(saves) == ([], [])
    file.write_text("begun")
    assert saves.find_saved_files() == []
    file.write_text("begun and done")
    assert poll_twice(saves) == ([], [file])
    assert saves.find_saved_files() == []


def test_file_replaced_by_an_editor_counts_as_saved_once(tmp_path: Path) -> None:
    file = tmp_path / "ex01.py"
    file.write_text("old")
    saves = SaveWatcher(tmp_path)
    file.rename(tmp_path / "ex01.py~")
    assert saves.find_saved_files() == []
    file.write_text("new text")
    assert poll_twice(saves) == ([], [file])
    assert saves.find_saved_files() == []


def test_files_written_by_the_workshop_are_no_saves(tmp_path: Path) -> None:
    file = tmp_path / "ex01.py"
    saves = SaveWatcher(tmp_path)
    file.write_text("shipped")
    saves.ignore(file)
    assert poll_twice(saves) == ([], [])


def test_missing_file_can_be_ignored(tmp_path: Path) -> None:
    """The file is saved as usual when it comes."""
    file = tmp_path / "ex01.py"
    saves = SaveWatcher(tmp_path)
    saves.ignore(file)
    file.write_text("new")
    assert poll_twice(saves) == ([], [file])
