"""One run of the command: parses, runs, and turns everything that can go wrong into one line and an exit status."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence

import click

from sticky.cli.problems import Problem, Status
from sticky.cli.root import PipeClosed, root
from sticky.errors import ConfigError
from sticky.sdk.exception import Error, InvalidError


def once(arguments: Sequence[str] | None = None) -> int:
    """See `sticky.cli.main`."""
    try:
        result = root.main(None if arguments is None else list(arguments), prog_name="sticky", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else Status.DONE
    except click.exceptions.NoArgsIsHelpError as error:
        sys.stderr.write(f"{error.format_message()}\n")
        return Status.USAGE
    except click.ClickException as error:
        context = error.ctx if isinstance(error, click.UsageError) else None
        path = "sticky" if context is None else context.command_path
        return _say(f"{_one_line(error.format_message()).rstrip('.')} (see {path} --help)", Status.USAGE)
    except (click.Abort, KeyboardInterrupt):
        return Status.INTERRUPTED
    except Problem as problem:
        return _say(" ".join(part for part in (_sentence(problem.text), problem.advice) if part), problem.status)
    except (ConfigError, InvalidError) as error:
        return _say(_one_line(str(error)), Status.USAGE, getattr(error, "trace", ""))
    except Error as error:
        return _say(_one_line(str(error)), Status.FAILED)
    except (BrokenPipeError, PipeClosed):
        # Python would complain once more while it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return Status.PIPE_CLOSED
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return _say(f"cannot write the output: {error.strerror}.", Status.FAILED)


def _say(text: str, status: int, trace: str = "") -> int:
    sys.stderr.write(f"{trace}sticky: {text}\n")
    return status


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else f"{text}."


def _one_line(text: str) -> str:
    return " ".join(text.split())
