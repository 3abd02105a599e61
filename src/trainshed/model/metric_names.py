"""Names of metrics: which ones are known, and how the platform writes them."""

from __future__ import annotations

import re

__all__ = ["clean_name", "is_metric_name"]

_METRIC_WORDS = frozenset(
    (
        *(
            "loss",
            "losses",
            "acc",
            "accuracy",
            "acc1",
            "acc5",
            "top1",
            "top5",
            "top_1",
            "top_5",
            "f1",
            "f1_score",
        ),
        *(
            "auc",
            "miou",
            "iou",
            "precision",
            "recall",
            "perplexity",
            "ppl",
            "bleu",
            "rouge",
            "lr",
            "learning_rate",
        ),
        *(
            "psnr",
            "ssim",
            "mae",
            "mse",
            "rmse",
            "wer",
            "cer",
            "throughput",
            "fps",
            "ips",
            "grad_norm",
            "reward",
        ),
        *("samples_per_second", "samples_per_sec", "images_per_sec", "images_per_second"),
        *("tokens_per_second", "tokens_per_sec"),
    )
)


def clean_name(name: str) -> str:
    """A metric's name as the platform writes it: lower case, without blanks."""
    return re.sub(r"\s+", "_", name.strip().lower())


def is_metric_name(name: str) -> bool:
    """Whether a name is one that training scripts give to a metric, alone or among other words."""
    clean = clean_name(name).replace("-", "_")
    if clean in _METRIC_WORDS or "mAP" in re.split(r"[_/.@-]", name):
        return True
    parts = re.split(r"[_/.@]", clean)
    return any(part in _METRIC_WORDS for part in parts) or any(
        "_".join(parts[at : at + 3]) in _METRIC_WORDS or "_".join(parts[at : at + 2]) in _METRIC_WORDS
        for at in range(len(parts) - 1)
    )
