"""Docstrings as the API pages show them: aligned lists of arguments become lists, marks filled at run time go."""

from __future__ import annotations

import re
from typing import Any

import griffe

ITEM = re.compile(r"([\w*][\w*, ]{0,30}?) {2,}(\S.*)")


class Docstrings(griffe.Extension):
    """Asked for every object that griffe meets."""

    def on_instance(self, *, obj: griffe.Object, **rest: Any) -> None:
        """Rewrite its docstring, if it has one."""
        if obj.docstring is not None:
            obj.docstring.value = listed(obj.docstring.value)


def listed(text: str) -> str:
    """Runs of `name   meaning` at the margin, and the lines that go on below them, as Markdown lists."""
    out: list[str] = []
    inside = False
    for line in text.splitlines():
        if line.strip() == "@OPTIONS":
            continue
        item = ITEM.fullmatch(line)
        if item:
            out += [] if inside else [""]
            out.append(f"- `{item[1]}`: {item[2]}")
        elif inside and line.startswith("    "):
            out[-1] += " " + line.strip()
            continue  # still inside
        else:
            out += [line] if not inside or not line.strip() else ["", line]
        inside = item is not None
    return "\n".join(out)
