"""`python -m scrape_assets.cli`: the same program where no script is on the path."""

from scrape_assets.cli import program

program()
