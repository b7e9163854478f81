"""Plays recorded schedules again with slow buyers, as on a slow machine.

    python -m tools.site.tests.slow_machine

A replay takes a buyer to be waiting if the buyer sends no event for BLOCKED_AFTER_SECONDS. Here
each buyer sleeps for longer than this time after its read. A replay that may use the recording
knows in which turns a buyer does not wait, and gives the buyer more time in these turns.

The program makes four replays, and prints for each whether its moves are those of the recording:

True   The replay uses the recording.
False  The replay uses a recording that differs from the true one in one state.
False  The replay uses no recording, so a sleeping buyer is taken to be waiting.
True   The replay uses the recording. The locks' server restarts while B requests the lock, and both
       buyers also sleep before each command to this server.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any
from unittest.mock import patch

from locks import connection
from tools.site.recorder.recorded_worlds import shop_on_own_servers
from tools.site.worlds import NO_EVENT, WORLDS, read_moves

SCHEDULE = "ABABAB"
#: A acquires the lock and reads, B requests the lock, Redis restarts (R), and B gets the lock.
RESTART_SCHEDULE = "AABRBAAB"


def main() -> None:
    """Make the four replays of the module's docstring, and print whether their moves are equal."""
    world = WORLDS["none"]
    recorded_moves = read_moves()["none"]
    with shop_on_own_servers(world.database) as servers:
        # These modules can be imported only now, because they need Django to be set up.
        from tools.site.recorder import played_buyer
        from tools.site.recorder import world as world_module

        sleep_seconds = 2 * world_module.BLOCKED_AFTER_SECONDS

        class SlowRecorder(played_buyer.ProcessRecorder):
            def _record_point(self, point: str, details: Mapping[str, object]) -> None:
                """Sleep after the read of the stock for so long that the buyer seems to wait."""
                if point == "after_read":
                    time.sleep(sleep_seconds)
                super()._record_point(point, details)

        played_buyer.ProcessRecorder = SlowRecorder  # type: ignore[misc]
        # True: the recording says that the buyers do not wait, so the replay gives them more time.
        print(world_module.replay(world, SCHEDULE, recorded_moves, servers))
        # False: in the changed recording one unit is left at the end, and in the replay none.
        changed_turn = recorded_moves[SCHEDULE] | {"state": [1, 2, "", ""]}
        changed_moves = recorded_moves | {SCHEDULE: changed_turn}
        print(world_module.replay(world, SCHEDULE, changed_moves, servers))
        # False: without a recording, the sleeping buyer is taken to be waiting in its first turn.
        _, moves, _ = world_module.play_with_prefix(world, NO_EVENT, prefix="", servers=servers)
        print(moves["A"] == recorded_moves["A"])

        run_scripts = connection.run_scripts

        def run_scripts_late(
            redis: Any, calls: Sequence[Any], *, asking: bool = False
        ) -> list[Any]:
            """Sleep before the scripts of a lock are sent to the locks' server."""
            time.sleep(sleep_seconds)
            return run_scripts(redis, calls, asking=asking)

        # True: the recording again tells the replay when to give the buyers more time.
        with patch.object(connection, "run_scripts", run_scripts_late):
            moves_of_redis = read_moves()["redis"]
            print(world_module.replay(WORLDS["redis"], RESTART_SCHEDULE, moves_of_redis, servers))


if __name__ == "__main__":
    main()
