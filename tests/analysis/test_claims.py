"""Verdicts by hand on small frames, the register, and every verdict again from the committed rows."""

import re

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy import stats

from lib import paths
from lib.analysis import claims, papers
from lib.checks import ConfigError, DataError

ENTRY = {"id": "x", "paper": "simcse", "claim": "c", "where": "w", "published": "1 → 3", "size": 2.0}
TEST = {"file": "f", "rows": {"metric": "m", "task": ["t", "u"]}, "method": "A", "over": "B", "sign": "+"}


def claim(**changes):
    return claims.Claim.read(ENTRY | {"test": TEST | changes})


def frame(values, **other):
    """method -> {seed: (value of task t, of u)}."""
    rows = [
        {"method": method, "seed": seed, "task": task, "value": value, "metric": "m", "backbone": "b", "table": "T"}
        | other
        for method, by_seed in values.items()
        for seed, pair in by_seed.items()
        for task, value in zip("tu", pair, strict=True)
    ]
    return pd.DataFrame(rows)


GAINS = {  # verdict -> gains [seeds, tasks] of A over B
    claims.HOLDS: [[2.0, 2.2], [2.1, 2.3], [1.9, 2.1]],
    claims.INSIDE: [[2.0, 2.2], [-2.1, -1.8], [1.0, 1.2]],
    claims.NOT_SEEN: [[-2.0, -2.2], [2.1, 1.8], [-1.0, -1.2]],
    claims.CONTRADICTED: [[-2.0, -2.2], [-2.1, -2.3], [-1.9, -2.1]],
}


def both_sides(gains):
    """Rows of A and B whose differences are these."""
    base = {str(seed): (50.0 + seed, 60.0 - seed) for seed in range(len(gains))}
    above = {seed: tuple(np.add(base[seed], row)) for seed, row in zip(base, gains, strict=True)}
    return frame({"A": above, "B": base})


@pytest.mark.parametrize("expected", GAINS)
def test_each_verdict_by_hand(expected):
    rows = both_sides(GAINS[expected])
    found = claims.verdict(claim(), rows).iloc[0]
    assert found.verdict == expected and (found.seeds, found.tasks) == (3, 2)
    assert found.gain == pytest.approx(np.mean(GAINS[expected]))
    turned = claims.verdict(claim(sign="-"), rows).iloc[0]
    opposite = {claims.HOLDS: claims.CONTRADICTED, claims.INSIDE: claims.NOT_SEEN}
    opposite |= {b: a for a, b in opposite.items()}
    assert turned.verdict == opposite[expected] and turned.gain == pytest.approx(found.gain)


def test_one_seed_never_holds_and_never_contradicts():
    for gain, expected in ((5.0, claims.INSIDE), (-5.0, claims.NOT_SEEN), (0.0, claims.NOT_SEEN)):
        found = claims.verdict(claim(), both_sides([[gain, gain]])).iloc[0]
        assert found.verdict == expected and np.isnan(found.low) and np.isnan(found.high) and found.seeds == 1


def test_only_seeds_of_both_sides_and_all_tasks_count():
    values = {"A": {"1": (5.0, 5.0), "2": (9.0, 9.0)}, "B": {"1": (4.0, 3.0), "3": (0.0, 0.0)}}
    found = claims.verdict(claim(), frame(values)).iloc[0]
    assert (found.seeds, found.gain) == (1, 1.5)
    lacks = frame(values | {"B": {"1": (4.0, 3.0), "2": (8.0, np.nan)}})
    assert claims.verdict(claim(), lacks.dropna()).iloc[0].seeds == 1


def test_nothing_in_common_is_not_run():
    apart = frame({"A": {"1": (5.0, 5.0)}, "B": {"2": (4.0, 3.0)}})
    for rows in (apart, frame({"A": {"1": (5.0, 5.0)}}), pd.DataFrame()):
        assert claims.verdict(claim(), rows).to_dict("records") == [
            {"backbone": "", "part": "", "verdict": claims.NOT_RUN}
        ]


def test_a_side_without_seeds_stands_against_every_seed():
    found = claims.verdict(claim(), frame({"A": {"1": (5.0, 6.0), "2": (6.0, 7.0)}, "B": {"": (4.0, 4.0)}})).iloc[0]
    assert (found.gain, found.seeds) == (2.0, 2)


def test_an_ordering_is_as_strong_as_its_weakest_step():
    base = {str(s): (50.0 + s, 60.0 - s) for s in range(3)}
    up = {s: tuple(np.add(v, 2 + 0.1 * int(s))) for s, v in base.items()}
    top = {s: tuple(np.add(v, 0.5 + 0.01 * int(s))) for s, v in up.items()}
    order = {"file": "f", "rows": TEST["rows"], "sign": "+"}
    rows = frame({"A": top, "B": up, "C": base})
    read = claims.Claim.read(ENTRY | {"test": order | {"order": ["A", "B", "C"]}})
    found = claims.verdict(read, rows).iloc[0]
    assert found.verdict == claims.HOLDS and found.gain == pytest.approx(0.51)
    wrong = claims.Claim.read(ENTRY | {"test": order | {"order": ["B", "A", "C"]}})
    assert claims.verdict(wrong, rows).iloc[0].verdict == claims.CONTRADICTED
    assert len(wrong.sides) == 2 and wrong.sides[0][1]["method"] == "A"


