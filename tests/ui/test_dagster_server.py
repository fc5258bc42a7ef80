"""A real server: `serve` with its webserver, daemon, runs and embedded Postgres, driven through GraphQL as the UI does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from scrape_assets import packaged, settings
from scrape_assets.datasets import load
from scrape_assets.defs import server as dagster_server
from scrape_assets.demo.project import write_project
from scrape_assets.demo.running import RunningShop, running_shop
from scrape_assets.rules import keys, windows
from scrape_assets.store import embedded, postgres

pytestmark = [pytest.mark.ui, pytest.mark.slow, pytest.mark.timeout(7200)]

PATIENT_INSTANCE = {
    "concurrency": {"runs": {"max_concurrent_runs": 2}},
    "run_monitoring": {"start_timeout_seconds": 3600},
}
"""What the project's own dagster.yaml has otherwise than ours: each run imports Dagster, here on two slow cores."""

RETAILERS = ["casamoda", "fjordgear", "papelaria"]
ALL = ["task_plan", "observations", "candidate_dataset", "published_dataset"]
PATIENCE_SECONDS = 3000.0

SERVE = """
import sys
from scrape_assets import settings
from scrape_assets.defs.server import serve
sys.exit(serve(settings.load(), port=0, on_ready=lambda url: print(url, flush=True)))
"""


