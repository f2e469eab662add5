"""In-domain retrieval and nearest texts on a circle, where every rank is known by hand."""

from dataclasses import replace

import numpy as np
import pytest

from lib.checks import DataError
from lib.data import STSTask, Subset
from lib.data.retrieval import RetrievalTask, load_retrieval
from lib.evaluation import RESULT_COLUMNS, in_domain_retrieval
from lib.evaluation.retrieval import evaluate_retrieval, top_k
from tests.conftest import REAL

# Angles in degrees: the cosine of two texts falls with their distance on the circle.
ANGLES = {"a": 0, "b": 10, "c": 4, "d": 90, "e": 120, "f": 97, "g": 300}


def encode(texts):
    assert len(set(texts)) == len(texts), "encode gets distinct texts"
    radians = np.deg2rad([ANGLES[text] for text in texts])
    return 3 * np.stack([np.cos(radians), np.sin(radians)], axis=1)


SENTENCES1 = ["a", "d", "a", "g", "d"]
SENTENCES2 = ["b", "e", "c", "g", "f"]
GOLD = np.array([5.0, 5.0, 5.0, 5.0, 4.9])


def task(first, second, gold):
    return STSTask("STS-B", "test", "SentEval", {"STS-B": Subset(first, second, np.array(gold))})


@pytest.mark.parametrize(("queries", "rule"), [("first", "queries: sentence 1"), ("both", "queries: both sentences")])
def test_recall_computed_by_hand(queries, rule):
    # a -> b: c is nearer, rank 2. d -> e: f is nearer, rank 2. a -> c: rank 1. The pair (g, g) is skipped.
    # Backwards: b -> a: c (6 degrees) before a (10), rank 2. e -> d: f before d, rank 2. c -> a: 4 degrees, rank 1.
    frame = in_domain_retrieval(encode, task(SENTENCES1, SENTENCES2, GOLD), ks=(1, 2), queries=queries)
    assert frame["value"].tolist() == pytest.approx([100 / 3, 100])
    assert frame.columns.tolist() == RESULT_COLUMNS and frame["metric"].tolist() == ["recall@1", "recall@2"]
    assert rule in frame["protocol"][0] and "distinct texts" in frame["protocol"][0]


def test_recall_equals_that_of_a_full_sort_and_needs_a_pair_of_the_top_score():
    random = np.random.default_rng(0)
    vectors = {f"text {number}": random.normal(size=3) for number in range(40)}
    first, second = ([f"text {number}" for number in side] for side in random.integers(0, 40, size=(2, 60)))
    gold, hits = random.choice([4.0, 5.0], size=60), []
    pairs = task(first, second, gold)
    frame = in_domain_retrieval(lambda given: [vectors[t] for t in given], pairs, queries="both", ks=(3,))
    for one, two, score in zip(first, second, gold, strict=True):
        for query, partner in ((one, two), (two, one)) if score == 5 and one != two else ():
            others = sorted({*first, *second} - {query})
            rows = sorted_slowly([vectors[query]], [vectors[text] for text in others], 3)[0]
            hits.append(partner in [others[row] for row in rows])
    assert frame["value"][0] == pytest.approx(100 * np.mean(hits)) and len(hits) > 40
    with pytest.raises(DataError, match="no pair of two different texts of .* has the gold score 5"):
        in_domain_retrieval(encode, task(["g", "d"], ["g", "f"], [5.0, 4.9]))


def sorted_slowly(queries, corpus, k):
    """Every cosine, sorted by Python: equal ones stay in corpus order."""
    rows = []
    for query in queries:
        lengths = [np.linalg.norm(query) * np.linalg.norm(x) for x in corpus]
        cosines = [float(query @ x / n) if n else 0.0 for x, n in zip(corpus, lengths, strict=True)]
        rows.append(sorted(range(len(corpus)), key=lambda i: -round(cosines[i], 6))[:k])
    return np.array(rows)


@pytest.mark.parametrize("k", [1, 4, 60])
def test_top_k_equals_a_full_sort(k):
    random = np.random.default_rng(0)
    corpus, queries = (random.choice([-1.0, 1.0], size=(n, 4)) for n in (40, 300))  # many are equally near, exactly
    corpus[[3, 20]] = 0
    rows, cosines = top_k(queries, corpus, k)
    assert rows.shape == cosines.shape == (300, min(k, 40))
    assert (rows == sorted_slowly(queries, corpus, k)).all()
    assert (np.diff(cosines, axis=1) <= 0).all()


