"""Evaluation knows an encoder only as `encode(list[str]) -> array [n, D]`."""

from lib.evaluation.interface import RESULT_COLUMNS
from lib.evaluation.retrieval import in_domain_retrieval
from lib.evaluation.sts import evaluate_sts
from lib.evaluation.transfer import evaluate_transfer

__all__ = ["RESULT_COLUMNS", "evaluate_sts", "evaluate_transfer", "in_domain_retrieval"]
