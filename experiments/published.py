"""Tables and numbers in the pages, between markers, made from the stored results.

    <!-- table: suite/all_ranks -->
    ...
    <!-- end -->
    <!-- number: suite/all_ranks | cpd_oppo | mean rank by sum -->1.3 [0.8, 1.8]<!-- end -->

A number names its row by the row's first cells, then its column. "claims" is the table of `experiments.claims`.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

from experiments import claims, common, stored

TOP = stored.ROOT.parent
MARK = re.compile(r"(<!-- (table|number): ([^|>]+?)((?: \| [^|>]+)*) -->)(.*?)(<!-- end -->)", re.DOTALL)


def pages(top: Path = TOP) -> list[Path]:
    """The pages that may have markers."""
    return [top / "README.md", *sorted(top.glob("docs/*.md")), *sorted(top.glob("experiments/*/README.md"))]


def renewed(text: str, root: Path = stored.ROOT) -> str:
    """The text with the stored results between its markers."""
    read = functools.cache(functools.partial(stored.read, root=root))  # a page has many markers of the same results

    def content(match: re.Match[str]) -> str:
        start, kind, name, rest, _, end = match.groups()
        if name == "claims":
            return f"{start}\n\n{claims.table(root)}\n\n{end}"
        content = read(name.partition("/")[0])
        key = name.partition("/")[2]
        if content is None or (key not in content["tables"] and content["missing"]):
            command = f"`python -m experiments.reproduce {name.partition('/')[0]}`"
            return f"{start}\n\n*Not run with this version: {command}.*\n\n{end}"
        if key not in content["tables"]:
            raise ValueError(f"the marker {start} names a table that is not stored; correct the name.")
        if kind == "table":
            return f"{start}\n\n{table(content, key)}\n\n{end}"
        *labels, column = rest.removeprefix(" | ").split(" | ")
        return f"{start}{stored.cell(content['tables'][key], labels, column)}{end}"

    return MARK.sub(content, text)


def table(content: stored.Stored, key: str) -> str:
    """Title, table, note and source, in Markdown."""
    entry = content["tables"][key]
    missing = len(content["missing"])
    ran = (
        f"all {content['cells']} cells" if not missing else f"{content['cells'] - missing} of {content['cells']} cells"
    )
    source = (
        f"*{content['scale'].capitalize()} scale ({ran}), version {content['version']}, {content['date'][:10]}; "
        f"`python -m experiments.reproduce {content['experiment']} --scale {content['scale']}`.*"
    )
    note = f"{entry['note']} {source}".strip()
    return f"**{entry['title']}**\n\n{common.markdown(entry['rows'])}\n\n{note}"


def differences(top: Path = TOP, root: Path = stored.ROOT) -> list[str]:
    """Markers whose text differs from the stored results, as "page: marker"."""
    markers = []
    for page in pages(top):
        old = page.read_text(encoding="utf-8")
        for before, after in zip(MARK.finditer(old), MARK.finditer(renewed(old, root)), strict=True):
            if before[0] != after[0]:
                markers.append(f"{page.relative_to(top)}: {before[1]}")
    return markers


def publish(top: Path = TOP, root: Path = stored.ROOT) -> list[Path]:
    """Write the stored tables and numbers into the pages; return the pages that changed."""
    changed = []
    for page in pages(top):
        old = page.read_text(encoding="utf-8")
        new = renewed(old, root)
        if new != old:
            page.write_text(new, encoding="utf-8")
            changed.append(page)
    return changed
