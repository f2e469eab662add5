"""Where the demo profile's corpus, backbone and labelled sentences come from: nothing is downloaded.

- the corpus: English sentences in the doc strings of the scientific packages that are installed anyway;
- the backbone: a small BERT built from those sentences, its [CLS] output a weighted average of word vectors;
- the labelled sentences: three small tables written for this repository (lib/assets/demo).
"""

from __future__ import annotations

import ast
import gc
import hashlib
import inspect
import os
import platform
import re
import string
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.sparse
import torch
from filelock import FileLock

from lib import paths
from lib.progress import progress

ASSETS = Path(__file__).parent / "assets" / "demo"

# --- sentences from doc strings -----------------------------------------------------------------------------

SENTENCE_FORMAT = 2  # count up when a rule below changes: older caches are then read no more

# import name -> distribution; requirements.txt brings every one of them
PACKAGES = {
    "numpy": "numpy",
    "scipy": "scipy",
    "pandas": "pandas",
    "sklearn": "scikit-learn",
    "matplotlib": "matplotlib",
    "seaborn": "seaborn",
    "networkx": "networkx",
    "numba": "numba",
    "umap": "umap-learn",
    "torch": "torch",
    "datasets": "datasets",
    "accelerate": "accelerate",
    "huggingface_hub": "huggingface_hub",
    "IPython": "ipython",
    "jupyter_server": "jupyter_server",
    "nbconvert": "nbconvert",
    "tornado": "tornado",
    "jinja2": "Jinja2",
    "traitlets": "traitlets",
    "PIL": "pillow",
    "joblib": "joblib",
    "fsspec": "fsspec",
    "requests": "requests",
}
# tests and code copied from other projects; inner parts of torch, which are long and describe little
SKIPPED_FOLDERS = {
    "tests",
    "test",
    "testing",
    "_testing",
    "vendored",
    "_vendor",
    "externals",
    "extern",
    "_extern",
}
SKIPPED_FOLDERS |= {"_inductor", "_dynamo", "_functorch", "_export", "fx", "onnx", "distributed"}
ADMONITIONS = {
    "note",
    "warning",
    "tip",
    "important",
    "caution",
    "deprecated",
    "versionadded",
    "versionchanged",
}
FUNCTION_WORDS = """
    a an the is are was were be been being has have had does do did can could may might must should will would it its
    this that these those of to in on for from with by as at and or if not no when where which who whose than then
    into such so but while because only also there each any all both between after before under over through during
    without within how what you we they your their our one other same
"""

_FUNCTION_WORDS = frozenset(FUNCTION_WORDS.split())
_DIRECTIVE = re.compile(r"\.\.\s+([\w-]+)::\s*(?:v?\d[\d.]*\s*)?(.*)")
_UNDERLINE = re.compile(r"([^\w\s])\1{2,}$")
_BULLET = re.compile(r"(?:[-*+•]|\(?\d{1,2}[.)]|\(?[a-z]\))\s+")
# ":param x: text", "x (int, *optional*): text", "x : int", "x -- text": what stands before the text
_FIELD = re.compile(
    r":[a-z]+\b[^:]*:(?:\s+|$)|[^:]{1,60} -- "
    r"|\*{0,2}[\w.`]+\s*(?:\([^()]*(?:\([^()]*\)[^()]*)*\))?\s*:(?:\s+|$)"
)
_MARKUP = [
    (re.compile(r"\[`+~?(?:[^`\]]*\.)?([^`\].]*)`+\](?:\([^)]*\))?"), r"\1"),  # [`~package.name`]
    (re.compile(r"\[([^\]]+)\]\([^)]*\)"), r"\1"),  # [text](address)
    (re.compile(r":[\w:+-]+:`~(?:[^`]*\.)?([^`.]*)`"), r"\1"),  # :role:`~package.name`
    (
        re.compile(r"(?::[\w:+-]+:)?`([^`<]*?)\s*<[^`>]*>`_{0,2}"),
        r"\1",
    ),  # :role:`text <target>`, `text <address>`_
    (re.compile(r"(?::[\w:+-]+:)?`+([^`]*)`+_{0,2}"), r"\1"),  # :role:`text`, ``code``, `text`_
    (re.compile(r"(?<![\w*])\*{1,2}([^\s*](?:[^*]*[^\s*])?)\*{1,2}(?![\w*])"), r"\1"),  # *text*, **text**
    (re.compile(r"\s*\[#?\w{1,12}\]_"), ""),  # [1]_
]
_BOUNDARY = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(]?[A-Z])")
_ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|vs|cf|al|figs?|eqs?|refs?|sec|ch|vol|nos?|pp|dr|mr|prof|resp|approx|incl|eds?|st)"
    r"|(?:^|[\s(.])[A-Za-z])\.$",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"[A-Z][A-Za-z0-9 ,;:.'\"()/%!?-]*[.!?]")