def test_length_does_not_matter_and_broken_numbers_count_as_zero():
    random = np.random.default_rng(1)
    corpus, queries = random.normal(size=(50, 4)), random.normal(size=(5, 4))
    scaled = corpus * random.uniform(0.1, 10, size=(50, 1))
    assert (top_k(queries, corpus, 10)[0] == top_k(3 * queries, scaled, 10)[0]).all()
    corpus[7] = np.nan
    rows, cosines = top_k(queries, corpus, 50)
    assert np.isfinite(cosines).all() and (cosines[rows == 7] == 0).all()


def ndcg(grades, ranked, at=10):
    gains = [grades.get(name, 0) / np.log2(rank + 2) for rank, name in enumerate(ranked[:at])]
    ideal = [grade / np.log2(rank + 2) for rank, grade in enumerate(sorted(grades.values(), reverse=True)[:at])]
    return sum(gains) / sum(ideal)


def average_precision(grades, ranked):
    hits = [rank for rank, name in enumerate(ranked, start=1) if grades.get(name, 0) > 0]
    relevant = sum(grade > 0 for grade in grades.values())
    return sum((number + 1) / rank for number, rank in enumerate(hits)) / relevant


def test_the_measures_equal_slow_ones_in_whatever_order_the_documents_are():
    """Of 12 queries and 60 documents, whose texts are their ids."""
    random = np.random.default_rng(4)
    queries, documents = ({f"{kind}{i}": f"{kind}{i}" for i in range(n)} for kind, n in (("q", 12), ("d", 60)))
    vectors = {text: random.normal(size=5) for text in (*queries, *documents)}
    relevance = {}
    for query in queries:
        judged = random.choice([*documents], 8, replace=False).tolist()
        relevance[query] = dict(zip(judged, random.integers(0, 3, 8).tolist(), strict=True)) | {"d0": 1}
    task = RetrievalTask("toy", "test", queries, documents, relevance)

    def embed(wanted):
        return np.array([vectors[text] for text in wanted])

    frame = evaluate_retrieval(embed, task, ks=(1, 5))
    assert list(frame.columns) == RESULT_COLUMNS
    assert set(frame.protocol) == {"cosine, 12 queries, 60 documents"} and set(frame.split) == {"test"}
    expected = {name: [] for name in ("ndcg@10", "map", "mrr", "recall@1", "recall@5")}
    corpus = embed(task.documents.values())
    for query, text in task.queries.items():
        order = sorted_slowly(embed([text]), corpus, 60)[0]
        ranked, grades = [f"d{i}" for i in order], task.relevance[query]
        relevant = {name for name, grade in grades.items() if grade > 0}
        expected["ndcg@10"].append(ndcg(grades, ranked))
        expected["map"].append(average_precision(grades, ranked))
        expected["mrr"].append(1 / (1 + min(ranked.index(name) for name in relevant)))
        for k in (1, 5):
            expected[f"recall@{k}"].append(len(relevant & set(ranked[:k])) / len(relevant))
    measured = frame.set_index("metric").value
    for name, values in expected.items():
        assert measured[name] == pytest.approx(100 * np.mean(values), rel=1e-5), name
    shuffled = {name: task.documents[name] for name in np.random.default_rng(0).permutation([*task.documents])}
    again = evaluate_retrieval(embed, replace(task, documents=shuffled), ks=(1, 5))
    np.testing.assert_allclose(again.value, frame.value)


def test_the_query_itself_is_no_answer_but_an_equal_id_is():
    """By hand, on the circle: without "a" itself, "c" is first; a document may bear the query's id."""
    task = RetrievalTask(
        "toy", "test", {"1": "a", "2": "d"}, {"1": "b", "2": "c", "3": "a", "4": "a", "5": "f", "6": "e"},
        {"1": {"1": 1}, "2": {"6": 1}},
    )  # fmt: skip
    values = evaluate_retrieval(encode, task, ks=(1, 2)).set_index("metric").value
    assert values["mrr"] == pytest.approx(50) and values["recall@1"] == 0 and values["recall@2"] == 100


@pytest.mark.skipif(not (REAL / "retrieval").is_dir(), reason="needs CSE_DATA with retrieval")
def test_real_collections_hold_what_they_should():
    sizes = {"nfcorpus": (323, 3395, 12334), "cranfield": (225, 1400, 1837), "cisi": (76, 1460, 3114)}
    for name, expected in sizes.items():
        task = load_retrieval(REAL, name)
        assert (len(task.queries), len(task.documents), sum(map(len, task.relevance.values()))) == expected
