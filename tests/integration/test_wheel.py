"""The wheel works where there is no checkout: SQL, demo and a default dagster.yaml are inside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from scrape_assets.store import embedded, postgres

CHECKOUT = Path(__file__).parents[2]
MIGRATIONS = sorted(path.name for path in (CHECKOUT / "sql" / "migrations").glob("*.sql"))

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """scrape-assets of a wheel in an environment of its own, which sees our dependencies but not the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", folder, CHECKOUT],
        check=True,
    )
    (wheel,) = folder.glob("*.whl")
    inside = zipfile.ZipFile(wheel).namelist()
    assert {name for name in MIGRATIONS if any(path.endswith(f"/{name}") for path in inside)} == set(MIGRATIONS)
    assert any(name.endswith("dagster.yaml") for name in inside)
    assert not [name for name in inside if name.startswith(("tests/", "bench/"))]
    home = folder / "venv"
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    (packages,) = home.glob("lib/python*/site-packages")
    # Not a site folder there, so that its own .pth files, the editable checkout's among them, are not read.
    (dependencies,) = {path for path in map(Path, sys.path) if path.name == "site-packages"}
    (packages / "dependencies.pth").write_text(f"{dependencies}\n")
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel],
        check=True,
    )
    where = subprocess.run(
        [python, "-c", "import scrape_assets; print(scrape_assets.__file__)"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert where.stdout.startswith(str(home))
    return home / "bin" / "scrape-assets"


def said(program: Path, cwd: Path, env: dict[str, str], *command: str) -> dict[str, object]:
    ended = subprocess.run([program, *command, "--json"], cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_a_wheel_migrates_a_database_and_checks_a_declaration(
    program: Path, server: embedded.Server, tmp_path: Path
) -> None:
    empty = f"wheel_{os.getpid()}"
    fresh = postgres.create_database(server.owner_url, empty)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("SCRAPE_ASSETS_", "PYTHON"))}
    env["SCRAPE_ASSETS_DATABASE_URL"] = fresh
    try:
        assert said(program, tmp_path, env, "db", "migrate")["applied"] == MIGRATIONS
        assert said(program, tmp_path, env, "db", "migrate")["applied"] == []
        said(program, tmp_path, env, "init", "shop", "--site", "https://shop.example")
        inventory = tmp_path / "shop/datasets/prices/bookshop.csv"
        inventory.write_text(inventory.read_text() + "https://shop.example/p/1\n")
        checked = said(program, tmp_path / "shop", env, "check")
        assert "prices" in json.dumps(checked)
    finally:
        postgres.drop_database(server.owner_url, empty)
