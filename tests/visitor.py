"""A person at the page, in a real browser: reads what a screen reader would, and presses keys."""

import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page  # pyright: ignore[reportMissingImports]

BROWSER = next((found for name in ("chromium", "google-chrome", "chrome") if (found := shutil.which(name))), None)
SWITCHES = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    " --disable-component-update --disable-sync"
)
KEYS = {"UP": "ArrowUp", "DOWN": "ArrowDown", "LEFT": "ArrowLeft", "RIGHT": "ArrowRight", "STAY": "Space"}
PLACE = re.compile(r"row (\d+), column (\d+)")
Cell = tuple[int, int]


@contextmanager
def browser() -> "Iterator[Browser]":
    """A browser without a screen."""
    from playwright.sync_api import sync_playwright  # pyright: ignore[reportMissingImports]

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=BROWSER, args=SWITCHES.split())
        yield opened
        opened.close()


@dataclass
class Visitor:
    """Somebody who plays through the page."""

    page: "Page"
    address: str
    errors: list[str] = field(default_factory=list)
    """What the browser complained about."""

    def __post_init__(self) -> None:
        self.page.set_default_timeout(120_000)
        self.page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))

    def sit_down(
        self, game: str, cast: Sequence[str], episodes: int, hidden: bool = False, record: bool = False
    ) -> str:
        """Fill in the form and wait for the board; the game's name."""
        page = self.page
        page.goto(f"{self.address}/play?game={game}")
        page.wait_for_selector("#other-0")
        page.get_by_label("Your seat").select_option(str(cast.index("you")))
        for number, word in enumerate(word for word in cast if word != "you"):
            page.locator(f"#other-{number}").select_option(word)
        page.get_by_label("Episodes").fill(str(episodes))
        page.get_by_label("Hide who is who").set_checked(hidden)
        page.get_by_label("Record this game").set_checked(record)
        page.get_by_role("button", name="Sit down").click()
        page.wait_for_url("**/games/*")
        page.wait_for_selector(".board svg")
        return page.url.rsplit("/", 1)[1]

    def words(self) -> str:
        """What the board says to those who do not see it."""
        return self.page.locator(".board svg").get_attribute("aria-label") or ""

    def legal(self) -> list[str]:
        buttons = self.page.locator(".actions button:not(:disabled)")
        return [button.get_attribute("data-action") or "" for button in buttons.all()]

    def status(self) -> str:
        return self.page.locator(".game [role=status]").text_content() or ""

    def press(self, key: str) -> None:
        """Press a key and wait until something has changed."""
        before = self.status()
        self.page.keyboard.press(key)
        self.page.wait_for_function(
            "before => document.querySelector('.game [role=status]').textContent !== before", arg=before
        )

    def play_episode(self, strategy: str) -> None:
        """Play by a fixed strategy, with the keyboard alone, until the episode is over, and go on to the next."""
        while "is over" not in self.status():
            if "You have left" in self.status():
                self.page.keyboard.press("Enter")
                self.page.wait_for_function(
                    "() => document.querySelector('.game [role=status]').textContent.includes('is over')"
                )
                break
            self.press(key_of(decide(self.words(), self.legal(), strategy)))
        self.press("Enter")

    def review(self) -> dict[str, Any]:
        """What the page has been told of everybody's beliefs."""
        self.page.wait_for_selector("text=Step by step")
        name = self.page.url.rsplit("/", 1)[1]
        return self.page.evaluate(f"fetch('/api/games/{name}/review').then((answer) => answer.json())")


def key_of(action: str) -> str:
    return KEYS.get(action, action[0].lower())


def decide(words: str, legal: Sequence[str], strategy: str) -> str:
    """What one who is always after one prey does: hunts it where it stands on it, waits there, or walks to it."""
    work = strategy.upper()
    if work in legal:
        return work
    own = places(words, r"Seat \d+ \(you\) stands on")[0]
    prey = places(words, f"{strategy.capitalize()}:")
    if not prey or own in prey:
        return "STAY"
    row, column = min(prey, key=lambda cell: abs(cell[0] - own[0]) + abs(cell[1] - own[1]))
    wanted = {"UP": row < own[0], "DOWN": row > own[0], "LEFT": column < own[1], "RIGHT": column > own[1]}
    return next((move for move, wants in wanted.items() if wants and move in legal), "STAY")


def places(words: str, head: str) -> list[Cell]:
    """The cells that a sentence of the description names."""
    found = re.search(f"{head} (.*?)(?:\\.|$|, last)", words)
    return [(int(row), int(column)) for row, column in PLACE.findall(found[1])] if found else []
