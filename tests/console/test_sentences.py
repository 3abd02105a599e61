"""What the platform says about jobs, in Chinese."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from trainshed.console import sentences
from trainshed.console.sentences import Sentences, sentences_of


@pytest.mark.parametrize(
    ("english", "chinese"),
    [
        ("Submitted by ann.", "由 ann 提交。"),
        ("Attempt 2 starts on n1, n2.", "第 2 次运行在 n1, n2 上启动。"),
        ("Node 0: training.", "节点 0：训练中。"),
        ("job Terminated: Stopped in the console by ann.", "作业已停止：由 ann 在控制台停止。"),
        (
            "Needs 2 cores, 8 GiB; free now: vm: 0 cores, 15.5 GiB.",
            "需要 2 核、8 GiB；目前空闲：vm：0 核、15.5 GiB。",
        ),
        (
            "Needs 1 core, 4 GiB; free now: vm: 1 core, 15.5 GiB.",
            "需要 1 核、4 GiB；目前空闲：vm：1 核、15.5 GiB。",
        ),
        (
            "'/data/a b.csv' is not there: check the path, the inputs and the code folder.",
            "“/data/a b.csv”不存在：请检查路径、输入和代码文件夹。",
        ),
        # A sentence that leaves the first of its holes out.
        (
            "Check the spelling, or fix the version of 'torch' in requirements.txt to the one the script was written for.",
            "请检查拼写，或在 requirements.txt 中把“torch”固定为脚本所用的版本。",
        ),
        ("Waiting for 109 s.", "已等待 109 秒。"),
        # What is sometimes left out.
        (
            "The job was cancelled in Slurm, not through the platform.",
            "作业在 Slurm 中被取消，并非通过平台。",
        ),
        ("Node 1: installing: building the environment", "节点 1：安装软件包：正在构建环境"),
        # A piece of the catalogue of failures in the middle of a sentence, and the next step behind it.
        (
            "Failed. Rank 3 ended with exit code 1: the module 'nope' is not installed. "
            "Add 'nope' to requirements.txt beside the boot file, or choose an engine that has it.",
            "失败。Rank 3 以退出码 1 结束：没有安装模块“nope”。"
            "请把“nope”写入启动文件旁的 requirements.txt，或选择带有它的引擎。",
        ),
        (
            "Attempt 1 is over and the job goes back to the queue in 10 s. The job was stopped.",
            "第 1 次运行已结束，作业将在 10 秒后回到队列。作业已停止。",
        ),
        ("Rank 0 was ended by signal 9 (SIGKILL).", "Rank 0 被信号 9（SIGKILL）结束。"),
        # Sentences of one message that has two of them.
        (
            "Its checkpoints are in obs://b/c/: `trainshed rerun` goes on from them. Or raise time_limit.",
            "检查点在 obs://b/c/：`trainshed rerun` 可从中继续。或增大 time_limit。",
        ),
    ],
)
def test_sentences_are_told_in_chinese(english: str, chinese: str) -> None:
    assert sentences_of("zh").translate(english) == chinese
    assert sentences_of("en").translate(english) == english


def test_every_sentence_is_found_with_its_holes_filled() -> None:
    table = json.loads((Path(sentences.__file__).parent / "locale/zh/sentences.json").read_text("utf-8"))
    filled = [re.sub(r"\{\d(:n)?\}", "7", english) for english in table]
    assert len(filled) > 500
    assert [text for text in filled if sentences_of("zh").translate(text) == text] == []


def test_a_jobs_own_words_stay_as_they_are() -> None:
    told = sentences_of("zh").translate("Rank 0 ended with exit code 1: ValueError: Bad. Really {1} bad.")
    assert told == "Rank 0 以退出码 1 结束：ValueError: Bad。Really {1} bad."
    for text in (
        "",
        " ",
        "no sentence of ours",
        "Nobody knows this. Nor this.",
        "{1}",
        "'",
        "Node",
        "it hangs",
    ):
        assert sentences_of("zh").translate(text) == text


def test_the_sentence_that_says_most_is_taken() -> None:
    table = Sentences({"{1}: {2}": "B {2} {1}", "Node {1}: {2}": "A {2} {1}", "No{1}": "C {1}"})
    assert table.translate("Node 3: up") == "A up 3"
    assert table.translate("Machine: up") == "B up Machine"


@pytest.mark.parametrize("piece", ["': {1} is ", "Rank ", " ended with exit code ", ": ", ". A ", "Node 1: "])
def test_hostile_messages_end_soon(piece: str) -> None:
    """A pattern that looks at all ways to cut a text would not come back from these."""
    text = "Rank 0 ended with exit code 1" + piece * (3900 // len(piece)) + "."
    assert sentences_of("zh").translate(text)
    assert sentences_of("zh").translate(piece * 20000) == piece * 20000


def test_every_sentence_that_the_platform_writes_is_translated(translations: Any) -> None:
    table = translations.read_sentences("zh")
    assert len(table) > 300
    missing = [english for english, chinese in table.items() if not chinese]
    assert not missing, "run scripts/translations.py and fill in sentences.json"
    for english, chinese in table.items():
        assert set(re.findall(r"\{(\d)", english)) == set(re.findall(r"\{(\d)", chinese)), english
    written = json.loads(translations.sentences_path("zh").read_text("utf-8"))
    assert written == table, "run scripts/translations.py"


def test_the_collector_finds_what_is_known_to_be_said(translations: Any) -> None:
    found = set(translations.collect_spoken())
    for english in (
        "Attempt {1} starts on {2}.",
        "Needs {1}; free now: {2}.",
        "the device ran out of memory",
        "Slurm waits until enough machines are free.",
        "The sandbox did not start: {1}.",
    ):
        assert english in found
