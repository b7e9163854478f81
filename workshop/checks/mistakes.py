"""Finds the cause of an error that ended a check: a mistake of the participant, or a dead server.

A mistake leads to a Refusal: the participant's solution is not accepted, with the reason. A server
that does not answer leads to Undecided. `module` is the participant's file, imported. Each
_find_...() looks for one kind of mistake, and returns its refusal, or None.
"""

import ast
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from traceback import walk_tb
from types import ModuleType

import redis
from django.db import DatabaseError, Error, InterfaceError, OperationalError, connection
from django.db.transaction import TransactionManagementError
from psycopg.errors import InFailedSqlTransaction

from demo.own_strategies import BrokenFile
from shop.ops.redis import locks_client
from shop.sale.purchase import sell_one
from workshop.refusal import Refusal, Undecided

#: The parameters with which the shop calls each function of an exercise.
PARAMETERS = {
    "oversold": ("initial", "orders", "left"),
    "lost_updates": ("initial", "orders", "left"),
    "next_key": ("outcome", "key"),
    "try_lock": ("self", "token"),
    "unlock": ("self", "token"),
    "renew": ("self", "token"),
    "buy": ("attempt",),
    "sell": ("attempt", "lease"),
    "read": ("attempt",),
    "write": ("attempt", "stock"),
}
#: Python's message for a call with arguments that do not match the function's parameters.
WRONG_CALL = re.compile(r"(?:[\w.<>]+\.)?(\w+)\(\) (?:takes|missing|got an unexpected)\b")
#: Redis's messages for an EVAL without a number of keys, or with a number that is too large.
WRONG_NUMBER_OF_KEYS = re.compile(r"^value is not an integer|^Number of keys")
#: Django's message for a statement in a transaction that an error has ended.
FAILED_TRANSACTION = re.compile(r"An error occurred in the current transaction")
#: Python's message for an object of a class that lacks a required (abstract) method.
ABSTRACT_CLASS = re.compile(r"Can't instantiate abstract class (\w+) .*?(\w+)'?$")


