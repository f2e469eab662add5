"""Where the demo profile's sentences come from: nothing is downloaded.

- the corpus: English sentences in the doc strings of the scientific packages that are installed anyway;
- the labelled sentences: small tables written for this repository (lib/assets/demo).
"""

import ast
import gc
import hashlib
import inspect
import math
import platform
import re
import warnings
from collections.abc import Iterator
from contextlib import suppress
from importlib import metadata
from itertools import chain
from pathlib import Path

from lib import paths
from lib.data.files import read_lines, single_spaced
from lib.progress import progress

ASSETS = Path(__file__).parents[1] / "assets" / "demo"

SENTENCE_FORMAT = 2  # count up when a rule below changes: caches of an older format are ignored

# import names; requirements.txt brings every one of them
PACKAGES = """
    numpy scipy pandas sklearn matplotlib seaborn networkx numba umap torch datasets accelerate huggingface_hub IPython
    jupyter_server nbconvert tornado jinja2 traitlets PIL joblib fsspec requests
""".split()
DISTRIBUTIONS = {"sklearn": "scikit-learn", "umap": "umap-learn", "PIL": "pillow"}  # where the name is another one
# tests and code copied from other projects; inner parts of torch, which are long and describe little
SKIPPED_FOLDERS = set("tests test testing _testing vendored _vendor externals extern _extern".split())
SKIPPED_FOLDERS |= set("_inductor _dynamo _functorch _export fx onnx distributed".split())
FUNCTION_WORDS = frozenset(
    """
    a an the is are was were be been being has have had does do did can could may might must should will would it its
    this that these those of to in on for from with by as at and or if not no when where which who whose than then
    into such so but while because only also there each any all both between after before under over through during
    without within how what you we they your their our one other same
    """.split()
)

_ADMONITION = re.compile(
    r"\.\.\s+(?:note|warning|tip|important|caution|deprecated|versionadded|versionchanged)::\s*(?:v?\d[\d.]*\s*)?(.*)"
)
_UNDERLINE = re.compile(r"([^\w\s])\1{2,}$")
_BULLET = re.compile(r"(?:[-*+•]|\(?\d{1,2}[.)]|\(?[a-z]\))\s+")
# ":param x: text", "x (int, *optional*): text", "x : int", "x -- text": what stands before the text
_FIELD = re.compile(r":[a-z]+\b[^:]*:(?:\s+|$)|[^:]{1,60} -- |\*{0,2}[\w.`]+\s*(?:\(.*?\))?\s*:(?:\s+|$)")
_MARKUP = [
    (re.compile(r"\[`+~?(?:[^`\]]*\.)?([^`\].]*)`+\](?:\([^)]*\))?"), r"\1"),  # [`~package.name`]
    (re.compile(r"\[([^\]]+)\]\([^)]*\)"), r"\1"),  # [text](address)
    (re.compile(r":[\w:+-]+:`~(?:[^`]*\.)?([^`.]*)`"), r"\1"),  # :role:`~package.name`
    (re.compile(r"(?::[\w:+-]+:)?`([^`<]*?)\s*<[^`>]*>`_{0,2}"), r"\1"),  # :role:`text <target>`, `text <address>`_
    (re.compile(r"(?::[\w:+-]+:)?`+([^`]*)`+_{0,2}"), r"\1"),  # :role:`text`, ``code``, `text`_
    (re.compile(r"(?<![\w*])\*{1,2}([^\s*](?:[^*]*[^\s*])?)\*{1,2}(?![\w*])"), r"\1"),  # *text*, **text**
    (re.compile(r"\s*\[#?\w{1,12}\]_"), ""),  # [1]_
]
_MARK = re.compile(r"[\[`*]")  # one of them is in all markup
_BOUNDARY = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(]?[A-Z])")
_ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|vs|cf|al|figs?|eqs?|refs?|sec|ch|vol|nos?|pp|dr|mr|prof|resp|approx|incl|eds?|st)"
    r"|(?:^|[\s(.])[A-Za-z])\.$",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"[A-Z][A-Za-z0-9 ,;:.'\"()/%!?-]*[.!?]")


