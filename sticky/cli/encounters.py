"""What a person may meet at the command line that no daemon refused: when, with which exit status, in which words. For docs/errors.md.

A test brings each of them about and compares; an ellipsis stands for names, paths and numbers. No rule here.
"""

from __future__ import annotations

import attrs

from sticky.cli.problems import Status

WRONG, NO_DAEMON, NOT_FOUND, FAILED = Status.USAGE, Status.NO_DAEMON, Status.NOT_FOUND, Status.FAILED


@attrs.frozen
class Encounter:
    """One row."""

    key: str  #: for the test
    when: str
    status: int
    says: str  #: the line on stderr after `sticky: `


_IMPORT = "importing … failed: "

#: An app's file, whoever reads it: `check`, `run`, `serve`, `deploy`, `twistd -n sticky --app`.
APP = tuple(
    Encounter(key, when, WRONG, says)
    for key, when, says in (
        ("no_file", "The file is not there", "gone.py: there is no file …"),
        (
            "no_module",
            "Nor is there a module",
            "gone.txt: there is no module gone.txt, and no file of that name (looked in … and the Python path)",
        ),
        ("folder", "It is a folder", ".: … is a folder: name the app's file in it, such as …/app.py"),
        ("syntax", "It is not Python", f"app.py: {_IMPORT}SyntaxError: … (…, line …)"),
        ("raises", "Its import fails", f"app.py: {_IMPORT}ModuleNotFoundError: No module named '…' (…, line …)"),
        ("no_app", "It has no App", "app.py: there is no App in …: write app = sticky.App(...)"),
        ("two_apps", "It has two", "app.py: there are several Apps in … (…): keep one"),
        (
            "no_server",
            "Its App has no Server",
            "app.py: the app '…' has no Server: decorate a class with @app.server()",
        ),
        (
            "unknown_server",
            "It has no Server of this name",
            "app.py:Nope: there is no Server 'Nope' in the app '…'; it has: …",
        ),
        (
            "own_init",
            "A Server class has an `__init__`",
            f"app.py: {_IMPORT}the class … has an __init__; a Server must not: move it into a method with @sticky.enter() (…)",
        ),
        (
            "no_hook",
            "A Server class starts nothing",
            f"app.py: {_IMPORT}the class … has no enter hook; a Server must have a method with @sticky.enter() that starts its"
            " program, or command=[...] in @app.server() (…)",
        ),
        (
            "hooks_and_command",
            "It has hooks and a command",
            f"app.py: {_IMPORT}the class … has hooks and command=; it must have one of them: a command is run without Python (…)",
        ),
        (
            "no_class",
            "A Server is no class",
            f"app.py: {_IMPORT}@app.server() is on …, a function; it must be on a class (…)",
        ),
        (
            "sessioned_above",
            "`sessioned` is above `app.server`",
            f"app.py: {_IMPORT}@sticky.sessioned() must stand below @app.server() on …, not above it (…)",
        ),
        (
            "sessioned_alone",
            "`sessioned` is on no Server",
            "app.py: … in … has @sticky.sessioned() but is no Server: put @app.server() above it",
        ),
        (
            "hook_arguments",
            "A hook takes more than `self`",
            f"app.py: {_IMPORT}@sticky.enter() is on …; it must take self and nothing else (…)",
        ),
        (
            "hook_yields",
            "A hook yields",
            f"app.py: {_IMPORT}@sticky.enter() is on …, which yields; it must be a plain or an async method without yield (…)",
        ),
        ("parentheses", "Parentheses are missing", f"app.py: {_IMPORT}write @app.server() with parentheses (…)"),
        ("hook_parentheses", "On a hook, too", f"app.py: {_IMPORT}write @sticky.enter() with parentheses (…)"),
        (
            "out_of_range",
            "An argument is out of range",
            f"app.py: {_IMPORT}max_containers=0 is not allowed; it must be a whole number from 1 to 10000 (…)",
        ),
        (
            "unknown_argument",
            "An argument is misspelt",
            f"app.py: {_IMPORT}app.server() has no argument 'max_containres'; did you mean max_containers? It takes name, port, … (…)",
        ),
        (
            "hook_argument",
            "Or is one of nothing",
            f"app.py: {_IMPORT}sticky.exit() has no argument 'order'; it takes no arguments (…)",
        ),
        (
            "order",
            "One argument is above another",
            f"app.py: {_IMPORT}min_containers=5 is not allowed; it must be from 0 to max_containers, which is 2 (…)",
        ),
        (
            "same_name",
            "Two Servers have one name",
            f"app.py: {_IMPORT}name='…' is not allowed; it must be another one: the app '…' has this Server already (…)",
        ),
        ("no_interpreter", "`python=` names nothing", "app.py: ….python: there is no interpreter …"),
        (
            "no_variable",
            "A secret's variable is not set",
            'app.py: ….secrets: the environment variable "…" for … is not set',
        ),
        ("no_secret_file", "A secret's file is not there", 'app.py: ….secrets: the file "…" for … cannot be read: …'),
        ("no_toml", "The configuration is not there", "gone.toml: cannot be read: No such file or directory"),
        (
            "no_entrypoint",
            "`run` finds no local entrypoint",
            "app.py has these local entrypoints: none; sticky run needs one, or …",
        ),
        ("unknown_entrypoint", "Or none of this name", "there is no local entrypoint 'other' in app.py; it has: main"),
        (
            "entrypoint_arguments",
            "Or one that takes arguments",
            f"{_IMPORT}@app.local_entrypoint() is on …; its arguments must have defaults (…)",
        ),
    )
)