def paragraphs(doc_string: str) -> list[str]:
    """The paragraphs of running text, one line each: code, doctests, headings, tables of contents and
    directives are left out, bullets and parameter names are cut off."""
    found: list[str] = []
    open_lines: list[str] = []
    level = 0  # the indentation of the open paragraph
    skip_deeper = None  # lines indented more than this belong to a directive or to code
    fenced = doctest = False

    def close() -> None:
        if open_lines:
            found.append(" ".join(open_lines))
            open_lines.clear()

    for raw in inspect.cleandoc(doc_string).splitlines():
        line, indent = raw.strip(), len(raw) - len(raw.lstrip())
        if line.startswith(("```", "~~~")):
            close()
            fenced = not fenced
        elif fenced:
            continue
        elif not line:
            close()
            doctest = False
        elif doctest or (skip_deeper is not None and indent > skip_deeper):
            continue
        elif line.startswith((">>>", "In [")):
            close()
            doctest = True
        elif _UNDERLINE.match(line):
            open_lines.clear()  # the line above is a heading
        elif line.startswith(".. "):
            close()
            directive = _DIRECTIVE.match(line)
            admonition = directive is not None and directive[1] in ADMONITIONS
            skip_deeper = None if admonition else indent
            level = indent
            if admonition and directive[2]:
                open_lines.append(directive[2])
        else:
            skip_deeper = None
            bullet = _BULLET.match(line)
            field = _FIELD.match(line, bullet.end() if bullet else 0)
            ended = not open_lines or open_lines[-1].endswith((".", "!", "?"))
            if bullet or indent != level or (field and ended):
                close()
            level = indent + (bullet.end() if bullet else 0)
            if not open_lines:
                line = line[(field or bullet).end() :] if field or bullet else line
            if line.endswith("::"):
                line, skip_deeper = line[:-1], indent
            if line:
                open_lines.append(line)
            if skip_deeper is not None:
                close()
    close()
    return found


def is_prose(sentence: str) -> bool:
    """5 to 40 words, from a capital letter to a full stop, mostly words, two of them function words."""
    tokens = sentence.split()
    if not 5 <= len(tokens) <= 40 or not _SENTENCE.fullmatch(sentence):
        return False
    words = [token.strip("(),;:.!?\"'").lower() for token in tokens]
    plain = [word for word in words if word.replace("-", "").replace("'", "").isalpha()]
    capitals = sum(token[0].isupper() for token in tokens[1:])
    return (
        len(plain) >= 0.85 * len(tokens)
        and capitals <= 0.3 * len(tokens)
        and sum(word in _FUNCTION_WORDS for word in plain) >= 2
        and sentence.count("(") == sentence.count(")")
        and sentence.count('"') % 2 == 0
    )


def sentences_of(doc_string: str) -> list[str]:
    """The prose sentences of one doc string, in order, without its markup."""
    found = []
    for paragraph in paragraphs(doc_string):
        if any(mark in paragraph for mark in "`*["):
            for pattern, replacement in _MARKUP:
                paragraph = pattern.sub(replacement, paragraph)
        paragraph = " ".join(paragraph.split())
        start = 0
        for boundary in _BOUNDARY.finditer(paragraph):
            if not _ABBREVIATION.search(paragraph, start, boundary.start()):
                found.append(paragraph[start : boundary.end()].strip())
                start = boundary.end()
        found.append(paragraph[start:].strip())
    return [sentence for sentence in found if is_prose(sentence)]


def doc_strings(source: str) -> Iterator[str]:
    """The doc strings of a Python file, and the texts that a module attaches to compiled functions
    (numpy: `add_newdoc(..., \"\"\"...\"\"\")`) or keeps in a variable to share them."""

    def inside(body: list[ast.stmt], *, module: bool) -> Iterator[str]:
        for statement in body:
            if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield ast.get_docstring(statement, clean=False) or ""
                yield from inside(statement.body, module=False)
            elif isinstance(statement, ast.If | ast.Try | ast.With):
                yield from inside(statement.body, module=module)
            elif module and isinstance(statement, ast.Expr | ast.Assign | ast.AnnAssign):
                for node in ast.walk(statement):
                    if isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" in node.value:
                        yield node.value

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in other people's strings
        try:
            tree = ast.parse(source)
        except SyntaxError:  # a template, or written for another Python
            return
    yield from inside(tree.body, module=True)


def _installed() -> dict[str, tuple[str, Path]]:
    """Import name -> version and folder, of those PACKAGES that are installed; none is imported."""
    found = {}
    for name, distribution in PACKAGES.items():
        try:
            package = metadata.distribution(distribution)
        except metadata.PackageNotFoundError:
            continue
        folder = Path(str(package.locate_file(name)))
        if folder.is_dir():
            found[name] = (package.version, folder)
    return found


