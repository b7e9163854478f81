"""The private names of Locust and geventhttpclient that the rush uses."""

import subprocess
import sys

import pytest

from servers.embedded import ROOT

INSTALL = "from loadtest.rush.locust import locust_private; locust_private.install()"


def install_without(removal: str) -> subprocess.CompletedProcess[str]:
    """Run install() in another process, after `removal`, a statement that removes a name.

    install() fails if a private name that it needs is missing. It runs in another process because
    importing Locust patches the module threading.
    """
    return subprocess.run(
        [sys.executable, "-c", f"import locust\n{removal}\n{INSTALL}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )


def test_libraries_have_every_private_name_that_is_used() -> None:
    """If this test fails, the last line of the error says which name a library has removed."""
    installation = install_without("")  # removes nothing
    assert installation.returncode == 0, installation.stderr.splitlines()[-1]


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
def test_name_that_a_library_removed_is_named(removal: str, message: str) -> None:
    """The statement `removal` stands for a new version of the library without the name."""
    installation = install_without(removal)
    assert installation.returncode != 0
    assert message in installation.stderr.splitlines()[-1]
