"""A small BERT from nothing but text: vocabulary, word vectors, and weights that average them before any training.

`build` writes a start for masked-language modelling (method mlm). The mini-BERT of the demo profile
(lib/assets/mini-bert) came from it, by notebooks/9_backbone.ipynb.
"""

import itertools
import os
import shutil
import string
from collections import Counter
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import scipy.sparse
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from lib import paths
from lib.checks import ConfigError
from lib.data import Corpus
from lib.distributed import processes
from lib.encoders.heads import average_layers
from lib.encoders.saved import save_whole, write_json
from lib.encoders.sentence_encoder import random_kept
from lib.progress import progress
from lib.session import quiet

FORMAT = 5  # count up when the construction below changes: caches of an older format are ignored
SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
CHUNK = 20_000
RARE = 1e-5  # share of the text below which a character beyond ASCII is no word piece
SMOOTHING = 1e-3  # a in the weight a / (a + p) of a piece with share p of the text
LOGARITHM = 0.12  # of its logarithm, in the first dimension of the embeddings: -0.5 for the most frequent pieces
GAIN = 1.0  # of that dimension, about 2 times the logarithm after LayerNorm, in the attention scores


def train_vocabulary(sentences: Sequence[str], size: int) -> list[str]:
    """Lower-case word pieces, the same list on every call.

    Characters beyond ASCII that make up less than RARE of the text are left to [UNK]: in an encyclopedia there are
    thousands of them, and each would take two places that words need. The trainer numbers the single characters in
    the order of a hash table and breaks ties by these numbers; given as special tokens, they have their numbers
    beforehand.
    """
    from tokenizers import BertWordPieceTokenizer

    tokenizer = BertWordPieceTokenizer(lowercase=True)
    normal = [tokenizer.normalizer.normalize_str(sentence) for sentence in sentences]
    counts = Counter(itertools.chain.from_iterable(normal))
    total = sum(counts.values())
    ascii_characters = {*string.ascii_lowercase, *string.digits, *string.punctuation}
    frequent = {character for character, count in counts.items() if count >= RARE * total and not character.isspace()}
    characters = sorted(ascii_characters | frequent)
    fixed = SPECIAL_TOKENS + characters + [f"##{character}" for character in characters if character.isalnum()]
    blanks = str.maketrans(dict.fromkeys(set(counts).difference(characters), " "))
    text = (sentence.translate(blanks) for sentence in normal)
    tokenizer.train_from_iterator(text, vocab_size=max(size, len(fixed)), special_tokens=fixed, show_progress=False)
    vocabulary = tokenizer.get_vocab()
    return sorted(vocabulary, key=vocabulary.__getitem__)