def read_docstring_sentences(folders: dict[str, Path]) -> pd.DataFrame:
    """The sentences in these packages (import name -> folder), columns sentence and package, each sentence once."""
    rows: dict[str, tuple[str, str]] = {}
    bar = progress(total=len(folders), label="read doc strings, package")
    collecting = gc.isenabled()
    gc.disable()  # syntax trees are many objects without cycles: looking for cycles takes half of the time
    try:
        for package, folder in folders.items():
            for file in sorted(folder.rglob("*.py")):
                if SKIPPED_FOLDERS.isdisjoint(file.relative_to(folder).parts):
                    source = file.read_text(encoding="utf-8", errors="ignore")
                    for text in dict.fromkeys(doc_strings(source)):
                        for sentence in sentences_of(text):
                            rows.setdefault(sentence.lower(), (sentence, package))
            bar.update()
    finally:
        bar.close()
        if collecting:
            gc.enable()
    return pd.DataFrame(list(rows.values()), columns=["sentence", "package"])


def _key(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


def _sentence_key() -> str:
    python = platform.python_version_tuple()[:2]  # what `ast` accepts
    return _key(SENTENCE_FORMAT, python, [(name, version) for name, (version, _) in _installed().items()])


def docstring_sentences() -> pd.DataFrame:
    """About 80 thousand English sentences (columns sentence, package) of the installed packages, package by package.

    The same for the same package versions. Read once, in about 20 seconds; afterwards from the cache.
    """
    path = paths.cache() / "demo" / f"sentences-{_sentence_key()}.tsv"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".lock")):
            if not path.is_file():
                frame = read_docstring_sentences({name: folder for name, (_, folder) in _installed().items()})
                partial = path.with_suffix(f".{os.getpid()}")
                partial.write_text(frame.to_csv(sep="\t", index=False, quoting=3), encoding="utf-8")
                os.replace(partial, path)
    return pd.read_csv(path, sep="\t", quoting=3, keep_default_na=False, encoding="utf-8")


# --- the backbone -------------------------------------------------------------------------------------------

BACKBONE_FORMAT = 2  # count up when the construction below changes
SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def train_vocabulary(sentences: Sequence[str], size: int) -> list[str]:
    """Lower-case word pieces, the same list on every call.

    The trainer numbers the single characters in the order of a hash table and breaks ties by these numbers; given
    as special tokens, they have their numbers beforehand.
    """
    from tokenizers import BertWordPieceTokenizer

    letters = string.ascii_lowercase + string.digits
    used = {character for sentence in sentences for character in sentence.lower() if not character.isspace()}
    characters = sorted(used.union(letters, string.punctuation))
    fixed = SPECIAL_TOKENS + characters + [f"##{character}" for character in characters if character.isalnum()]
    tokenizer = BertWordPieceTokenizer(lowercase=True)
    tokenizer.train_from_iterator(
        sentences, vocab_size=max(size, len(fixed)), special_tokens=fixed, show_progress=False
    )
    vocabulary = tokenizer.get_vocab()
    return sorted(vocabulary, key=vocabulary.__getitem__)


def positive_pmi(
    token_ids: Sequence[Sequence[int]], size: int, *, window: int, smoothing: float = 0.75
) -> scipy.sparse.csr_matrix:
    """Positive pointwise mutual information of tokens at most `window` apart in one sentence [size, size].

    A pair at distance d counts 1 / sqrt(d); context frequencies are raised to the power `smoothing`
    (Levy, Goldberg and Dagan 2015, https://aclanthology.org/Q15-1016).
    """
    tokens = np.concatenate([np.asarray(ids, dtype=np.int64) for ids in token_ids])
    sentence = np.repeat(np.arange(len(token_ids)), [len(ids) for ids in token_ids])
    counts = scipy.sparse.csr_matrix((size, size))
    for distance in range(1, window + 1):
        together = sentence[:-distance] == sentence[distance:]
        left, right = tokens[:-distance][together], tokens[distance:][together]
        weights = np.full(len(left), distance**-0.5)
        counts = counts + scipy.sparse.csr_matrix((weights, (left, right)), shape=(size, size))
    counts = (counts + counts.T).tocoo()
    rows = np.bincount(counts.row, counts.data, size)
    columns = np.bincount(counts.col, counts.data, size) ** smoothing
    information = np.log(counts.data * columns.sum() / (rows[counts.row] * columns[counts.col]))
    kept = information > 0
    return scipy.sparse.csr_matrix((information[kept], (counts.row[kept], counts.col[kept])), shape=(size, size))


