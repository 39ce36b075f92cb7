"""Creates or completes the virtual environment of a clone: `python tools/environment.py run|test|all`.

`run` holds what hopplus needs, `test` adds what `make test` needs, `all` what `make test-all` and `make docs` need. An
environment that an earlier call left unfinished is made again from nothing. Uses the standard library only.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
ENVIRONMENT = ROOT / ".venv"
STATE = ENVIRONMENT / "hopplus.json"
EXTRAS = {"run": "", "test": "[test]", "all": "[dev]"}
LEVELS = tuple(EXTRAS)
SUPPORTED = (3, 11), (3, 14)
OFFLINE = ("Connection", "connection", "Name or service not known", "getaddrinfo", "unreachable", "timed out")
"""Parts of pip's messages where the package index does not answer."""


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or arguments[0] not in LEVELS:
        return fail(f"which environment? one of {', '.join(LEVELS)}")
    if not SUPPORTED[0] <= sys.version_info < SUPPORTED[1]:
        return fail("hopplus needs Python 3.11 to 3.13: make PYTHON=python3.12")
    state, wanted = read_state(), {"level": arguments[0], "digest": requirements_digest(), "python": python_version()}
    is_whole = state.get("level") in LEVELS and state.get("python") == wanted["python"] and interpreter().exists()
    if is_whole and LEVELS.index(state["level"]) >= LEVELS.index(wanted["level"]):
        wanted["level"] = state["level"]
    if is_whole and state == wanted:
        return 0
    print(f"hopplus: installing packages ({wanted['level']}) into {ENVIRONMENT.name}, once", flush=True)
    try:
        if not is_whole:
            create()
        STATE.unlink(missing_ok=True)  # until pip has finished, the environment counts as unfinished
        return install(wanted)
    except (OSError, subprocess.CalledProcessError) as error:
        return fail(f"cannot make the environment {ENVIRONMENT}: {error} (Debian: apt install python3-venv)")


def fail(sentence: str) -> int:
    print(f"hopplus: {sentence}", file=sys.stderr)
    return 2


def requirements_digest() -> str:
    """A digest of the files that say which packages belong into the environment."""
    files = (ROOT / "pyproject.toml", ROOT / "requirements.lock")
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


def read_state() -> dict[str, str]:
    """The last completed installation; empty where there is none."""
    try:
        state = json.loads(STATE.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}


def python_version() -> str:
    return ".".join(map(str, sys.version_info[:2]))


def interpreter() -> Path:
    return ENVIRONMENT / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def create() -> None:
    """An empty environment, whatever was there before."""
    shutil.rmtree(ENVIRONMENT, ignore_errors=True)
    venv.create(ENVIRONMENT, with_pip=True, symlinks=sys.platform != "win32")


def install(wanted: dict[str, str]) -> int:
    command = [str(interpreter()), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "2"]
    command += ["--constraint", "requirements.lock", "--editable", f".{EXTRAS[wanted['level']]}"]
    done = subprocess.run(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, encoding="utf-8", errors="replace")
    if done.returncode == 0:
        STATE.write_text(json.dumps(wanted) + "\n", encoding="utf-8")
        return 0
    if any(part in done.stderr for part in OFFLINE):
        return fail("the packages cannot be installed: the package index does not answer; call it again with a network")
    print(done.stderr, file=sys.stderr)
    return fail("pip could not install the packages (see above); the next call begins again")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
