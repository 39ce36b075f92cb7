"""Report of runs: self-contained, faithful to the files, and robust to damaged files."""

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
from hopplus.core.formatting import percent, quote_path, short_names, with_interval
from hopplus.games import make
from hopplus.training.casting import parse_cast, seat_cast
from hopplus.training.run import Run, read_run
from hopplus.visualization.charts import LINE_COLOURS, MOST_POINTS, Curve, line_chart
from hopplus.visualization.replay import episodes_of, for_viewer
from hopplus.visualization.report import LARGEST_PAGE, page_of
from hopplus.visualization.report_charts import adaptation_charts, learning_charts
from hopplus.visualization.report_sections import adaptation_rows, seat_verdict

WRITE_REPORT = cli_train._report
"""Original function, which conftest.py replaces."""


@pytest.fixture
def run(tiny_run: Path, tmp_path: Path) -> Path:
    """Returns a copy of a small PPO run with three seeds, which tests may damage."""
    return Path(shutil.copytree(tiny_run, tmp_path / "run"))


def write_run(path: Path, files: dict[str, str | bytes], **changes: Any) -> Path:
    """Writes a run with two learning seats, five seeds and the given files beside config.json."""
    training = {"game": "msh-4x4-2h1s", "cast": "self-play"}
    config = {"format": 1, "algorithm": "ppo", "settings": {}, "training": training, "learners": [0, 1]}
    config["seeds"] = [0, 1, 2, 3, 4]
    for name, text in ({"config.json": json.dumps({**config, **changes})} | files).items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def line_of(seed: int, steps: int, *returns: float) -> str:
    """Returns a line of metrics.jsonl."""
    figures = {"seed": seed, "iteration": steps, "steps": steps, "seconds": 0.1 * steps, "return": returns}
    return json.dumps(figures) + "\n"


def text_of(page: str) -> str:
    """Returns the visible text of a page, without plotly's script."""
    return unescape(re.sub(r"<[^>]+>", " ", re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)))


def replays_in(page: str) -> list[dict[str, Any]]:
    (data,) = re.findall(r'<script type="application/json">(.*?)</script>', page, re.DOTALL)
    return json.loads(data)


def test_the_page_shows_the_files_and_needs_no_network(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run)]) == 0
    assert str(run / "report.html") in capsys.readouterr().out
    page = (run / "report.html").read_text(encoding="utf-8")
    assert len(page) < 10_000_000
    without_plotly = re.sub(r"<script>/\*.*?</script>", "", page, flags=re.DOTALL)
    assert not re.search(r'(src|href)="(?!#|data:)', without_plotly), "the page loads external files"
    text, final = text_of(page), json.loads((run / "evaluation" / "final.json").read_text())
    assert f"mean return {final['mean_return']:.3f} of {final['ceiling']:g}" in text
    assert "msh-4x4-2h1s" in text
    assert "self-play" in text
    assert "no significant difference" in text or "the seats differ" in text
    assert "standard errors over seeds" in text
    assert 'aria-label="Return in training: seat 0 from' in page
    episodes = replays_in(page)
    assert [episode["title"] for episode in episodes[:3]] == [f"with itself, episode {number}" for number in (1, 2, 3)]
    assert all(episode["steps"][-1]["time"] == len(episode["steps"]) - 1 for episode in episodes)
    assert not list(run.glob(".hopplus-*"))


