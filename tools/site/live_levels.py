"""python -m tools.site.live_levels: the page levels.html, whose levels are played on real servers.

The page is made for a screen on the wall of an exhibition. A level asks visitors to find a schedule
that reaches a goal, by pressing a button for each turn (levels.py). Each time a visitor presses a
button, the schedule so far is played from its beginning, on a PostgreSQL (or MariaDB) and a Valkey
that this command starts. The code in tools/site/recorder/ plays the schedules, as it does for the
recordings. Ctrl-C stops the command.
"""

import argparse
import json
import multiprocessing
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from loadtest.stack.node import StackError
from servers.server_errors import EmbeddedError
from servers.signals import end_on
from tools.site import level_page, pages
from tools.site.__main__ import SITE
from tools.site.narration import describe_turns, label_first_move
from tools.site.recorder.lock_servers import LockServers
from tools.site.recorder.recorded_worlds import shop_on_own_servers
from tools.site.worlds import WORLDS, Moves, find_outside_event, read_moves

PORT = 8100
HOST_NAMES = ("127.0.0.1", "localhost")
#: How long a request may take. A schedule takes some seconds, and the first one on a database also
#: starts the servers.
PLAY_TIMEOUT_SECONDS = 120.0

spawn_context = multiprocessing.get_context("spawn")


class ImpossibleTurn(Exception):
    """A turn of the requested schedule is impossible after the turns before it."""


def play_schedule(world_name: str, schedule: str, servers: LockServers) -> dict[str, Any]:
    """Play a schedule, and return what the page shows: a dict with the keys `turns` and `differs`.

    turns    what the page shows after each turn of the schedule: the result of describe_turns()
    differs  whether a turn of the schedule differs from the recording

    Raises ImpossibleTurn if a turn of the schedule is impossible after the turns before it.
    """
    from tools.site.recorder.live import collect_moves
    from tools.site.recorder.world import PlayedSchedule, play_with_long_enough_ttl

    world = WORLDS[world_name]
    recorded_moves = read_moves()[world_name]

    def play_once(short_ttl: float) -> tuple[Moves, list[str]]:
        played_schedule = PlayedSchedule(
            world,
            find_outside_event(schedule),
            servers,
            short_ttl=short_ttl,
            recorded_moves=recorded_moves,
        )
        with closing(played_schedule):
            for turn in schedule:
                if turn not in played_schedule.list_possible_turns():
                    raise ImpossibleTurn(f"{turn} of {schedule} is impossible")
                played_schedule.play(turn)
            next_turns = played_schedule.list_possible_turns()
            next_turns += played_schedule.list_possible_events(world.events)
        return collect_moves(played_schedule.trace.events), next_turns

    moves, next_turns = play_with_long_enough_ttl(play_once)
    differs = any(moves[turns_made] != recorded_moves.get(turns_made) for turns_made in moves)
    views = describe_turns(
        moves, world, next_turns=next_turns, first_move=label_first_move(recorded_moves)
    )
    return {"turns": views, "differs": differs}


