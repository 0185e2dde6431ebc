"""Parts of the documentation that are generated from the project, so that the two cannot differ.

- `<!-- learners -->`, `<!-- environments -->` and `<!-- options -->` in a page become lists from the registries;
- `<!-- public: kernels -->` becomes the reference of every name in `cpdpo_jax.kernels.__all__`;
- every `experiments/NAME/README.md` becomes a page, with its figures;
- formulas become MathML, which browsers show without a script;
- a page that would load anything from another site stops the build.
"""

from __future__ import annotations

import dataclasses
import html
import importlib
import inspect
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
    """Add a page for each experiment to the navigation."""
    for entry in config.nav:
        if "Experiments" in entry:
            for page in sorted(ROOT.glob("experiments/*/README.md")):
                entry["Experiments"].append({page.parent.name: f"experiments/{page.parent.name}.md"})
    return config


def on_files(files: Files, *, config) -> Files:
    """Add pages and figures of experiments, pictures of environments, the style, and the script for searching offline."""
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
    """Names and PNG pictures of all environments that are small enough: a graph of layers, or the grid."""
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
    """Insert the generated lists; a link to an experiment's README leads to its page."""
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
            sentence = " ".join(question[1].split()) if question else ""
            lines.append(f"- [{path.parent.name}](experiments/{path.parent.name}.md): **{title}** {sentence}")
        markdown = markdown.replace("<!-- experiments -->", "\n".join(lines))
    return re.sub(r"<!-- public: (\w+) -->", lambda match: public(match[1]), markdown)


def public(package: str) -> str:
    """mkdocstrings' directive for each name in `__all__` of a subpackage, grouped by module."""
    module = importlib.import_module(f"cpdpo_jax.{package}")
    modules: dict[str, list[str]] = {}
    elsewhere = []
    for name in module.__all__:
        thing = getattr(module, name)
        home = inspect.unwrap(thing).__module__ if callable(thing) else home_of_constant(module, name)
        if home.startswith(module.__name__):
            modules.setdefault(home, []).append(name)
        else:
            elsewhere.append(f"`{name}`")
    parts = [f"{', '.join(elsewhere)} are also in [`cp.kernels`](api_kernels.md)."] if elsewhere else []
    for module, names in sorted(modules.items()):
        summary = (importlib.import_module(module).__doc__ or "").partition("\n\n")[0]
        parts.append(f"## {module.rpartition('.')[2]}\n\n{summary}")
        parts += [f"::: {module}.{name}" for name in names]
    return "\n\n".join(parts)


def home_of_constant(package, name: str) -> str:
    """The module of a package that assigns a public constant."""
    for module in (package, *(thing for thing in vars(package).values() if inspect.ismodule(thing))):
        if re.search(rf"^{name}\b.* = ", inspect.getsource(module), re.MULTILINE):
            return module.__name__
    raise PluginError(f"no module of {package.__name__} assigns {name}")


def prose(text: str) -> str:
    """A docstring as HTML: paragraphs, and indented lines as preformatted formulas."""
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
    """Every learner: the docstring of its module, and its hyperparameters."""
    from cpdpo_jax import learners as module
    from cpdpo_jax.cli import listing

    parts = []
    for name in module.names():
        learner = module.get(name)
        parts.append(f"## {name}\n\n{prose(listing.about(learner))}")
        if learner.extra_knowledge:
            parts.append(f"It requires {learner.extra_knowledge}.\n")
        hyperparameters = listing.hyperparameters(learner)
        if hyperparameters:
            rows = [
                f"| `{row['name']}` | {row['means'].replace('|', chr(92) + '|')} | {row['tuned']:.4g} | {row['theory']:.4g} |"
                for row in hyperparameters
            ]
            parts.append(
                "\n".join(["| hyperparameter | meaning | tuned | theory |", "|---|---|---|---|", *rows]) + "\n"
            )
    return "\n".join(parts)


def environments(files: Files) -> str:
    """Every environment: its docstring, its parameters, and its picture if it has one."""
    from cpdpo_jax import envs

    parts = []
    for name in envs.names():
        text = envs.help(name).partition("\n\nParameters and defaults:")[0].removeprefix(f"{name}: ")
        parts.append(f"## {name}\n\n{prose(text)}")
        rows = [f"| `{key}` | `{value!r}` |" for key, value in envs.defaults(name).items()]
        parts.append("\n".join(["| parameter | default |", "|---|---|", *rows]) + "\n")
        picture = f"environments/{name}.png"
        if files.get_file_from_path(picture):
            parts.append(f"[![The layers of {name}]({picture})]({picture})\n")
        else:
            parts.append("*No picture: more than 80 states, or a batch.*\n")
    return "\n".join(parts)


def options(files: Files) -> str:
    """The options of `simulate`, which are also keys of TOML files and flags."""
    from cpdpo_jax.simulation.options import Options

    rows = [
        f"| `{field.name}` | `{field.default!r}` | {html.escape(field.metadata['means'])} |"
        for field in dataclasses.fields(Options)
    ]
    return "\n".join(["| option | default | meaning |", "|---|---|---|", *rows])


def on_page_content(content: str, *, page, config, files: Files) -> str:
    """Convert formulas to MathML."""

    def convert(match: re.Match) -> str:
        display = match[0].startswith("<div")
        formula = html.unescape(match[1]).strip()[2:-2]
        return latex2mathml.converter.convert(formula, display="block" if display else "inline")

    return re.sub(r'<(?:span|div) class="arithmatex">(.*?)</(?:span|div)>', convert, content, flags=re.DOTALL)


def on_post_page(output: str, *, page, config) -> str:
    """Check that the page loads nothing from another site."""
    loaded = re.findall(r"<(?:script|img|iframe)[^>]*\ssrc=[\"']?((?:https?:)?//[^\"'\s>]+)", output)
    loaded += re.findall(r"<link[^>]*\shref=[\"']?((?:https?:)?//[^\"'\s>]+)", output)
    if loaded:
        raise PluginError(f"{page.file.src_uri} loads {loaded[0]}: put the file into docs/site and load that")
    return output
