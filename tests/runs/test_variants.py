"""The tables in params/variants/: filled with what the notebooks declare, and read by the rules of `variants`."""

import pytest

from lib import paths
from lib.batch.parameters import declared, read_file
from lib.checks import ConfigError
from lib.runs import variants

NOTEBOOKS = {
    "simcse": ("1_simcse", {}),
    "micse": ("2_micse", {}),
    "infocse": ("3_infocse", {"stage_one_rows": 64}),
    "msse": ("4_msse", {"has_views": False, "same_reduce": False}),
    "jtcse": ("5_jtcse", {"plain_corpus": "demo", "steps": 6}),
    "three_r": ("6_three_r", {"half": 3, "lower_layer": 1, "upper_layer": 5}),
    "backbone": ("9_backbone", {"start": "demo", "random_start": "demo"}),
}


@pytest.fixture
def toy(repository):
    """Function (text of a file, parameters) -> its tables."""
    (repository / "params/variants").mkdir(parents=True)

    def read(text, **parameters):
        (repository / "params/variants/toy.yaml").write_text(text)
        return variants("toy", {"method": "simcse", **parameters})

    return read


@pytest.mark.parametrize("paper", sorted(path.stem for path in (paths.root() / "params/variants").glob("*.yaml")))
def test_every_file_is_filled_by_its_notebook_and_by_every_parameter_file(paper):
    name, computed = NOTEBOOKS[paper]
    _, defaults = declared(paths.root() / "notebooks" / f"{name}.ipynb")
    files = [read_file(path) for path in sorted(paths.root().glob(f"params/*/{name}*.yaml"))]
    for values in (defaults, *files):
        tables = variants(paper, values, **computed)
        assert any(tables.values()) and "$" not in str(tables)


def test_notebook_1_calls_no_other_method_simcse():
    _, defaults = declared(paths.root() / "notebooks" / "1_simcse.ipynb")
    with pytest.raises(ConfigError, match="method 'esimcse' is unknown: choose one of simcse"):
        variants("simcse", defaults | {"method": "esimcse"})


def test_rows_are_written_as_they_are_or_taken_from_parameters(toy):
    text = """
A:
  SimCSE: {}
  "SimCSE | rate {rate:g}": {rate: [$one, $several, 0.1], text: "{word}+x"}
  "of {word}: {name}": {name: $names, first: "$names[0]", other: $zero or one}
"""
    tables = toy(text, one=0.2, several=[0.3, 0.1], names=["b", "a"], word="w", zero=0.0)
    assert list(tables["A"].items()) == [
        ("SimCSE", {}),
        *((("SimCSE", f"rate {rate}"), {"rate": rate, "text": "w+x"}) for rate in (0.1, 0.2, 0.3)),
        *((f"of w: {name}", {"name": name, "first": "b", "other": 0.2}) for name in "ba"),
    ]


def test_what_is_not_asked_for_the_second_of_two_rows_with_one_name_and_a_group_without_seeds_is_left_out(toy):
    text = "A: {if: many, x: {}}\nB: {x: {if: x in names, a: 1}, y: {if: [y in names, many]}}"
    assert toy(text, many=0, names=["x", "y"]) == {"A": {}, "B": {"x": {"a": 1}}}
    assert toy(text, many=2, names=["y"]) == {"A": {"x": {}}, "B": {"y": {}}}
    assert toy('A:\n  "n = 0": {}\n  "n = {n}": {n: $counts}', counts=[0, 1]) == {"A": {"n = 0": {}, "n = 1": {"n": 1}}}
    assert toy("shared: {chosen_on: one, scored_on: [a, b]}\nA: {x: {}}", one=7, a=[], b=[1]) == {"A": {"x": {}}}


@pytest.mark.parametrize(
    ("text", "parameters", "words"),
    [
        ("A: {x: {if: x in names}}", {"names": ["z"]}, "a value of names 'z' is unknown: choose one of x"),
        ('A: {x: {a: "$names[1]"}}', {"names": ["z"]}, "the number of names must be at least 2, at most 2; got 1"),
        ("shared: {methods: [mlm]}", {}, "method 'simcse' is unknown: choose one of mlm"),
        ("shared: {chosen_on: one, scored_on: [a, b]}", {"one": 7, "a": [1], "b": [7]}, "one 7 is one of seeds"),
        ("shared: {chosen_on: one, scored_on: [a]}", {"one": [7], "a": []}, "the number of seeds must be at least 1"),
    ],
)
def test_what_the_tables_are_not_for_is_refused(toy, text, parameters, words):
    with pytest.raises(ConfigError, match=words):
        toy(text, **parameters)
