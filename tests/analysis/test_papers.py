"""The published tables are complete, and read as they are printed."""

import numpy as np
import pytest

from lib.analysis import papers


def test_every_table_is_rectangular_and_every_printed_average_is_the_mean_or_has_a_note():
    for paper in papers.sheets():
        sheet = papers.load(paper)
        for table in sheet["tables"]:
            for row in table["rows"]:
                if row["values"] == ["no numbers"]:
                    continue
                assert len(row["values"]) == len(table["columns"]), (paper, table["id"], row)
                numbers = [v for v in row["values"] if isinstance(v, (int, float))]
                if table["columns"][-1] == "Avg." and len(numbers) == len(table["columns"]) and "note" not in row:
                    assert numbers[-1] == pytest.approx(np.mean(numbers[:-1]), abs=0.011), (table["id"], row)


def test_the_numbers_that_everybody_quotes():
    table = papers.wide("simcse", "Table 5")
    assert table.loc[("unsupervised", "SimCSE-BERT-base"), "Avg."] == 76.25
    assert table.loc[("supervised (NLI)", "SimCSE-BERT-base"), "Avg."] == 81.57
    assert papers.wide("simcse", "Independent replication (50 seeds)").loc["bert-base-uncased mean", "Avg."] == 75.11


def test_rows_of_two_backbones_stay_apart_in_the_printed_order_and_a_deviation_is_a_column():
    table = papers.wide("jtcse", "Table I")
    assert len(table) == len(papers.load("jtcse")["tables"][0]["rows"]) == 51
    assert table.loc[("bert-base-uncased", "JTCSE"), "7 Avg."] == 79.70
    assert table.loc[("roberta-base", "JTCSE"), "7 Avg."] == 79.94
    assert [*papers.wide("simcse", "Table 3")] == "0.0 0.01 0.05 0.1 0.15 0.2 0.5".split() + ["fixed 0.1"]
    assert papers.wide("simcse", "Table 6").index[0] == "[CLS] w/ MLP"
    table = papers.table("micse", "Table 3").set_index(["method", "column"])
    assert table.loc[("SimCSE", "0.1%"), ["value", "std"]].tolist() == [67.94, 1.16]
    assert table.loc[("SimCSE", "100%"), "value"] == 76.15 and np.isnan(table.loc[("SimCSE", "100%"), "std"])


def test_the_scores_by_the_settings_of_the_notebook_are_those_of_their_table():
    for table, part in papers.table("simcse", "Ablations").dropna(subset="value").groupby("setting"):
        printed = papers.table("simcse", table.partition(",")[0])  # "Table 4, hard negatives" is a part of Table 4
        assert {*part.value} <= {*printed.value}, table
