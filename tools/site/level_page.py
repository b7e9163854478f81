"""The page levels.html. For a browser without JavaScript it has a text about each level.

A level is a puzzle in which the visitor looks for a schedule that reaches a goal (levels.py). A
schedule is a string of turns: the moves of two buyers, and at most one outside event.
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
from tools.site.narration import EVENT_BUTTONS, describe_turns
from tools.site.recorder.recording import describe_strategies
from tools.site.worlds import WORLDS, Moves, list_beginnings, read_worlds
from workshop.lessons import lessons

NAME = "Levels"
PAGE = "levels.html"


def render_levels(*, live: bool = False) -> str:
    """Return the page as HTML: all levels, and what it shows after each recorded turn.

    live  whether a server plays the schedules (live_levels.py); then the page has no recorded turns
    """
    levels = read_levels()
    recordings = read_worlds()
    moves_by_world = {name: recording["moves"] for name, recording in recordings.items()}
    strategies_by_name = describe_strategies()
    strategy_names = sorted({world.strategy for world in WORLDS.values()})
    views_by_world: dict[str, Any] = {name: {} for name in moves_by_world}
    if not live:
        for name, moves in moves_by_world.items():
            views_by_world[name] = describe_turns(moves, WORLDS[name])
    script_data = {
        "levels": [_make_level_data(level, moves_by_world[level.world]) for level in levels],
        "worlds": {name: _make_world_data(name, recordings[name]) for name in recordings},
        "strategies": {name: strategies_by_name[name] for name in strategy_names},
        "buttons": EVENT_BUTTONS,
        "live": live,
        "turns": pages.pack_json(views_by_world),
    }
    content = Template(pages.read_part("levels/levels.html")).substitute(
        count=len(levels),
        ending=pages.read_part("levels/ending.html"),
        texts="\n".join(_render_solution(level, moves_by_world[level.world]) for level in levels),
    )
    return pages.render_page(
        NAME, content, script_data=script_data, script="levels/levels.js", may_fetch=live
    )


def _make_level_data(level: Level, moves: Moves) -> dict[str, Any]:
    """Return what the page's script reads about a level: the fields of `Level` in levels.js.

    moves  the recorded moves of the level's world
    """
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
    """Return the code that decides the outcome of a level; None if it is that of the strategy.

    The code is a function or a class. `level.code` has its place as `FILE:NAME`, and is empty if
    the strategy's file decides. The returned dict has the keys `file`, `code` (the text of the
    function or class) and `marks` (texts; the page highlights the lines that contain one of them).
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
    """Return what the page's script reads about a world: the fields of `World` in levels.js.

    A world is a strategy with its stock and its outside events.
    """
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
    """Return the links at the end of a level, each with its `text` and `href`.

    They lead to a cell of the page of faults (the level's strategy under a fault), to a document
    about the level, and to the lesson that builds or repairs the strategy.
    """
    next_pages = []
    if level.fault:
        strategy, fault = level.fault.split("/")
        text = f"The same with 20 buyers: {strategy} under {fault}"
        next_pages.append({"text": text, "href": f"faults.html#{level.fault}"})
    if level.document:
        next_pages.append({"text": "Which guard holds on which database", "href": level.document})
    lesson = lessons()[level.lesson]
    # In an impossible level the strategy is correct, and the lesson builds this strategy. In the
    # other levels the strategy is flawed, and the lesson repairs it.
    verb = "builds this" if level.impossible else "repairs it"
    text = f"Lesson {level.lesson} {verb}: {lesson.title}"
    next_pages.append({"text": text, "href": f"workshop/lessons/{lesson.slug}.html"})
    return next_pages


def _render_solution(level: Level, moves: Moves) -> str:
    """Return a level and its solution as HTML, for a browser without JavaScript.

    The solution is the shortest schedule that reaches the goal, and the explanation `level.why`.

    moves  the recorded moves of the level's world
    """
    shortest = level.find_schedules_reaching(moves, level.goal)[0]
    items = [
        f"<li>{line}</li>"
        for beginning in list_beginnings(shortest)
        for line in pages.render_turn(moves, beginning, WORLDS[level.world])
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
