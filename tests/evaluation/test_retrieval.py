"""In-domain retrieval and nearest texts on a circle, where every rank is known by hand."""

import os
from pathlib import Path

import numpy as np
import pytest

from lib.evaluation import RESULT_COLUMNS, in_domain_retrieval
from lib.evaluation.retrieval import nearest

# Angles in degrees: the cosine of two texts falls with their distance on the circle.
ANGLES = {"a": 0, "b": 10, "c": 4, "d": 90, "e": 120, "f": 97, "g": 300}


def encode(texts: list[str]) -> np.ndarray:
    assert len(set(texts)) == len(texts), "encode gets distinct texts"
    radians = np.deg2rad([ANGLES[text] for text in texts])
    return 3 * np.stack([np.cos(radians), np.sin(radians)], axis=1)


SENTENCES1 = ["a", "d", "a", "g", "d"]
SENTENCES2 = ["b", "e", "c", "g", "f"]
GOLD = np.array([5.0, 5.0, 5.0, 5.0, 4.9])


def values(**options: object) -> list[float]:
    return in_domain_retrieval(encode, SENTENCES1, SENTENCES2, GOLD, **options)["value"].tolist()


def test_recall_computed_by_hand() -> None:
    # a -> b: c is nearer, rank 2. d -> e: f is nearer, rank 2. a -> c: rank 1. The pair (g, g) is skipped.
    assert values(ks=(1, 2)) == pytest.approx([100 / 3, 100])
    # Backwards: b -> a: c (6 degrees) before a (10), rank 2. e -> d: f before d, rank 2. c -> a: 4 degrees,
    # rank 1.
    assert values(ks=(1, 2), queries="both") == pytest.approx([100 / 3, 100])


def test_rows_name_the_rules() -> None:
    frame = in_domain_retrieval(encode, SENTENCES1, SENTENCES2, GOLD)
    assert frame.columns.tolist() == RESULT_COLUMNS
    assert frame["metric"].tolist() == ["recall@1", "recall@5", "recall@10"]
    assert "queries: sentence 1" in frame["protocol"][0] and "distinct texts" in frame["protocol"][0]


def test_against_slow_ranking() -> None:
    generator = np.random.default_rng(0)
    texts = [f"text {number}" for number in range(40)]
    table = {text: generator.normal(size=3) for text in texts}
    pairs = generator.integers(0, 40, size=(60, 2))
    first, second = ([texts[number] for number in pairs[:, side]] for side in (0, 1))
    gold = generator.choice([4.0, 5.0], size=60)
    frame = in_domain_retrieval(
        lambda given: np.stack([table[t] for t in given]), first, second, gold, queries="both", ks=(3,)
    )

    hits = []
    corpus = set(first) | set(second)
    for one, two, score in zip(first, second, gold, strict=True):
        for query, partner in ((one, two), (two, one)):
            if score < 5 or one == two:
                continue

            def cosine(text: str, query: str = query) -> float:
                u, v = table[text], table[query]
                return float(u @ v / np.sqrt((u @ u) * (v @ v)))

            hits.append(partner in sorted(corpus - {query}, key=cosine, reverse=True)[:3])
    assert frame["value"][0] == pytest.approx(100 * np.mean(hits))


def test_ties_rank_in_corpus_order() -> None:
    def constant(texts: list[str]) -> np.ndarray:
        return np.ones((len(texts), 4), dtype=np.float32)

    # Corpus x y w z. x -> w is second of y w z; y -> z is third of x w z.
    frame = in_domain_retrieval(constant, ["x", "y"], ["w", "z"], np.array([5.0, 5.0]), ks=(1, 2, 3))
    assert frame["value"].tolist() == [0.0, 50.0, 100.0]


def test_not_a_number_counts_as_zero() -> None:
    def broken(texts: list[str]) -> np.ndarray:
        return np.full((len(texts), 4), np.nan)

    assert in_domain_retrieval(broken, ["x"], ["y"], np.array([5.0]), ks=(1,))["value"].tolist() == [100.0]


def test_nearest_leaves_the_query_out() -> None:
    frame = nearest(encode, ["a", "f"], ["a", "b", "a", "c", "d"], k=2)
    assert frame["query"].tolist() == ["a", "a", "f", "f"]
    assert frame["rank"].tolist() == [1, 2, 1, 2]
    assert frame["text"].tolist() == ["c", "b", "d", "b"]
    assert frame["cosine"][2] == pytest.approx(np.cos(np.deg2rad(7)))
    assert len(nearest(encode, ["a"], ["a", "b"], k=9)) == 1


@pytest.mark.parametrize(
    ("gold", "options"),
    [([4.0], {}), ([5.0], {"queries": "second"}), ([5.0], {"ks": (0,)}), ([5.0, 5.0], {})],
)
def test_rejects(gold: list[float], options: dict) -> None:
    with pytest.raises(ValueError):
        in_domain_retrieval(encode, ["a"], ["b"], np.array(gold), **options)


TEST_SET = Path(os.environ.get("CSE_DATA", "/no/such/folder")) / "senteval/downstream/STS/STSBenchmark/sts-test.csv"


@pytest.mark.skipif(not TEST_SET.is_file(), reason="needs CSE_DATA with senteval")
def test_official_counts() -> None:
    lines = [line.split("\t") for line in TEST_SET.read_text(encoding="utf-8").split("\n") if line]
    first, second = ([" ".join(line[column].split()) for line in lines] for column in (5, 6))
    gold = np.array([float(line[4]) for line in lines])
    encoded = []

    def random_vectors(texts: list[str]) -> np.ndarray:
        encoded.extend(texts)
        return np.random.default_rng(0).normal(size=(len(texts), 16))

    top = gold == 5
    assert top.sum() == 97
    assert not any(one == two for one, two in zip(first, second, strict=True))
    for queries, number in (("first", 97), ("both", 194)):
        encoded.clear()
        recall = in_domain_retrieval(random_vectors, first, second, gold, queries=queries, ks=(500,))["value"][0]
        assert len(encoded) == 2551
        assert recall * number / 100 == pytest.approx(round(recall * number / 100))
