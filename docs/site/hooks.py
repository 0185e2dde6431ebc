"""What the documentation takes from the project itself when it is built, so that the two cannot differ.

- `<!-- learners -->`, `<!-- environments -->`, `<!-- options -->` in a page become lists made of the registries;
- every `experiments/NAME/README.md` is a page, with its figures;
- formulas become MathML, which browsers show without a script from elsewhere;
- a page that would load anything from elsewhere ends the build.
"""

from __future__ import annotations

import dataclasses
import html
import io
import re
import textwrap
from pathlib import Path

import latex2mathml.converter
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
LABEL = re.compile(r"(What it does|Cost per episode|Guarantee|When to use it|Deviations?|Union bound)\b")


def on_config(config):
    """A page for each experiment."""
    for entry in config.nav:
        if "Experiments" in entry:
            for page in sorted(ROOT.glob("experiments/*/README.md")):
                entry["Experiments"].append({page.parent.name: f"experiments/{page.parent.name}.md"})
    return config


def on_files(files: Files, *, config) -> Files:
    """The experiments' pages and figures, the environments' pictures, the style, the script that searches on a disk."""
    for name in ("iframe-worker.js", "site.css"):
        text = (ROOT / "docs" / "site" / name).read_text(encoding="utf-8")
        files.append(File.generated(config, f"assets/{name}", content=text))
    for page in sorted(ROOT.glob("experiments/*/README.md")):
        name = page.parent.name
        text = page.read_text(encoding="utf-8")
        figures = sorted(page.parent.glob("*.png"))
        for figure in figures:
            uri = f"experiments/{figure.name}"
            files.append(File.generated(config, uri, content=figure.read_bytes()))
            if f"]({figure.name})" not in text:
                text += f"\n\n![{figure.stem}]({figure.name})\n"
        text = re.sub(r"\]\((?:\.\./)+(?:docs/)?([\w/]+\.md)\)", r"](../\1)", text)
        files.append(File.generated(config, f"experiments/{name}.md", content=text))
    for name, picture in pictures():
        files.append(File.generated(config, f"environments/{name}.png", content=picture))
    return files


def pictures():
    """The environments that are small enough for one: a graph of layers, or the grid."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    from cpdpo_jax import envs
    from cpdpo_jax.envs import pictures as draw

    for name in envs.names():
        try:
            cmdp = envs.make(name)
            figure = draw.draw_cmdp(cmdp, title=name)
        except ValueError:  # too many states, or a batch
            continue
        out = io.BytesIO()
        figure.savefig(out, format="png", dpi=min(90, 9000 / (10 * figure.get_figwidth())))
        plt.close(figure)
        yield name, out.getvalue()


def on_page_markdown(markdown: str, *, page, config, files: Files) -> str:
    """The lists; a link to an experiment's README leads to its page."""
    markdown = re.sub(r"\]\(\.\./experiments/(\w+)/README\.md\)", r"](experiments/\1.md)", markdown)
    for mark, make in (("learners", learners), ("environments", environments), ("options", options)):
        if f"<!-- {mark} -->" in markdown:
            markdown = markdown.replace(f"<!-- {mark} -->", make(files))
    if "<!-- experiments -->" in markdown:
        lines = []
        for path in sorted(ROOT.glob("experiments/*/README.md")):
            text = path.read_text(encoding="utf-8")
            title = text.partition("\n")[0].lstrip("# ")
            question = re.search(r"\*\*Question\.?\*\*\s*(.+?)(?:\n\n|$)", text, re.DOTALL)
            asked = " ".join(question[1].split()) if question else ""
            lines.append(f"- [{path.parent.name}](experiments/{path.parent.name}.md): **{title}** {asked}")
        markdown = markdown.replace("<!-- experiments -->", "\n".join(lines))
    return markdown