def paragraphs(doc_string: str) -> list[str]:
    """The paragraphs of running text, one line each: without code, headings and directives, bullets and parameter names."""
    blocks: list[list[str]] = [[]]  # the lines of each paragraph, the last one still open
    level = 0  # the indentation of the open paragraph
    skip_deeper = math.inf  # lines indented more than this belong to a directive or to code
    fenced = doctest = False
    for raw in inspect.cleandoc(doc_string).splitlines():
        line, indent = raw.strip(), len(raw) - len(raw.lstrip())
        if line.startswith(("```", "~~~")):
            blocks.append([])
            fenced = not fenced
        elif fenced:
            continue
        elif not line:
            blocks.append([])
            doctest = False
        elif doctest or indent > skip_deeper:
            continue
        elif line.startswith((">>>", "In [")):
            blocks.append([])
            doctest = True
        elif _UNDERLINE.match(line):
            blocks[-1].clear()  # the line above is a heading
        elif line.startswith(".. "):
            blocks.append([])
            admonition, level = _ADMONITION.match(line), indent
            skip_deeper = math.inf if admonition else indent
            if admonition and admonition[1]:
                blocks[-1].append(admonition[1])
        else:
            skip_deeper = math.inf
            bullet = _BULLET.match(line)
            start = bullet.end() if bullet else 0
            field = _FIELD.match(line, start)
            ended = not blocks[-1] or blocks[-1][-1].endswith((".", "!", "?"))
            if bullet or indent != level or (field and ended):
                blocks.append([])
            level = indent + start
            if not blocks[-1]:
                line = line[field.end() if field else start :]
            if line:
                blocks[-1].append(line)
            if line.endswith("::"):
                skip_deeper = indent
                blocks.append([])
    return [" ".join(lines) for lines in blocks if lines]


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
        and sum(word in FUNCTION_WORDS for word in plain) >= 2
        and sentence.count("(") == sentence.count(")")
        and sentence.count('"') % 2 == 0
    )


def sentences_of(doc_string: str) -> list[str]:
    """The prose sentences of one doc string, in order, without its markup."""
    sentences = []
    for paragraph in paragraphs(doc_string):
        for pattern, replacement in _MARKUP if _MARK.search(paragraph) else ():
            paragraph = pattern.sub(replacement, paragraph)
        paragraph = single_spaced(paragraph)
        start = 0
        for boundary in _BOUNDARY.finditer(paragraph):
            if not _ABBREVIATION.search(paragraph, start, boundary.start()):
                sentences.append(paragraph[start : boundary.end()].strip())
                start = boundary.end()
        sentences.append(paragraph[start:].strip())
    return [sentence for sentence in sentences if is_prose(sentence)]


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

    body = []
    with warnings.catch_warnings(), suppress(SyntaxError):  # a template, or written for another Python
        warnings.simplefilter("ignore")  # invalid escapes in other people's strings
        body = ast.parse(source).body
    yield from inside(body, module=True)


def installed() -> dict[str, tuple[str, Path]]:
    """Version and folder of the installed PACKAGES by import name; none is imported."""
    found = {name: metadata.distribution(DISTRIBUTIONS.get(name, name)) for name in PACKAGES}
    return {name: (package.version, Path(str(package.locate_file(name)))) for name, package in found.items()}


def docstring_sentences() -> list[str]:
    """About 80 thousand English sentences of the installed packages, package by package, file by file; each once, whatever
    its case. The same for the same package versions.

    Read once, in half a minute; then from the cache. DataError when that cannot be written.
    """
    packages, python = installed(), platform.python_version_tuple()[:2]  # the version of what `ast` accepts
    versions = SENTENCE_FORMAT, python, [(name, version) for name, (version, _) in packages.items()]
    key = hashlib.sha256(repr(versions).encode()).hexdigest()[:12]

    def write(path: Path) -> None:
        sentences: dict[str, str] = {}
        gc.freeze()  # what is loaded already: else it is searched for cycles again and again, two fifths of the time of parsing
        with progress(total=len(packages), label="read doc strings, package") as bar:
            for _, folder in packages.values():
                for file in sorted(folder.rglob("*.py")):
                    if SKIPPED_FOLDERS.isdisjoint(file.relative_to(folder).parts):
                        texts = dict.fromkeys(doc_strings(file.read_text(encoding="utf-8", errors="ignore")))
                        for sentence in chain.from_iterable(map(sentences_of, texts)):
                            sentences.setdefault(sentence.lower(), sentence)
                bar.update()
        gc.unfreeze()
        path.write_text("\n".join(sentences.values()), encoding="utf8")

    return read_lines(paths.made_once(paths.cache() / "demo" / f"sentences-{key}.txt", write))
