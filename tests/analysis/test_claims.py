"""The register of claims: how an entry is read, its verdict by hand on small rows, and all verdicts on the published ones."""

import re

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError

from lib import results
from lib.analysis import claims, papers
from lib.checks import ConfigError

ENTRY = {"id": "x", "paper": "simcse", "claim": "c.", "where": "w", "published": "1 → 3", "size": 2.0}
TEST = {"rows": {"metric": "m"}, "method": "A", "over": "B", "sign": "+"}
SURE, UNSURE = [2.0, 2.2, 1.9], [2.0, -2.1, 1.0]  # gains of three seeds
BASE = {"paper": "simcse", "metric": "m", "backbone": "mini-bert", "task": "", "device": "CPU", "profile": "small"}


@pytest.fixture
def add(repository):
    """Function (method -> values of seeds 0, 1, ...) that adds rows to an empty repository."""

    def added(methods, publish=False, **other):
        lines = [
            BASE | {"method": name, "seed": str(seed), "value": value} | other
            for name, values in methods.items()
            for seed, value in enumerate(values)
        ]
        return results.add(pd.DataFrame(lines), publish=publish)

    return added


def claim(**changes):
    return claims.Claim(**ENTRY, test=TEST | changes)


def judged(**changes):
    """part and backbone -> verdict and gain."""
    found = claims.judged(claim(**changes))
    return {(row.part, row.backbone): (row.verdict, round(row.gain, 6)) for row in found.itertuples()}


def apart(gains, base=(50.0, 60.0, 55.0)):
    """Values of A and B whose differences are these."""
    return {"A": np.add(base, gains), "B": base}


def test_a_field_that_no_claim_has_is_refused():
    with pytest.raises(ValidationError, match="test.metod"):
        claim(metod="A")


def test_a_gain_is_paired_and_its_encoders_are_judged_together(add):
    add(apart(SURE))
    assert judged() == {("", "mini-bert"): ("holds on one encoder", 2.033333)}
    add(apart(SURE), backbone="minilm-stripped")
    found = claims.judged(claim())
    assert set(found.verdict) == {"holds"} and found.seeds.tolist() == [3, 3] and found.tasks.tolist() == ["", ""]
    compared = results.compare(results.rows(), "B", ["backbone", "method"]).xs("A", level="method")
    columns = ["mean", "gain", "low", "high"]
    np.testing.assert_allclose(found.set_index("backbone")[columns], compared[columns])
    assert set(claims.judged(claim(sign="-")).verdict) == {"contradicted"}
    add({"A": [57.0], "B": [50.0]}, backbone="mini-bert", settings="chosen")
    assert set(claims.judged(claim()).verdict) == {"holds"}, "a side is of the given settings"
    assert judged(method={"settings": "chosen", "method": "A"}) == {("", "mini-bert"): ("one run", 7.0)}


def test_a_score_that_only_reaches_the_floor_does_not_hold(add):
    sts = {"metric": "spearman", "split": "test", "aggregation": "all", "task": "STS-B"}
    add(apart(SURE), **sts)
    changes = {"rows": sts, "method": "A", "over": "B"}
    assert judged(**changes)["", "mini-bert"][0] == "holds on one encoder"
    add({"untuned": [57.1]}, **sts | {"backbone": "averaging start", "device": ""})  # word vectors; A has 57.03
    assert judged(**changes)["", "mini-bert"][0] == "open"


def test_an_ordering_is_as_strong_as_its_weakest_step_and_a_difference_of_differences_is_one_gain(add):
    base = np.array([50.0, 60.0, 55.0])
    add({"C": base, "B": base + [2.0, 2.1, 2.2], "A": base + [2.5, 2.7, 2.6]})
    found = claims.judged(claim(order=["A", "B", "C"])).iloc[0]
    assert found.verdict == "holds on one encoder" and found.gain == pytest.approx(0.5)
    low = results.interval([0.5, 0.6, 0.4])[0]
    assert found.low == pytest.approx(low) and low < results.interval([2.0, 2.1, 2.2])[0]
    assert claims.judged(claim(order=["B", "A", "C"])).verdict.tolist() == ["contradicted"]
    add(apart([5.0, 5.5, 5.2]) | {"C": np.add(base, [2.0, 2.2, 2.1]), "D": base})
    assert judged(less={"method": "C", "over": "D"}) == {("", "mini-bert"): ("holds on one encoder", 3.133333)}


