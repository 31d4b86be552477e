"""A plugin for mypy: classes below `@app.server()` have a Server's attributes. In mypy.ini: `plugins = sticky.sdk.mypy`.

mypy, unlike other checkers, takes a decorated class for the class that was written (its issue 3135). Knows the SDK by names
only, and is loaded by nobody but mypy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy.nodes import AssignmentStmt, CallExpr, Expression, MemberExpr, NameExpr, RefExpr, TypeInfo
from mypy.plugin import ClassDefContext, Plugin
from mypy.plugins.common import add_attribute_to_class
from mypy.types import Instance

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
            return isinstance(app, NameExpr) and _is_app(app.name, ctx)
    return False


def _is_app(name: str, ctx: ClassDefContext) -> bool:
    """Whether this module says `name = sticky.App(...)`; the types of variables are not known yet."""
    module = ctx.api.modules[ctx.api.cur_mod_id]
    for statement in module.defs:
        match statement:
            case AssignmentStmt(lvalues=[NameExpr(name=given)], rvalue=CallExpr(callee=RefExpr() as callee)):
                if given == name and callee.fullname in (_APP, "sticky.App"):
                    return True
    return False
