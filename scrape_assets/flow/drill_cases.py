"""What the suites of cases share: a project against a site that answers as told, workers, and a verdict in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from scrape_assets.datasets import load
from scrape_assets.demo import scripted
from scrape_assets.demo.scripted import Answer, Site
from scrape_assets.flow import drilled, plan
from scrape_assets.flow.drill_ground import Scratch, end_of, start, until
from scrape_assets.flow.drilled import Job
from scrape_assets.store import drill as store
from scrape_assets.store import postgres

FIRST_DAY = date(2020, 1, 1)
"""Each case has a day of its own from here on, and not one counted from today, which may be over meanwhile."""

DATASET = """\
dataset: drill
window: {every: day, at: "00:00", timezone: UTC, start: 1990-01-01}
accept: {coverage: 1.0}
retry: {attempts: ATTEMPTS, base: 1s, cap: 2s}
lease: {for: 2s, task_deadline: 10m}
publish: {to: {lake: {files: {path: published, format: jsonl}}}}
"""


@dataclass(frozen=True, slots=True)
class Case:
    """What was tried, what should have come of it, and what came."""

    name: str
    expected: str
    got: str
    ok: bool

    def record(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Stage:
    """One case's project, site and window."""

    scratch: Scratch
    project: Path
    site: Site
    window: str

    @property
    def job(self) -> Job:
        """What a worker of this case is given."""
        return Job(self.scratch.url, self.project, self.window)

    def workers(self, count: int) -> list[BaseProcess]:
        """So many processes work on the window."""
        return [start(drilled.collect, self.job) for _ in range(count)]

    def work(self, count: int) -> None:
        """So many processes have worked on it until nothing was open."""
        for process in self.workers(count):
            end_of(process)

    def work_from_one_moment(self, count: int) -> None:
        """The same, but that none begins before all of them stand ready."""
        with postgres.open_pool(self.scratch.url, size=1) as pool:
            dataset = load.dataset(self.project, drilled.DATASET)
            plan.plan(pool, dataset, self.window, now=datetime.now(UTC))
            with postgres.transaction(pool) as tx:
                store.hold_origins(tx, 600.0)
            processes = self.workers(count)

            def ready() -> bool:
                with postgres.transaction(pool) as tx:
                    return store.workers(tx) == count

            until(ready, f"{count} workers")
            with postgres.transaction(pool) as tx:
                store.hold_origins(tx, 0.0)
        for process in processes:
            end_of(process)

    def states(self) -> dict[str, int]:
        """How many of its tasks are in each state."""
        with postgres.open_pool(self.scratch.url, size=1) as pool, postgres.transaction(pool) as tx:
            return store.states(tx, self.job.run_id)


@contextmanager
def stage(
    scratch: Scratch,
    name: str,
    *,
    fetch: str,
    pages: Sequence[str],
    answer: Callable[[str], Answer] | None = None,
    robots: Answer | None = None,
    more: Mapping[str, str] | None = None,
    retailers: int = 1,
    urls: str = "{file: site.csv}",
    attempts: int = 5,
) -> Iterator[Stage]:
    """A project of its own whose retailers share one site; each lists `pages`, unless `urls` says otherwise."""
    project = scratch.folder / name
    home = project / "datasets" / drilled.DATASET
    (home / "retailers").mkdir(parents=True)
    days = sum(1 for path in scratch.folder.iterdir() if path.is_dir())
    with scripted.running(answer) as site:
        site.robots = robots or Answer(404)
        (home / "dataset.yaml").write_text(DATASET.replace("ATTEMPTS", str(attempts)) + (more or {}).get("dataset", ""))
        for number in range(retailers):
            (home / "retailers" / f"site{number or ''}.yaml").write_text(
                f"site: {site.url}\nbasis: a site of our own, on this machine\nurls: {urls}\n"
                f"fetch: {fetch}\nkey: [sku]\n{(more or {}).get('retailer', '')}"
            )
        (home / "site.csv").write_text("url\n" + "".join(f"{site.url}{page}\n" for page in pages))
        yield Stage(scratch, project, site, (FIRST_DAY + timedelta(days=days)).isoformat())
