"""COVERAGE.md is what the notebooks say."""

import re

import nbformat
import pytest

from lib import paths
from lib.batch import coverage


def test_the_page_is_what_the_notebooks_say():
    page = (paths.root() / "COVERAGE.md").read_text(encoding="utf8")
    assert page == coverage.text(), "run `make coverage`"
    links = re.findall(r"\]\((?!http)([^)#]+)", page)
    assert len(links) >= 6 and all((paths.root() / link).exists() for link in links)


def test_a_list_without_a_table_is_refused(tmp_path, monkeypatch):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(f"# A\n{coverage.HEADING}nothing")])
    (tmp_path / "notebooks").mkdir()
    nbformat.write(notebook, tmp_path / "notebooks" / "1_a.ipynb")
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    with pytest.raises(ValueError, match="1_a.ipynb: no table"):
        coverage.text()