def test_a_training_writes_its_report_and_prints_the_path(
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
    assert "No metrics have been logged yet." in text
    assert "No replay: there is no checkpoint yet." in text


def test_damaged_files_and_wrong_arguments_are_one_sentence(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / "metrics.jsonl").write_text('{"steps": oops}\n{"steps": 2}\n')
    for argv, sentence in (
        ([str(run)], "is damaged"),
        ([str(tmp_path / "nowhere")], "is not a run: it has no config.json"),
        ([], "needs at least one run directory"),
    ):
        assert main(["report", *argv]) == 2
        error = capsys.readouterr().err
        assert error.startswith("hopplus: ")
        assert sentence in error
        assert error.count("\n") == 1
    assert not (run / "report.html").exists()
    (run / "evaluation" / "final.json").write_text("{")
    (run / "metrics.jsonl").write_text("")
    assert main(["report", str(run)]) == 2
    assert "final.json is damaged" in capsys.readouterr().err


LINE = line_of(0, 1, 1.0, 2.0)


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({"config.json": '{"seeds": [0'}, "config.json cannot be read"),
        ({"config.json": b"\xff\xfe"}, "config.json cannot be read"),
        ({"config.json": "[]"}, "config.json does not describe a run"),
        ({"config.json": '{"seeds": 3}'}, "config.json does not describe a run"),
        ({"config.json": '{"seeds": [0], "format": 9}'}, "config.json has format 9, and this version"),
        ({"evaluation/final.json": '{"format": 9}'}, "final.json has format 9, and this version"),
        ({"evaluation/final.json": "{}"}, "final.json states no format"),
        ({"metrics.jsonl": b"\xff\xfe\n"}, "metrics.jsonl is damaged"),
        ({"metrics.jsonl": "[1]\n"}, "line 1 has no seed"),
        ({"metrics.jsonl": LINE + '{"steps": 1}\n'}, "line 2 has no seed"),
        ({"metrics.jsonl": LINE.replace("[1.0, 2.0]", "[1.0]")}, "lack data for a report"),
        ({"metrics.jsonl": LINE.replace("[1.0, 2.0]", '["a", "b"]')}, "lack data for a report"),
        ({"metrics.jsonl/x": ""}, "metrics.jsonl is damaged"),
        ({"evaluation/final.json": "[]"}, "final.json is damaged: it is no JSON object"),
        ({"evaluation/final.json": '{"format": 1, "own_return": 1}', "metrics.jsonl": LINE}, "no 'share_of_ceiling'"),
        ({"evaluation/adapt-x.json": '{"format": 1, "rows": [{}]}'}, "lack data for a report: no 'seating'"),
        ({"evaluation/crossplay-x.json": '{"format": 1, "rows": []}'}, "lack data for a report: no 'columns'"),
    ],
)
def test_invalid_files_are_one_sentence(
    files: dict[str, str | bytes], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "run", files)
    assert main(["report", str(run)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("hopplus: ")
    assert sentence in error
    assert error.count("\n") == 1
    assert not (run / "report.html").exists()


def test_a_page_that_cannot_be_written_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "run", {"file": ""})
    assert main(["report", str(run), "--out", str(run / "file" / "x.html")]) == 2
    assert capsys.readouterr().err.startswith("hopplus: cannot write ")


@pytest.mark.parametrize(
    ("metrics", "state"),
    [
        ("", "No metrics have been logged yet."),
        (LINE + LINE[:20], "Unfinished, after 1 steps per seed."),
        (LINE + line_of(0, 2, float("nan"), float("inf")) + line_of(0, 3, 1.0, 2.0), "Unfinished, after 3 steps"),
        (line_of(9, 1, 1.0, 2.0), "Unfinished"),
    ],
)
def test_unfinished_runs_have_a_page(metrics: str, state: str, tmp_path: Path) -> None:
    page = page_of([read_run(write_run(tmp_path / "run", {"metrics.jsonl": metrics}))])
    assert state in text_of(page)
    assert "No replay: there is no checkpoint yet." in text_of(page)
    charts = page[page.rindex('<main id="content">') : page.rindex("</main>")]
    assert not re.search(r"\b(NaN|Infinity)\b", charts), "not JSON"


def test_a_run_without_settings_has_a_page_without_a_replay(tmp_path: Path) -> None:
    name = f"checkpoints/{1:010d}-{'0' * 16}.safetensors"
    run = write_run(tmp_path / "run", {name: "damaged", "metrics.jsonl": LINE}, training={})
    assert "No replay: " in text_of(page_of([read_run(run)]))


def test_very_long_runs_have_small_pages(tmp_path: Path) -> None:
    """Three runs of 30,000 lines per seed; one run is written and read three times."""
    lines = "".join(line_of(seed, step, 1.0 + seed, 2.0) for step in range(30_000) for seed in range(5))
    run = read_run(write_run(tmp_path / "run", {"metrics.jsonl": lines}))
    metrics = run.metrics()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, "metrics", lambda self: metrics)
        pages = [page_of([run] * number, sets=None) for number in (1, 3)]
    assert all(len(page.encode()) < LARGEST_PAGE for page in pages)
    assert "after 29,999 steps per seed" in text_of(pages[0])
    (chart,) = learning_charts(run, metrics)
    drawn: Any = chart.figure.data
    assert [len(line.x) for line in drawn if line.name] == [MOST_POINTS] * 2
    assert {(line.x[0], line.x[-1]) for line in drawn if line.name} == {(0, 29_999)}
    assert drawn[1].y[7] == 3.0, "the mean over the five seeds"


