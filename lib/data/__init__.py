"""Readers. Local files first; the hub only where the user names it. Missing or truncated data stops at once."""

from lib.data.corpus import Corpus, load_corpus
from lib.data.sts import STSTask, Subset, load_sts
from lib.data.tokenized import Batch, TokenizedCorpus, tokenize_corpus
from lib.data.transfer import load_transfer

__all__ = [
    "Batch", "Corpus", "STSTask", "Subset", "TokenizedCorpus", "load_corpus", "load_sts", "load_transfer",
    "tokenize_corpus",
]  # fmt: skip