def test_parts_are_judged_one_by_one_last_steps_alone_and_sums_as_one(add):
    add(apart(SURE), sentences=1000, pooling="cls")
    add(apart(UNSURE), sentences=10000, pooling="cls")
    assert judged(apart=["sentences", "pooling"]) == {
        ("1,000 sentences, pooling cls", "mini-bert"): ("holds on one encoder", 2.033333),
        ("10,000 sentences, pooling cls", "mini-bert"): ("open", 0.3),
    }
    with pytest.raises(ConfigError, match="A and B differ in sentences"):
        claims.judged(claim())
    for step, group, a, b in ((0, "x", 1.0, 1.0), (9, "x", 5.0, 4.0), (9, "y", 2.0, 0.5)):
        add({"A": [a], "B": [b]}, step=step, group=group)
    add({"B": [7.0]}, step=8, group="x")  # not the last one
    last = {"shape": "curves", "rows": {"metric": "m", "group": "x", "step": "last"}}
    assert judged(**last) == {("", "mini-bert"): ("one run", 1.0)}
    sums = {"shape": "curves", "rows": {"metric": "m", "step": "last"}, "total": "group"}
    assert judged(**sums) == {("", "mini-bert"): ("one run", 2.5)}


def test_nothing_in_common_or_on_one_device_is_not_measured(add):
    for methods in ({}, {"A": [5.0]}, {"A": [np.nan, 1.0]}):
        add(methods | {"other": [1.0]})
        assert claims.judged(claim()).verdict.tolist() == ["not measured"]
    assert claims.judged(claims.Claim(**ENTRY, needs="more")).verdict.tolist() == ["not measured"]
    values = apart(SURE)
    add({"A": values["A"]})
    add({"B": values["B"]}, device="NVIDIA H200")
    assert claims.judged(claim()).to_dict("records") == [{"part": "", "verdict": "not measured"}]
    add({"B": values["B"]})
    assert judged()["", "mini-bert"] == ("holds on one encoder", 2.033333)


def test_a_claim_is_not_judged_by_own_and_published_rows_together(add, monkeypatch):
    add(apart(SURE), publish=True)
    monkeypatch.setattr(results, "_own", [])
    assert judged()["", "mini-bert"] == ("holds on one encoder", 2.033333)
    add(apart(UNSURE), device="NVIDIA H200")
    assert judged()["", "mini-bert"] == ("open", 0.3)


# --- The register ---


def test_the_register_is_as_its_head_says():
    register = claims.load()
    assert len({one.id for one in register}) == len(register) and {one.paper for one in register} == {*papers.sheets()}
    assert not re.search("|".join(f"verdict: {word}" for word in results.VERDICTS), papers.CLAIMS.read_text("utf8"))
    for one in register:
        assert one.claim.endswith(".") and bool(one.test) != bool(one.needs), one.id
        if np.isfinite(one.size) and "→" in one.published and "between" not in one.published:
            over, method = (float(number) for number in one.published.split("→"))
            assert method - over == pytest.approx(one.size, abs=0.005), one.id
            assert not one.test or (one.size > 0) == (one.test.sign == "+"), one.id


def test_every_claim_has_its_verdict_and_known_ones_are_as_known(verdicts):
    assert list(verdicts) == claims.COLUMNS and set(verdicts.id) == {one.id for one in claims.load()}
    assert not verdicts.duplicated(["id", "part", "backbone"]).any() and set(verdicts.verdict) <= {*results.VERDICTS}
    assert (verdicts.gain.isna() == (verdicts.verdict == "not measured")).all()
    parts = {name: dict(zip(rows.part, rows.verdict, strict=True)) for name, rows in verdicts.groupby("id")}
    known = {"holds": "jtcse-joint", "open": "micse-no-negatives", "holds on one encoder": "infocse-retrieval"}
    known |= {"contradicted": "jtcse-distilled", "no gain worth having": "jtcse-cross-attention"}
    for verdict, name in (known | {"one run": "infocse-lambda"}).items():
        assert parts[name] == {"": verdict}, name
    assert parts["msse-clusters"] == {"1,000 sentences": "open", "10,000 sentences": "open"}
    assert parts["msse-sts"]["10,000 sentences, chosen"] == "holds on one encoder"


def test_the_tables_for_readers(verdicts, monkeypatch):
    assert claims.table("a paper without claims").empty
    monkeypatch.setattr(claims, "verdicts", lambda profile, paper: verdicts[(verdicts.paper == paper) | (paper == "")])
    table = claims.table(least=3)
    assert list(table) == ["published", *results.ENCODERS, "all-MiniLM-L6-v2", "verdict"]
    assert table.index.names == ["paper", "claim"] and len(table) == len(verdicts.drop_duplicates(["id", "part"]))
    one = claims.table("jtcse")
    joint = one[one.index.str.startswith("JTCSE's joint training")].iloc[0]
    assert joint.tolist()[::3] == ["Table X: 78.27 → 79.70", "holds"]
    assert joint["mini-bert"] == "+0.66 [0.38, 0.93], 5 seeds"
    for paper in papers.sheets():  # a part that no measured row has would be missing
        named = [claim for claim in claims.load() if claim.paper == paper and claim.main is not None]
        assert 1 <= len(claims.table(paper, main=True)) == len(named) <= 6, paper
