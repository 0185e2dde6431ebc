"""What the documentation takes from the project itself when it is built, so that the two cannot differ.

- `<!-- learners -->`, `<!-- environments -->`, `<!-- options -->` in a page become lists made of the registries;
- every `experiments/NAME/README.md` is a page, with its figures;
- pages that others add to docs/ find their way into the navigation;
- formulas become MathML, which browsers show without a script from elsewhere;
- a page that would load anything from elsewhere ends the build.
"""

from __future__ import annotations

import dataclasses
import html
import io
import re
from pathlib import Path

import latex2mathml.converter
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
OPTIONAL = {"gpu.md": "On a GPU", "clusters.md": "Clusters", "experiments.md": "Findings"}


def on_config(config):
    """Pages that exist only once somebody has written them."""
    for name, title in OPTIONAL.items():
        if (ROOT / "docs" / name).is_file():
            config.nav.append({title: name})
    experiments = [{"All": "experiments_index.md"}]
    for page in sorted(ROOT.glob("experiments/*/README.md")):
        experiments.append({page.parent.name: f"experiments/{page.parent.name}.md"})
    for entry in config.nav:
        if "Experiments" in entry:
            entry["Experiments"] = experiments
    return config


def on_files(files: Files, *, config) -> Files:
    """The experiments' pages and figures, the environments' pictures, the script that searches pages on a disk."""
    shim = ROOT / "docs" / "site" / "iframe-worker.js"
    files.append(File.generated(config, f"assets/{shim.name}", content=shim.read_text(encoding="utf-8")))
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


def plain(text: str) -> str:
    """A text as it is, its long lines wrapped by the browser; no empty line, which would end the HTML block."""
    lines = (html.escape(line) or "&nbsp;" for line in text.splitlines())
    return '<pre style="white-space: pre-wrap; font-size: .72rem">' + "\n".join(lines) + "</pre>"


def learners(files: Files) -> str:
    """Every learner: what its module says of it, and its hyperparameters."""
    from cpdpo_jax import learners as room
    from cpdpo_jax.cli import listing

    parts = []
    for name in room.names():
        learner = room.get(name)
        about = "\n".join(line.removeprefix("    ") for line in listing.about(learner).splitlines())
        parts.append(f"## {name}\n\n{plain(about)}\n")
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
        parts.append(f"## {name}\n\n{plain(envs.help(name))}\n")
        if files.get_file_from_path(f"environments/{name}.png"):
            parts.append(f"![{name}](environments/{name}.png)\n")
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
