"""The private names of Locust and geventhttpclient that the rush uses still exist.

locust_private.install() patches Locust for a rush. It fails if one of these names does not exist.
"""

import subprocess
import sys

import pytest

from servers.embedded import ROOT

#: A program that patches Locust.
PATCH_LOCUST = "from loadtest.rush.locust import locust_private; locust_private.install()"


def patch_locust_without(removal: str) -> subprocess.CompletedProcess[str]:
    """Patch Locust in another process, after a statement that removes a private name.

    It must be another process, because importing Locust changes the module threading.

    removal  the statement; "" removes nothing
    """
    return subprocess.run(
        [sys.executable, "-c", f"import locust\n{removal}\n{PATCH_LOCUST}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )


def test_libraries_have_every_private_name_that_is_used() -> None:
    """If this test fails, the last line of the error has the name that a library has removed."""
    process = patch_locust_without("")  # removes nothing
    assert process.returncode == 0, process.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("removal", "message"),
    [
        (
            "from locust.contrib.fasthttp import ResponseContextManager\n"
            "del ResponseContextManager._entered",
            "this version of locust has no ResponseContextManager._entered: install",
        ),
        (
            # Runner.__init__ sets the attribute _users_dispatcher.
            "import locust.runners\nlocust.runners.Runner.__init__ = lambda self: None",
            "this version of locust has no Runner._users_dispatcher: install",
        ),
        (
            "from geventhttpclient.connectionpool import ConnectionPool\n"
            "del ConnectionPool._is_socket_alive",
            "this version of geventhttpclient has no ConnectionPool._is_socket_alive: install",
        ),
    ],
)
def test_error_has_the_name_that_a_library_removed(removal: str, message: str) -> None:
    """The statement `removal` makes the library look like a new version without the name."""
    process = patch_locust_without(removal)
    assert process.returncode != 0
    assert message in process.stderr.splitlines()[-1]
