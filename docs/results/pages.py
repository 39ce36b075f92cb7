"""What the pages of results have in common: commands as a person would type them, markdown, intervals over seeds."""

import subprocess
import sys
from dataclasses import dataclass, field

import numpy as np

QUANTILES = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 8: 2.36, 10: 2.26}
"""Of Student's t, 97.5%, by number of seeds."""


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
    if len(values) not in QUANTILES:
        return f"{mean:.{digits}f}"
    half = QUANTILES[len(values)] * float(np.std(values, ddof=1)) / len(values) ** 0.5
    return f"{mean:.{digits}f} ± {half:.{digits}f}"
