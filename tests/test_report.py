"""The page of a run: it holds everything it needs and tells what the files tell, whatever state they are in."""

import json
import re
import shutil
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common import TINY_PPO, short_evaluations
from hopplus.cli import train as cli_train
from hopplus.cli.main import main
from hopplus.games import make
from hopplus.notation import as_word, percent, short_names, with_interval
from hopplus.report.charts import LINE_COLOURS, MOST_POINTS, Curve, line_chart
from hopplus.report.page import LARGEST_PAGE, adaptation_charts, learning_charts, met_rows, page_of, seat_verdict
from hopplus.report.replay import episodes_of, for_viewer
from hopplus.training.run import Run, read_run
from hopplus.training.seats import seat_cast

WRITE_REPORT = cli_train._report
"""Which conftest.py replaces."""


@pytest.fixture
def run(tiny_run: Path, tmp_path: Path) -> Path:
    """A copy of a small training of PPO with three seeds, to be spoilt."""
    return Path(shutil.copytree(tiny_run, tmp_path / "run"))


def written(path: Path, files: dict[str, str | bytes], **changes: Any) -> Path:
    """A run by hand: two seats learnt, five seeds; the files given beside its config.json."""
    training = {"game": "msh-4x4-2h1s", "cast": "self-play"}
    config = {"recipe": "ppo", "settings": {}, "training": training, "learners": [0, 1], "seeds": [0, 1, 2, 3, 4]}
    for name, text in ({"config.json": json.dumps({**config, **changes})} | files).items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def line_of(seed: int, steps: int, *returns: float) -> str:
    """A line of metrics.jsonl."""
    figures = {"seed": seed, "iteration": steps, "steps": steps, "seconds": 0.1 * steps, "return": returns}
    return json.dumps(figures) + "\n"


def text_of(page: str) -> str:
    """What a reader reads, without plotly's script."""
    return unescape(re.sub(r"<[^>]+>", " ", re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)))


def replays_in(page: str) -> list[dict[str, Any]]:
    (found,) = re.findall(r'<script type="application/json">(.*?)</script>', page, re.DOTALL)
    return json.loads(found)


def test_the_page_tells_what_the_files_tell_and_needs_no_network(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run)]) == 0
    assert str(run / "report.html") in capsys.readouterr().out
    page = (run / "report.html").read_text(encoding="utf-8")
    assert len(page) < 10_000_000
    own = re.sub(r"<script>/\*.*?</script>", "", page, flags=re.DOTALL)
    assert not re.search(r'(src|href)="(?!#|data:)', own), "something is fetched from elsewhere"
    text, final = text_of(page), json.loads((run / "evaluation" / "final.json").read_text())
    assert f"mean return {final['mean_return']:.3f} of {final['ceiling']:g}" in text
    assert "msh-4x4-2h1s" in text
    assert "self-play" in text
    assert "no seat stands out" in text or "the seats differ" in text
    assert "standard errors over seeds" in text
    assert 'aria-label="Return in training: seat 0 from' in page
    series = replays_in(page)
    assert [one["title"] for one in series[:3]] == [f"with itself, episode {number}" for number in (1, 2, 3)]
    assert all(one["steps"][-1]["time"] == len(one["steps"]) - 1 for one in series)
    assert not list(run.glob(".hopplus-*"))


def test_a_training_writes_its_page_and_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli_train, "_report", WRITE_REPORT)
    with short_evaluations():
        assert main([*TINY_PPO, "--out", str(tmp_path / "run")]) == 0
    assert f"report: {tmp_path / 'run' / 'report.html'}" in capsys.readouterr().out
    assert (tmp_path / "run" / "report.html").is_file()


def test_runs_side_by_side(run: Path, tiny_run: Path, tmp_path: Path) -> None:
    out = tmp_path / "both.html"
    assert main(["report", str(run), str(tiny_run), "--out", str(out), "--no-replay"]) == 0
    page = out.read_text(encoding="utf-8")
    assert "Side by side" in page
    assert page.count('class="state"') == 2
    assert '<script type="application/json">' not in page
    assert short_names([run, tiny_run]) == ["run", "tiny"]
    assert short_names([Path("/a/b/x"), Path("/a/c/x")]) == ["b/x", "c/x"]


