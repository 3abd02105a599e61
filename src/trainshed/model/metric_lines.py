"""Reads metrics out of log lines: loss, accuracy, throughput, as the common frameworks print them.

A line is only taken for a metric when it is shaped like one; prose that happens to hold the word "loss" is
left alone. Every pattern is linear and lines are cut before they are looked at, so that no line of a
hostile job can hold the reader up.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

from trainshed.model.late_pattern import late_pattern
from trainshed.model.metric_names import clean_name, is_metric_name
from trainshed.model.metric_point import (
    MetricPoint,
    is_number,
    read_metric_record,
    read_step,
    value_from_json,
    value_to_json,
)

__all__ = ["MetricParser", "MetricPoint", "read_metric_record", "value_from_json", "value_to_json"]

# A line is looked at in its last bytes only, a redraw of a progress bar only when it is short.
_TAIL = 65536
_LONGEST = 4096
_MOST_REDRAWS = 200
_MOST_POINTS = 64

_NUMBER = r"[+-]?(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:[eE][+-]?\d{1,4})?|[+-]?(?:nan|inf(?:inity)?)"
_VALUE = rf"(?:[\w.]{{1,40}}\()?(?P<value>(?i:{_NUMBER}))"


_ANSI = late_pattern(r"\x1b\[[0-?]{0,32}[ -/]{0,4}[@-~]|\x1b[@-Z\\-_]|\x08")
# What a line must hold at all to be looked at: this refuses most lines in one pass.
_HINTS = (
    *(
        "loss",
        "acc",
        "epoch",
        "eval",
        "step",
        "value",
        "lr",
        "learning",
        "iou",
        "map",
        "f1",
        "auc",
        "ppl",
        "perplex",
    ),
    *(
        "bleu",
        "rouge",
        "precision",
        "recall",
        "psnr",
        "ssim",
        "throughput",
        "_per_sec",
        "fps",
        "ips",
        "mae",
        "mse",
    ),
    *("wer", "cer", "reward", "grad_norm", "top"),
)
_QUALIFIERS = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "test": "test",
    "eval": "eval",
    "avg": "avg",
    "average": "avg",
    "mean": "mean",
    "best": "best",
    "total": "total",
    "running": "running",
}
# Words that say nothing about whether a line is prose.
_LOG_WORDS = frozenset(
    (
        *(
            "info",
            "debug",
            "warning",
            "warn",
            "error",
            "trainer",
            "main",
            "root",
            "device",
            "cuda",
            "cpu",
            "npu",
        ),
        *("eta", "time", "set"),
    )
)

_COUNT = r"(?P<{0}>\d{{1,15}})(?: {{0,8}}/ {{0,8}}(?P<{0}_total>\d{{1,15}}))?"
_EPOCH = late_pattern(
    r"(?i)\bepoch(?:s|_num)? {0,4}[:=#]? {0,4}[\[(]? {0,8}(?P<epoch>\d{1,9}(?:\.\d{1,12})?)(?: {0,8}/ {0,8}\d{1,9})?"
)
_STEP = late_pattern(
    r"(?i)\b(?:global_?|train_?)?(?:step|iter|iteration|batch)s?\b {0,4}[:=#]? {0,4}[\[(]? {0,8}"
    + _COUNT.format("step")
)
_PAIR = late_pattern(
    r"(?<![\w./%-])(?:(?P<qualifier>[A-Za-z]{3,10}) )?(?P<name>[A-Za-z][\w./@-]{0,48}?)"
    r"(?: {0,2}(?P<sign>[:=]) {0,12}| is:? {1,4}| )\[?"
    + _VALUE
    + r"(?![\w.]\w?)(?:/(?P<second>\d{1,15}(?:\.\d{1,20})?))?"
)
_TQDM = late_pattern(r"\| {0,8}(?P<step>\d{1,12})/(?P<total>\d{1,12}) \[\d")
_QUOTED = late_pattern(r"['\"](?P<name>[^'\"]{1,64})['\"] {0,4}: {0,4}" + _VALUE)

_EPOCH_HEADER = late_pattern(r"Epoch {1,2}(\d{1,9}) ?/ ?\d{1,9}")
_DASHES = late_pattern(r"(?:step {1,8})?(?P<step>\d{1,12}) {0,4}/ {0,4}(?P<total>\d{1,12})\b(?P<rest>.*)")
_DASH_PAIR = late_pattern(r"- (?P<name>[A-Za-z][\w./]{0,48}): {0,4}\[?" + _VALUE)
_DASH_TIME = late_pattern(r"\b(\d{1,9}(?:\.\d{1,9})?)(s|ms|us)/(?:step|epoch)")
_MINDVISION_STEP = late_pattern(
    r"Epoch:\[ {0,8}(?P<epoch>\d{1,9})/ {0,8}\d{1,9}\], step:\[ {0,8}(?P<step>\d{1,12})/ {0,8}(?P<total>\d{1,12})\],"
    rf" loss:\[(?P<loss>(?i:{_NUMBER}))/(?P<avg>(?i:{_NUMBER}))\], time:(?P<time>[\d.]{{1,20}}) ms"
    rf"(?:, lr:(?P<lr>{_NUMBER}))?"
)
_EPOCH_TIME = late_pattern(
    r"(?:Train e|E)poch time: (?P<epoch>[\d.]{1,20}) ms, per step time: (?P<step>[\d.]{1,20}) ms"
    rf"(?:, avg loss: (?P<loss>(?i:{_NUMBER})))?"
)
_COST_TIME = late_pattern(
    r"epoch {0,2}:? {0,4}(?P<epoch>\d{1,9}) cost time ?= ?(?P<time>[\d.]{1,30}) ?s?, train step num: (?P<steps>\d{1,12}),"
    r" one step time: (?P<step>[\d.]{1,30}) ?ms(?:, train samples per second of cluster: (?P<rate>[\d.]{1,30}))?"
)
_MINDSPORE_LOSS = late_pattern(
    rf"epoch: (?P<epoch>\d{{1,9}}) step: (?P<step>\d{{1,12}}), loss is (?P<loss>(?i:{_NUMBER}))"
)
_EVAL_RESULT = late_pattern(r"Eval result: epoch (?P<epoch>\d{1,9}), metrics: (?P<rest>\{.*)")
_BEST = late_pattern(rf"End of validation the best (?P<name>\w{{1,40}}) is: {{1,8}}(?P<value>(?i:{_NUMBER}))")


class MetricParser:
    """Reads the lines of one rank's log in their order and answers with the points they hold."""

    def __init__(self) -> None:
        self._epoch: float | None = None
        self._evaluating = False
        self._epoch_length = 0
        self._furthest = 0

    def feed(self, line: str | bytes) -> list[MetricPoint]:
        """The points of one line. Of a progress bar's redraws in it, the last of each step counts."""
        tail = line[-_TAIL:]
        text = tail.decode("utf-8", "replace") if isinstance(tail, bytes) else tail
        lower = text.lower()
        if not any(hint in lower for hint in _HINTS):
            return []
        redraws = [piece for piece in text.rstrip("\r\n").split("\r") if piece][-_MOST_REDRAWS:]
        points: dict[tuple[str, int | None, float | None], MetricPoint] = {}
        for piece in redraws:
            if len(piece) > _LONGEST:
                continue
            for point in self._read(_ANSI.sub("", piece).strip()):
                points[(point.name, point.step, point.epoch)] = point
        return list(points.values())

    def _read(self, text: str) -> list[MetricPoint]:
        for read in (self._read_state, self._read_framework, self._read_dashes, self._read_record):
            points = read(text)
            if points is not None:
                return points[:_MOST_POINTS]
        return self._read_pairs(text)[:_MOST_POINTS]

    def _read_state(self, text: str) -> list[MetricPoint] | None:
        """Lines without a value that change how the next ones are read."""
        if text.startswith("Eval begin..."):
            self._evaluating = True
            return []
        header = _EPOCH_HEADER.fullmatch(text)
        if header:
            self._enter_epoch(float(header[1]))
            self._evaluating = False
            return []
        if text.startswith("Eval samples:"):
            self._evaluating = False
            return []
        return None

    def _read_framework(self, text: str) -> list[MetricPoint] | None:
        """Lines that a framework's own monitor prints."""
        if match := _MINDVISION_STEP.search(text):
            # This monitor alone counts epochs from 0.
            self._enter_epoch(float(match["epoch"]) + 1)
            step = self._global_step(int(match["step"]), int(match["total"]))
            values = {
                "loss": match["loss"],
                "avg_loss": match["avg"],
                "step_time_ms": match["time"],
                "lr": match["lr"],
            }
            return self._points(values, step)
        if match := _MINDSPORE_LOSS.search(text):
            self._enter_epoch(float(match["epoch"]))
            return self._points({"loss": match["loss"]}, self._global_step(int(match["step"]), 0))
        if match := _EPOCH_TIME.search(text):
            values = {
                "epoch_time_ms": match["epoch"],
                "step_time_ms": match["step"],
                "avg_loss": match["loss"],
            }
            return self._points(values, None)
        if match := _COST_TIME.search(text):
            self._enter_epoch(float(match["epoch"]))
            values = {
                "epoch_time_s": match["time"],
                "train_steps": match["steps"],
                "step_time_ms": match["step"],
                "samples_per_second": match["rate"],
            }
            return self._points(values, None)
        if match := _BEST.search(text):
            return self._points({f"best_{clean_name(match['name'])}": match["value"]}, None)
        if match := _EVAL_RESULT.search(text):
            self._enter_epoch(float(match["epoch"]))
            return self._points({f"eval_{name}": value for name, value in _quoted(match["rest"])}, None)
        return None

    def _read_dashes(self, text: str) -> list[MetricPoint] | None:
        """Keras and Paddle: `step 50/100 - loss: 0.75 - acc: 0.67 - 15ms/step`."""
        match = _DASHES.match(text)
        if match is None:
            return None
        pairs = {clean_name(pair["name"]): pair["value"] for pair in _DASH_PAIR.finditer(match["rest"])}
        if not pairs:
            return None
        if self._evaluating:
            return self._points({f"eval_{name}": value for name, value in pairs.items()}, None)
        points = self._points(pairs, self._global_step(int(match["step"]), int(match["total"])))
        if time := _DASH_TIME.search(match["rest"]):
            scale = {"s": 1000.0, "ms": 1.0, "us": 0.001}[time[2]]
            step = points[0].step if points else None
            points.append(MetricPoint("step_time_ms", float(time[1]) * scale, step, self._epoch))
        return points

    def _read_record(self, text: str) -> list[MetricPoint] | None:
        """A JSON object, or a dict as Python prints it, alone or behind a word or two."""
        start = text.find("{")
        if start < 0 or not text.rstrip(" =").endswith("}"):
            return None
        before = text[:start].lower()
        if len(before.split()) > 4:
            return None
        values: dict[str, Any] = {}
        if start == 0:
            try:
                record = json.loads(text)
            except (ValueError, RecursionError):
                record = None
            if isinstance(record, dict):
                point = read_metric_record(record)
                if point is not None:
                    return [point]
                values = {name: value for name, value in record.items() if is_number(value)}
        values = values or dict(_quoted(text[start:], keep_case=True))
        lowered = {name.lower(): value for name, value in values.items()}
        step = read_step(
            next((lowered[n] for n in ("global_step", "step", "iteration", "iter") if n in lowered), None)
        )
        epoch = float(lowered["epoch"]) if "epoch" in lowered else math.nan
        if math.isfinite(epoch):
            self._epoch = epoch
        elif step is not None:
            self._epoch = None
        prefix = "eval_" if "eval" in before else ""
        named = {prefix + clean_name(name): value for name, value in values.items() if is_metric_name(name)}
        return self._points(named, step)

    def _read_pairs(self, text: str) -> list[MetricPoint]:
        """`loss=0.3 acc: 0.91 step 12`: known names only, and little else on the line."""
        epoch, step, bar = _EPOCH.search(text), _STEP.search(text), _TQDM.search(text)
        marked = bool(epoch or step or bar)
        found: dict[str, float] = {}
        rest = text
        for match in _PAIR.finditer(text):
            if not is_metric_name(match["name"]):
                continue
            name, value = clean_name(match["name"]), float(match["value"])
            qualifier = _QUALIFIERS.get((match["qualifier"] or "").lower())
            if match["second"] and name in ("acc", "accuracy") and float(match["second"]):
                value /= float(match["second"])
            elif match["value"].lstrip("+-").isdigit() and not (match["sign"] and marked):
                # A bare whole number alone is as likely a count of lost packets as a loss.
                continue
            elif not match["sign"] and not marked and " is" not in match[0]:
                continue
            found[f"{qualifier}_{name}" if qualifier else name] = value
            rest = rest.replace(match[0], " ", 1)
        if not found:
            return []
        for marker in (epoch, step):
            if marker:
                rest = rest.replace(marker[0], " ", 1)
        words = [word for word in re.findall(r"[A-Za-z]{3,}", rest) if word.lower() not in _LOG_WORDS]
        if len(words) > (8 if marked and len(found) > 1 else 5 if marked else 2):
            return []
        if epoch:
            self._enter_epoch(float(epoch["epoch"]))
        if bar and not step:
            own = self._global_step(int(bar["step"]), int(bar["total"])) if epoch else int(bar["step"])
            return self._points(found, own)
        return self._points(found, int(step["step"]) if step else None)

    def _enter_epoch(self, epoch: float) -> None:
        if self._epoch is not None and epoch != self._epoch and self._furthest:
            self._epoch_length = max(self._epoch_length, self._furthest)
            self._furthest = 0
        self._epoch = epoch

    def _global_step(self, step: int, total: int) -> int:
        """The step counted from the start of training, of one that is counted within its epoch."""
        if total:
            self._epoch_length = total
        self._furthest = max(self._furthest, step)
        if self._epoch is None or self._epoch < 1:
            return step
        return (int(self._epoch) - 1) * self._epoch_length + step

    def _points(self, values: dict[str, Any], step: int | None) -> list[MetricPoint]:
        return [
            MetricPoint(name, float(value), step, self._epoch)
            for name, value in values.items()
            if value is not None
        ]


def _quoted(text: str, *, keep_case: bool = False) -> Iterator[tuple[str, str]]:
    for match in _QUOTED.finditer(text):
        yield (match["name"] if keep_case else clean_name(match["name"])), match["value"]