def _play_requested_schedules(database: str, pipe: Connection) -> None:
    """Play each schedule that the pipe requests, until the pipe is closed or a server fails.

    Runs in a separate process. The process ignores Ctrl-C, because the main process receives Ctrl-C
    as well, and then closes the pipe.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with shop_on_own_servers(database) as servers:
            while True:
                world_name, schedule = pipe.recv()
                try:
                    pipe.send(play_schedule(world_name, schedule, servers))
                except ImpossibleTurn as error:
                    pipe.send({"error": str(error)})
    except EOFError:
        return
    except (StackError, EmbeddedError) as error:
        pipe.send({"error": str(error)})


class PlayerProcesses:
    """The processes that play schedules, one for each database. Each starts when it is needed."""

    def __init__(self) -> None:
        self._pipes: dict[str, Connection] = {}  # database -> the pipe to its process
        self._processes: list[Any] = []
        # Only one schedule is played at a time. A buyer that sends no event for some time is taken
        # to be waiting. A second schedule would slow the buyers down, and a slow buyer could be
        # mistaken for a waiting one.
        self._play_lock = threading.Lock()

    def play(self, world_name: str, schedule: str) -> dict[str, Any]:
        """Play a schedule, and return the result of play_schedule().

        If the schedule cannot be played, return a dict with only the key `error`, a message.
        """
        with self._play_lock:
            database = WORLDS[world_name].database
            pipe = self._connect(database)
            try:
                pipe.send((world_name, schedule))
                if pipe.poll(PLAY_TIMEOUT_SECONDS):
                    return dict(pipe.recv())
                error = f"nothing was played within {PLAY_TIMEOUT_SECONDS:.0f} s; press again"
            except (EOFError, OSError):
                error = "the process that plays has ended; press again to start another one"
            # The process ends when its pipe is closed. The next schedule starts a new process.
            self._pipes.pop(database).close()
            return {"error": error}

    def _connect(self, database: str) -> Connection:
        """Return the pipe to the process that plays schedules on a database; start it if needed."""
        if database not in self._pipes:
            pipe, pipe_of_process = spawn_context.Pipe()
            process = spawn_context.Process(
                target=_play_requested_schedules, args=(database, pipe_of_process)
            )
            process.start()
            # Close this process's copy of the other end of the pipe. If it stayed open, recv()
            # would not raise EOFError after the other process has ended.
            pipe_of_process.close()
            self._pipes[database] = pipe
            self._processes.append(process)
        return self._pipes[database]

    def close(self) -> None:
        """Close the pipes, and wait until the processes have stopped their servers and ended."""
        for pipe in self._pipes.values():
            pipe.close()
        for process in self._processes:
            process.join()


class LevelsRequestHandler(SimpleHTTPRequestHandler):
    """Serves the pages, and plays schedules: GET /turns?world=WORLD&schedule=TURNS."""

    def __init__(self, players: PlayerProcesses, *args: Any, **options: Any) -> None:
        self._players = players
        super().__init__(*args, **options)

    def do_GET(self) -> None:
        """Send a file of the folder; for the path /turns, play the schedule of the query.

        The response to /turns is the JSON of play_schedule(), or an `error`.
        """
        host = self.headers.get("Host", "").partition(":")[0]
        # This prevents DNS rebinding, in which the name of another site resolves to 127.0.0.1.
        if host not in HOST_NAMES:
            self.send_error(HTTPStatus.BAD_REQUEST, f"the host must be {' or '.join(HOST_NAMES)}")
            return
        url = urlsplit(self.path)
        if url.path != "/turns":
            super().do_GET()
            return
        query = parse_qs(url.query)
        world_name = query.get("world", [""])[0]
        schedule = query.get("schedule", [""])[0]
        if world_name not in WORLDS:
            response = {"error": f"there is no world {world_name!r}"}
        else:
            response = self._players.play(world_name, schedule)
        self._send_json(response)

    def _send_json(self, response: dict[str, Any]) -> None:
        """Send a response as JSON, with the status 200, or 400 if it has the key `error`."""
        body = json.dumps(response).encode()
        status = HTTPStatus.BAD_REQUEST if "error" in response else HTTPStatus.OK
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Log nothing, so that the address of the page stays visible in the terminal."""


def make_server(folder: Path, players: PlayerProcesses, port: int) -> ThreadingHTTPServer:
    """Write levels.html into a folder, and return a server of the folder. It is not running yet.

    If `make site` has been run, the server also serves the other pages of the site.
    """
    if SITE.exists():
        shutil.copytree(SITE, folder, dirs_exist_ok=True)
    pages.write_stylesheet(folder / "assets")
    (folder / level_page.PAGE).write_text(level_page.render_levels(live=True))
    handler = partial(LevelsRequestHandler, players, directory=str(folder))
    return ThreadingHTTPServer(("127.0.0.1", port), handler)


def main(arguments: Sequence[str]) -> int:
    """Serve the page of the levels until Ctrl-C, and return the exit code 0."""
    parser = argparse.ArgumentParser(prog="make levels", description=__doc__)
    parser.add_argument("--port", type=int, default=PORT, help=f"port of the page; default: {PORT}")
    options = parser.parse_args(arguments)
    # A command that a script starts with `&` ignores SIGINT. This call lets SIGINT end it.
    end_on(signal.SIGINT)
    players = PlayerProcesses()
    with tempfile.TemporaryDirectory() as folder:
        server = make_server(Path(folder), players, options.port)
        print(f"levels  http://127.0.0.1:{server.server_port}/{level_page.PAGE}", flush=True)
        print("Each button plays its turn on real servers. Ctrl-C stops the command.", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            pass
        finally:
            server.server_close()
            players.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
