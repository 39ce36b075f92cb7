"""Simulated person in a real browser: reads the text for screen readers and presses keys."""

import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page  # pyright: ignore[reportMissingImports]

BROWSER = next((path for name in ("chromium", "google-chrome", "chrome") if (path := shutil.which(name))), None)
SWITCHES = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    " --disable-component-update --disable-sync"
)
KEYS = {"UP": "ArrowUp", "DOWN": "ArrowDown", "LEFT": "ArrowLeft", "RIGHT": "ArrowRight", "STAY": "Space"}
PLACE = re.compile(r"row (\d+), column (\d+)")
Cell = tuple[int, int]


@contextmanager
def browser() -> "Iterator[Browser]":
    """Opens a headless browser."""
    from playwright.sync_api import sync_playwright  # pyright: ignore[reportMissingImports]

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=BROWSER, args=SWITCHES.split())
        yield opened
        opened.close()


@dataclass
class Visitor:
    """Simulated person that plays through the page."""

    page: "Page"
    address: str
    errors: list[str] = field(default_factory=list)
    """Errors on the browser's console."""

    def __post_init__(self) -> None:
        self.page.set_default_timeout(120_000)
        self.page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))

    def start_session(
        self, game: str, cast: Sequence[str], episodes: int, hidden: bool = False, record: bool = False
    ) -> str:
        """Fills in the form, waits for the board and returns the name of the game."""
        page = self.page
        page.goto(f"{self.address}/play?game={game}")
        page.wait_for_selector("#co-player-0")
        page.get_by_label("Your seat").select_option(str(cast.index("you")))
        for number, name in enumerate(name for name in cast if name != "you"):
            page.locator(f"#co-player-{number}").select_option(name)
        page.get_by_label("Episodes").fill(str(episodes))
        page.get_by_label("Hide the names").set_checked(hidden)
        page.get_by_label("Record this game").set_checked(record)
        page.get_by_role("button", name="Start session").click()
        page.wait_for_url("**/games/*")
        page.wait_for_selector(".board svg")
        return page.url.rsplit("/", 1)[1]

    def description(self) -> str:
        """Returns the description of the board for screen readers."""
        return self.page.locator(".board svg").get_attribute("aria-label") or ""

    def legal(self) -> list[str]:
        """Returns the enabled actions."""
        buttons = self.page.locator(".actions button:not(:disabled)")
        return [button.get_attribute("data-action") or "" for button in buttons.all()]

    def status(self) -> str:
        """Returns the status line of the game."""
        return self.page.locator(".game [role=status]").text_content() or ""

    def press(self, key: str) -> None:
        """Presses a key and waits until the status line changes, and is not that of a compilation."""
        before = self.status()
        self.page.keyboard.press(key)
        self.page.wait_for_function(
            """before => {
              const status = document.querySelector('.game [role=status]').textContent;
              return status !== before && !status.startsWith("Compiling");
            }""",
            arg=before,
        )

    def play_episode(self, strategy: str) -> None:
        """Plays an episode by a fixed strategy, with the keyboard alone, and continues to the next."""
        while "is over" not in self.status():
            if "You have left" in self.status():
                self.page.keyboard.press("Enter")
                self.page.wait_for_function(
                    "() => document.querySelector('.game [role=status]').textContent.includes('is over')"
                )
                break
            self.press(key_of(decide(self.description(), self.legal(), strategy)))
        self.press("Enter")

    def review(self) -> dict[str, Any]:
        """Returns the review of the session as the page receives it."""
        self.page.wait_for_selector("text=Step by step")
        name = self.page.url.rsplit("/", 1)[1]
        return self.page.evaluate(f"fetch('/api/games/{name}/review').then((answer) => answer.json())")


def key_of(action: str) -> str:
    """Returns the key of an action."""
    return KEYS.get(action, action[0].lower())


def decide(description: str, legal: Sequence[str], strategy: str) -> str:
    """Returns the action of a hunter of one kind of prey: hunts or waits on its cell, else walks to the nearest."""
    hunt = strategy.upper()
    if hunt in legal:
        return hunt
    position = cells_after(description, r"Seat \d+ \(you\) stands on")[0]
    prey = cells_after(description, f"{strategy.capitalize()}:")
    if not prey or position in prey:
        return "STAY"
    row, column = min(prey, key=lambda cell: abs(cell[0] - position[0]) + abs(cell[1] - position[1]))
    moves = {"UP": row < position[0], "DOWN": row > position[0]}
    moves |= {"LEFT": column < position[1], "RIGHT": column > position[1]}
    return next((move for move, approaches in moves.items() if approaches and move in legal), "STAY")


def cells_after(description: str, head: str) -> list[Cell]:
    """Returns the cells in the sentence of a description that starts with `head`."""
    sentence = re.search(f"{head} (.*?)(?:\\.|$|, last)", description)
    return [(int(row), int(column)) for row, column in PLACE.findall(sentence[1])] if sentence else []