def test_pictures_are_omitted_from_a_page_that_would_be_too_large(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).bytes(1_900_000)
    pictures: dict[str, str | bytes] = {f"diagnostics/moa/{number}.png": noise for number in range(6)}
    page = page_of([read_run(write_run(tmp_path / "run", pictures))])
    assert len(page.encode()) <= LARGEST_PAGE
    shown = page.count('src="data:image/png')
    assert 1 <= shown < 6
    assert f"Omitted to limit the size of the page: {6 - shown} pictures." in text_of(page)


def test_figures_have_text_alternatives_and_colours_for_light_and_dark_pages(tmp_path: Path) -> None:
    score = {"mean": 1.0, "low": None, "high": None}
    cross = {"rows": ["a"], "columns": ["a", "ns"], "cells": [{"row": "a", "column": "ns", **score}]}
    files = {"metrics.jsonl": LINE, "diagnostics/moa/epoch-01.png": b"png", "evaluation/crossplay-a.json": ""}
    files["evaluation/crossplay-a.json"] = json.dumps({"format": 1, **cross})
    page = page_of([read_run(write_run(tmp_path / "run", files))])
    figures = re.findall(r"<figure>.*?</figure>", page, re.DOTALL)
    assert len(figures) == 3
    for figure in figures:
        assert re.search(r'role="img" aria-label="[^"]+"|<img [^>]*alt="[^"]+"', figure), figure[:300]
        assert re.search(r"<figcaption>[^<]+</figcaption>", figure)
    assert "a with ns: 1.00" in page
    assert "prefers-color-scheme: dark" in page
    assert "#000000" not in LINE_COLOURS


def test_formatting_of_figures_and_names() -> None:
    assert [percent(share) for share in (0.975, None)] == ["97.5%", "-"]
    assert with_interval({"mean": 1.0, "low": 0.5, "high": 1.5}) == "1.000 [0.500, 1.500]"
    assert with_interval({"mean": 1.0, "low": None, "high": None}, digits=2) == "1.00"
    assert short_names(["runs/ppo", "ns"]) == ["ppo", "ns"]
    assert [quote_path(path) for path in ("a/b", "a b")] == ["a/b", '"a b"']


def test_names_in_a_run_cannot_inject_code(run: Path) -> None:
    config = read_run(run).config
    code = "</script><script>alert(1)</script>"
    malicious = Run(run, {**config, "machine": code, "training": {**config["training"], "cast": code}})
    assert code not in page_of([malicious], sets=None)


def test_a_very_long_curve_is_thinned_out() -> None:
    steps = np.arange(100_000.0)
    chart = line_chart("Long", [Curve("a", steps.tolist(), steps.tolist(), other_x=steps.tolist())], "steps", "minutes")
    line: Any = chart.figure.data[0]
    assert len(line.x) <= MOST_POINTS
    assert (line.x[0], line.x[-1]) == (0, 99_999)
    assert chart.alternative == "Long: a from 0 to 1e+05."


@pytest.mark.parametrize(("gap", "verdict"), [(0.0, "no significant difference"), (0.2, "the seats differ")])
def test_the_verdict_about_seats(gap: float, verdict: str) -> None:
    """Seeds may differ by more than seats do."""
    noise = np.random.default_rng(0).normal(size=(8, 4)) * 0.01 + np.linspace(2, 3, 8)[:, None]
    returns = noise + np.array([gap, 0, 0, 0])
    final = {"per_seat": [{}] * 4, "per_seed": [{"by_seat": row} for row in returns.tolist()], "learners": [0, 1, 2, 3]}
    for cast, expected in (("self-play", verdict), ("learner,ns,ns,ns", None)):
        sentence = seat_verdict(Run(Path("x"), {"training": {"cast": cast}}), final)
        assert sentence is None if expected is None else expected in (sentence or "")
    one_seed = {**final, "per_seed": final["per_seed"][:1]}
    assert seat_verdict(Run(Path("x"), {"training": {"cast": "self-play"}}), one_seed) is None


