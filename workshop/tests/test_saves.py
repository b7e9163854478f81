"""SaveWatcher reports a file once for each time that the participant saves it."""

from pathlib import Path

from workshop.session import SaveWatcher


def poll_twice(save_watcher: SaveWatcher) -> tuple[list[Path], list[Path]]:
    """Return the saved files that each of two polls in a row finds."""
    return save_watcher.find_saved_files(), save_watcher.find_saved_files()


def test_file_counts_as_saved_after_two_equal_polls(tmp_path: Path) -> None:
    file = tmp_path / "ex01.py"
    file.write_text("old")
    save_watcher = SaveWatcher(tmp_path)
    assert poll_twice(save_watcher) == ([], [])
    file.write_text("")  # an editor that writes a file in parts leaves it empty for a moment
    assert poll_twice(save_watcher) == ([], [])
    file.write_text("begun")
    assert save_watcher.find_saved_files() == []
    file.write_text("begun and done")
    assert poll_twice(save_watcher) == ([], [file])
    assert save_watcher.find_saved_files() == []


def test_file_replaced_by_an_editor_counts_as_saved_once(tmp_path: Path) -> None:
    """The editor renames the old file to ex01.py~, and then writes a new one."""
    file = tmp_path / "ex01.py"
    file.write_text("old")
    save_watcher = SaveWatcher(tmp_path)
    file.rename(tmp_path / "ex01.py~")
    assert save_watcher.find_saved_files() == []
    file.write_text("new text")
    assert poll_twice(save_watcher) == ([], [file])
    assert save_watcher.find_saved_files() == []


def test_files_written_by_the_workshop_are_not_saves(tmp_path: Path) -> None:
    """The workshop writes a file, and then calls ignore(). The file is not reported as saved."""
    file = tmp_path / "ex01.py"
    save_watcher = SaveWatcher(tmp_path)
    file.write_text("an unsolved exercise")
    save_watcher.ignore(file)
    assert poll_twice(save_watcher) == ([], [])


def test_ignoring_a_missing_file_has_no_effect(tmp_path: Path) -> None:
    """The file is reported when it is saved later."""
    file = tmp_path / "ex01.py"
    save_watcher = SaveWatcher(tmp_path)
    save_watcher.ignore(file)
    file.write_text("new")
    assert poll_twice(save_watcher) == ([], [file])