def test_a_difference_of_differences():
    rows = frame({name: {"1": (v, v), "2": (v, v)} for name, v in {"A": 9.0, "B": 4.0, "C": 8.0, "D": 6.0}.items()})
    found = claims.verdict(claim(less={"method": "C", "over": "D"}), rows).iloc[0]
    assert found.gain == 3.0 and found.verdict == claims.HOLDS


def test_backbones_and_parts_are_judged_by_themselves_and_never_averaged():
    one, other = both_sides(GAINS[claims.HOLDS]), both_sides(GAINS[claims.CONTRADICTED])
    found = claims.verdict(claim(), pd.concat([one, other.assign(backbone="c")]))
    assert found.set_index("backbone").verdict.to_dict() == {"b": claims.HOLDS, "c": claims.CONTRADICTED}
    two = pd.concat([one, other.assign(table="U"), other.assign(table="other")])
    with pytest.raises(DataError, match="claim x.*two values for seed 0 t"):
        claims.verdict(claim(), two)
    parts = claim(rows=TEST["rows"] | {"table": "T|U"}, apart="table")
    assert claims.verdict(parts, two).set_index("part").verdict.to_dict() == {
        "T": claims.HOLDS,
        "U": claims.CONTRADICTED,
    }


def test_first_and_last_steps_and_sums():
    rows = pd.DataFrame([(m, s, step, g, v) for s in "12" for m, step, g, v in [
        ("A", 0, "x", 1.0), ("A", 9, "x", 5.0), ("A", 9, "y", 2.0), ("B", 7, "x", 4.0),
    ]], columns=["method", "seed", "step", "group", "value"]).assign(backbone="b")  # fmt: skip
    x = {"group": "x"}
    last = claim(rows=x | {"step": "last"})
    assert claims.verdict(last, rows).gain.tolist() == [1.0]
    trained = claim(rows=x, method={"method": "A", "step": "last"}, over={"method": "A", "step": "first"})
    assert claims.verdict(trained, rows).gain.tolist() == [4.0]
    summed = claim(rows={"step": "last"}, total="group")
    assert claims.verdict(summed, rows).gain.tolist() == [3.0]


def test_verdicts_do_not_depend_on_the_order_of_rows():
    rows = both_sides(GAINS[claims.INSIDE])
    expected = claims.verdict(claim(), rows)
    for seed in range(3):
        pd.testing.assert_frame_equal(claims.verdict(claim(), rows.sample(frac=1, random_state=seed)), expected)


def test_the_interval_of_one_task_is_about_students():
    values = np.random.default_rng(3).normal(1.0, 1.0, size=(6, 1))
    low, high = claims.interval(values)
    students = stats.ttest_1samp(values[:, 0], 0).confidence_interval()
    assert (low, high) == claims.interval(values) and low < values.mean() < high
    assert high - low == pytest.approx(students.high - students.low, rel=0.15)


def test_tasks_that_differ_widen_the_interval():
    seeds = np.array([[1.0], [1.2], [0.9], [1.1]])
    alike, unlike = seeds + np.zeros(6), seeds + np.array([3.0, -3.0, 2.0, -2.0, 1.0, -1.0])
    widths = [np.diff(claims.interval(gains)).item() for gains in (alike, unlike)]
    assert widths[1] > 4 * widths[0]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"needs": "more"}, "claim x has either a test"),
        ({"test": TEST | {"sign": "up"}}, "claim x: sign 'up' is unknown"),
        ({"test": TEST | {"metod": "A"}}, "unknown part of claim x 'metod': did you mean 'method'?"),
        ({"test": {k: v for k, v in TEST.items() if k != "over"}}, "give `over` too"),
        ({"verdict": "holds"}, "unknown entry of claim x 'verdict'"),
    ],
)
def test_a_wrong_entry_is_one_sentence(changes, says):
    with pytest.raises((ConfigError, DataError), match=re.escape(says)) as error:
        claims.Claim.read(ENTRY | {"test": TEST} | changes)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"file": "simcs"}, "unknown file of claim x 'simcs': did you mean 'simcse'?"),
        ({"rows": {"aggregatoin": "all"}}, "unknown column of claim x 'aggregatoin': did you mean 'aggregation'?"),
        ({"method": "SimCSE, 10,000 sentence"}, "did you mean 'SimCSE, 10,000 sentences'?"),
    ],
)
def test_what_no_row_has_is_one_sentence(tmp_path, changes, says):
    base = {
        "file": "simcse",
        "rows": {"aggregation": "all"},
        "method": "untuned, cls",
        "over": "untuned, mean",
        "sign": "+",
    }
    (tmp_path / "good.yaml").write_text(yaml.safe_dump({"claims": [ENTRY | {"test": base}]}))
    assert claims.load(tmp_path / "good.yaml")[0].file == "simcse"
    (tmp_path / "wrong.yaml").write_text(yaml.safe_dump({"claims": [ENTRY | {"test": base | changes}]}))
    with pytest.raises(ConfigError, match=re.escape(says)) as error:
        claims.load(tmp_path / "wrong.yaml")
    assert "\n" not in str(error.value)
    (tmp_path / "twice.yaml").write_text(yaml.safe_dump({"claims": [ENTRY | {"test": base}] * 2}))
    with pytest.raises(DataError, match="two claims are called x"):
        claims.load(tmp_path / "twice.yaml")


