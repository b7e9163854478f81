"""Finds the cause of an error that ended a check: a mistake of the participant, or a dead server.

A mistake leads to a Refusal: the participant's solution is not accepted, with the reason. A server
that does not answer leads to Undecided. `module` is the participant's file, imported; `error_chain`
is an error, its cause, the cause of that, and so on. Each _find_...() looks for one kind of
mistake, and returns its refusal, or None.
"""

import ast
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from traceback import walk_tb
from types import CodeType, ModuleType

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
#: Python's message for a call with arguments that do not match the function's parameters. The
#: regular expression's group is the name of the function.
WRONG_CALL = re.compile(r"(?:[\w.<>]+\.)?(\w+)\(\) (?:takes|missing|got an unexpected)\b")
#: Redis's messages for an EVAL without a number of keys, or with a number that is too large.
WRONG_NUMBER_OF_KEYS = re.compile(r"^value is not an integer|^Number of keys")
#: Django's message for a statement in a transaction that an error has ended.
FAILED_TRANSACTION = re.compile(r"An error occurred in the current transaction")
#: Python's message for an object of a class that lacks required (abstract) methods. The regular
#: expression's group is the last of these methods.
ABSTRACT_CLASS = re.compile(r"Can't instantiate abstract class \w+ .*?(\w+)'?$")


def explain_error(error: BaseException, module: ModuleType) -> Refusal:
    """Return the refusal for an error that ended a check: the participant's mistake behind it.

    Raises Undecided if a server does not answer, because this may be the cause of the error.
    """
    error_chain = list(_walk_causes(error))
    root_cause = error_chain[-1]
    if any(map(_is_connection_error, error_chain)) and not _can_reach_servers():
        raise Undecided(f"a server does not answer: {root_cause}") from error
    return (
        _find_wrong_call(root_cause, module)
        or _find_missing_return(root_cause)
        or _find_failed_transaction(error_chain)
        or _find_broken_file(error_chain)
        or _find_missing_function(root_cause, module)
        or _find_line_of_error(error_chain, module)
        or Refusal("check-failed", {"error": f"{type(root_cause).__name__}: {root_cause}"})
    )


def _walk_causes(error: BaseException | None) -> Iterator[BaseException]:
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


def _can_reach_servers() -> bool:
    """Return whether Redis, and the database on a new connection, answer now."""
    try:
        locks_client().ping()
        with suppress(Error):  # the old connection may be broken
            connection.close()
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except (redis.RedisError, DatabaseError, InterfaceError):
        return False
    return True


def _find_wrong_call(error: BaseException, module: ModuleType) -> Refusal | None:
    """Return the refusal for a function that does not take the arguments that the shop passes.

    Return None for any other error. Python raises the TypeError of a wrong call in the frame of the
    caller. So an error in a frame of the participant's file does not come from a call by the shop.
    """
    wrong_call = WRONG_CALL.match(str(error)) if isinstance(error, TypeError) else None
    if wrong_call is None or wrong_call[1] not in PARAMETERS:
        return None
    if _is_participants_file(_find_raising_code(error).co_filename, module):
        return None
    function_name = wrong_call[1]
    arguments = PARAMETERS[function_name]
    parameter_count = _count_parameters(function_name, module)
    if parameter_count is None or parameter_count == len(arguments):
        return None
    noun = "argument" if parameter_count == 1 else "arguments"
    text = (
        f"{function_name}() takes {parameter_count} {noun}, "
        f"but the shop passes {len(arguments)}: {', '.join(arguments)}"
    )
    return Refusal("wrong-arguments", {"error": text})


def _find_raising_code(error: BaseException) -> CodeType:
    """Return the code of the function that raised this error."""
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    return frames[-1].f_code


def _count_parameters(function_name: str, module: ModuleType) -> int | None:
    """Return the number of positional parameters of a function in the participant's file.

    Methods count as functions, and `self` counts as a parameter. If the file defines the function
    several times, the most deeply nested definition counts. Return None if there is no definition.
    """
    source = Path(str(module.__file__)).read_text(encoding="utf-8-sig")
    parameter_count = None
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.name == function_name:
            parameter_count = len(node.args.posonlyargs) + len(node.args.args)
    return parameter_count