def test_an_unfinished_and_an_empty_run_have_a_page(run: Path) -> None:
    (run / "evaluation" / "final.json").unlink()
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join(lines[:3]) + lines[3][:20])
    assert "Unfinished, after" in text_of(page_of([read_run(run)], sets=None))
    (run / "metrics.jsonl").unlink()
    shutil.rmtree(run / "checkpoints")
    text = text_of(page_of([read_run(run)]))
    assert "Nothing has been learnt yet." in text
    assert "There is no replay: nothing has been saved yet." in text


def test_damaged_files_and_wrong_words_end_in_one_sentence(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / "metrics.jsonl").write_text('{"steps": oops}\n{"steps": 2}\n')
    for words, sentence in (
        ([str(run)], "is damaged"),
        ([str(tmp_path / "nowhere")], "is not a run: it has no config.json"),
        ([], "needs at least one run directory"),
    ):
        assert main(["report", *words]) == 2
        said = capsys.readouterr().err
        assert said.startswith("hopplus: ")
        assert sentence in said
        assert said.count("\n") == 1
    assert not (run / "report.html").exists()
    (run / "evaluation" / "final.json").write_text("{")
    (run / "metrics.jsonl").write_text("")
    assert main(["report", str(run)]) == 2
    assert "final.json is damaged" in capsys.readouterr().err


