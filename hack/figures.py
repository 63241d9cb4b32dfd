"""Common code of the benchmarks that update docs/benchmarks/results.md."""

import datetime
import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs/benchmarks/results.md"

# Load per core (runnable processes) above which a run is not meaningful.
BUSY = 0.5


def other_work():
    """Returns the load of the machine before a run, and warns if it is too high."""
    load = os.getloadavg()[0]
    if load > BUSY * os.cpu_count():
        print(f"warning: the machine has other load ({load:.1f}): the figures will not be meaningful")
    return load


def machine(load, *more, profile="quick"):
    """The environment of a run."""
    text = pathlib.Path("/proc/cpuinfo").read_text()
    model = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    processor = model[1].strip() if model else os.uname().machine
    rust = said(["rustc", "--version"]).split()[1]
    go = said(["go", "env", "GOVERSION"]).strip().removeprefix("go")
    commit = said(["git", "describe", "--always", "--dirty"]).strip()
    busy = f" **With other load on the machine ({load:.1f}).**" if load > BUSY * os.cpu_count() else ""
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
    """Replaces the text between the markers of this name, and draws the charts."""
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"
    before, rest = DOCUMENT.read_text(encoding="utf-8").split(begin)
    after = rest.split(end)[1]
    DOCUMENT.write_text(before + begin + "\n" + figures + "\n" + end + after, encoding="utf-8")
    subprocess.run([ROOT / "hack/charts"], check=True)
