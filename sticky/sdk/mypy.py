"""A plugin for mypy: classes below `@app.server()` have a Server's attributes. In mypy.ini: `plugins = sticky.sdk.mypy`.

mypy, unlike other checkers, takes a decorated class for the class that was written (its issue 3135). Knows the SDK by names
only, and is loaded by nobody but mypy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy.nodes import (
    AssignmentStmt,
    CallExpr,
    Expression,
    MemberExpr,
    NameExpr,
    RefExpr,
    TypeInfo,
    Var,
    get_member_expr_fullname,
)
from mypy.plugin import ClassDefContext, Plugin
from mypy.plugins.common import add_attribute_to_class
from mypy.types import Instance, get_proper_type

_SERVER: Final = "sticky.sdk.server.Server"
_APP: Final = "sticky.sdk.app.App"
_ATTRIBUTES: Final = ("sessions", "autoscaler", "get_url", "app", "name")


class StickyPlugin(Plugin):
    """See the module."""

    def get_customize_class_mro_hook(self, fullname: str) -> Callable[[ClassDefContext], None]:
        """Every class is looked at for its decorators: a hook for them is not told of methods of variables."""
        return _look


def plugin(version: str) -> type[Plugin]:
    """What mypy asks a plugin's module for."""
    return StickyPlugin


def _look(ctx: ClassDefContext) -> None:
    if not any(_is_server(decorator, ctx) for decorator in ctx.cls.decorators):
        return
    server = ctx.api.lookup_fully_qualified_or_none(_SERVER)
    if server is None or not isinstance(server.node, TypeInfo):
        return
    for name in _ATTRIBUTES:
        found = _type_of(server.node, name, ctx)
        if found is not None:
            add_attribute_to_class(ctx.api, ctx.cls, name, found, is_classvar=True)


def _type_of(server: TypeInfo, name: str, ctx: ClassDefContext) -> Instance | None:
    homes = {"sessions": "sticky.sdk.sessions.Sessions", "autoscaler": "sticky.sdk.autoscaler.Autoscaler"}
    text = ctx.api.named_type("builtins.str")
    if name == "get_url":
        from mypy.types import Parameters

        nothing = Parameters([], [], [])
        return ctx.api.named_type_or_none("sticky.sdk.calling.Call", [nothing, text])
    return ctx.api.named_type_or_none(homes[name]) if name in homes else text


def _is_server(decorator: Expression, ctx: ClassDefContext) -> bool:
    match decorator:
        case CallExpr(callee=MemberExpr(name="server", expr=RefExpr() as app)):
            return _is_app(app, ctx)
    return False


def _is_app(app: RefExpr, ctx: ClassDefContext) -> bool:
    """Whether a variable is an App: by its type, which is known if its file has been checked, else by `app = sticky.App(...)`."""
    match app:
        case MemberExpr():
            written = get_member_expr_fullname(app)
        case NameExpr(name=name):
            written = name
        case _:
            written = None
    found = None if written is None else ctx.api.lookup_qualified(written, ctx.cls, suppress_errors=True)
    if found is None or not isinstance(found.node, Var):
        return False
    known = get_proper_type(found.node.type)
    if known is not None:
        return isinstance(known, Instance) and known.type.fullname == _APP
    home, _, name = found.node.fullname.rpartition(".")
    module = ctx.api.modules.get(home)
    for statement in () if module is None else module.defs:
        match statement:
            case AssignmentStmt(lvalues=[NameExpr(name=given)], rvalue=CallExpr(callee=RefExpr() as callee)):
                if given == name and callee.fullname in (_APP, "sticky.App"):
                    return True
    return False
