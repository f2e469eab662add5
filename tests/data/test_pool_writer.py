"""The client that asks for a pool, against a server on the loopback: answers, refusals, silence, nonsense, going on."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from lib.checks import DataError
from lib.data import __main__ as command
from lib.data.exemplars import load_pool, pool_faults
from lib.data.pool_writer import ask, sentences_of, write_pool


@pytest.fixture
def server():
    """Function (what answers a request body with (status, bytes)) -> base URL; seen: bodies and headers."""
    servers, seen = [], []

    def start(respond):
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):  # noqa: N802 -- the library's name
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                seen.append((self.path, body, dict(self.headers)))
                status, content = respond(body)
                self.send_response(status)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *args):
                pass

        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_port}/v1"

    start.seen = seen
    yield start
    for one in servers:
        one.shutdown()
        one.server_close()


def said(text):
    return 200, json.dumps({"choices": [{"message": {"content": text}}]}).encode()


def echo(body):
    """Sentences of the words that were asked for, ten each."""
    words = body["messages"][0]["content"].rpartition(": ")[2].split(", ")
    return said("\n".join(f"{i}. " + " ".join(words[i : i + 10]) + "." for i in range(0, len(words), 10)))


def test_a_pool_is_asked_for_until_every_word_is_there_twice(server, tmp_path, monkeypatch, capsys):
    words = tmp_path / "words.csv"
    words.write_text("word,count\n" + "".join(f"w{i},1\n" for i in range(120)))
    url, out = server(echo), tmp_path / "pool.txt"
    monkeypatch.setenv("MY_KEY", "secret")
    arguments = [
        "write-pool",
        str(out),
        "--endpoint",
        url,
        "--model",
        "m",
        "--words",
        str(words),
        "--key-variable",
        "MY_KEY",
    ]
    assert command.main(arguments) == 0
    assert pool_faults(load_pool(str(out)), [f"w{i}" for i in range(120)]) == []
    path, body, headers = server.seen[0]
    assert path == "/v1/chat/completions" and body["model"] == "m" and headers["Authorization"] == "Bearer secret"
    assert len(body["messages"][0]["content"].rpartition(": ")[2].split(", ")) == 50
    asked = len(server.seen)
    assert command.main(arguments) == 0 and len(server.seen) == asked  # nothing is left to ask for
    assert "secret" not in "".join(capsys.readouterr())


def test_what_was_written_stays_and_is_gone_on_with(tmp_path):
    out, words, calls = tmp_path / "pool.txt", ["cat", "dog", "cow"], []

    def answer(prompt):
        calls.append(prompt)
        if len(calls) == 2:
            raise DataError("gone")
        return f"- the cat sees a dog {len(calls)}\n" + ("* a cow\n2) one cow more\nx\n" if len(calls) > 2 else "")

    with pytest.raises(DataError, match="gone"):
        write_pool(out, words, answer)
    assert out.read_text() == "the cat sees a dog 1\n"
    assert write_pool(out, words, answer) == 4
    assert out.read_text().splitlines()[1:] == ["the cat sees a dog 3", "a cow", "one cow more"]
    with pytest.raises(DataError, match=r"after 3 requests .* is no pool yet: 1 of 4 words occur fewer .*: pig \(0\)"):
        write_pool(out, [*words, "pig"], lambda prompt: "no such word", calls=3)


def test_lines_that_are_no_sentences_are_left_out():
    assert sentences_of("1. A cat.\n\n- one\n* two words\n" + "w " * 33) == ["A cat.", "two words"]


@pytest.mark.parametrize(
    "respond, words",
    [
        (lambda body: (401, b'{"error": "bad key"}'), r"refused the request \(401\): .*bad key"),
        (lambda body: (200, b"<html>"), "answered in another form"),
        (lambda body: (200, b'{"choices": []}'), "answered in another form"),
        (
            lambda body: (200, b'{"choices": [{"message": {"content": null}}]}'),
            "without a text; the model may have refused",
        ),
        (lambda body: time.sleep(1) or said("late"), "gave no answer in 0.2 s"),
    ],
)
def test_a_bad_answer_is_one_sentence(server, respond, words):
    with pytest.raises(DataError, match=words):
        ask(server(respond), "m", "hello", timeout=0.2)
