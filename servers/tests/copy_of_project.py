"""A copy of the project in its own folder, and processes that use its embedded servers.

The embedded servers keep their data next to the code, so a test that stops them needs a copy.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, LiteralString, Self

import psutil
import psycopg

from servers.embedded import ROOT
from servers.tests.polling import eventually

#: The program of a ProcessWithServers. It prints the URLs of the servers. Then it evaluates each
#: line of its input as an expression, and prints the value. All output is JSON.
USER_PROGRAM = """
import json, os, subprocess, sys
from servers import embedded

def start_child():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    embedded.kill_at_exit(child.pid)
    return child.pid

def fork_a_child_that_ends():
    pid = os.fork()
    if pid == 0:
        sys.exit()
    os.waitpid(pid, 0)

embedded.provide_urls()
print(json.dumps([os.environ["DATABASE_URL"], os.environ["REDIS_URL"]]), flush=True)
for line in sys.stdin:
    print(json.dumps(eval(line)), flush=True)
"""


class ProjectCopy:
    """A copy of manage.py and what it needs, in which commands run as an ordinary user.

    The path of the copy has more than a hundred characters, and some that have to be quoted in a
    shell.

    If the tests run as root, the ordinary user is `nobody`. This user may write only in the folder
    of the copy. It may read every file, because Python may be installed where only root can read.
    Without the program setpriv (util-linux) the commands run as root.
    """

    def __init__(self, folder: Path) -> None:
        # A long path, with characters that have to be quoted in a shell.
        self.root = folder / ("d" * 60) / 'a copy\'s "$HOME" `id` ü'
        self.data = self.root / "var" / "postgres"
        #: The beginning of each command: the program that runs it as the ordinary user, if any.
        self.command_prefix: list[str] = []
        inherited = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        self.environment = {
            **inherited,
            "DJANGO_SETTINGS_MODULE": "shop.settings",
            "HOME": str(folder),
            "TMPDIR": str(folder),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        ignore = shutil.ignore_patterns("__pycache__", "tests")
        for name in ("shop", "locks", "servers", "tools/requirements"):
            shutil.copytree(ROOT / name, self.root / name, ignore=ignore)
        shutil.copy(ROOT / "manage.py", self.root)
        if os.getuid() == 0 and shutil.which("setpriv"):
            become_nobody = "setpriv --reuid nobody --regid nogroup --clear-groups"
            read_all_files = "--inh-caps=+dac_read_search --ambient-caps=+dac_read_search"
            self.command_prefix = become_nobody.split() + read_all_files.split()
            for path in (folder, *folder.rglob("*")):
                shutil.chown(path, "nobody", "nogroup")

    def run(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the copy as the ordinary user, with these further variables."""
        return subprocess.run(
            [*self.command_prefix, *command],
            cwd=self.root,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=60,
        )

    def find_postgres(self) -> psutil.Process:
        """Return the running PostgreSQL of this copy."""
        pid = (self.data / "postmaster.pid").read_text().splitlines()[0]
        return psutil.Process(int(pid))

    def find_valkey(self) -> psutil.Process:
        """Return the Valkey of this copy that was started last."""
        registry = json.loads((self.root / "var" / "users.json").read_text())
        return psutil.Process(registry["valkey"]["pid"])

    def kill_processes(self) -> None:
        """Kill the processes of this copy that a failed test has left."""
        for process in psutil.process_iter(["cmdline", "cwd"]):
            # Valkey overwrites its command line, so only its working directory identifies it.
            words = [*(process.info["cmdline"] or []), process.info["cwd"] or ""]
            if str(self.root) in " ".join(words):
                process.kill()


class ProcessWithServers:
    """A process that uses the embedded servers of a copy until it ends.

    database_url, redis_url  the URLs of the servers, in this process's environment
    """

    def __init__(self, project: ProjectCopy) -> None:
        self.process = subprocess.Popen(
            [*project.command_prefix, sys.executable, "-c", USER_PROGRAM],
            cwd=project.root,
            env=project.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdin
        assert self.process.stdout
        self.input, self.output = self.process.stdin, self.process.stdout
        self.database_url, self.redis_url = self._read_printed_value()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end_and_wait()

    def evaluate(self, expression: str) -> Any:
        """Let the process evaluate a Python expression. Return the value."""
        self.input.write(f"{expression}\n")
        self.input.flush()
        return self._read_printed_value()

    def end_and_wait(self) -> int:
        """End the input of the process, wait until it ends, and return its exit code."""
        self.input.close()
        exit_code = self.process.wait(30)
        # The output is not read to its end. A child of a killed process may keep it open.
        self.output.close()
        return exit_code

    def kill(self) -> None:
        """Kill the process by SIGKILL, so that it cannot stop the servers."""
        self.process.kill()
        self.end_and_wait()

    def sql(self, query: LiteralString) -> list[tuple[Any, ...]]:
        """Return the rows of a query that the test sends to the embedded PostgreSQL."""
        with psycopg.connect(self.database_url) as connection:
            return connection.execute(query).fetchall()

    def list_databases(self) -> set[str]:
        return {name for (name,) in self.sql("SELECT datname FROM pg_database")}

    def _read_printed_value(self) -> Any:
        """Return the value that the process prints next, as JSON on one line."""
        line = self.output.readline()
        assert line, f"the process ended with {self.process.wait(5)}"
        return json.loads(line)


def is_gone(process: psutil.Process) -> bool:
    """Return whether the process has ended. A zombie has ended, too."""
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def assert_gone(*processes: psutil.Process) -> None:
    eventually(lambda: all(map(is_gone, processes)), what=f"these processes are gone: {processes}")
