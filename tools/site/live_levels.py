"""python -m tools.site.live_levels: the page of the levels, played live on real servers.

It is made for a screen on the wall of an exhibition. A level asks visitors to find a schedule, by
pressing a button for each turn (levels.py). Each time a visitor presses a button, the schedule so
far is played from its beginning on a PostgreSQL (or MariaDB) and a Valkey that this command
starts. The code is that of the recordings (tools/site/recorder/). Ctrl-C ends the command.
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
from tools.site.narration import label_first_move, narrate
from tools.site.recorder.lock_servers import LockServers
from tools.site.recorder.recorded_worlds import shop_on_own_servers
from tools.site.worlds import WORLDS, Moves, find_outside_event, read_moves

PORT = 8100
HOST_NAMES = ("127.0.0.1", "localhost")
#: A schedule takes some seconds, and the first one starts the servers.
PLAY_TIMEOUT_SECONDS = 120.0

spawn_context = multiprocessing.get_context("spawn")


class ImpossibleTurn(Exception):
    """A turn of the schedule cannot come next. The message names the turn."""


def play_schedule(world_name: str, schedule: str, servers: LockServers) -> dict[str, Any]:
    """Play a schedule of a world, and return a dict with `turns` and `differs`.

    `turns` is what narrate() returns for the moves of the schedule, and `differs` is whether one of
    these moves differs from the recording. Raises ImpossibleTurn if a turn of the schedule cannot
    come next.
    """
    from tools.site.recorder.live import collect_moves
    from tools.site.recorder.world import PlayedSchedule, play_with_long_enough_ttl

    world = WORLDS[world_name]
    recorded = read_moves()[world_name]

    def play_once(short_ttl: float) -> tuple[Moves, list[str]]:
        played_schedule = PlayedSchedule(
            world,
            find_outside_event(schedule),
            servers,
            short_ttl=short_ttl,
            recorded_moves=recorded,
        )
        with closing(played_schedule):
            for turn in schedule:
                if turn not in played_schedule.list_possible_turns():
                    raise ImpossibleTurn(f"{turn} of {schedule} is impossible")
                played_schedule.play(turn)
            choices = played_schedule.list_possible_turns()
            choices += played_schedule.list_possible_events(world.events)
        return collect_moves(played_schedule.trace.events), choices

    moves, choices = play_with_long_enough_ttl(play_once)
    differs = any(moves[turns_made] != recorded.get(turns_made) for turns_made in moves)
    narrated = narrate(moves, world, choices=choices, first_move=label_first_move(recorded))
    return {"turns": narrated, "differs": differs}


def _play_requested_schedules(database: str, pipe: Connection) -> None:
    """Play each schedule that the pipe names, until the pipe is closed or a server fails.

    Ctrl-C is ignored here, because the main process gets it, too, and then closes the pipe.
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


class Players:
    """The processes that play schedules, one for each database, started when they are needed."""

    def __init__(self) -> None:
        self._pipes: dict[str, Connection] = {}
        self._processes: list[Any] = []
        self._lock = threading.Lock()

    def play(self, world_name: str, schedule: str) -> dict[str, Any]:
        """Play a schedule, and return the result of play_schedule(), or only an `error` message."""
        # Only one schedule is played at a time. A buyer that sends no event for some time counts as
        # waiting, so buyers that a second schedule slows down would seem to wait.
        with self._lock:
            database = WORLDS[world_name].database
            pipe = self._connect(database)
            try:
                pipe.send((world_name, schedule))
                if pipe.poll(PLAY_TIMEOUT_SECONDS):
                    return dict(pipe.recv())
                problem = f"nothing was played within {PLAY_TIMEOUT_SECONDS:.0f} s; press again"
            except (EOFError, OSError):
                problem = "the process that plays has ended; press again to start another one"
            # A process whose pipe is closed ends. The next schedule starts another one.
            self._pipes.pop(database).close()
            return {"error": problem}

    def _connect(self, database: str) -> Connection:
        """Return the pipe to the process that plays schedules on a database; start it if needed."""
        if database not in self._pipes:
            pipe, player_end = spawn_context.Pipe()
            process = spawn_context.Process(
                target=_play_requested_schedules, args=(database, player_end)
            )
            process.start()
            # If this process kept the player's end open, recv() would not raise EOFError after the
            # player has ended.
            player_end.close()
            self._pipes[database] = pipe
            self._processes.append(process)
        return self._pipes[database]

    def close(self) -> None:
        """End the processes by closing their pipes; each process ends its servers."""
        for pipe in self._pipes.values():
            pipe.close()
        for process in self._processes:
            process.join()


class LevelsRequestHandler(SimpleHTTPRequestHandler):
    """Serves the folder of the pages, and plays the schedule that a request to /turns names."""

    def __init__(self, players: Players, *args: Any, **options: Any) -> None:
        self._players = players
        super().__init__(*args, **options)

    def do_GET(self) -> None:
        """Answer with a file of the folder, or with the turns of a schedule in JSON."""
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
            answer = {"error": f"there is no world {world_name!r}"}
        else:
            answer = self._players.play(world_name, schedule)
        self._send_json(answer)

    def _send_json(self, answer: dict[str, Any]) -> None:
        """Send the answer with the status 200, or 400 if it has an `error`."""
        body = json.dumps(answer).encode()
        status = HTTPStatus.BAD_REQUEST if "error" in answer else HTTPStatus.OK
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Log no requests: the terminal shows the address of the page."""


def make_server(folder: Path, players: Players, port: int) -> ThreadingHTTPServer:
    """Write the pages into a folder and return a server of them, which is not running yet.

    The other pages of the site are served too if `make site` has been run.
    """
    if SITE.exists():
        shutil.copytree(SITE, folder, dirs_exist_ok=True)
    pages.write_stylesheet(folder / "assets")
    (folder / level_page.PAGE).write_text(level_page.render_page(live=True))
    handler = partial(LevelsRequestHandler, players, directory=str(folder))
    return ThreadingHTTPServer(("127.0.0.1", port), handler)


def main(arguments: Sequence[str]) -> int:
    """Serve the page until Ctrl-C. Returns 0."""
    parser = argparse.ArgumentParser(prog="make levels", description=__doc__)
    parser.add_argument("--port", type=int, default=PORT, help=f"port of the page; default: {PORT}")
    options = parser.parse_args(arguments)
    end_on(signal.SIGINT)  # without this, a command that was started with `&` ignores Ctrl-C
    players = Players()
    with tempfile.TemporaryDirectory() as folder:
        server = make_server(Path(folder), players, options.port)
        print(f"levels  http://127.0.0.1:{server.server_port}/{level_page.PAGE}", flush=True)
        print("Each button plays its turn on real servers. Ctrl-C ends the command.", flush=True)
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
