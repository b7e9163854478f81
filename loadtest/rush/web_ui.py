"""Locust's web UI as the load test uses it: what it takes, who may ask, and its own routes."""

from __future__ import annotations

from typing import Any

import flask
from locust.env import Environment
from locust.runners import MasterRunner

from loadtest.rush import verdict_tab
from loadtest.rush.control import Control
from loadtest.rush.form import CROWD, FIXED, RUSH, BadForm, Parse, parse
from loadtest.rush.options import strategy_names
from loadtest.rush.secret import secret
from loadtest.rush.web_guard import Guard

#: The fields of the last run in GET /runs/state, which pages ask for twice a second.
SHORT = ("sale", "lock", "verdict", "stopped", "error")
#: Bytes of a form.
LARGEST_FORM = 16 * 1024

#: Seconds in which a run that is being stopped may end, for the next one to begin. The shop's page
#: waits 3 s for an answer.
ENDING = 2.5
STILL_ENDING = "the last run is still being stopped: start this one again in a moment"
NO_WORKER = "no worker is connected: start one with locust --worker --master-host HOST"

Answer = tuple[dict[str, Any], int]


def install(
    environment: Environment,
    control: Control,
    *,
    last_run: dict[str, Any],
    runs: list[dict[str, Any]],
) -> None:
    """Guard the web UI of this environment, if it has one, and add the routes and the tab.

    GET /rush says what the last rush came to, GET /runs what all of them came to, GET /runs/state
    whether one is on, how far it is and in short what the last one came to. POST /rush, with
    LOCUST_TOKEN, begins another one with the buyers that are there (after one that was started with
    --stay).
    """
    ui: Any = environment.web_ui  # its decorator has no types
    if ui is None or ui.app is None:
        return
    app, guarded = ui.app, ui.auth_required_if_enabled
    options = environment.parsed_options
    assert options is not None
    hosts = [name.strip() for name in options.web_allowed_hosts.split(",") if name.strip()]
    guard = Guard(app.wsgi_app, hosts=hosts, token=secret("LOCUST_TOKEN"))
    app.wsgi_app = guard
    app.config["MAX_CONTENT_LENGTH"] = LARGEST_FORM
    verdict_tab.install(ui, runs)
    asked_here = {name: kind for name, kind in RUSH.items() if name in vars(options)}

    def state() -> dict[str, Any]:
        runner = environment.runner
        last = {key: last_run[key] for key in SHORT if key in last_run} if runs else None
        return {
            "state": "stopping" if control.is_ending else runner.state if runner else "missing",
            "number": last_run["number"],
            "rush": control.progress(),
            "last": last,
        }

    def check_the_form() -> Answer | None:
        """Before a route of Locust's own: it would set every option that a form names."""
        if flask.request.endpoint == "locust.update_user":
            return _refused("the classes of users are set by the locustfile alone", 403)
        if flask.request.endpoint != "locust.swarm":
            return None
        try:
            _asked({**CROWD, **asked_here}, environment, fixed=_fixed(environment))
        except BadForm as error:
            # Locust's own page shows the message of a 200 only; programs look at the status.
            return _refused(str(error), 200 if _is_own_page() else 400)
        if not control.wait_for_the_end(ENDING):
            return _refused(STILL_ENDING, 200 if _is_own_page() else 409)
        if isinstance(environment.runner, MasterRunner) and not environment.runner.worker_count:
            return _refused(NO_WORKER, 200 if _is_own_page() else 409)
        return None

    def another() -> Answer:
        if not guard.has_token(flask.request.environ):
            return _refused(
                "POST /rush needs Authorization: Bearer and the LOCUST_TOKEN that Locust was "
                "started with",
                403,
            )
        try:
            wanted = _asked(asked_here, environment)
        except BadForm as error:
            return _refused(str(error), 400)
        if refusal := control.begin_another(wanted):
            return _refused(refusal, 409)
        return {"success": True}, 200

    app.before_request(check_the_form)
    app.add_url_rule("/rush", "rush", guarded(lambda: last_run))
    app.add_url_rule("/rush", "begin_another", guarded(another), methods=["POST"])
    app.add_url_rule("/runs", "runs", guarded(lambda: {"runs": runs}))
    app.add_url_rule("/runs/state", "runs_state", guarded(state))


def _asked(
    allowed: dict[str, Parse], environment: Environment, fixed: dict[str, str] | None = None
) -> dict[str, Any]:
    """The form of this request, parsed. Raises BadForm."""
    wanted = parse(flask.request.form.to_dict(flat=False), allowed=allowed, fixed=fixed)
    if "lock" in wanted:
        names = strategy_names(environment.host or "")
        if names is not None and wanted["lock"] not in names:
            raise BadForm(f"lock: {wanted['lock']!r} is not one of {', '.join(names)}")
    return wanted


def _fixed(environment: Environment) -> dict[str, str]:
    """What Locust's own form sends beside a rush, unchanged."""
    options = environment.parsed_options
    values = {"host": environment.host, "profile": environment.profile}
    values["run_time"] = options.run_time if options else None
    return {name: str(values[name] or "") for name in FIXED}


def _is_own_page() -> bool:
    """Whether the guard saw Locust's own page in this request."""
    return any(name in flask.request.headers for name in ("Origin", "Sec-Fetch-Site"))


def _refused(message: str, status: int) -> Answer:
    return {"success": False, "message": message}, status