_NONE = "no daemon runs with the state directory …: "
_LOOK = "Name the daemon's state directory with --state-dir or STICKY_STATE_DIR. Or start one: sticky serve app.py"

#: Finding the daemon, and what is asked of it.
DAEMON = (
    Encounter("no_state_dir", "No daemon has run here", NO_DAEMON, _NONE + f"it is not there. {_LOOK}"),
    Encounter("no_socket", "It does not run now", NO_DAEMON, _NONE + f"there is no admin socket. {_LOOK}"),
    Encounter(
        "died",
        "It was killed",
        NO_DAEMON,
        "the daemon of the state directory … has died: nobody listens on …. Start it again; its containers and sessions are taken"
        " up where they still run.",
    ),
    Encounter(
        "not_permitted",
        "It is another user's",
        NO_DAEMON,
        "you may not use …, which belongs to the user …. Run the command as that user or as root (sudo -u).",
    ),
    Encounter(
        "other_version",
        "It is of a version that this command does not understand",
        NO_DAEMON,
        "the daemon at … is sticky …, this command is …: they do not understand each other. Use the command of the daemon's own"
        " environment, or restart the daemon with this version.",
    ),
    Encounter("no_sticky", "Something else listens there", NO_DAEMON, "whatever listens on … is no Sticky daemon."),
    Encounter(
        "no_admin_token",
        "`--url` without a token",
        WRONG,
        "--url needs an admin token, and STICKY_ADMIN_TOKEN is not set. Make one where the daemon runs: sticky tokens create"
        " --owner NAME --admin.",
    ),
    Encounter(
        "not_reached",
        "Nobody answers at `--url`",
        NO_DAEMON,
        "cannot reach the daemon at …: …. Is daemon.admin_listen set there, and the port open?",
    ),
    Encounter(
        "not_here",
        "A command for the daemon's own machine, with `--url`",
        WRONG,
        "this works only where the daemon runs, not with --url. Log in there, or name --state-dir.",
    ),
    Encounter(
        "which_server",
        "It has several Servers",
        WRONG,
        "this daemon has several Servers: …. Say which one is meant: ….",
    ),
    Encounter("unknown_server_name", "It has no such Server", NOT_FOUND, "there is no Server '…'; there are: …."),
    Encounter(
        "unknown_container",
        "It has no such container",
        NOT_FOUND,
        "there is no container '…'. List them: sticky containers list --all",
    ),
    Encounter(
        "unknown_token",
        "It has no such proxy token",
        NOT_FOUND,
        "there is no proxy token '…'. sticky tokens list shows them.",
    ),
    Encounter(
        "no_terminal", "`top` without a terminal", WRONG, "top needs a terminal. For programs: sticky status --json"
    ),
    Encounter(
        "no_browser",
        "Nobody opens the address of `sessions open`",
        FAILED,
        "no browser came within … seconds. Run it again with a longer --wait.",
    ),
    Encounter("usage", "The command line is wrong", WRONG, "No such command '…' (see sticky --help)"),
)

#: Starting a daemon: `twistd -n sticky`, and so `serve` and `run`.
START = (
    Encounter(
        "nothing",
        "Nothing to serve is named",
        WRONG,
        "command line: nothing to serve; give --app game.py, --config sticky.toml or both",
    ),
    Encounter(
        "option", "An option is wrong", WRONG, "command line: option --confg not recognized; see twistd sticky --help"
    ),
    Encounter("toml", "The file is no TOML", WRONG, "sticky.toml: is not valid TOML: …"),
    Encounter(
        "unknown_setting",
        "It has a setting that is none",
        WRONG,
        "sticky.toml: servers.echo.max_containres: is not a setting; did you mean max_containers?",
    ),
    Encounter(
        "wrong_value",
        "A value is out of range",
        WRONG,
        "sticky.toml: servers.echo.max_containers: 0 is not allowed; allowed: a whole number from 1 to 10000",
    ),
    Encounter(
        "port_taken",
        "The port is taken",
        FAILED,
        "cannot listen on …: … Address already in use. Is another daemon running? Choose another port with --listen.",
    ),
    Encounter(
        "state_in_use",
        "Another daemon has the state directory",
        FAILED,
        "…: state_dir: in use by another daemon (pid …); stop it, or choose another",
    ),
    Encounter(
        "in_the_way",
        "Something else lies in the place of a file of the daemon",
        FAILED,
        "cannot start: …/state/lock: …",
    ),
    Encounter(
        "open_state",
        "Others can write to the state directory",
        WRONG,
        "…: state_dir: others can write to it; allowed: chmod 700 …",
    ),
)
