"""What the pages say is what is stored, and what is stored is what its data give."""

from __future__ import annotations

import json
import shutil

import pytest

from experiments import published, reproduce, stored

STORED = [(name, scale) for name in reproduce.NAMES for scale in stored.SCALES if stored.path(name, scale).is_file()]


@pytest.fixture
def copy(tmp_path):
    """The pages and the stored results elsewhere."""
    for page in published.pages():
        target = tmp_path / page.relative_to(published.TOP)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(page, target)
    for name, scale in STORED:
        target = stored.path(name, scale, tmp_path / "experiments")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(stored.path(name, scale), target)
    return tmp_path


def test_every_published_table_and_number_is_the_stored_one():
    assert published.differences() == []
    assert any(published.MARK.search(page.read_text()) for page in published.pages())


@pytest.mark.parametrize(("name", "scale"), STORED)
def test_the_stored_tables_are_those_of_the_stored_data(name, scale):
    content = stored.read(name, scale)
    assert content is not None
    sections, _ = reproduce.experiment(name).tables(content["data"], scale)
    tables = {one.key: {"title": one.title, "note": one.note, "rows": one.rows} for one in sections}
    assert json.loads(json.dumps(tables)) == content["tables"]


def test_a_changed_digit_is_seen_and_mended(copy):
    """A digit of every marked table and number, all at once: each is named, and all are mended."""
    root, originals, names = copy / "experiments", {}, []
    for page in published.pages(copy):
        originals[page] = page.read_text()
        text = list(originals[page])
        for found in published.MARK.finditer(originals[page]):
            digits = [i for i in range(*found.span(5)) if text[i].isdigit()] or [found.start(5) + 4]
            position = digits[len(digits) // 2]
            text[position] = "7" if text[position] != "7" else "8"
            names.append(f"{page.relative_to(copy)}: {found[1]}")
        page.write_text("".join(text))
    assert len(names) > 10
    assert sorted(published.differences(copy, root)) == sorted(names)
    assert reproduce.check([], copy, root) == 1
    changed = {page for page, text in originals.items() if page.read_text() != text}
    assert set(published.publish(copy, root)) == changed
    assert {page: page.read_text() for page in originals} == originals
    assert reproduce.check([], copy, root) == 0


def test_a_changed_result_is_seen(copy):
    root = copy / "experiments"
    name, key = next(
        found[3].split("/")
        for page in published.pages(copy)
        for found in published.MARK.finditer(page.read_text())
        if "/" in found[3]
    )
    content = stored.read(name, root=root)
    assert content is not None
    row = content["tables"][key]["rows"][1]
    row[-1] += "1"
    stored.path(name, content["scale"], root).write_text(json.dumps(content))
    assert any(f"table: {name}/{key}" in one for one in published.differences(copy, root))


def test_a_marker_of_a_table_that_is_not_stored_is_refused(copy):
    name = next(name for name, _ in STORED if not (stored.read(name) or {"missing": []})["missing"])
    with pytest.raises(ValueError, match="names a table that is not stored"):
        published.renewed(f"<!-- table: {name}/nothing -->\n<!-- end -->", copy / "experiments")
    text = published.renewed("<!-- table: nothing/at_all -->\n<!-- end -->", copy / "experiments")
    assert "Not run with this version" in text


def test_a_row_that_is_not_there_is_refused():
    table = {"title": "one", "note": "", "rows": [["learner", "of", "x"], ["a", "b", "1"], ["a", "c", "2"]]}
    assert stored.cell(table, ["a", "c"], "x") == "2"
    for labels, column in ((["b"], "x"), (["a"], "y")):
        with pytest.raises(ValueError, match="has no row"):
            stored.cell(table, labels, column)


def test_from_nothing_stored_and_resumed(copy, monkeypatch):
    """At a small size: what has been run is stored once, and is not used for another version."""
    root, runs = copy / "experiments", copy / "runs"
    of = reproduce.experiment("ablation")
    assert not reproduce.collect(of, "tiny", runs, root)
    reproduce.run(of, "tiny", runs, "")
    assert reproduce.collect(of, "tiny", runs, root)
    content = stored.read("ablation", "tiny", root)
    assert content is not None
    assert content["missing"] == []
    assert set(stored.still_valid(content, of, "tiny")) == {cell.name for cell in of.cells("tiny")}
    assert reproduce.collect(of, "tiny", runs, root)
    assert stored.read("ablation", "tiny", root) == content  # the same date: nothing new was stored
    monkeypatch.setattr(stored.cp, "__version__", "0.0")
    assert stored.still_valid(content, of, "tiny") == {}


def test_figures_are_remade_from_what_is_stored_without_a_run(copy, monkeypatch):
    def never(*_args, **_options):
        raise AssertionError("nothing is run")

    monkeypatch.setattr(reproduce.cp, "run", never)
    name, scale = STORED[0]
    before = stored.path(name, scale, copy / "experiments").read_bytes()
    assert reproduce.collect(reproduce.experiment(name), scale, copy / "nowhere", copy / "experiments")
    assert stored.path(name, scale, copy / "experiments").read_bytes() == before
    drawn = {path.name for path in (copy / "experiments" / name).glob("*.png")}
    assert drawn == {path.name for path in (stored.ROOT / name).glob("*.png")}


def test_the_command_checks_and_refuses_what_it_does_not_know(capsys):
    assert reproduce.main(["growth", "--check"]) == 0
    assert "growth" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        reproduce.main(["groth"])
