"""Docstrings for the API pages: aligned lists become Markdown lists, comments on fields become their descriptions."""

from __future__ import annotations

import re
from typing import Any

import griffe

ITEM = re.compile(r"([\w*][\w*, ]{0,30}?) {2,}(\S.*)|(\w+\([\w, ]*\)) -> (\S.*)")


class Docstrings(griffe.Extension):
    """Rewrites the docstring of every object that griffe loads."""

    def on_instance(self, *, obj: griffe.Object, **rest: Any) -> None:
        """Rewrite the docstring of `obj`, if it has one."""
        if obj.docstring is not None:
            obj.docstring.value = escaped(listed(obj.docstring.value))

    def on_attribute_instance(self, *, attr: griffe.Attribute, **rest: Any) -> None:
        """Show the comment on a constant or on a field of a class as its description."""
        comment = re.search(r"  # (.+)", "\n".join(attr.lines))
        if comment and attr.docstring is None and not attr.name.startswith("_"):
            attr.docstring = griffe.Docstring(escaped(comment[1]), parent=attr)


def listed(text: str) -> str:
    """Turn runs of `name   meaning` or `name(...) -> result` at the margin, with continuation lines, into lists."""
    out: list[str] = []
    inside = False
    for line in text.splitlines():
        if line.strip() == "@OPTIONS":
            continue
        item = ITEM.fullmatch(line)
        if item:
            out += [] if inside else [""]
            out.append(f"- `{item[1]}`: {item[2]}" if item[1] else f"- `{item[3]}` -> {item[4]}")
        elif inside and line.startswith("    "):
            out[-1] += " " + line.strip()
            continue
        else:
            out += [line] if not inside or not line.strip() else ["", line]
        inside = item is not None
    return "\n".join(out)


def escaped(text: str) -> str:
    """Escape what Markdown would read as emphasis or as a reference, outside of code."""
    head, *sections = re.split(r"^(?=(?:Args|Returns|Raises):$)", text, flags=re.MULTILINE)
    indented_code = r"(`[^`]*`|^    .*$)"
    return outside(indented_code, head) + "".join(outside(r"(`[^`]*`)", section) for section in sections)


def outside(code: str, text: str) -> str:
    """Escape asterisks and adjacent brackets in what does not match `code`."""
    parts = re.split(code, text, flags=re.MULTILINE)
    parts[::2] = [re.sub(r"\*(?!\*?\w+:)|(?<=\])\[", r"\\\g<0>", part) for part in parts[::2]]  # not `**options:`
    return "".join(parts)
