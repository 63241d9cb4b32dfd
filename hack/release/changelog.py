"""The sections of CHANGELOG.md, in the form of Keep a Changelog."""

import os
import re
import sys
from pathlib import Path

# Tests have their own changelog.
FILE = Path(os.environ.get("RELEASE_CHANGELOG") or Path(__file__).resolve().parents[2] / "CHANGELOG.md")

# Artifact Hub's kinds of changes.
KINDS = ["added", "changed", "deprecated", "removed", "fixed", "security"]


def section(version):
    """The text below the heading of a version. Exits if there is none."""
    heading = re.compile(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d{{2}}-\d{{2}}$")
    lines = FILE.read_text(encoding="utf-8").splitlines()
    begin = next((at for at, line in enumerate(lines) if heading.match(line)), None)
    if begin is None:
        sys.exit(
            f"error: {FILE} has no section for {version}: rename the section [Unreleased] to "
            f"'## [{version}] - YYYY-MM-DD', and begin a new one"
        )
    rest = lines[begin + 1 :]
    end = next((at for at, line in enumerate(rest) if line.startswith("## ")), len(rest))
    text = "\n".join(rest[:end]).strip()
    if not any(line and not line.startswith("#") for line in text.splitlines()):
        sys.exit(f"error: the section {version} of {FILE} is empty: say what users notice, and what they have to do")
    return text


def changes(version):
    """The items of a section, as (kind, text without line breaks). Nested items and tables belong to no item."""
    kind, found = "changed", []
    for line in section(version).splitlines():
        if line.startswith("### "):
            word = re.match(r"### (\w+)", line)[1].lower()
            kind = word if word in KINDS else "changed"
            found.append(None)
        elif line.startswith("- "):
            found.append((kind, line.removeprefix("- ")))
        elif re.match(r"  (?!- )\S", line) and found and found[-1]:
            found[-1] = (found[-1][0], f"{found[-1][1]} {line.strip()}")
        else:
            found.append(None)
    return [change for change in found if change]
