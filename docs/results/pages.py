"""What the pages of results have in common: commands as a person would type them, markdown, intervals over seeds."""

import subprocess
import sys
from dataclasses import dataclass, field

import numpy as np
from scipy import stats


def hopplus(*words: str) -> None:
    """Run a command of this repository, as a person would."""
    subprocess.run([sys.executable, "-m", "hopplus.cli.main", *words], check=True, stdout=subprocess.DEVNULL)


@dataclass
class Page:
    """Markdown in the making."""

    lines: list[str] = field(default_factory=list)

    def add(self, *lines: str) -> None:
        self.lines += [*lines, ""]

    def text(self) -> str:
        return "\n".join(self.lines).rstrip() + "\n"


def interval(values: list[float], digits: int = 3) -> str:
    """Mean and 95% interval over seeds (Student's t)."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return f"{mean:.{digits}f}"
    half = stats.t.ppf(0.975, len(values) - 1) * float(np.std(values, ddof=1)) / len(values) ** 0.5
    return f"{mean:.{digits}f} ± {half:.{digits}f}"
