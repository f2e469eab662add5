"""The template of pooling `mask_prompt` as tokens, and the vector that it has by itself."""

from typing import Any

import torch
from torch import Tensor

from lib.encoders.kinds import first_position
from lib.encoders.pooling import PROMPT, pooled


def template(tokenizer: Any, prompt: str = PROMPT) -> tuple[list[int], list[int]]:
    """Token ids before and behind the sentence [X], special tokens included; [MASK] is the tokenizer's mask token."""
    before, _, after = prompt.replace("[MASK]", tokenizer.mask_token).partition("[X]")
    start, end = (tokenizer(part, add_special_tokens=False)["input_ids"] for part in (before, after))
    opening, closing = tokenizer("")["input_ids"]  # [CLS], [SEP] or <s>, </s>
    return [opening, *start], [*end, closing]


def template_vectors(encoder: Any, input_ids: Tensor, attention_mask: Tensor, *, first: int | None = None) -> Tensor:
    """What each text's template has at its mask token when the sentence is taken out, [N, H] in float32: the bias that
    PromptBERT (arXiv 2201.04337) subtracts. What stands behind the sentence keeps its positions.

    Args:
        encoder: a SentenceEncoder.
        input_ids, attention_mask: [N, L], of its `tokenize` with `mask_prompt`, or another template with as many tokens.
        first: position of the first token; None takes the backbone's own.
    """
    before, after = (torch.arange(len(part), device=input_ids.device) for part in template(encoder.tokenizer))
    behind = attention_mask.sum(1, keepdim=True) - len(after) + after
    places = torch.cat([before.expand(len(behind), -1), behind], dim=1)  # of the template's tokens, [N, T]
    both, row = torch.unique(torch.cat([places, input_ids.gather(1, places)], 1), dim=0, return_inverse=True)
    places, ids = both.chunk(2, dim=1)  # once for all sentences of a length
    positions = places + (first_position(encoder.backbone) if first is None else first)
    mask = torch.ones_like(ids)
    output = encoder.run_backbone(ids, mask, position_ids=positions)
    return pooled("mask_prompt", output, ids, mask, encoder.tokenizer.mask_token_id)[row]
