"""A pool of 3R's sentences from a language model behind any endpoint that speaks OpenAI's chat protocol (Section 3.1)."""

from __future__ import annotations

import http.client
import json
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from lib import paths
from lib.checks import DataError
from lib.data.exemplars import LONGEST, load_pool, pool_faults, rare_words

DRAW, PER_CALL = 50, 5  # words of a request, sentences asked for (Table 11: 50 is the best of 40, 50 and 60)
PROMPT = (
    "Write {sentences} English sentences of different meaning, one a line and nothing else, each of at most {longest} words. Take "
    "most of their words from this list, in exactly this spelling, and the others as common as possible: {words}"
)


def ask(endpoint: str, model: str, prompt: str, *, key: str = "", timeout: float = 60.0) -> str:
    """The answer of a model to one message.

    Args:
        endpoint: base URL, for example http://localhost:8000/v1; /chat/completions is added. http and https alone.
        key: sent as a bearer token, without the white space around it; never printed.
        timeout: seconds, at most a day.

    Raises:
        DataError: an endpoint, key or timeout that cannot be one, no answer in time, a refusal, or an answer in another form: one sentence with the endpoint.
    """
    url, key = f"{endpoint.rstrip('/')}/chat/completions", key.strip()
    if not re.fullmatch(r"https?://[!-~]+", url) or not _has_host(url):
        raise DataError(f"endpoint {endpoint!r} must begin with http:// or https://, and a server's name.")
    if not re.fullmatch(r"[!-~]*", key):
        raise DataError("the key has a character that no key has, such as a space: set its variable again.")
    if not 0 < timeout <= 86_400:
        raise DataError(f"timeout {timeout:g} must be above 0 and at most 86,400 seconds.")
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": prompt}]}).encode()
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=timeout) as answer:  # noqa: S310
            content = json.load(answer)["choices"][0]["message"]["content"]
            json.dumps(content, ensure_ascii=False).encode()  # half of a surrogate pair is no text
    except urllib.error.HTTPError as error:
        reason = error.read(300).decode("utf8", "replace")
        raise DataError(f"{url} refused the request ({error.code}): {' '.join(reason.split())}") from error
    except (OSError, http.client.HTTPException) as error:
        raise DataError(f"{url} gave no answer in {timeout:g} s ({error}): is the address right?") from error
    except (ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
        raise DataError(f"{url} answered in another form than choices[0].message.content: {error!r}.") from error
    if not isinstance(content, str):
        raise DataError(f"{url} answered without a text; the model may have refused.")
    return content


def _has_host(url: str) -> bool:
    try:
        parts = urllib.parse.urlsplit(url)
        return bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False


def sentences_of(answer: str) -> list[str]:
    """The lines of an answer that can be sentences of a pool: numbers and bullets gone, two to LONGEST words."""
    lines = [re.sub(r"^\s*(?:\d+[.)]|[-*•])\s+", "", line).strip() for line in answer.splitlines()]
    return [line for line in lines if 2 <= len(line.split()) <= LONGEST]


def write_pool(path: Path, words: Sequence[str], answer: Callable[[str], str], *, calls: int = 200) -> int:
    """Ask until every word occurs twice, and write every sentence as it comes; a file of an earlier call is gone on with.

    Args:
        answer: prompt -> text, see `ask`. It is asked with the words that are still rare first, so that it comes to an
            end.
        calls: give up after so many.

    Returns:
        How many sentences the pool has.

    Raises:
        DataError: the file is somebody else's or cannot be written, before anything is asked; `calls` were not enough, or
            an answer fails; what was written stays.
    """
    if os.path.lexists(path) and not paths.seal_of(path).is_file():
        raise DataError(f"{path} is there already and was not written by this command: choose another file.")
    paths.check_writable(path.parent)
    pool = list(load_pool(str(path))) if path.is_file() else []
    random = np.random.default_rng([0, len(pool)])
    for _ in range(calls):
        rare = list(rare_words(pool, words))
        if not rare:
            return len(pool)
        others = sorted({*words} - {*rare})
        chosen = [*random.permutation(rare)[:DRAW]]
        chosen += [*random.permutation(others)[: DRAW - len(chosen)]] if others else []
        prompt = PROMPT.format(sentences=PER_CALL, longest=LONGEST, words=", ".join(random.permutation(chosen)))
        new = [sentence for sentence in dict.fromkeys(sentences_of(answer(prompt))) if sentence not in pool]
        pool += new
        with paths.whole_file(path, sealed=True) as whole:
            whole.write_text("".join(f"{sentence}\n" for sentence in pool), encoding="utf8")
    if faults := pool_faults(pool, words):
        raise DataError(f"after {calls} requests {path} is no pool yet: {faults[0]}. Start again to go on.")
    return len(pool)