def prose(text: str) -> str:
    """A docstring as HTML: paragraphs, and formulas (its indented lines) as they are."""
    parts: list[list[str]] = []
    formula = False
    for line in text.splitlines():
        indented = line.startswith("    ")
        if not line.strip() or not parts or indented != formula or (not indented and LABEL.match(line)):
            parts.append([])
        formula = indented
        parts[-1].append(line)
    out = []
    for lines in parts:
        block = "\n".join(lines).strip("\n")
        if block.startswith("    "):
            out.append(f"<pre class='formula'>{html.escape(textwrap.dedent(block))}</pre>")
        elif block.strip():
            words = re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(" ".join(block.split()), quote=False))
            out.append("<p>" + re.sub(LABEL.pattern + r"([^:]*:)", r"<b>\1\2</b>", words, count=1) + "</p>")
    return "\n\n".join(out) + "\n"


def learners(files: Files) -> str:
    """Every learner: what its module says of it, and its hyperparameters."""
    from cpdpo_jax import learners as room
    from cpdpo_jax.cli import listing

    parts = []
    for name in room.names():
        learner = room.get(name)
        parts.append(f"## {name}\n\n{prose(listing.about(learner))}")
        if learner.extra_knowledge:
            parts.append(f"It is handed {learner.extra_knowledge}.\n")
        found = listing.hyperparameters(learner)
        if found:
            rows = [
                f"| `{one['name']}` | {one['means'].replace('|', chr(92) + '|')} | {one['tuned']:.4g} | {one['theory']:.4g} |"
                for one in found
            ]
            parts.append(
                "\n".join(["| hyperparameter | meaning | tuned | theory |", "|---|---|---|---|", *rows]) + "\n"
            )
    return "\n".join(parts)


def environments(files: Files) -> str:
    """Every environment: its docstring, its parameters, its picture where it has one."""
    from cpdpo_jax import envs

    parts = []
    for name in envs.names():
        said = envs.help(name).partition("\n\nParameters and defaults:")[0].removeprefix(f"{name}: ")
        parts.append(f"## {name}\n\n{prose(said)}")
        rows = [f"| `{key}` | `{value!r}` |" for key, value in envs.defaults(name).items()]
        parts.append("\n".join(["| parameter | default |", "|---|---|", *rows]) + "\n")
        picture = f"environments/{name}.png"
        if files.get_file_from_path(picture):
            parts.append(f"[![The layers of {name}]({picture})]({picture})\n")
        else:
            parts.append("*No picture: more than 80 states, or a batch.*\n")
    return "\n".join(parts)


def options(files: Files) -> str:
    """The options of `simulate`, which are keys of a file and flags too."""
    from cpdpo_jax.simulation.options import Options

    rows = [
        f"| `{one.name}` | `{one.default!r}` | {html.escape(one.metadata['means'])} |"
        for one in dataclasses.fields(Options)
    ]
    return "\n".join(["| option | default | meaning |", "|---|---|---|", *rows])


def on_page_content(content: str, *, page, config, files: Files) -> str:
    """Formulas, as MathML."""

    def convert(found: re.Match) -> str:
        display = found[0].startswith("<div")
        formula = html.unescape(found[1]).strip()[2:-2]
        return latex2mathml.converter.convert(formula, display="block" if display else "inline")

    return re.sub(r'<(?:span|div) class="arithmatex">(.*?)</(?:span|div)>', convert, content, flags=re.DOTALL)


def on_post_page(output: str, *, page, config) -> str:
    """Everything that a page loads lies beside it."""
    loaded = re.findall(r"<(?:script|img|iframe)[^>]*\ssrc=[\"']?((?:https?:)?//[^\"'\s>]+)", output)
    loaded += re.findall(r"<link[^>]*\shref=[\"']?((?:https?:)?//[^\"'\s>]+)", output)
    if loaded:
        raise PluginError(f"{page.file.src_uri} loads {loaded[0]}: put the file into docs/site and load that")
    return output
