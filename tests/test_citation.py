"""CITATION.cff agrees with pyproject.toml, the licence and the sheets of the papers."""

import re

import yaml

from lib import paths


def test_the_citation_agrees_with_the_project_and_names_every_paper():
    cited = yaml.safe_load((paths.root() / "CITATION.cff").read_text(encoding="utf8"))
    project = (paths.root() / "pyproject.toml").read_text(encoding="utf8")
    assert f'version = "{cited["version"]}"' in project and f'license = "{cited["license"]}"' in project
    titles = {entry["title"] for entry in cited["references"]}
    sheets = sorted((paths.root() / "lib/assets/papers").glob("*.yaml"))
    papers = [yaml.safe_load(path.read_text(encoding="utf8")) for path in sheets]
    named = [re.sub(r" \([^()]*\)$", "", sheet["paper"]) for sheet in papers if "paper" in sheet]
    assert len(named) >= 6 and set(named) <= titles