@dataclass
class Dev:
    """A running server, its shop and its store."""

    folder: Path
    shop: RunningShop
    where: settings.Settings
    windows: list[str]
    url: str = ""
    process: subprocess.Popen[str] | None = None
    store_url: str = ""
    log: Path = field(default_factory=Path)

    def ask(self, query: str, **variables: Any) -> dict[str, Any]:
        return dagster_server.query(self.url, query, variables, timeout=PATIENCE_SECONDS)

    def backfill(self, assets: list[str], partitions: list[str]) -> str:
        """Launches a backfill as the UI's button does; returns its id."""
        answer = self.ask(
            """mutation ($params: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $params) {
              __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }""",
            params={"assetSelection": [{"path": ["shop", a]} for a in assets], "partitionNames": partitions},
        )["launchPartitionBackfill"]
        assert answer["__typename"] == "LaunchBackfillSuccess", answer
        return str(answer["backfillId"])

    def launch(self, asset: str, partition: str) -> str:
        """Launches one asset alone, as a client of the API does; returns the run's id."""
        answer = self.ask(
            """mutation ($params: ExecutionParams!) { launchPipelineExecution(executionParams: $params) {
              __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }""",
            params={
                "selector": {
                    "repositoryLocationName": self.location,
                    "repositoryName": "__repository__",
                    "pipelineName": "__ASSET_JOB",
                    "assetSelection": [{"path": ["shop", asset]}],
                },
                "executionMetadata": {"tags": [{"key": "dagster/partition", "value": partition}]},
                "mode": "default",
            },
        )["launchPipelineExecution"]
        assert answer["__typename"] == "LaunchRunSuccess", answer
        return str(answer["run"]["runId"])

    @property
    def location(self) -> str:
        """The code location's name."""
        found = self.ask("query { workspaceOrError { ... on Workspace { locationEntries { name } } } }")
        return str(found["workspaceOrError"]["locationEntries"][0]["name"])

    def run_ended(self, run_id: str) -> str:
        """The run's status when it has one that stays."""

        def status() -> str | None:
            found = self.ask("query ($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }", id=run_id)
            said = str(found["runOrError"]["status"])
            return said if said in ("CANCELED", "FAILURE", "SUCCESS") else None

        return str(until(status, f"the end of run {run_id}"))

    def ticks(self, sensor: str) -> list[str]:
        """How its looks of the last two minutes ended."""
        found = self.ask(
            "query ($selector: SensorSelector!, $after: Float) { sensorOrError(sensorSelector: $selector) { ... on Sensor "
            "{ sensorState { ticks(afterTimestamp: $after) { status } } } } }",
            selector={
                "repositoryLocationName": self.location,
                "repositoryName": "__repository__",
                "sensorName": sensor,
            },
            after=time.time() - 120,
        )["sensorOrError"]
        return [tick["status"] for tick in found["sensorState"]["ticks"]]

    def metadata(self, asset: str, partition: str) -> dict[str, str]:
        """The texts on the newest materialization of a partition."""
        found = self.ask(
            "query ($key: AssetKeyInput!, $partitions: [String!]) { assetOrError(assetKey: $key) { ... on Asset "
            "{ assetMaterializations(partitions: $partitions, limit: 1) { metadataEntries { label ... on "
            "TextMetadataEntry { text } } } } } }",
            key={"path": ["shop", asset]},
            partitions=[partition],
        )["assetOrError"]["assetMaterializations"][0]["metadataEntries"]
        return {entry["label"]: entry["text"] for entry in found if "text" in entry}

    def ended(self, backfill: str) -> str:
        """The backfill's status when it has one that stays."""

        def status() -> str | None:
            found = self.ask(
                "query ($id: String!) { partitionBackfillOrError(backfillId: $id) "
                "{ __typename ... on PartitionBackfill { status error { message } } } }",
                id=backfill,
            )["partitionBackfillOrError"]
            return (
                str(found["status"]) if found["status"] in ("COMPLETED_SUCCESS", "COMPLETED_FAILED", "FAILED") else None
            )

        return until(status, f"the end of backfill {backfill}")

    def runs(self, **tags: str) -> list[dict[str, Any]]:
        return self.ask(
            "query ($filter: RunsFilter!) { runsOrError(filter: $filter) { ... on Runs { results "
            "{ runId status jobName tags { key value } } } } }",
            filter={"tags": [{"key": k.replace("_", "/"), "value": v} for k, v in tags.items()]},
        )["runsOrError"]["results"]

    def process_id(self, run_id: str) -> int:
        """Of the process that works a run."""
        events = self.ask(
            "query ($id: ID!) { logsForRun(runId: $id) { ... on EventConnection { events { __typename ... on EngineEvent "
            "{ metadataEntries { label ... on TextMetadataEntry { text } ... on IntMetadataEntry { intValue } } } } } } }",
            id=run_id,
        )["logsForRun"]["events"]
        entries = [e for event in events for e in event.get("metadataEntries", []) if e["label"] == "pid"]
        return int(entries[-1].get("text") or entries[-1]["intValue"])

    def said(self, run_id: str) -> str:
        """All that the failed steps of a run said."""
        events = self.ask(
            "query ($id: ID!) { logsForRun(runId: $id) { ... on EventConnection { events "
            "{ __typename ... on ExecutionStepFailureEvent { failureMetadata { description } error { message } } } } } }",
            id=run_id,
        )["logsForRun"]["events"]
        return "\n".join(
            f"{(e.get('failureMetadata') or {}).get('description')} {(e.get('error') or {}).get('message')}"
            for e in events
            if e["__typename"] == "ExecutionStepFailureEvent"
        )

    def rows(self, sql: str, *values: Any) -> list[Any]:
        with postgres.connect(self.store_url) as connection:
            return connection.execute(sql.encode(), values).fetchall()

    def versions(self) -> list[str]:
        """The windows that have a published version."""
        rows = self.rows("select distinct run_id from scrape.dataset_candidates where state = 'published' order by 1")
        return [row.run_id.partition("@")[2] for row in rows]