def positive_pmi(token_ids: Sequence[Sequence[int]], size: int, *, window: int) -> scipy.sparse.csr_matrix:
    """Positive pointwise mutual information of tokens at most `window` apart in one sentence [size, size].

    A pair at distance d counts 1 / sqrt(d), which is ours; context frequencies are raised to the power 0.75 (Levy,
    Goldberg and Dagan 2015, https://aclanthology.org/Q15-1016).
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
    columns = np.bincount(counts.col, counts.data, size) ** 0.75
    information = np.log(counts.data * columns.sum() / (rows[counts.row] * columns[counts.col]))
    kept = information > 0
    return scipy.sparse.csr_matrix((information[kept], (counts.row[kept], counts.col[kept])), shape=(size, size))


def build(
    sentences: Sequence[str],
    folder: str | os.PathLike,
    *,
    vocabulary: int = 8192,
    hidden: int = 256,
    layers: int = 6,
    heads: int = 4,
    intermediate: int = 1024,
    max_positions: int = 128,
    window: int = 8,
    averaging: bool = True,
) -> Path:
    """Write a BERT that starts as an averaging network, and its tokenizer; the same files for the same arguments. Raises
    ConfigError for sizes that do not fit each other, and for too little text.

    Args:
        folder: created if needed.
        vocabulary: number of lower-case word pieces, more than hidden.
        window: of the word vectors, in tokens.
        averaging: False leaves all weights random, as BERT starts.
    """
    from transformers import BertConfig, BertForMaskedLM, BertTokenizerFast

    if hidden % heads:
        raise ConfigError(f"hidden {hidden} cannot be divided among {heads} heads.")
    parameters = (vocabulary + max_positions) * hidden + layers * (4 * hidden**2 + 2 * hidden * intermediate)
    if 16 * parameters > psutil.virtual_memory().available:  # weights, gradient and Adam's two moments
        raise ConfigError(f"{parameters:.1e} parameters are too many for the free memory: take smaller sizes.")
    quiet()
    pieces = train_vocabulary(sentences, vocabulary)
    if not hidden < len(pieces) <= vocabulary:
        raise ConfigError(
            f"{len(sentences):,} sentences give {len(pieces):,} word pieces, which must be more than hidden ({hidden:,}) and "
            f"at most vocabulary ({vocabulary:,}): change these, or take more text."
        )
    numbers = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = BertTokenizerFast(vocab=numbers, do_lower_case=True, model_max_length=max_positions)
    sizes = {"hidden_size": hidden, "intermediate_size": intermediate, "max_position_embeddings": max_positions}
    config = BertConfig(vocab_size=len(pieces), num_hidden_layers=layers, num_attention_heads=heads, **sizes)
    with random_kept(processes().device):
        torch.manual_seed(0)
        model = BertForMaskedLM(config)
        if averaging:
            make_averaging(model, _piece_vectors(sentences, tokenizer, hidden, window=window))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return Path(folder)


@torch.no_grad()
def make_averaging(model: Any, vectors: np.ndarray) -> None:
    """Turn a random masked-language BERT into an averaging network over word vectors [V, hidden] (`_piece_vectors`).

    With `average_layers` every output is the token's own vector plus averages over the sentence. [CLS] has no word vector
    of its own and becomes their average: a usable, strongly anisotropic sentence embedding before any training. The
    average gives a piece with share p of the text about the square of the weight a / (a + p) (Arora, Liang and Ma 2017,
    https://openreview.net/forum?id=SyK00v5xx): LayerNorm would take the weight from the vectors, so the first dimension
    holds its logarithm, and every head adds GAIN times that dimension to a token's attention score. The other dimensions
    keep their random part.
    """
    embeddings, layers = model.bert.embeddings, model.bert.encoder.layer
    embeddings.word_embeddings.weight.copy_(torch.from_numpy(vectors))
    embeddings.position_embeddings.weight.normal_(std=0.001)
    embeddings.token_type_embeddings.weight.normal_(std=0.001)
    average_layers(layers)
    for attention in (layer.attention.self for layer in layers):
        first = slice(None, None, attention.attention_head_size)  # dimension of every head
        attention.query.weight[first] = 0
        attention.query.bias[first] = GAIN * attention.attention_head_size**0.5
        attention.key.weight[first] = 0
        attention.key.weight[first, 0] = 1
    nn.init.eye_(model.cls.predictions.transform.dense.weight)


def _piece_vectors(sentences: Sequence[str], tokenizer: Any, dimension: int, *, window: int) -> np.ndarray:
    """Embeddings of a tokenizer's pieces [V, dimension]: LOGARITHM times log(a / (a + p)), then the word vectors.

    These are U sqrt(S) in the truncated SVD of the PPMI matrix, all of one length, at standard deviation 0.06. Pieces
    that do not occur and special tokens have none. Of the special tokens, only [MASK] has the weight of a rare piece.
    """
    from sklearn.utils.extmath import randomized_svd
    from threadpoolctl import threadpool_limits

    token_ids: list[np.ndarray] = []
    for first in range(0, len(sentences), CHUNK):
        chunk = list(sentences[first : first + CHUNK])
        encoded = tokenizer.backend_tokenizer.encode_batch_fast(chunk, add_special_tokens=False)
        token_ids += [np.array(encoding.ids, dtype=np.int32) for encoding in encoded]
    counts = np.bincount(np.concatenate(token_ids), minlength=len(tokenizer))
    weights = np.log(SMOOTHING / (SMOOTHING + counts / counts.sum()))
    weights[[i for i in tokenizer.all_special_ids if i != tokenizer.mask_token_id]] = weights.min()
    with threadpool_limits(1):  # sums in another order would change the last digits
        information = positive_pmi(token_ids, len(tokenizer), window=window)
        left, values, _ = randomized_svd(information, dimension - 1, n_iter=4, random_state=0)
    vectors = left * np.sqrt(values)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True).clip(1e-9)
    vectors[: len(SPECIAL_TOKENS)] = 0
    vectors *= 0.06 / vectors.std()
    return np.column_stack([LOGARITHM * weights, vectors]).astype(np.float32)


def start(corpus: Corpus, **shape: Any) -> Path:
    """What `build` writes for this corpus and shape: from the cache, or built now. The folder is called as tables call this
    backbone. Raises as `build` does."""
    versions = [metadata.version(name) for name in ("torch", "transformers", "tokenizers", "scikit-learn")]
    key = paths.digest([FORMAT, corpus.fingerprint(), sorted(shape.items()), versions])[:12]
    name = "averaging start" if shape.get("averaging", True) else "random start"

    def write(folder: Path) -> None:
        with progress(total=1, label=f"{name}, built once"):
            build(corpus.columns[0], folder, **shape)

    return paths.made_once(paths.cache() / "backbones" / key / name, write, folder=True)


def copy_halved(source: str | os.PathLike, folder: str | os.PathLike) -> Path:
    """Copy a saved encoder (Run.folder / "encoder") with its weights in half precision, which halves the files.

    The configuration keeps naming float32, so that loading gives float32 everywhere; a vector moves by about 1e-3 of
    its length. It has BERT's dropout of 0.1: one epoch of pre-training goes without, contrastive training needs it.
    Raises EncoderError where the folder exists.
    """

    def write(copy: Path) -> None:
        shutil.copytree(source, copy, dirs_exist_ok=True)
        for path in copy.rglob("*.safetensors"):
            save_file({name: x.half() for name, x in load_file(path).items()}, path, metadata={"format": "pt"})
        config = paths.read_json(copy / "config.json")
        config |= {"dtype": "float32", "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
        write_json(copy / "config.json", config)

    return save_whole(write, folder)
