"""Metadata: what a person wants to read on a materialization, the same for Dagster's steps and for `run`.

Scraped text is data: it goes in as text, JSON or table cells of bounded length, never as markdown, URL or path.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import dagster as dg
import orjson

from scrape_assets.datasets.declaration import Dataset
from scrape_assets.flow import series, why
from scrape_assets.flow.accept import Verdict
from scrape_assets.flow.plan import PlannedRetailer
from scrape_assets.flow.publish import Published
from scrape_assets.rules import keys
from scrape_assets.store import candidates, observe, postgres, runs
from scrape_assets.store.postgres import Pool

Metadata = dict[str, Any]

TEXT_LENGTH = 300
"""Characters of one value shown; what is cut off ends in an ellipsis."""

ROWS_SHOWN = 20
"""Rows of one table shown; the counts tell of the rest."""


def capped(value: object) -> str:
    """The value as one line of bounded length."""
    line = " ".join(str(value).split())
    return line if len(line) <= TEXT_LENGTH else line[: TEXT_LENGTH - 1] + "…"


def capped_line(value: str) -> str:
    """The same for a line that keeps its indentation."""
    indent = len(value) - len(value.lstrip())
    return " " * indent + capped(value)


def table(rows: Sequence[dict[str, Any]]) -> dg.TableMetadataValue | dg.TextMetadataValue:
    """The rows as a table of bounded size; the word "none" when there are none."""
    if not rows:
        return dg.MetadataValue.text("none")
    cells = [
        {name: v if isinstance(v, int | float) else capped(v) for name, v in row.items()} for row in rows[:ROWS_SHOWN]
    ]
    columns = [dg.TableColumn(name, _cell_type(cells[0][name])) for name in cells[0]]
    return dg.MetadataValue.table([dg.TableRecord(cell) for cell in cells], dg.TableSchema(columns))


def _cell_type(value: object) -> str:
    return "int" if isinstance(value, int) else "float" if isinstance(value, float) else "string"


def task_plan(pool: Pool, dataset: Dataset, window: str, planned: PlannedRetailer) -> Metadata:
    """How many pages are planned, and which inventory lines could not be."""
    run_id = keys.run_id(dataset.dataset, window)
    with postgres.transaction(pool) as tx:
        partition = runs.partitions(tx, run_id)[planned.retailer]
        refused = runs.rejections(tx, run_id, planned.retailer, ROWS_SHOWN)
    return {
        "run_id": run_id,
        "planned": planned.planned,
        "refused inventory lines": planned.rejected,
        "first refused lines": table([{"line": r.line, "reason": r.reason, "content": r.content} for r in refused]),
        "planned before": planned.resumed,
        "extractor_version": partition.extractor_version or "",
        "manifest_hash": partition.manifest_hash or "",
    }


def observations(pool: Pool, dataset: Dataset, window: str, retailer: str) -> Metadata:
    """Counts by state, coverage, attempts, failure classes, speed, and where the failed pages are listed."""
    run_id = keys.run_id(dataset.dataset, window)
    with postgres.transaction(pool) as tx:
        row = next(r for r in observe.partition_counts(tx, run_id) if r.retailer == retailer)
        failures = [f for f in observe.failure_counts(tx, run_id) if f.retailer == retailer]
        states = [s for s in observe.page_state_counts(tx, run_id) if s.retailer == retailer]
    obtainable = row.planned - row.lists - (row.gone - row.lists_gone)
    return {
        "run_id": run_id,
        "dagster/row_count": row.observations,
        "planned": row.planned,
        "committed": row.committed,
        "gone": row.gone,
        "quarantined": row.quarantined,
        "open": row.pending + row.retry_wait + row.leased + row.waiting,
        **({"list pages": row.lists, "list pages read": row.lists_read} if row.lists else {}),
        "coverage": round((row.committed - row.lists_read) / obtainable, 4) if obtainable else 0.0,
        "attempts": row.attempts,
        "pages per second": round(row.attempts / row.seconds, 1) if row.seconds else 0.0,
        "failure classes": table(
            [{"failure class": f.failure_class, "tasks": f.tasks, "attempts": f.attempts} for f in failures]
        ),
        "page states": table([{"page state": s.page_state, "attempts": s.attempts} for s in states]),
        **_shares(row.verdict),
        "list the failed pages": f"scrape-assets failed {dataset.dataset} --window {window} --retailer {retailer}",
        "candidate generation": row.generation or 0,
        "candidate state": row.candidate_state or "not planned",
        "recovery batch": str(row.recovery_batch_id or "none"),
        "why": _why(pool, dataset, run_id),
        "extractor_version": row.extractor_version or "",
    }


def _shares(verdict: dict[str, Any] | None) -> Metadata:
    """Of a retailer that was judged, numbers that Dagster draws over the windows."""
    figures = (verdict or {}).get("figures", {})
    states: Counter[str] = Counter()
    for state, count in figures.get("page_states", {}).items():
        states[series.in_words(state)] += count
    shares = {f"share of {state} pages": round(count / states.total(), 4) for state, count in states.items()}
    as_before = figures.get("as_before")
    return shares if as_before is None else {**shares, "share of pages laid out as before": as_before}


def candidate_dataset(pool: Pool, dataset: Dataset, window: str, verdict: Verdict) -> Metadata:
    """What the dataset candidate is made of, and the verdict on it."""
    run_id = keys.run_id(dataset.dataset, window)
    with postgres.transaction(pool) as tx:
        newest = candidates.dataset_candidate(tx, run_id)
    members = newest.members if newest else []
    return {
        "run_id": run_id,
        "candidate": verdict.sequence or 0,
        "state": verdict.state,
        "dagster/row_count": sum(int(member["rows"]) for member in members),
        "retailers": table(
            [
                {"retailer": m["retailer"], "state": m["state"], "rows": m["rows"], "generation": m["generation"]}
                for m in members
            ]
        ),
        "reasons against it": dg.MetadataValue.text(capped("; ".join(verdict.reasons) or "none")),
        "why": _why(pool, dataset, run_id),
    }


def _why(pool: Pool, dataset: Dataset, run_id: str) -> dg.TextMetadataValue:
    """What `why` says, line by line."""
    return dg.MetadataValue.text("\n".join(capped_line(line) for line in why.text(why.explain(pool, dataset, run_id))))


def published_dataset(dataset: Dataset, window: str, published: Published) -> Metadata:
    """Which version stands, and how to read it."""
    return {
        "run_id": keys.run_id(dataset.dataset, window),
        "dataset_version": published.dataset_version,
        "dagster/row_count": published.rows,
        "published before": not published.new,
        **{f"{kind} rows": count for kind, count in published.changes.items()},
        "gaps": ", ".join(f"{name}: {gap}" for name, gap in published.gaps.items()) or "none",
        "destinations": ", ".join(sorted(dataset.publish.to)) or "none declared",
        "more": f"scrape-assets status {dataset.dataset} --window {window}",
    }


def check(record: dict[str, Any], name: str, number: int) -> Metadata:
    """One rule of a verdict, with the candidate that it judged: `name` is "candidate generation" or "candidate"."""
    return {
        name: number,
        "rule": record["rule"],
        "expected": capped(record["expected"]),
        "got": capped(record["got"]),
        "samples": dg.MetadataValue.json(orjson.loads(orjson.dumps(_bounded(record["samples"])))),
    }


def _bounded(samples: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: capped(value) for key, value in sample.items()} for sample in samples[:ROWS_SHOWN]]