def _find_missing_return(error: BaseException) -> Refusal | None:
    """Return the refusal if the participant's read() returned None to sell_one().

    sell_one() reads attributes of the stock that read() should return.
    """
    is_attribute_of_none = isinstance(error, AttributeError) and error.obj is None
    if is_attribute_of_none and _find_raising_code(error) is sell_one.__code__:
        return Refusal("no-return", {"function": "read"})
    return None


def _find_failed_transaction(error_chain: list[BaseException]) -> Refusal | None:
    """Return the refusal for a statement in a transaction that an error had already ended."""
    root_cause = error_chain[-1]
    is_refused_by_django = any(
        isinstance(error, TransactionManagementError) and FAILED_TRANSACTION.match(str(error))
        for error in error_chain
    )
    if not (is_refused_by_django or isinstance(root_cause, InFailedSqlTransaction)):
        return None
    return Refusal("goes-on-after-an-error", {"error": str(root_cause).splitlines()[0]})


def _find_broken_file(error_chain: list[BaseException]) -> Refusal | None:
    """Return the refusal for a mistake that the shop itself has found in the file.

    The shop reports such a mistake as the error BrokenFile.
    """
    for error in error_chain:
        if isinstance(error, BrokenFile):
            # If buy() raised an error, this error is the cause. Without a cause, buy() is missing,
            # or it returned something other than a Receipt.
            code = "raises" if error.__cause__ else "no-receipt"
            return Refusal(code, {"error": str(error)})
    return None


def _find_missing_function(error: BaseException, module: ModuleType) -> Refusal | None:
    """Return the refusal for a function that the shop calls and the participant's file lacks.

    Return None for any other error. A missing method shows as a class that is still abstract, or
    as a method of the base class that raises NotImplementedError.
    """
    file_name = Path(str(module.__file__)).name
    if isinstance(error, AttributeError) and error.obj is module:
        return Refusal("raises", {"error": f"{file_name} defines no {error.name}"})
    method = None
    if isinstance(error, TypeError) and (abstract_class := ABSTRACT_CLASS.match(str(error))):
        method = abstract_class[1]
    elif isinstance(error, NotImplementedError):
        method = _find_raising_code(error).co_name
    if method not in PARAMETERS:
        return None
    return Refusal(
        "raises", {"error": f"{file_name} defines no {method}({', '.join(PARAMETERS[method])})"}
    )


def _find_line_of_error(error_chain: list[BaseException], module: ModuleType) -> Refusal | None:
    """Return a refusal with the root cause and the participant's line that led to it.

    Return None if no traceback of the chain contains a line of the participant's file.
    """
    file_name = Path(str(module.__file__)).name
    root_cause = error_chain[-1]
    for error in error_chain:
        trace = walk_tb(error.__traceback__)
        line_numbers = [
            number
            for frame, number in trace
            if _is_participants_file(frame.f_code.co_filename, module)
        ]
        if line_numbers:
            error_text = f"{type(root_cause).__name__}: {root_cause}"
            text = f"{file_name}: line {line_numbers[-1]}: {error_text}"
            code = "number-of-keys" if _passes_wrong_key_count_to_eval(root_cause) else "raises"
            return Refusal(code, {"error": text})
    return None


def _passes_wrong_key_count_to_eval(error: BaseException) -> bool:
    """Return whether Redis refused a call of eval() for a wrong or missing number of keys."""
    return (
        isinstance(error, redis.ResponseError)
        and WRONG_NUMBER_OF_KEYS.search(str(error)) is not None
        and any(frame.f_code.co_name == "eval" for frame, _ in walk_tb(error.__traceback__))
    )


def _is_participants_file(filename: str, module: ModuleType) -> bool:
    """Return whether this is the name of the participant's file, which was loaded as `module`."""
    return filename == module.__file__
