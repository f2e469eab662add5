import numpy as np
import pytest
import torch

from lib.analysis.smoothing import smoothness, token_cosines, token_similarity
from lib.encoders import SentenceEncoder


def test_by_hand():
    """Three tokens, two along x and one along y: cosines 1, 0, 0; padding does not count."""
    hidden = torch.tensor([[[2.0, 0.0], [5.0, 0.0], [0.0, 1.0], [9.0, 9.0]]])
    assert token_cosines(hidden, torch.tensor([[1, 1, 1, 0]])).tolist() == pytest.approx([1 / 3])
    assert token_cosines(hidden, torch.tensor([[1, 1, 0, 0]])).tolist() == pytest.approx([1])


def test_equals_the_loop_over_layers_and_pairs_of_tokens(tiny_bert, sentences):
    encoder = SentenceEncoder.from_pretrained(tiny_bert, dropout=0.5).train()
    frame = smoothness(encoder, sentences[:7], batch_size=3)
    assert encoder.training and frame.layer.tolist() == [0, 1, 2]
    encoder.eval()
    expected = []
    for text in sentences[:7]:
        inputs = encoder.tokenizer(text, return_tensors="pt")
        layers = encoder.backbone(**inputs, output_hidden_states=True).hidden_states
        row = []
        for layer in layers:
            unit = torch.nn.functional.normalize(layer[0], dim=-1)
            row.append(
                np.mean([(unit[i] @ unit[j]).item() for i in range(len(unit)) for j in range(len(unit)) if i != j])
            )
        expected.append(row)
    assert set(frame.metric) == {"token cosine"}
    np.testing.assert_allclose(frame.value, np.mean(expected, axis=0), atol=1e-5)


def test_token_similarity_is_the_cosine_of_every_two_tokens(tiny_bert):
    encoder = SentenceEncoder.from_pretrained(tiny_bert, dropout=0.5).train()
    frame, tokens = token_similarity(encoder, "the dog sees a cat")
    assert encoder.training and tokens[0] == "[CLS]" and tokens[-1] == "[SEP]" and len(frame) == len(tokens) ** 2
    encoder.eval()
    hidden = encoder.backbone(**encoder.tokenizer("the dog sees a cat", return_tensors="pt")).last_hidden_state[0]
    for row, column, value in frame.sample(8, random_state=0).itertuples(index=False):
        expected = torch.cosine_similarity(hidden[row], hidden[column], dim=0).item()
        assert value == pytest.approx(expected, abs=1e-5)
