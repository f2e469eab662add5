"""Encoders: text in, one vector per text out. Evaluation sees only `encode`."""

from lib.encoders.sentence_encoder import SentenceEncoder

__all__ = ["SentenceEncoder"]