def until(ask: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if (found := ask()) is not None:
            return found
        time.sleep(1)
    raise AssertionError(f"waited {PATIENCE_SECONDS:.0f} s for {what}")


def our_environment(dev: Dev) -> dict[str, str]:
    """What a command of ours needs to work on the server's project and database."""
    env = {**os.environ, "SCRAPE_ASSETS_PROJECT": str(dev.where.project), "SCRAPE_ASSETS_STATE": str(dev.where.state)}
    env.pop("SCRAPE_ASSETS_DATABASE_URL", None)
    return env | {"PYTHONPATH": str(Path(__file__).parents[2])}


def partitions(*wanted: str, retailers: list[str] = RETAILERS) -> list[str]:
    return [f"{retailer}|{window}" for window in wanted for retailer in retailers]


@contextmanager
def started(dev: Dev) -> Iterator[None]:
    """The server as a process of its own, asked to stop at the end, and ended if it does not."""
    env = our_environment(dev)
    with (dev.folder / "serve.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", SERVE], env=env, stdout=subprocess.PIPE, stderr=log, text=True
        )
    dev.process = process
    try:
        assert process.stdout is not None
        dev.url = process.stdout.readline().strip()
        assert dev.url, (dev.folder / "serve.log").read_text()[-2000:]
        dev.store_url = embedded.status(dev.where.state).url or ""
        yield
    finally:
        family = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=180)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        ours = [p for p in family if p.is_running() and "postgres" not in p.name()]
        _, alive = psutil.wait_procs(ours, timeout=60)
        for left in alive:
            left.kill()


@pytest.fixture(scope="module")
def dev() -> Iterator[Dev]:
    with tempfile.TemporaryDirectory(prefix="sa-ui-") as name, running_shop() as shop:
        folder = Path(name)
        os.chmod(folder, 0o755)
        write_project(folder / "project", shop.sites, start=datetime.now(UTC).date() - timedelta(days=8))
        file = folder / "project" / "datasets" / "shop" / "dataset.yaml"
        file.write_text(file.read_text().replace("timeout: 4s", "timeout: 20s").replace("{for: 2s", "{for: 30s"))
        instance = yaml.safe_load(packaged.path("dagster.yaml").read_text())
        instance["concurrency"]["runs"] |= PATIENT_INSTANCE["concurrency"]["runs"]
        instance["run_monitoring"] |= PATIENT_INSTANCE["run_monitoring"]
        (folder / "project" / "dagster.yaml").write_text(yaml.safe_dump(instance))
        where = settings.load(
            {"SCRAPE_ASSETS_PROJECT": str(folder / "project"), "SCRAPE_ASSETS_STATE": str(folder / "state")}
        )
        rule = load.dataset(where.project, "shop").window
        now = datetime.now(UTC)
        dev = Dev(folder, shop, where, windows.keys_between(rule, now - timedelta(days=7), now))
        try:
            with started(dev):
                yield dev
        finally:
            embedded.stop(where.state)


OTHERS = """
    select retailer, md5(string_agg(observation_key::text || payload_hash || attempt_id, '' order by observation_key)) as h
      from scrape.observations where run_id = %s and retailer <> 'papelaria' group by retailer order by retailer
"""


def test_a_backfill_of_two_windows_and_three_retailers_publishes_both(dev: Dev) -> None:
    two = dev.windows[:2]
    assert dev.ended(dev.backfill(ALL, partitions(*two))) == "COMPLETED_SUCCESS"
    assert dev.versions() == two
    for window in two:
        published = dev.rows(
            "select sum((m->>'rows')::int) as rows from scrape.dataset_candidates d, jsonb_array_elements(d.members) m "
            "where d.run_id = %s and d.state = 'published'",
            keys.run_id("shop", window),
        )
        assert published[0].rows == len(dev.shop.truth())
    checked = dev.rows("select distinct partition from dagster.asset_check_executions where partition is not null")
    assert {row.partition for row in checked} == {*partitions(*two), *two}


def test_what_dagsters_processes_say_stays_on_this_machine(dev: Dev) -> None:
    """Dagster uploads what lies in its home's `logs`, and empties it, whatever `telemetry` says."""
    assert dev.process is not None
    family = psutil.Process(dev.process.pid).children(recursive=True)
    dagsters = [process for process in family if any("dagster" in word for word in process.cmdline())]
    assert len(dagsters) >= 2
    assert {process.environ().get("DAGSTER_DISABLE_TELEMETRY") for process in dagsters} == {"1"}
    assert (dev.where.state / "logs" / "webserver.log").exists()
    assert (dev.where.state / "logs" / "daemon.log").stat().st_size > 0
    home = dev.where.dagster_home
    assert not [path for name in ("logs", ".logs_queue") for path in (home / name).glob("*")]


