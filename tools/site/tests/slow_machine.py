"""Replays recorded schedules on a machine that is slow.

    python -m tools.site.tests.slow_machine

A buyer who is silent for a time counts as waiting for a lock. Here each buyer sleeps at its read,
for longer than this time. With a recording, a replay knows in which turns a buyer does not wait.
The program prints whether the moves are those of the recording, once for each of four replays:

True   a schedule, with the recording
False  the same schedule, with a recording that was changed in one state
False  the first turn, without the recording: the buyer counts as waiting too early
True   with the recording: the server of the locks restarts while B requests the lock, and both
       buyers also sleep before each command to this server
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any
from unittest.mock import patch

from locks import connection
from tools.site.recorder.recorded_worlds import shop_on_own_servers
from tools.site.worlds import NO_EVENT, WORLDS, read_moves

SCHEDULE = "ABABAB"
#: A reads, B asks for the lock, Redis restarts, and B gets the lock.
RESTART_SCHEDULE = "AABRBAAB"


def main() -> None:
    """Replay schedules with slow buyers, and print four times whether the moves are as recorded."""
    world = WORLDS["none"]
    recorded = read_moves()["none"]  # turns made, such as "AB" -> what happened in the last of them
    with shop_on_own_servers(world.database) as servers:
        # These modules can be imported only now, because they need Django to be set up.
        from tools.site.recorder import played_buyer
        from tools.site.recorder import world as recorder

        class SlowRecorder(played_buyer.ProcessRecorder):
            def _record_point(self, point: str, facts: Mapping[str, object]) -> None:
                """Sleep after the read of the stock until the buyer counts as waiting."""
                if point == "after_read":
                    time.sleep(2 * recorder.BLOCKED_AFTER_SECONDS)
                super()._record_point(point, facts)

        played_buyer.ProcessRecorder = SlowRecorder  # type: ignore[misc]
        # True: the recording says that the buyers do not wait, so the replay gives them more time.
        print(recorder.replay(world, SCHEDULE, recorded, servers))
        # False: the changed recording has one unit left at the end, and the replay has none.
        changed_turn = recorded[SCHEDULE] | {"state": [1, 2, "", ""]}
        print(recorder.replay(world, SCHEDULE, recorded | {SCHEDULE: changed_turn}, servers))
        # False: without a recording, the sleeping buyer counts as waiting in its first turn.
        _, moves, _ = recorder.play_with_prefix(world, NO_EVENT, prefix="", servers=servers)
        print(moves["A"] == recorded["A"])

        run_scripts = connection.run_scripts

        def run_scripts_late(
            redis: Any, calls: Sequence[Any], *, asking: bool = False
        ) -> list[Any]:
            time.sleep(2 * recorder.BLOCKED_AFTER_SECONDS)
            return run_scripts(redis, calls, asking=asking)

        # True: as the first, but the buyers also sleep before each command to the locks' server.
        with patch.object(connection, "run_scripts", run_scripts_late):
            moves_of_redis = read_moves()["redis"]
            print(recorder.replay(WORLDS["redis"], RESTART_SCHEDULE, moves_of_redis, servers))


if __name__ == "__main__":
    main()