WHOLE = line_of(0, 1, 1.0, 2.0)


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({"config.json": '{"seeds": [0'}, "config.json cannot be read"),
        ({"config.json": b"\xff\xfe"}, "config.json cannot be read"),
        ({"config.json": "[]"}, "config.json does not describe a run"),
        ({"config.json": '{"seeds": 3}'}, "config.json does not describe a run"),
        ({"metrics.jsonl": b"\xff\xfe\n"}, "metrics.jsonl is damaged"),
        ({"metrics.jsonl": "[1]\n"}, "line 1 does not say of which seed it is"),
        ({"metrics.jsonl": WHOLE + '{"steps": 1}\n'}, "line 2 does not say of which seed it is"),
        ({"metrics.jsonl": WHOLE.replace("[1.0, 2.0]", "[1.0]")}, "not as a page needs them"),
        ({"metrics.jsonl": WHOLE.replace("[1.0, 2.0]", '["a", "b"]')}, "not as a page needs them"),
        ({"metrics.jsonl/x": ""}, "metrics.jsonl is damaged"),
        ({"evaluation/final.json": "[]"}, "final.json is damaged: it holds no figures by name"),
        ({"evaluation/final.json": '{"own_return": 1}', "metrics.jsonl": WHOLE}, "no 'share_of_ceiling'"),
        ({"evaluation/adapt-x.json": '{"rows": [{}]}'}, "not as a page needs them: no 'seating'"),
        ({"evaluation/crossplay-x.json": '{"rows": []}'}, "not as a page needs them: no 'columns'"),
    ],
)
def test_files_that_are_not_what_they_ought_to_be_end_in_one_sentence(
    files: dict[str, str | bytes], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = written(tmp_path / "run", files)
    assert main(["report", str(run)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("hopplus: ")
    assert sentence in said
    assert said.count("\n") == 1
    assert not (run / "report.html").exists()


def test_a_page_that_cannot_be_written_is_said_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = written(tmp_path / "run", {"file": ""})
    assert main(["report", str(run), "--out", str(run / "file" / "x.html")]) == 2
    assert capsys.readouterr().err.startswith("hopplus: cannot write ")


@pytest.mark.parametrize(
    ("metrics", "state"),
    [
        ("", "Nothing has been learnt yet."),
        (WHOLE + WHOLE[:20], "Unfinished, after 1 steps a seed."),
        (WHOLE + line_of(0, 2, float("nan"), float("inf")) + line_of(0, 3, 1.0, 2.0), "Unfinished, after 3 steps"),
        (line_of(9, 1, 1.0, 2.0), "Unfinished"),
    ],
)
def test_runs_that_have_not_come_far_have_a_page(metrics: str, state: str, tmp_path: Path) -> None:
    page = page_of([read_run(written(tmp_path / "run", {"metrics.jsonl": metrics}))])
    assert state in text_of(page)
    assert "There is no replay: nothing has been saved yet." in text_of(page)
    charts = page[page.rindex('<main id="content">') : page.rindex("</main>")]
    assert not re.search(r"\b(NaN|Infinity)\b", charts), "not JSON"


def test_a_run_whose_settings_are_lost_has_a_page_without_a_replay(tmp_path: Path) -> None:
    name = f"checkpoints/{1:010d}-{'0' * 16}.safetensors"
    run = written(tmp_path / "run", {name: "damaged", "metrics.jsonl": WHOLE}, training={})
    assert "There is no replay: " in text_of(page_of([read_run(run)]))


def test_very_long_runs_have_small_pages(tmp_path: Path) -> None:
    """Three runs of 30,000 lines a seed; only the first is written, and read as three."""
    lines = "".join(line_of(seed, step, 1.0 + seed, 2.0) for step in range(30_000) for seed in range(5))
    run = read_run(written(tmp_path / "run", {"metrics.jsonl": lines}))
    found = run.metrics()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, "metrics", lambda self: found)
        pages = [page_of([run] * number, sets=None) for number in (1, 3)]
    assert all(len(page.encode()) < LARGEST_PAGE for page in pages)
    assert "after 29,999 steps a seed" in text_of(pages[0])
    (chart,) = learning_charts(run, found)
    drawn: Any = chart.figure.data
    assert [len(line.x) for line in drawn if line.name] == [MOST_POINTS] * 2
    assert {(line.x[0], line.x[-1]) for line in drawn if line.name} == {(0, 29_999)}
    assert drawn[1].y[7] == 3.0, "the mean over the five seeds"


def test_what_would_make_a_page_too_large_is_left_out_and_said(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).bytes(1_900_000)
    pictures: dict[str, str | bytes] = {f"diagnostics/moa/{number}.png": noise for number in range(6)}
    page = page_of([read_run(written(tmp_path / "run", pictures))])
    assert len(page.encode()) <= LARGEST_PAGE
    kept = page.count('src="data:image/png')
    assert 1 <= kept < 6
    assert f"Left out, lest the page grow too large: {6 - kept} pictures." in text_of(page)


def test_figures_have_words_and_can_be_seen_in_light_and_dark(tmp_path: Path) -> None:
    score = {"mean": 1.0, "low": None, "high": None}
    cross = {"rows": ["a"], "columns": ["a", "ns"], "cells": [{"row": "a", "column": "ns", **score}]}
    files = {"metrics.jsonl": WHOLE, "diagnostics/moa/epoch-01.png": b"png", "evaluation/crossplay-a.json": ""}
    files["evaluation/crossplay-a.json"] = json.dumps(cross)
    page = page_of([read_run(written(tmp_path / "run", files))])
    figures = re.findall(r"<figure>.*?</figure>", page, re.DOTALL)
    assert len(figures) == 3
    for figure in figures:
        assert re.search(r'role="img" aria-label="[^"]+"|<img [^>]*alt="[^"]+"', figure), figure[:300]
        assert re.search(r"<figcaption>[^<]+</figcaption>", figure)
    assert "a with ns: 1.00" in page
    assert "prefers-color-scheme: dark" in page
    assert "#000000" not in LINE_COLOURS


def test_figures_and_names_in_words() -> None:
    assert [percent(share) for share in (0.975, None)] == ["97.5%", "-"]
    assert with_interval({"mean": 1.0, "low": 0.5, "high": 1.5}) == "1.000 [0.500, 1.500]"
    assert with_interval({"mean": 1.0, "low": None, "high": None}, digits=2) == "1.00"
    assert short_names(["runs/ppo", "ns"]) == ["ppo", "ns"]
    assert [as_word(path) for path in ("a/b", "a b")] == ["a/b", '"a b"']


def test_names_in_a_run_cannot_put_anything_into_the_page(run: Path) -> None:
    found = read_run(run)
    wicked = "</script><script>alert(1)</script>"
    spoilt = Run(run, {**found.config, "machine": wicked, "training": {**found.config["training"], "cast": wicked}})
    assert wicked not in page_of([spoilt], sets=None)


def test_a_very_long_training_is_thinned_out_to_what_can_be_seen() -> None:
    steps = np.arange(100_000.0)
    chart = line_chart("Long", [Curve("a", steps.tolist(), steps.tolist(), other_x=steps.tolist())], "steps", "minutes")
    line: Any = chart.figure.data[0]
    assert len(line.x) <= MOST_POINTS
    assert (line.x[0], line.x[-1]) == (0, 99_999)
    assert chart.alternative == "Long: a from 0 to 1e+05."


@pytest.mark.parametrize(("gap", "verdict"), [(0.0, "no seat stands out"), (0.2, "the seats differ")])
def test_the_verdict_about_seats(gap: float, verdict: str) -> None:
    """Seeds may differ by more than seats do."""
    noise = np.random.default_rng(0).normal(size=(8, 4)) * 0.01 + np.linspace(2, 3, 8)[:, None]
    returns = noise + np.array([gap, 0, 0, 0])
    final = {"per_seat": [{}] * 4, "per_seed": [{"by_seat": row} for row in returns.tolist()], "learners": [0, 1, 2, 3]}
    for cast, expected in (("self-play", verdict), ("learner,ns,ns,ns", None)):
        said = seat_verdict(Run(Path("x"), {"training": {"cast": cast}}), final)
        assert said is None if expected is None else expected in (said or "")
    one_seed = {**final, "per_seed": final["per_seed"][:1]}
    assert seat_verdict(Run(Path("x"), {"training": {"cast": "self-play"}}), one_seed) is None


def test_what_adapt_found_is_told_apart_by_how_it_was_done() -> None:
    score = {"mean": 1.0, "low": 0.9, "high": 1.1, "unit": "episodes", "first": 6, "last": 10, "interval": "over seeds"}
    row = {"set": "defectors", "seating": "one", "update_weights": False, "greedy": False, "protocol": "few-shot"}
    curve = [{"episode": 1, "mean": 1.0, "low": None, "high": None, "oracle": 1.0}]
    row |= {"score": score, "curve": curve, "met_before": []}
    found = met_rows(
        {
            "adapt-defectors": {"rows": [row, {**row, "seating": "three"}]},
            "adapt-defectors-updating-search-on": {"rows": [{**row, "update_weights": True}]},
            "final": {"rows": [row]},
        }
    )
    hows = [how for how, _ in found]
    assert hows == [
        "one of them, weights frozen",
        "three of them with one, weights frozen",
        "one of them, weights updated, with search",
    ]
    charts = adaptation_charts([(name, how, row) for name in ("a", "b") for how, row in found])
    drawn: list[Any] = [chart.figure.data for chart in charts]
    assert [[line.name for line in lines if line.name] for lines in drawn] == [["a", "b", "oracle"]] * 3


def test_a_seed_that_stopped_early_stays_where_it_was_and_gaps_do_not_hide_a_band() -> None:
    lines = [{"seed": seed, "steps": step, "return": [float(seed + step)]} for seed in range(3) for step in range(4)]
    lines = [line for line in lines if not (line["seed"] == 2 and line["steps"] > 1)]
    lines[0]["return"] = [None]
    run = Run(Path("x"), {"seeds": [0, 1, 2], "learners": [0], "training": {}})
    (chart,) = learning_charts(run, lines)
    shown: Any = chart.figure.data
    band, line = shown
    assert list(line.x) == [0, 1, 2, 3]
    assert list(line.y) == [None, 2.0, pytest.approx(8 / 3, abs=1e-4), pytest.approx(10 / 3, abs=1e-4)]
    assert len(band.x) == 6, "there and back over the three steps that are known of all seeds"


def test_a_replay_is_what_was_played() -> None:
    game = make("msh-4x4-4h1s")
    first, second = episodes_of(game, seat_cast("ns,ns,nh,random", game), seed=3, number=2)
    shown = for_viewer(first)
    assert [step["time"] for step in shown["steps"]] == [frame.time for frame in first]
    totals = np.cumsum([step["rewards"] for step in shown["steps"]], axis=0)
    np.testing.assert_allclose(totals[-1], shown["steps"][-1]["totals"], atol=1e-2)
    assert all(step["board"].startswith("<svg") for step in shown["steps"])
    assert first[0].players != second[0].players or first[0].things != second[0].things


@pytest.mark.slow
def test_the_demo_trains_both_and_tells_what_it_shows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["demo", "--steps", "3000", "--tables", "1", "--out", str(tmp_path / "demo")]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "three defectors" in said
    assert "Neither has met anybody but itself." in said
    page = (tmp_path / "demo" / "report.html").read_text(encoding="utf-8")
    together = page[page.index('id="comparison"') : page.index('id="run-0"')]
    (caption,) = re.findall(r'aria-label="(Own reward with defectors[^"]*)"', together)
    assert "ppo from" in caption
    assert "hopplus from" in caption
    assert len(page) < 10_000_000
    assert main([*words, "--json"]) == 0, "what is there already is gone on with"
    assert set(json.loads(capsys.readouterr().out)) == {"self_play", "rows", "report"}
    assert main([*words, "--seed", "1"]) == 2
    assert "holds another training than the demo's with seed 1" in capsys.readouterr().err
    assert main(["demo", "--tables", "0"]) == 2