def test_published_versions_are_delivered_without_anybody_asking(dev: Dev) -> None:
    def delivered() -> int | None:
        rows = dev.rows("select count(*) as n from scrape.deliveries where state = 'delivered'")
        return int(rows[0].n) if rows[0].n >= 2 else None

    assert until(delivered, "two deliveries") == 2
    manifests = list((dev.where.project / "lake").rglob("*manifest*"))
    assert len(manifests) >= 2


def test_a_partition_materialized_again_asks_the_site_for_nothing(dev: Dev) -> None:
    before = dev.shop.log()["total"]
    again = dev.backfill(["observations"], [f"casamoda|{dev.windows[0]}"])
    assert dev.ended(again) == "COMPLETED_SUCCESS"
    assert dev.shop.log()["total"] == before


def test_a_collected_window_is_released_without_anybody_asking(dev: Dev) -> None:
    window = dev.windows[2]
    collected = dev.backfill(["task_plan", "observations"], partitions(window))
    assert dev.ended(collected) == "COMPLETED_SUCCESS"
    until(lambda: True if window in dev.versions() else None, f"the release of {window}")


def test_one_broken_retailer_publishes_nothing_and_a_launch_of_the_publication_alone_says_why(dev: Dev) -> None:
    window = dev.windows[3]
    dev.shop.control(break_template="papelaria")
    try:
        dev.ended(dev.backfill(ALL, partitions(window)))
    finally:
        dev.shop.control(break_template=None)
    assert window not in dev.versions()
    alone = dev.backfill(["published_dataset"], [window])
    assert dev.ended(alone) != "COMPLETED_SUCCESS"
    [run] = dev.runs(dagster_backfill=alone)
    assert run["status"] == "FAILURE"
    assert "papelaria: rejected" in dev.said(run["runId"])
    launched = dev.launch("published_dataset", window)
    assert dev.run_ended(launched) == "FAILURE"
    assert "papelaria: rejected" in dev.said(launched)
    # The sensor looks every half minute; it has seen this window rejected by now, and asked for nothing.
    ticks = until(lambda: found if len(found := dev.ticks("release_shop_when_complete")) >= 2 else None, "two looks")
    assert "FAILURE" not in ticks
    assert [r["status"] for r in dev.runs(dagster_partition=window) if r["jobName"] == "release_shop"] == []
    assert window not in dev.versions()


def test_a_repaired_selector_is_materialized_again_without_a_request_and_published(dev: Dev) -> None:
    """The window that is rejected above: the site has a new template, and the stored pages are read with a new selector."""
    window, run_id = dev.windows[3], keys.run_id("shop", dev.windows[3])
    said = dev.metadata("observations", f"papelaria|{window}")
    assert any(line.strip().startswith("scrape-assets recover shop") for line in said["why"].splitlines())
    file = dev.where.project / "datasets" / "shop" / "retailers" / "papelaria.yaml"
    before, asked = file.read_text(), dev.shop.log()["total"]
    untouched = dev.rows(OTHERS, run_id)
    file.write_text(before.replace("css: .preco", "css: .valor"))
    try:
        again = dev.backfill(["observations"], [f"papelaria|{window}"])
        assert dev.ended(again) == "COMPLETED_SUCCESS"
    finally:
        file.write_text(before)
    assert dev.shop.log()["total"] == asked
    (batch,) = dev.rows(
        "select retailer, selected, from_artifacts from scrape.recovery_batches where run_id = %s", run_id
    )
    assert batch.retailer == "papelaria"
    assert batch.selected == batch.from_artifacts > 30
    until(lambda: True if window in dev.versions() else None, f"the release of {window}")
    assert dev.rows(OTHERS, run_id) == untouched