def test_adaptation_results_are_grouped_by_protocol() -> None:
    score = {"mean": 1.0, "low": 0.9, "high": 1.1, "unit": "episodes", "first": 6, "last": 10, "interval": "over seeds"}
    row = {"set": "defectors", "seating": "one", "update_weights": False, "greedy": False, "protocol": "few-shot"}
    curve = [{"episode": 1, "mean": 1.0, "low": None, "high": None, "oracle": 1.0}]
    row |= {"score": score, "curve": curve, "met_before": []}
    rows = adaptation_rows(
        {
            "adapt-defectors": {"rows": [row, {**row, "seating": "three"}]},
            "adapt-defectors-updating-planner-tree": {"rows": [{**row, "update_weights": True}]},
            "final": {"rows": [row]},
        }
    )
    protocols = [protocol for protocol, _ in rows]
    assert protocols == [
        "one focal player, weights frozen",
        "three focal players, weights frozen",
        "one focal player, weights updated, planner tree",
    ]
    charts = adaptation_charts([(name, protocol, row) for name in ("a", "b") for protocol, row in rows])
    drawn: list[Any] = [chart.figure.data for chart in charts]
    assert [[line.name for line in lines if line.name] for lines in drawn] == [["a", "b", "oracle"]] * 3


def test_a_seed_that_stopped_early_repeats_its_last_line_and_gaps_do_not_hide_a_band() -> None:
    lines = [{"seed": seed, "steps": step, "return": [float(seed + step)]} for seed in range(3) for step in range(4)]
    lines = [line for line in lines if not (line["seed"] == 2 and line["steps"] > 1)]
    lines[0]["return"] = [None]
    run = Run(Path("x"), {"seeds": [0, 1, 2], "learners": [0], "training": {}})
    (chart,) = learning_charts(run, lines)
    traces: Any = chart.figure.data
    band, line = traces
    assert list(line.x) == [0, 1, 2, 3]
    assert list(line.y) == [None, 2.0, pytest.approx(8 / 3, abs=1e-4), pytest.approx(10 / 3, abs=1e-4)]
    assert len(band.x) == 6, "there and back over the three steps that are known of all seeds"


def test_a_replay_shows_the_played_episode() -> None:
    game = make("msh-4x4-4h1s")
    first, second = episodes_of(game, seat_cast(parse_cast("ns,ns,nh,random"), game), seed=3, number=2)
    shown = for_viewer(first)
    assert [step["time"] for step in shown["steps"]] == [frame.time for frame in first]
    totals = np.cumsum([step["rewards"] for step in shown["steps"]], axis=0)
    np.testing.assert_allclose(totals[-1], shown["steps"][-1]["totals"], atol=1e-2)
    assert all(step["board"].startswith("<svg") for step in shown["steps"])
    assert first[0].players != second[0].players or first[0].things != second[0].things


@pytest.mark.slow
def test_the_demo_trains_both_and_writes_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["demo", "--steps", "3000", "--trials", "1", "--out", str(tmp_path / "demo")]
    assert main(argv) == 0
    output = capsys.readouterr().out
    assert "three defectors" in output
    assert "Both were trained in self-play only." in output
    page = (tmp_path / "demo" / "report.html").read_text(encoding="utf-8")
    together = page[page.index('id="comparison"') : page.index('id="run-0"')]
    (caption,) = re.findall(r'aria-label="(Own reward with defectors[^"]*)"', together)
    assert "ppo from" in caption
    assert "hopplus from" in caption
    assert len(page) < 10_000_000
    assert main([*argv, "--json"]) == 0, "existing runs are resumed"
    assert set(json.loads(capsys.readouterr().out)) == {"self_play", "rows", "report"}
    assert main([*argv, "--seed", "1"]) == 2
    assert "holds another training than the demo's with seed 1" in capsys.readouterr().err
    assert main(["demo", "--trials", "0"]) == 2