def refusal_for_error(error: BaseException, module: ModuleType) -> Refusal:
    """Return the refusal for an error that ended a check.

    Raises Undecided if a server does not answer.
    """
    chain = list(_causes(error))
    root_cause = chain[-1]
    if any(map(_is_connection_error, chain)) and not _servers_answer():
        raise Undecided(f"a server does not answer: {root_cause}") from error
    return (
        _find_wrong_call(root_cause, module)
        or _find_missing_return(root_cause)
        or _find_failed_transaction(chain)
        or _find_broken_file(chain)
        or _find_missing_function(root_cause, module)
        or _refuse_error(chain, module)
        or Refusal("check-failed", {"error": f"{type(root_cause).__name__}: {root_cause}"})
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, its cause (`raise ... from`), the cause of that, and so on."""
    while error is not None:
        yield error
        error = error.__cause__


def _is_connection_error(error: BaseException) -> bool:
    """Return whether an error shows that a connection failed."""
    if isinstance(error, (redis.ConnectionError, redis.TimeoutError, InterfaceError)):
        return True
    sqlstate = getattr(error.__cause__, "sqlstate", None)  # None: the server did not answer
    return isinstance(error, OperationalError) and sqlstate is None


def _servers_answer() -> bool:
    """Return whether Redis and the database answer now. If so, the file's code is the cause."""
    try:
        locks_client().ping()
        with suppress(Error):
            connection.close()
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except (redis.RedisError, DatabaseError, InterfaceError):
        return False
    return True


def _find_wrong_call(error: BaseException, module: ModuleType) -> Refusal | None:
    """Find a function of the participant's file that takes another number of arguments."""
    call = WRONG_CALL.match(str(error)) if isinstance(error, TypeError) else None
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    if (
        call is None
        or call[1] not in PARAMETERS
        or _is_in_file(frames[-1].f_code.co_filename, module)
    ):
        return None
    arguments = PARAMETERS[call[1]]
    parameters = _count_parameters(call[1], module)
    if parameters is None or parameters == len(arguments):
        return None
    takes = f"{parameters} argument{'' if parameters == 1 else 's'}"
    passes = f"{len(arguments)}: {', '.join(arguments)}"
    text = f"{call[1]}() takes {takes}, but the shop passes {passes}"
    return Refusal("wrong-arguments", {"error": text})


def _count_parameters(function: str, module: ModuleType) -> int | None:
    """Return the number of positional parameters of a function in the participant's file.

    If the file defines the function several times, the last definition counts. None if it does not
    define the function.
    """
    source = Path(str(module.__file__)).read_text(encoding="utf-8-sig")
    parameter_count = None
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.name == function:
            parameter_count = len(node.args.posonlyargs) + len(node.args.args)
    return parameter_count


def _find_missing_return(error: BaseException) -> Refusal | None:
    """Find a read() of the participant's file that returned None to sell_one()."""
    if isinstance(error, AttributeError) and error.obj is None:
        *_, (frame, _) = walk_tb(error.__traceback__)
        if frame.f_code is sell_one.__code__:
            return Refusal("no-return", {"function": "read"})
    return None


def _find_failed_transaction(chain: list[BaseException]) -> Refusal | None:
    """Find a statement that was sent in a transaction after an error had ended the transaction."""
    root_cause = chain[-1]
    is_refused_by_django = any(
        isinstance(error, TransactionManagementError) and FAILED_TRANSACTION.match(str(error))
        for error in chain
    )
    if not (is_refused_by_django or isinstance(root_cause, InFailedSqlTransaction)):
        return None
    return Refusal("goes-on-after-an-error", {"error": str(root_cause).splitlines()[0]})


def _find_broken_file(chain: list[BaseException]) -> Refusal | None:
    """Find a BrokenFile, with which the shop reports a mistake in the participant's file."""
    for error in chain:
        if isinstance(error, BrokenFile):
            return Refusal("raises" if error.__cause__ else "no-receipt", {"error": str(error)})
    return None


def _find_missing_function(error: BaseException, module: ModuleType) -> Refusal | None:
    """Find a function that the shop calls and the participant's file lacks."""
    file_name = Path(str(module.__file__)).name
    if isinstance(error, AttributeError) and error.obj is module:
        return Refusal("raises", {"error": f"{file_name} defines no {error.name}"})
    method = None
    if isinstance(error, TypeError) and (abstract := ABSTRACT_CLASS.match(str(error))):
        method = abstract[2]
    elif isinstance(error, NotImplementedError):
        method = _raising_function(error)
    if method not in PARAMETERS:
        return None
    return Refusal(
        "raises", {"error": f"{file_name} defines no {method}({', '.join(PARAMETERS[method])})"}
    )


def _raising_function(error: BaseException) -> str:
    """Return the name of the function that raised this error."""
    *_, (frame, _) = walk_tb(error.__traceback__)
    return frame.f_code.co_name


def _refuse_error(chain: list[BaseException], module: ModuleType) -> Refusal | None:
    """Return a refusal that names the participant's line at which an error was raised.

    The refusal also names the root cause. It is None if no line of the participant was involved.

    chain  the error, its cause, the cause of that, and so on
    """
    file_name = Path(str(module.__file__)).name
    root_cause = chain[-1]
    for error in chain:
        trace = walk_tb(error.__traceback__)
        lines = [line for frame, line in trace if _is_in_file(frame.f_code.co_filename, module)]
        if lines:
            text = f"{file_name}: line {lines[-1]}: {type(root_cause).__name__}: {root_cause}"
            code = "number-of-keys" if _passes_wrong_key_count_to_eval(root_cause) else "raises"
            return Refusal(code, {"error": text})
    return None


def _passes_wrong_key_count_to_eval(error: BaseException) -> bool:
    """Return whether eval() was called with a wrong number of keys, or with none."""
    return (
        isinstance(error, redis.ResponseError)
        and WRONG_NUMBER_OF_KEYS.search(str(error)) is not None
        and any(frame.f_code.co_name == "eval" for frame, _ in walk_tb(error.__traceback__))
    )


def _is_in_file(filename: str, module: ModuleType) -> bool:
    return filename == module.__file__
