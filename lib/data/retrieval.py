"""Retrieval collections in BEIR's layout (corpus.jsonl, queries.jsonl, qrels/<split>.tsv), and tables of captions."""

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path

from lib.checks import DataError, reason
from lib.data.files import read_lines, read_table, single_spaced

QRELS_HEADER = ("query-id", "corpus-id", "score")


@dataclass(frozen=True)
class RetrievalTask:
    """Queries that have judgements, all documents (title and text in one), and the judgements.

    relevance: query id -> document id -> grade; what is not judged counts as 0.
    """

    name: str
    split: str
    queries: dict[str, str]
    documents: dict[str, str]
    relevance: dict[str, dict[str, int]]

    def fingerprint(self) -> str:
        """SHA-256 over texts and judgements."""
        return hashlib.sha256(repr((self.queries, self.documents, self.relevance)).encode()).hexdigest()


def load_retrieval(data_dir: Path | str, name: str, split: str = "test") -> RetrievalTask:
    """Read `<data_dir>/retrieval/<name>` (or a folder anywhere, if `name` is absolute), or a .tsv table of captions in
    data_dir: a line per picture, its name and at least two captions (Flickr30k as in Multi30k has five), of which the
    first asks for the others of its row among those of all rows.

    Queries without judgements in this split are left out, as BEIR does; empty documents stay.

    Raises:
        DataError: a file is missing or in another layout, an id comes twice, or a judgement names an unknown id.
    """
    if name.endswith(".tsv"):
        return _captions(Path(data_dir) / name)
    folder = Path(data_dir) / "retrieval" / name
    documents, queries = _texts(folder / "corpus.jsonl"), _texts(folder / "queries.jsonl")
    path = folder / "qrels" / f"{split}.tsv"
    _, judgements = read_table(path, QRELS_HEADER)
    if not judgements:
        raise DataError(f"{path} holds no judgement: fetch it again.")
    relevance: dict[str, dict[str, int]] = {}
    for query, document, grade in judgements:
        if query not in queries or document not in documents or not re.fullmatch(r"-?\d+(\.0*)?", grade):
            raise DataError(
                f"{path}: query {query!r}, document {document!r}, grade {grade!r}: expected ids of the texts and a whole "
                "number; fetch the collection again."
            )
        relevance.setdefault(query, {})[document] = int(float(grade))
    asked = {identifier: text for identifier, text in queries.items() if identifier in relevance}
    return RetrievalTask(folder.name, split, asked, documents, relevance)


def _captions(path: Path) -> RetrievalTask:
    queries, documents, relevance = {}, {}, {}
    for number, line in enumerate(read_lines(path), start=1):
        picture, *captions = map(single_spaced, line.split("\t"))
        is_header = number == 1 and not any(" " in caption for caption in captions)
        if picture in queries or len(captions) < 2 or not all([picture, *captions]) or is_header:
            raise DataError(
                f"{path}, line {number}: expected a picture's name, given once, and at least two captions, tab-separated, "
                "and no header."
            )
        others = {f"{picture}, caption {place}": text for place, text in enumerate(captions[1:], start=2)}
        queries[picture], relevance[picture] = captions[0], dict.fromkeys(others, 1)
        documents |= others
    if not queries:
        raise DataError(f"{path} holds no captions.")
    return RetrievalTask(path.stem, "test", queries, documents, relevance)


def _texts(path: Path) -> dict[str, str]:
    texts: dict[str, str] = {}
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            identifier, text = str(row["_id"]), " ".join([row.get("title") or "", row["text"]])
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{path}, line {number}: expected a JSON object with _id and text, perhaps title ({reason(error)})."
            ) from error
        if identifier in texts:
            raise DataError(f"{path}, line {number}: the id {identifier!r} comes twice.")
        texts[identifier] = single_spaced(text)
    return texts
