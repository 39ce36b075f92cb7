"""Command `hopplus games`."""

from rich.table import Table

from hopplus.cli.output import Json, Plugin, run_plugin, show


def games(json: Json = None, plugin: Plugin = None) -> None:
    """List the games: name, version, players, actions and return ceilings."""
    from hopplus.games import make, names

    run_plugin(plugin)
    rows = []
    for name in names():
        game = make(name)
        rows.append(
            {
                "name": name,
                "version": game.version,
                "players": game.num_players,
                "actions": list(game.action_names),
                "last_step": game.last_step,
                "ceilings": dict(game.ceilings),
            }
        )
    table = Table("name", "version", "players", "T", "actions", "ceilings", title="Games")
    for row in rows:
        ceilings = ", ".join(f"{key} {value:g}" for key, value in row["ceilings"].items())
        texts = (row["name"], row["version"], str(row["players"]), str(row["last_step"]))
        table.add_row(*texts, " ".join(row["actions"]), ceilings)
    show(rows, table, json)
