"""What the benchmarks share that write their figures into BENCHMARKS.md."""

import datetime
import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "BENCHMARKS.md"

# Above this much other work (runnable processes a core) a run says nothing about squelch.
BUSY = 0.5


def other_work():
    """The load of the machine before a run begins, and a warning where that is too much."""
    load = os.getloadavg()[0]
    if load > BUSY * os.cpu_count():
        print(f"warning: the machine has other work (load {load:.1f}): these figures will not be worth keeping")
    return load


def machine(load, *more, profile="quick"):
    """When, where and of what."""
    text = pathlib.Path("/proc/cpuinfo").read_text()
    model = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    processor = model[1].strip() if model else os.uname().machine
    rust = said(["rustc", "--version"]).split()[1]
    go = said(["go", "env", "GOVERSION"]).strip().removeprefix("go")
    commit = said(["git", "describe", "--always", "--dirty"]).strip()
    busy = f" **With other work on the machine (load {load:.1f}).**" if load > BUSY * os.cpu_count() else ""
    parts = [
        f"{datetime.date.today()}",
        processor,
        f"{os.cpu_count()} cores",
        f"Linux {os.uname().release.split('-')[0]}",
        f"Rust {rust}",
        f"profile `{profile}`",
        f"Go {go}",
        *more,
        f"commit {commit}",
    ]
    return ", ".join(parts) + f".{busy}\n"


def said(command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def write(name, figures):
    """Puts the figures between the marks of this name, in place of what stood there."""
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"
    before, rest = DOCUMENT.read_text(encoding="utf-8").split(begin)
    after = rest.split(end)[1]
    DOCUMENT.write_text(before + begin + "\n" + figures + "\n" + end + after, encoding="utf-8")