def test_a_terminated_run_is_canceled_and_has_given_its_leases_back(dev: Dev) -> None:
    window = dev.windows[4]
    run_id = keys.run_id("shop", window)
    dev.shop.control(delay_ms=2000)
    try:
        backfill = dev.backfill(["task_plan", "observations"], partitions(window, retailers=["casamoda"]))

        def under_way() -> dict[str, Any] | None:
            leased = dev.rows("select from scrape.tasks where run_id = %s and state = 'leased'", run_id)
            return dev.runs(dagster_backfill=backfill)[0] if leased else None

        run = until(under_way, "leases")
        dev.ask("mutation ($id: String!) { terminateRun(runId: $id) { __typename } }", id=run["runId"])

        def over() -> str | None:
            status = str(dev.runs(dagster_backfill=backfill)[0]["status"])
            return status if status in ("CANCELED", "FAILURE", "SUCCESS") else None

        assert until(over, "the end of the run") == "CANCELED"
        assert not dev.rows("select from scrape.tasks where run_id = %s and state = 'leased'", run_id)
        assert len(dev.runs(dagster_backfill=backfill)) == 1, "it was started again"
    finally:
        dev.shop.control(delay_ms=0)


def test_run_completes_what_a_killed_process_of_a_run_left(dev: Dev) -> None:
    window = dev.windows[6]
    run_id = keys.run_id("shop", window)
    dev.shop.control(delay_ms=2000)
    try:
        backfill = dev.backfill(["task_plan", "observations"], partitions(window, retailers=["papelaria"]))
        until(
            lambda: (
                True if dev.rows("select from scrape.tasks where run_id = %s and state = 'leased'", run_id) else None
            ),
            "leases",
        )
        [run] = dev.runs(dagster_backfill=backfill)
        process = psutil.Process(dev.process_id(run["runId"]))
        process.kill()
        assert dev.rows("select from scrape.tasks where run_id = %s and state = 'leased'", run_id), "it let go of them"

        def over() -> str | None:
            status = str(dev.runs(dagster_backfill=backfill)[0]["status"])
            return status if status in ("CANCELED", "FAILURE", "SUCCESS") else None

        assert until(over, "the end of the run") == "FAILURE"
    finally:
        dev.shop.control(delay_ms=0)
    env = our_environment(dev)
    command = [sys.executable, "-m", "scrape_assets.cli"]
    resumed = subprocess.run(
        [*command, "run", "shop", "--window", window, "--json"], env=env, capture_output=True, text=True, check=False
    )
    assert resumed.returncode == 0, resumed.stderr
    summary = json.loads(resumed.stdout)
    assert summary["published"]["rows"] == len(dev.shop.truth())
    verified = subprocess.run([*command, "verify", "--json"], env=env, capture_output=True, text=True, check=True)
    assert json.loads(verified.stdout)["violations"] == []


def test_a_run_that_died_with_its_server_does_not_hold_its_retailer_for_ever(dev: Dev) -> None:
    window = dev.windows[5]
    dev.shop.control(delay_ms=2000)
    backfill = dev.backfill(["task_plan", "observations"], partitions(window, retailers=["fjordgear"]))
    run_id = keys.run_id("shop", window)
    until(
        lambda: True if dev.rows("select from scrape.tasks where run_id = %s and state = 'leased'", run_id) else None,
        "leases",
    )
    [run] = dev.runs(dagster_backfill=backfill)
    assert dev.process is not None
    family = psutil.Process(dev.process.pid).children(recursive=True)
    for process in [psutil.Process(dev.process.pid), *family]:
        if "postgres" not in process.name():
            process.kill()
    dev.process.wait()
    dev.shop.control(delay_ms=0)
    with started(dev):
        answers = time.monotonic()
        [same] = [r for r in dev.runs(dagster_backfill=backfill) if r["runId"] == run["runId"]]
        assert same["status"] == "FAILURE"
        assert time.monotonic() - answers < 30, "a killed server's runs are freed within 30 s"
        again = dev.backfill(["observations"], partitions(window, retailers=["fjordgear"]))
        assert dev.ended(again) == "COMPLETED_SUCCESS"
        open_states = ["pending", "leased", "retry_wait"]
        assert not dev.rows("select from scrape.tasks where run_id = %s and state = any(%s)", run_id, open_states)
