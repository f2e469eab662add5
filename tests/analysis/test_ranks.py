"""Mean ranks by hand, and the critical differences that Demsar (2006) prints."""

import numpy as np
import pandas as pd
import pytest

from lib.analysis import ranks

SCORES = pd.DataFrame({"a": [3.0, 3, 1, 2], "b": [2.0, 3, 2, 1], "c": [1.0, 1, 3, np.nan]}, index=list("wxyz"))


def test_ranks_by_hand_on_the_tasks_that_all_methods_have():
    found = ranks.average_ranks(SCORES)
    assert found.round(4).to_dict() == {"b": 1.8333, "a": 1.8333, "c": 2.3333}
    assert found.index[-1] == "c"


def test_ranks_do_not_depend_on_the_order_of_rows_or_columns():
    moved = SCORES.iloc[::-1, [2, 0, 1]]
    assert ranks.average_ranks(moved).to_dict() == ranks.average_ranks(SCORES).to_dict()
    assert ranks.friedman(moved) == pytest.approx(ranks.friedman(SCORES))


@pytest.mark.parametrize(("methods", "quantile"), [(2, 1.960), (4, 2.569), (10, 3.164)])
def test_the_critical_difference_is_that_of_the_printed_table(methods, quantile):
    expected = quantile * np.sqrt(methods * (methods + 1) / (6 * 14))
    assert ranks.critical_difference(methods, 14) == pytest.approx(expected, abs=1e-3)


def test_one_method_cannot_be_compared():
    with pytest.raises(ValueError, match="cannot be compared"):
        ranks.critical_difference(1, 7)
    assert np.isnan(ranks.friedman(SCORES[["a", "b"]])) and np.isnan(ranks.friedman(SCORES * 0))
