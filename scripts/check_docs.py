"""Check the documentation: links lead somewhere, no path of a single machine, the README's twins agree, lists are complete."""

from __future__ import annotations

import re
import sys
import unicodedata
from pathlib import Path
from urllib.parse import unquote

REPOSITORY = Path(__file__).resolve().parent.parent
_SKIPPED = {
    ".venv",
    ".git",
    ".demo",
    "node_modules",
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
    ".hypothesis",
}
_LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
_HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*#*$", re.MULTILINE)
_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"\s+# .*")
_CODE = re.compile(r"`[^`\n]*`")
# A home directory or a workplace: such a path is right on one machine only. Those inside of jobs are not meant.
_MACHINE_PATH = re.compile(
    r"(?<![\w.])/(?:home/(?!trainshed\b|work\b|ma-user\b)\w+|root/|work/|Users/|tmp/[a-z]+\.\w)"
)


def list_pages(root: Path) -> list[Path]:
    """All Markdown files of the repository."""
    pages = root.rglob("*.md")
    return sorted(page for page in pages if not _SKIPPED & set(page.relative_to(root).parts))


def list_anchors(text: str) -> set[str]:
    """The anchors that a page's headings make, in GitHub's way."""
    anchors: set[str] = set()
    for _, title in _HEADING.findall(_FENCE.sub("", text)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "").lower().strip()
        kept = (c for c in plain if c in " -_" or unicodedata.category(c)[0] in "LN")
        anchor = "".join(kept).replace(" ", "-")
        number = 0
        while (candidate := f"{anchor}-{number}" if number else anchor) in anchors:
            number += 1
        anchors.add(candidate)
    return anchors


def check_page(page: Path, root: Path) -> list[str]:
    """The faults of one page."""
    text = page.read_text("utf-8")
    name = page.relative_to(root)
    faults = [
        f"{name}:{number}: a path of one machine: {match[0]}"
        for number, line in enumerate(text.splitlines(), 1)
        if (match := _MACHINE_PATH.search(line))
    ]
    prose = _CODE.sub("", _FENCE.sub("", text))
    for target in _LINK.findall(prose):
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / unquote(path)).resolve() if path else page
        if not file.exists():
            faults.append(f"{name}: a link to nowhere: {target}")
        elif not file.is_relative_to(root):
            faults.append(f"{name}: a link out of the repository: {target}")
        elif anchor and file.suffix == ".md" and unquote(anchor) not in list_anchors(file.read_text("utf-8")):
            faults.append(f"{name}: no such heading: {target}")
    return faults


def check_twins(root: Path) -> list[str]:
    """The English and the Chinese README must tell the same, chapter by chapter and command by command."""
    shapes = []
    commands = []
    for name in ("README.md", "README.zh-CN.md"):
        if not (root / name).exists():
            return [f"{name} is missing"]
        whole = (root / name).read_text("utf-8")
        text = _FENCE.sub("", whole)
        commands.append([_COMMENT.sub("", match[0]) for match in _FENCE.finditer(whole)])
        shapes.append([len(level) for level, _ in _HEADING.findall(text)])
    faults = [] if shapes[0] == shapes[1] else ["README.md and README.zh-CN.md have different chapters"]
    return faults + (
        [] if commands[0] == commands[1] else ["README.md and README.zh-CN.md show different commands"]
    )


def check_lists(root: Path) -> list[str]:
    """Every page is in the documentation's index, every example in the list of examples."""
    faults = []
    for index, pattern in (("docs/index.md", "*.md"), ("examples/README.md", "*/README.md")):
        page = root / index
        if not page.exists():
            continue
        links = {target.partition("#")[0] for target in _LINK.findall(page.read_text("utf-8"))}
        for path in sorted(page.parent.glob(pattern)):
            name = path.relative_to(page.parent).as_posix()
            if path != page and name not in links:
                faults.append(f"{index} does not mention {name}")
    return faults


def main() -> int:
    """Print every fault; the exit code is 1 when there is one."""
    root = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else REPOSITORY
    faults = [fault for page in list_pages(root) for fault in check_page(page, root)]
    faults += check_twins(root) + check_lists(root)
    for fault in faults:
        print(fault)
    if not faults:
        print(f"documentation: {len(list_pages(root))} pages, no fault")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