def word_vectors(
    token_ids: Sequence[Sequence[int]], size: int, dimension: int, *, window: int, seed: int
) -> np.ndarray:
    """Vectors of word pieces [size, dimension], of length 1: U sqrt(S) in the truncated SVD of the PPMI matrix.

    Pieces that do not occur have length 0.
    """
    from sklearn.utils.extmath import randomized_svd
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):  # sums in another order would change the last digits
        left, values, _ = randomized_svd(
            positive_pmi(token_ids, size, window=window), dimension, n_iter=4, random_state=seed
        )
    vectors = left * np.sqrt(values)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True).clip(1e-9)


def build_backbone(
    sentences: Sequence[str],
    folder: str | os.PathLike,
    *,
    vocabulary: int = 6000,
    hidden: int = 128,
    layers: int = 2,
    heads: int = 4,
    intermediate: int = 512,
    max_positions: int = 128,
    window: int = 4,
    seed: int = 0,
) -> Path:
    """Write a BERT that starts as an averaging network, and its tokenizer; the same files for the same arguments.

    Value and attention-output projections are the identity and the attention is nearly uniform, so every output is
    the token's own vector plus averages over the sentence, and that of [CLS], whose own vector is near 0, is the
    average of the word vectors: a usable, strongly anisotropic sentence embedding before any training. The head for
    masked-language modelling is there too, untrained.

    Args:
        sentences: the corpus.
        folder: created if needed.
        vocabulary: number of word pieces.
        hidden, layers, heads, intermediate, max_positions: size of the BERT.
        window: of the word vectors.
        seed: of the SVD and of the weights that stay random.
    """
    from transformers import BertConfig, BertForMaskedLM, BertTokenizerFast

    folder = Path(folder)
    pieces = train_vocabulary(sentences, vocabulary)
    tokenizer = BertTokenizerFast(
        vocab={piece: index for index, piece in enumerate(pieces)},
        do_lower_case=True,
        model_max_length=max_positions,
    )
    encoded = tokenizer.backend_tokenizer.encode_batch_fast(list(sentences), add_special_tokens=False)
    token_ids = [encoding.ids for encoding in encoded]
    vectors = word_vectors(token_ids, len(pieces), hidden, window=window, seed=seed)
    vectors[: len(SPECIAL_TOKENS)] = 0
    config = BertConfig(
        vocab_size=len(pieces),
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=intermediate,
        max_position_embeddings=max_positions,
    )
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        model = BertForMaskedLM(config)
        embeddings = model.bert.embeddings
        embeddings.word_embeddings.weight.copy_(torch.from_numpy(0.06 * vectors / vectors.std()))
        embeddings.position_embeddings.weight.normal_(std=0.001)
        embeddings.token_type_embeddings.weight.normal_(std=0.001)
        for layer in model.bert.encoder.layer:
            torch.nn.init.eye_(layer.attention.self.value.weight)
            torch.nn.init.eye_(layer.attention.output.dense.weight)
            layer.output.dense.weight.mul_(0.3)
        torch.nn.init.eye_(model.cls.predictions.transform.dense.weight)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def backbone() -> Path:
    """The folder with the demo backbone; built once per set of package versions, in about half a minute."""
    versions = [metadata.version(name) for name in ("torch", "transformers", "tokenizers", "scikit-learn")]
    folder = paths.cache() / "demo" / f"backbone-{_key(BACKBONE_FORMAT, _sentence_key(), versions)}"
    if not folder.is_dir():
        sentences = docstring_sentences()["sentence"].tolist()
        with FileLock(folder.with_suffix(".lock")):
            if not folder.is_dir():
                with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".partial-") as partial:
                    os.replace(build_backbone(sentences, Path(partial) / "backbone"), folder)
    return folder


# --- the labelled sentences ---------------------------------------------------------------------------------


def similarity(split: str) -> tuple[list[str], list[str], list[float]]:
    """First sentences, second sentences and scores from 0 to 5 of one split, `dev` or `test`."""
    table = pd.read_csv(ASSETS / "similarity.csv", keep_default_na=False)
    splits = sorted(table["split"].unique())
    if split not in splits:
        raise ValueError(f"split {split!r} is unknown: choose from {', '.join(splits)}.")
    rows = table[table["split"] == split]
    return rows["sentence1"].tolist(), rows["sentence2"].tolist(), rows["score"].tolist()


def triples() -> list[tuple[str, str, str]]:
    """Sentence, entailed sentence, contradicting sentence."""
    table = pd.read_csv(ASSETS / "triples.csv", keep_default_na=False)
    return list(table[["sent0", "sent1", "hard_neg"]].itertuples(index=False, name=None))


def topics() -> tuple[list[str], list[str]]:
    """Short titles and the topic of each."""
    table = pd.read_csv(ASSETS / "topics.csv", keep_default_na=False)
    return table["text"].tolist(), table["label"].tolist()
