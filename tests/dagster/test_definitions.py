"""What Dagster sees of a project, and that each of its steps does one verb of the flow and no more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import dagster as dg
import pytest
from dagster._core.events import DagsterEvent, DagsterEventType
from dagster._core.utils import make_new_run_id
from dagster._utils.schedules import schedule_execution_time_iterator

from scrape_assets import settings
from scrape_assets.datasets import load
from scrape_assets.definitions import definitions
from scrape_assets.defs import checks, history, names, partitions, server
from scrape_assets.defs import instance as dagster_instance
from scrape_assets.defs.resources import StoreResource
from scrape_assets.demo import catalogue
from scrape_assets.demo.project import write_project
from scrape_assets.demo.running import RunningShop, running_shop
from scrape_assets.errors import DeclarationError
from scrape_assets.flow import accept, publish, run
from scrape_assets.rules import keys, windows
from scrape_assets.rules.windows import WindowRule
from scrape_assets.store import postgres
from scrape_assets.store.postgres import Pool
from tests.helpers import make

pytestmark = pytest.mark.slow  # imports all of Dagster

RETAILERS = ["casamoda", "fjordgear", "papelaria"]


@pytest.fixture(scope="module")
def shop() -> Iterator[RunningShop]:
    with running_shop() as shop:
        yield shop


@pytest.fixture
def project(tmp_path: Path, shop: RunningShop, url: str, monkeypatch: pytest.MonkeyPatch) -> settings.Settings:
    """The demo shop's project on this test's own database, named by the environment as a run's process has it."""
    write_project(tmp_path, shop.sites)
    make_patient(tmp_path)
    monkeypatch.setenv("SCRAPE_ASSETS_PROJECT", str(tmp_path))
    monkeypatch.setenv("SCRAPE_ASSETS_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("SCRAPE_ASSETS_DATABASE_URL", url)
    monkeypatch.delenv("SCRAPE_ASSETS_DATABASE", raising=False)
    return settings.load()


def make_patient(project: Path) -> None:
    """The demo's second of patience is for a machine with nothing else to do."""
    file = project / "datasets" / "shop" / "dataset.yaml"
    text = file.read_text()
    file.write_text(text.replace("timeout: 4s", "timeout: 20s").replace("{for: 2s", "{for: 30s"))
    assert file.read_text() != text


def today(project: settings.Settings) -> str:
    rule = load.dataset(project.project, "shop").window
    return windows.current_key(rule, datetime.now(UTC))


def materialize(
    project: settings.Settings, instance: dg.DagsterInstance, asset: str, partition: str, **config: object
) -> dg.ExecuteInProcessResult:
    """One partition of one asset, as a run of its own; with the asset's config as a person gives it in the UI."""
    found = definitions(project)
    assets = [a for a in found.assets or [] if isinstance(a, dg.AssetsDefinition)]
    return dg.materialize(
        assets,
        selection=[dg.AssetKey(["shop", asset])],
        partition_key=partition,
        instance=instance,
        resources={"store": StoreResource()},
        run_config={"ops": {f"shop__{asset}": {"config": config}}} if config else None,
        raise_on_error=False,
    )


def failure(result: dg.ExecuteInProcessResult) -> str:
    """What a failed step said."""
    data = next(e.step_failure_data for e in result.all_events if e.is_step_failure)
    return str(data.user_failure_data.description if data.user_failure_data else data.error)


def test_everything_that_dagster_sees_is_listed_by_name(project: settings.Settings) -> None:
    found = definitions(project)
    dg.Definitions.validate_loadable(found)
    repository = found.get_repository_def()
    assert {"/".join(key.path) for key in repository.asset_graph.get_all_asset_keys()} == {
        f"shop/{name}" for name in ("task_plan", "observations", "candidate_dataset", "published_dataset")
    }
    assert {"collect_shop", "release_shop", "deliver_shop"} <= set(repository.job_names)
    assert [s.name for s in repository.schedule_defs] == ["collect_shop_each_window"]
    assert {s.name for s in repository.sensor_defs} == {"release_shop_when_complete", "deliver_shop_when_due"}


ODD = """\
import pandera.pandas as pa

Thing = pa.DataFrameSchema({name: pa.Column(str) for name in ("größe", "a-b", "a_b", "a b", "名")})
"""


def test_names_that_a_declaration_allows_and_dagster_does_not_are_told_apart(tmp_path: Path) -> None:
    make.dataset(tmp_path, {"north-east": ("https://shop.example", ["/p/1"])}, name="my-shop-9", more="")
    home = tmp_path / "datasets" / "my-shop-9"
    (home / "pages.py").write_text(ODD)
    (home / "dataset.yaml").write_text((home / "dataset.yaml").read_text() + "schema: pages.py:Thing\n")
    found = definitions(settings.load({"SCRAPE_ASSETS_PROJECT": str(tmp_path)}))
    dg.Definitions.validate_loadable(found)
    repository = found.get_repository_def()
    assert {key.path[0] for key in repository.asset_graph.get_all_asset_keys()} == {"my-shop-9"}
    dataset = load.dataset(tmp_path, "my-shop-9")
    required = {spec.name for spec in checks.of_retailer(dataset) if spec.name.startswith("required_")}
    assert len(required) == 5
    assert len({names.of(name) for name in ("my-shop", "my_shop", "my.shop", "myshop")}) == 4


def test_a_folder_without_datasets_gives_no_assets_and_a_wrong_declaration_its_own_words(tmp_path: Path) -> None:
    nothing = settings.load({"SCRAPE_ASSETS_PROJECT": str(tmp_path)})
    assert not definitions(nothing).get_repository_def().asset_graph.get_all_asset_keys()
    folder = tmp_path / "datasets" / "prices"
    folder.mkdir(parents=True)
    (folder / "dataset.yaml").write_text("dataset: prices\nwindou: {every: day, start: 2026-11-01}\n")
    with pytest.raises(DeclarationError, match="window"):
        definitions(nothing)


@pytest.mark.parametrize(
    "rule",
    [
        WindowRule(every="day", at="06:00", timezone="Europe/Madrid", start=date(2026, 3, 20)),
        WindowRule(every="day", timezone="America/New_York", start=date(2026, 10, 25)),
        WindowRule(every="hour", timezone="Europe/Berlin", start=datetime(2026, 10, 24, 20)),  # noqa: DTZ001
        WindowRule(every="cron", cron="30 6 * * 1-5", timezone="Asia/Tokyo", start=date(2026, 1, 1)),
    ],
)
def test_dagster_has_the_keys_of_the_windows_that_have_begun_and_no_other(rule: WindowRule) -> None:
    first = rule.start_local.replace(tzinfo=ZoneInfo(rule.timezone))
    now = first + timedelta(days=20, hours=7, minutes=1)
    ours = windows.keys_between(rule, first, now + timedelta(seconds=1))
    assert partitions.windows(rule).get_partition_keys(current_time=now) == ours
    assert ours[-1] == windows.current_key(rule, now), "the open window can be collected"


def test_the_schedule_collects_the_window_that_begins_one_run_for_each_retailer(project: settings.Settings) -> None:
    schedule = definitions(project).get_repository_def().schedule_defs[0]
    begins = datetime.now(ZoneInfo("Europe/Madrid")).replace(hour=6, minute=0, second=0, microsecond=0)
    assert schedule.cron_schedule == "0 6 * * *"
    with dg.build_schedule_context(scheduled_execution_time=begins) as context:
        requests = schedule.evaluate_tick(context).run_requests or []
    assert sorted(str(r.partition_key) for r in requests) == [f"{r}|{begins:%Y-%m-%d}" for r in RETAILERS]
    assert len({r.run_key for r in requests}) == len(RETAILERS)


@pytest.mark.parametrize("at", ["02:30", "02:00", "03:00", "23:30"])
def test_the_schedule_collects_each_window_once_through_both_switches(
    project: settings.Settings, tmp_path: Path, at: str
) -> None:
    dataset = make.dataset(tmp_path, {"north": ("http://127.0.0.1:9", ["/p/1"])})
    file = dataset.folder / "dataset.yaml"
    file.write_text(file.read_text().replace('at: "00:00", timezone: UTC', f'at: "{at}", timezone: Europe/Berlin'))
    rule = load.dataset(tmp_path, "prices").window
    schedule = definitions(replace(project, project=tmp_path)).get_repository_def().schedule_defs[0]
    zone = ZoneInfo("Europe/Berlin")
    for first, days in ((datetime(2026, 3, 26, tzinfo=zone), 6), (datetime(2026, 10, 22, tzinfo=zone), 6)):
        end = (first + timedelta(days=days)).replace(tzinfo=zone)
        asked: list[str] = []
        for tick in schedule_execution_time_iterator(first.timestamp(), str(schedule.cron_schedule), rule.timezone):
            if tick >= end:
                break
            with dg.build_schedule_context(scheduled_execution_time=tick) as context:
                asked += [str(r.partition_key) for r in schedule.evaluate_tick(context).run_requests or []]
        assert asked == [f"north|{key}" for key in windows.keys_between(rule, first, end)]
        assert len(asked) == days


def test_the_steps_of_a_window_plan_collect_judge_and_publish_and_say_so(
    project: settings.Settings, shop: RunningShop, pool: Pool
) -> None:
    window = today(project)
    with dg.DagsterInstance.ephemeral() as instance:
        early = materialize(project, instance, "published_dataset", window)
        assert "never planned" in failure(early)

        shop.control(reset=True)
        for retailer in RETAILERS:
            assert materialize(project, instance, "task_plan", f"{retailer}|{window}").success
            collected = materialize(project, instance, "observations", f"{retailer}|{window}")
            assert collected.success, failure(collected)
            about = collected.asset_materializations_for_node("shop__observations")[0].metadata
            assert about["open"].value == 0
            assert about["committed"].value > 0
            assert f"scrape-assets failed shop --window {window} --retailer {retailer}" in str(about.values())
            judged = collected.get_asset_check_evaluations()
            assert {e.partition for e in judged} == {f"{retailer}|{window}"}
            assert {"coverage", "required_price", "money_price", "schema", "freshness"} <= {
                e.check_name for e in judged
            }
            assert all("candidate generation" in e.metadata for e in judged)

            if retailer == RETAILERS[0]:
                early = materialize(project, instance, "published_dataset", window)
                assert "no dataset candidate yet: fjordgear is not planned" in failure(early)
                early = materialize(project, instance, "candidate_dataset", window)
                assert "is no candidate yet: fjordgear is not planned" in failure(early)

        judged = materialize(project, instance, "candidate_dataset", window)
        assert judged.success, failure(judged)
        published = materialize(project, instance, "published_dataset", window)
        assert published.success, failure(published)
        rows = published.asset_materializations_for_node("shop__published_dataset")[0].metadata["dagster/row_count"]
        assert rows.value == len(shop.truth())

        before = shop.log()["total"]
        assert materialize(project, instance, "observations", f"{RETAILERS[0]}|{window}").success
        assert shop.log()["total"] == before, "a page that ended was asked for again"


def test_a_rejected_retailer_fails_its_checks_and_stops_the_candidate_and_the_publication(
    project: settings.Settings, shop: RunningShop
) -> None:
    window = today(project)
    shop.control(break_template="papelaria")
    try:
        with dg.DagsterInstance.ephemeral() as instance:
            for retailer in RETAILERS:
                assert materialize(project, instance, "task_plan", f"{retailer}|{window}").success
                collected = materialize(project, instance, "observations", f"{retailer}|{window}")
                assert collected.success == (retailer != "papelaria")
            failed = {e.check_name for e in collected.get_asset_check_evaluations() if not e.passed}
            assert "coverage" in failed
            rejected = materialize(project, instance, "candidate_dataset", window)
            assert [e.check_name for e in rejected.get_asset_check_evaluations() if not e.passed] == [
                "members_accepted"
            ]
            alone = materialize(project, instance, "published_dataset", window)
            assert "papelaria: rejected" in failure(alone)
            assert "nothing is published" in failure(alone)
    finally:
        shop.control(break_template=None)


def test_a_partition_materialized_with_a_selection_asks_for_just_that_again(
    project: settings.Settings, shop: RunningShop
) -> None:
    window, partition = today(project), f"papelaria|{today(project)}"
    with dg.DagsterInstance.ephemeral() as instance:
        assert materialize(project, instance, "task_plan", partition).success
        assert materialize(project, instance, "observations", partition).success
        shop.control(reset=True)
        nothing = materialize(project, instance, "observations", partition, failure_class="login")
        assert nothing.success, failure(nothing)
        assert shop.log()["total"] == 0
        url = next(iter(catalogue.inventory("papelaria", shop.sites["papelaria"])))
        again = materialize(project, instance, "observations", partition, urls=[url], refetch=True)
        assert again.success, failure(again)
        assert list(shop.log()["paths"]) == [url]
        about = again.asset_materializations_for_node("shop__observations")[0].metadata
        assert about["candidate generation"].value == 2
        assert about["recovery batch"].value != "none"
        assert f"shop@{window} has no version" in str(about["why"].value)
        wrong = materialize(project, instance, "observations", partition, rule="drift:mooved")
        assert "not judged by a rule drift:mooved" in failure(wrong)


def test_an_edited_selector_is_repaired_by_materializing_again_and_planning_does_not_refuse_it(
    project: settings.Settings, shop: RunningShop
) -> None:
    partition = f"papelaria|{today(project)}"
    file = project.project / "datasets" / "shop" / "retailers" / "papelaria.yaml"
    with dg.DagsterInstance.ephemeral() as instance:
        assert materialize(project, instance, "task_plan", partition).success
        assert materialize(project, instance, "observations", partition).success
        shop.control(reset=True)
        file.write_text(file.read_text().replace("css: .nome}", "css: .nome a}"))
        for asset in ("task_plan", "observations"):
            ended = materialize(project, instance, asset, partition)
            assert ended.success, failure(ended)
        assert shop.log()["total"] == 0


def test_a_changed_declaration_and_a_retailer_that_came_later_are_refused_in_words(
    project: settings.Settings, shop: RunningShop
) -> None:
    window = today(project)
    folder = project.project / "datasets" / "shop" / "retailers"
    with dg.DagsterInstance.ephemeral() as instance:
        assert materialize(project, instance, "task_plan", f"fjordgear|{window}").success
        file = folder / "fjordgear.yaml"
        file.write_text(file.read_text().replace("key: [sku]", "key: [sku, seller]"))
        assert "entity.key" in failure(materialize(project, instance, "task_plan", f"fjordgear|{window}"))
        (folder / "later.yaml").write_text(file.read_text())
        (folder / "later.csv").write_text((folder / "fjordgear.csv").read_text())
        for asset in ("task_plan", "observations"):
            said = failure(materialize(project, instance, asset, f"later|{window}"))
            assert "later is not in the scope of" in said


def test_a_run_of_the_command_line_is_in_dagsters_history(
    project: settings.Settings, shop: RunningShop, pool: Pool, url: str
) -> None:
    dataset, window = load.dataset(project.project, "shop"), today(project)
    now = datetime.now(UTC)
    planned, refused = run.plan_or_refuse(pool, dataset, window, ["fjordgear"], now=now)
    assert refused is None
    with postgres.transaction(pool) as tx:
        tx.execute("update scrape.tasks set state = 'gone', last_failure_class = 'gone'")
    verdict = accept.accept_retailer(pool, dataset, keys.run_id("shop", window), "fjordgear")
    store = settings.Store(url, url, started=False)
    assert history.record(project, store, pool, dataset, window, planned=planned, verdicts=[verdict]) is None
    with dagster_instance.opened(project, store) as instance:
        key = dg.AssetKey(["shop", "observations"])
        assert instance.get_materialized_partitions(key) == {f"fjordgear|{window}"}
        check = dg.AssetCheckKey(key, "not_empty")
        found = instance.event_log_storage.get_asset_check_execution_history(check, limit=5)
        assert [r.status.value for r in found] == ["FAILED"]
        assert found[0].partition == f"fjordgear|{window}"
        # Then Dagster judges, and then the command line again, by other rules: the newest verdict is what is shown.
        made_by_a_run = dg.AssetCheckEvaluation(
            asset_key=key, check_name="not_empty", passed=False, metadata={}, partition=f"fjordgear|{window}"
        )
        instance.report_dagster_event(
            DagsterEvent(DagsterEventType.ASSET_CHECK_EVALUATION.value, "collect", event_specific_data=made_by_a_run),
            run_id=make_new_run_id(),
        )
    again = replace(verdict, state="accepted", checks=[{**check, "passed": True} for check in verdict.checks])
    assert history.record(project, store, pool, dataset, window, planned=planned, verdicts=[again]) is None
    with dagster_instance.opened(project, store) as instance:
        found = instance.event_log_storage.get_asset_check_execution_history(check, limit=5)
        assert [r.status.value for r in found] == ["SUCCEEDED", "FAILED"]
        newest = instance.event_log_storage.get_latest_asset_check_execution_by_key([check])[check]
        assert newest.status.value == "SUCCEEDED"
        assert newest.event is not None
        named = newest.event.dagster_event.event_specific_data.target_materialization_data
        assert named.storage_id == instance.fetch_materializations(key, limit=1).records[0].storage_id


def test_the_release_of_an_accepted_window_is_asked_for_until_it_is_published(
    project: settings.Settings, shop: RunningShop, pool: Pool
) -> None:
    dataset, window, now = load.dataset(project.project, "shop"), today(project), datetime.now(UTC)
    run.plan_or_refuse(pool, dataset, window, None, now=now)
    repository = definitions(project).get_repository_def()
    sensor = repository.get_sensor_def("release_shop_when_complete")

    def requested(instance: dg.DagsterInstance) -> list[str | None]:
        with dg.build_sensor_context(
            instance=instance, repository_def=repository, resources={"store": StoreResource()}
        ) as context:
            tick = sensor.evaluate_tick(context)
            assert bool(tick.run_requests) != bool(tick.skip_message), "it neither asks nor says why not"
            return [request.partition_key for request in tick.run_requests or []]

    with dg.DagsterInstance.ephemeral() as instance:
        assert requested(instance) == []
        with postgres.transaction(pool) as tx:
            tx.execute(
                "update scrape.candidates set state = 'accepted', decided_at = now(), content_hash = 'x', verdict = %s",
                ('{"rows": 1, "checks": [], "rules": {}}',),
            )
        assert requested(instance) == [window]
        tags = {"dagster/partition": window}
        backfill = instance.add_run(dg.DagsterRun("__ASSET_JOB", tags=tags, status=dg.DagsterRunStatus.STARTED))
        assert requested(instance) == [], "a backfill is about to release it"
        instance.report_run_failed(backfill)
        assert requested(instance) == [window]
        under_way = instance.add_run(dg.DagsterRun("release_shop", tags=tags, status=dg.DagsterRunStatus.STARTED))
        assert requested(instance) == []
        instance.report_run_failed(under_way)
        assert requested(instance) == [], "a failed release rests for a while"
        with postgres.transaction(pool) as tx:
            tx.execute("update scrape.candidates set state = 'rejected' where retailer = 'papelaria'")
        assert requested(dg.DagsterInstance.ephemeral()) == []


def test_a_retailer_that_was_ended_after_its_run_is_judged_by_the_sensor(
    project: settings.Settings, shop: RunningShop, pool: Pool
) -> None:
    """By its deadline, or by a stop that nobody resumed: then no run is there that would judge it."""
    dataset, window = load.dataset(project.project, "shop"), today(project)
    run.plan_or_refuse(pool, dataset, window, None, now=datetime.now(UTC))
    repository = definitions(project).get_repository_def()
    sensor = repository.get_sensor_def("release_shop_when_complete")

    def states(instance: dg.DagsterInstance) -> list[str]:
        with dg.build_sensor_context(
            instance=instance, repository_def=repository, resources={"store": StoreResource()}
        ) as context:
            sensor.evaluate_tick(context)
        with postgres.transaction(pool) as tx:
            return [row.state for row in tx.execute("select state from scrape.candidates order by retailer")]

    with dg.DagsterInstance.ephemeral() as instance:
        assert states(instance) == ["collecting"] * 3
        with postgres.transaction(pool) as tx:
            tx.execute(
                "update scrape.tasks set state = 'quarantined', last_failure_class = 'window_closed'"
                " where retailer = 'papelaria'"
            )
        tags = {"dagster/partition": f"papelaria|{window}"}
        its_run = instance.add_run(dg.DagsterRun("collect_shop", tags=tags, status=dg.DagsterRunStatus.STARTED))
        assert states(instance) == ["collecting"] * 3, "its own run judges it"
        instance.report_run_failed(its_run)
        assert states(instance) == ["collecting", "collecting", "rejected"]


def test_a_run_that_died_before_it_said_its_process_is_cleared_at_the_next_start(
    project: settings.Settings, url: str
) -> None:
    """Else it holds its retailer until Dagster gives up its start. On a shared server it may be another machine's."""
    store = settings.Store(url, url, started=False)
    with dagster_instance.opened(project, store) as instance:
        run_id = instance.add_run(dg.DagsterRun("collect_shop", status=dg.DagsterRunStatus.STARTING)).run_id
    assert server.clear_dead_runs(project, store) == []
    assert server.clear_dead_runs(replace(project, database_url=None), store) == [run_id]
    with dagster_instance.opened(project, store) as instance:
        assert instance.get_run_by_id(run_id).status is dg.DagsterRunStatus.FAILURE


def test_a_history_that_cannot_be_written_is_a_warning(project: settings.Settings, pool: Pool, url: str) -> None:
    dataset = load.dataset(project.project, "shop")
    nowhere = settings.Store(postgres.with_database(url, "there_is_none"), url, started=False)
    said = history.record(project, nowhere, pool, dataset, today(project), planned=[], verdicts=[])
    assert said is not None
    assert "Dagster's history" in said


def test_two_commands_that_meet_in_dagsters_tables_show_both_and_no_sql(
    project: settings.Settings, shop: RunningShop, pool: Pool, url: str
) -> None:
    dataset, window = load.dataset(project.project, "shop"), today(project)
    planned, _ = run.plan_or_refuse(pool, dataset, window, ["fjordgear"], now=datetime.now(UTC))
    store = settings.Store(url, url, started=False)
    with dagster_instance.opened(project, store) as instance:
        key = dg.AssetKey(["shop", "task_plan"])
        instance.fetch_materializations(key, limit=1)

    def meets(times: int) -> None:
        with postgres.transaction(pool) as tx:
            tx.execute("drop sequence if exists dagster.met")
            tx.execute("create sequence dagster.met")
            tx.execute(
                "create or replace function dagster.meet() returns trigger language plpgsql as $$ begin"
                f" if nextval('dagster.met') <= {times} then raise exception 'who was first' using errcode = '23505';"
                " end if; return new; end $$"
            )
            tx.execute(
                "create or replace trigger meet before insert on dagster.event_logs"
                " for each row execute function dagster.meet()"
            )

    meets(1)
    assert history.record(project, store, pool, dataset, window, planned=planned, verdicts=[]) is None
    with dagster_instance.opened(project, store) as instance:
        assert instance.get_materialized_partitions(key) == {f"fjordgear|{window}"}
    meets(99)
    said = history.record(project, store, pool, dataset, window, planned=planned, verdicts=[])
    assert said is not None
    assert said.startswith("Dagster's history does not show this run: IntegrityError: ")
    assert "who was first" in said
    assert "INSERT" not in said.upper()
    assert "\n" not in said


def test_each_rule_of_a_verdict_has_a_check_and_each_check_a_result(project: settings.Settings, pool: Pool) -> None:
    dataset, window, now = load.dataset(project.project, "shop"), today(project), datetime.now(UTC)
    run.plan_or_refuse(pool, dataset, window, None, now=now)
    with postgres.transaction(pool) as tx:
        tx.execute("update scrape.tasks set state = 'gone', last_failure_class = 'gone'")
    run_id = keys.run_id("shop", window)
    verdict = accept.accept_retailer(pool, dataset, run_id, "casamoda")
    specs = checks.of_retailer(dataset)
    assert {checks.name(c["rule"]) for c in verdict.checks} == {s.name for s in specs}
    results = list(checks.results(specs, verdict, "candidate generation", 1))
    assert {r.check_name: r.passed for r in results} == {checks.name(c["rule"]): c["passed"] for c in verdict.checks}
    for retailer in ("fjordgear", "papelaria"):
        accept.accept_retailer(pool, dataset, run_id, retailer)
    whole = accept.accept_dataset(pool, dataset, run_id)
    assert [c["rule"] for c in whole.checks] == ["members_accepted"]
    told = {r.check_name: r for r in checks.results(checks.of_dataset(dataset), whole, "candidate", 1)}
    assert not told.pop("members_accepted").passed
    assert {r.description for r in told.values()} == {"not asked while a retailer is missing"}
    for retailer in dataset.retailers:
        # As if all were good: then the whole is asked everything.
        with postgres.transaction(pool) as tx:
            tx.execute("update scrape.candidates set state = 'accepted' where retailer = %s", (retailer,))
    whole = accept.accept_dataset(pool, dataset, run_id)
    assert {c["rule"] for c in whole.checks} == {s.name for s in checks.of_dataset(dataset)}
    with pytest.raises(Exception, match="not accepted"):
        publish.publish(pool, dataset, run_id)
