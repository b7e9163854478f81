"""The page of the levels, with a text of each level for a browser without JavaScript.

A level is a puzzle: the visitor looks for a schedule of turns that reaches a goal (levels.py).
"""

import ast
from collections.abc import Mapping
from html import escape
from string import Template
from typing import Any

from servers.embedded import ROOT
from tools.site import pages
from tools.site.levels import Level, read_levels
from tools.site.lock_state import read_believers
from tools.site.narration import EVENT_BUTTONS, narrate
from tools.site.recorder.recording import describe_strategies
from tools.site.worlds import WORLDS, Moves, read_worlds
from workshop.lessons import lessons

NAME = "Levels"
PAGE = "levels.html"


def render_page(*, live: bool = False) -> str:
    """Return the page as HTML: all levels, and the recorded turns of all worlds.

    A world is a strategy with its stock and its outside events.

    live  whether a server plays the schedules (live_levels.py); then the page has no recorded turns
    """
    recordings = read_worlds()
    moves_by_world = {name: recording["moves"] for name, recording in recordings.items()}
    strategies_by_name = describe_strategies()
    strategy_names = sorted({world.strategy for world in WORLDS.values()})
    turns_by_world: dict[str, Any] = {name: {} for name in moves_by_world}
    if not live:
        for name, moves in moves_by_world.items():
            turns_by_world[name] = narrate(moves, WORLDS[name])
    data = {
        "levels": [_make_level_data(level, moves_by_world[level.world]) for level in read_levels()],
        "worlds": {name: _make_world_data(name, recordings[name]) for name in recordings},
        "strategies": {name: strategies_by_name[name] for name in strategy_names},
        "buttons": EVENT_BUTTONS,
        "live": live,
        "turns": pages.pack_json(turns_by_world),
    }
    main = Template(pages.read_part("levels/levels.html")).substitute(
        count=len(read_levels()),
        ending=pages.read_part("levels/ending.html"),
        texts="\n".join(
            _render_text(level, moves_by_world[level.world]) for level in read_levels()
        ),
    )
    return pages.render_frame(NAME, main, data=data, entry="levels/levels.js", fetches=live)


def _make_level_data(level: Level, moves: Moves) -> dict[str, Any]:
    """Return a level as the page's script reads it: the fields of `Level` in levels.js."""
    return {
        "slug": level.slug,
        "title": level.title,
        "task": level.task,
        "world": level.world,
        "events": level.events,
        "hint": level.hint,
        "why": level.why,
        "impossible": bool(level.impossible),
        "reached": level.find_schedules_reaching(moves, level.goal),
        "links": make_links(level),
        "code": find_deciding_code(level),
    }


def find_deciding_code(level: Level) -> dict[str, Any] | None:
    """Return the function or class in `level.code`; None if the code of the strategy decides.

    The keys are `file`, `code` (the text of the function or class) and `marks` (texts in the lines
    that decide).
    """
    if not level.code:
        return None
    file, _, name = level.code.partition(":")
    text = (ROOT / file).read_text()
    definition = next(node for node in ast.parse(text).body if getattr(node, "name", "") == name)
    return {
        "file": file,
        "code": ast.get_source_segment(text, definition),
        "marks": level.marks,
    }


def _make_world_data(name: str, recording: Mapping[str, Any]) -> dict[str, Any]:
    """Return a world as the page's script reads it: the fields of `World` in levels.js."""
    world = WORLDS[name]
    return {
        "strategy": world.strategy,
        "units": world.units,
        "has_lock": any(read_believers(turn["state"]) for turn in recording["moves"].values()),
        "fenced": world.fenced,
        "events": [event for event in world.events if event],
        "recorded": f"{recording['machine']}; {recording['recorded']}",
    }


def make_links(level: Level) -> list[dict[str, str]]:
    """Return the links at the end of a level: to its fault or document, and to its lesson."""
    next_pages = []
    if level.fault:
        strategy, fault = level.fault.split("/")
        text = f"The same with 20 buyers: {strategy} under {fault}"
        next_pages.append({"text": text, "href": f"faults.html#{level.fault}"})
    if level.document:
        next_pages.append({"text": "Which guard holds on which database", "href": level.document})
    lesson = lessons()[level.lesson]
    # No schedule oversells in an impossible level. Its lesson builds the level's strategy, which is
    # correct, and the other lessons repair a strategy that is not.
    verb = "builds this" if level.impossible else "repairs it"
    text = f"Lesson {level.lesson} {verb}: {lesson.title}"
    next_pages.append({"text": text, "href": f"workshop/lessons/{lesson.slug}.html"})
    return next_pages


def _render_text(level: Level, moves: Moves) -> str:
    """Return a level as HTML to read: its task, the shortest way to its goal, and the reason."""
    shortest = level.find_schedules_reaching(moves, level.goal)[0]
    items = [
        f"<li>{text}</li>"
        for length in range(1, len(shortest) + 1)
        for text in pages.render_turn(moves, shortest[:length], WORLDS[level.world])
    ]
    link_texts = " ".join(
        f'<a href="{escape(link["href"])}">{escape(link["text"])}</a>.'
        for link in make_links(level)
    )
    return (
        f'<article id="text-{level.slug}"><h2>{escape(level.title)}</h2>'
        f"<p><strong>{escape(level.task)}</strong> <code>{WORLDS[level.world].strategy}</code></p>"
        f"<p>The shortest way has {len(shortest)} moves:</p><ol>{''.join(items)}</ol>"
        f"<p>{escape(level.why)} {link_texts}</p></article>"
    )