def test_the_register_is_as_its_head_says():
    register = claims.load()
    assert 45 <= len(register) <= 70 and len({one.id for one in register}) == len(register)
    assert {one.paper for one in register} == set(papers.sheets())
    text = papers.CLAIMS.read_text(encoding="utf8")
    assert "verdict:" not in text
    for one in register:
        assert one.claim.endswith(".") and (one.sides or one.needs), one.id
        if np.isfinite(one.size):  # it is what the two printed numbers differ by
            over, method = (float(number.strip()) for number in one.published.split("→"))
            assert method - over == pytest.approx(one.size, abs=0.005), one.id
            assert not one.sides or np.sign(one.size) == one.sign, one.id
    for file, names in yaml.safe_load(text)["announced"].items():
        notebook = papers.load(file)["notebook"]
        source = (paths.root() / "notebooks" / f"{notebook}.ipynb").read_text(encoding="utf8")
        assert all(name.split(" + ")[0] in source for name in names), file


def oracle(claim, rows):
    """The gains [seeds, tasks] of the only comparison of a claim without tricks, by the obvious loop."""
    (a, b), found = claim.sides[0], {}
    for filters in (a, b):
        side = {}
        for row in rows.to_dict("records"):
            fits = True
            for name, wanted in filters.items():
                several = wanted if isinstance(wanted, list) else [wanted]
                pattern = name in ("table", "protocol") and re.fullmatch(str(wanted), str(row[name]))
                fits &= str(row[name]) in map(str, several) or bool(pattern)
            if fits:
                side[row["seed"], row.get("task", "")] = row["value"]
        found[len(found)] = side
    a, b = found[0], found[1]
    if {seed for seed, _ in b} == {""}:
        b = {(seed, task): b["", task] for seed, task in a if ("", task) in b}
    return {key: a[key] - b[key] for key in a if key in b}


@pytest.mark.parametrize("profile", ["small", "paper"])
def test_every_verdict_again_from_the_committed_rows(profile):
    """The gains by a second way, and each verdict by its definition; a filter finds rows, or the claim is not run."""
    judged = claims.verdicts(profile)
    register = {one.id: one for one in claims.load()}
    assert list(judged) == claims.COLUMNS and set(judged.id) == set(register)
    assert not judged.duplicated(["id", "backbone", "part"]).any()
    for row in judged.itertuples():
        one = register[row.id]
        if row.verdict == claims.NOT_RUN:
            assert np.isnan(row.gain) and not row.backbone
            continue
        assert (paths.root() / "results" / profile / f"{one.file}.csv").is_file()
        gain, low, high = (one.sign * value for value in (row.gain, row.low, row.high))
        low, high = min(low, high), max(low, high)
        assert np.isnan(low) == (row.seeds == 1)
        if len(one.sides) == 1:
            expected = claims.HOLDS if low > 0 else claims.CONTRADICTED if high < 0 else claims.INSIDE
            assert row.verdict == (claims.NOT_SEEN if expected == claims.INSIDE and gain <= 0 else expected), row.id
        elif row.seeds == 1:
            assert row.verdict in (claims.INSIDE, claims.NOT_SEEN)
        ends = {name: v for pair in one.sides for side in pair for name, v in side.items() if v in ("first", "last")}
        if len(one.sides) == 1 and not (one.less or one.total or ends):
            rows = claims.published(profile, one.file)
            rows = rows[rows.backbone == row.backbone]
            rows = rows[rows[one.apart] == row.part] if one.apart else rows
            gains = oracle(one, rows)
            if len(gains) == row.seeds * row.tasks:  # otherwise seeds without all tasks were left out
                assert row.gain == pytest.approx(np.mean(list(gains.values()))), row.id


def test_the_tables_for_readers():
    judged = claims.verdicts("small")
    table = claims.overview(judged)
    assert len(table) == len(claims.load()) and list(table)[:4] == ["paper", "claim", "where", "published"]
    named = {verdict for cell in table["mini-bert"] for verdict in claims.VERDICTS if cell.startswith(verdict)}
    assert claims.NOT_RUN in named and len(named) > 1
    assert (claims.counts(judged).to_numpy() >= 0).all() and list(claims.counts(judged)) == list(claims.VERDICTS[1:])
    empty = judged.head(0)
    assert not len(claims.counts(empty)) and not len(claims.overview(empty))
    nothing = judged.drop_duplicates("id").assign(backbone="", part="", verdict=claims.NOT_RUN, gain=np.nan)
    assert len(claims.overview(nothing)) == len(claims.load()) and not len(claims.counts(nothing))
