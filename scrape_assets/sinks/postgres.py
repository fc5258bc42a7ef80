"""Delivery into a table of the user's own: one row per entity, upserted, guarded by window and version.

Sending again, sending late and sending from two places at once all end in the same table: an older window or version
never replaces a newer one, and a withdrawn row stays as a tombstone (`deleted`) that only a newer one lifts. Which
versions arrived stands in `<table>_deliveries`, written in the same transaction.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from scrape_assets import failpoints
from scrape_assets.errors import DeclarationError
from scrape_assets.sinks.outcome import (
    LATE,
    PAYLOAD,
    PAYLOAD_HASH,
    ROW_VERSION,
    Applied,
    Found,
    NotApplied,
    Record,
    Refused,
    Sent,
    Shipment,
    Uncertain,
)

CONNECT_SECONDS = 15

_OWNERS = ("28", "3D", "3F")
"""No such login, database or schema: like a missing right (42501), nothing of the version, and its owner mends it."""

_TABLE = sql.SQL(
    """
    create table if not exists {table} (
        dataset           text not null,
        entity_key        text not null,
        context           text not null,
        retailer          text not null,
        collection_window text not null,
        window_end        timestamptz not null,
        dataset_version   integer not null,
        observed_at       timestamptz not null,
        known_at          timestamptz not null,
        deleted           boolean not null,
        payload           jsonb not null,
        payload_hash      text not null,
        primary key (dataset, entity_key, context)
    )"""
)

_DELIVERIES = sql.SQL(
    """
    create table if not exists {deliveries} (
        idempotency_key   text primary key,
        event_id          uuid not null,
        event_type        text not null,
        dataset           text not null,
        collection_window text not null,
        dataset_version   integer,
        content_hash      text not null,
        applied_rows      bigint not null,
        event             jsonb not null,
        delivered_at      timestamptz not null default clock_timestamp()
    )"""
)

_INCOMING = sql.SQL(
    """
    create temporary table incoming (
        entity_key text, context text, retailer text, row_version integer, observed_at timestamptz,
        known_at timestamptz, deleted boolean, payload jsonb, payload_hash text
    ) on commit drop"""
)

_UPSERT = sql.SQL(
    """
    insert into {table} as t (dataset, entity_key, context, retailer, collection_window, window_end, dataset_version,
                              observed_at, known_at, deleted, payload, payload_hash)
    select %(dataset)s, entity_key, context, retailer, %(window)s, %(window_end)s, row_version, observed_at, known_at,
           deleted, payload, payload_hash
      from incoming
     order by entity_key, context
    on conflict (dataset, entity_key, context) do update
       set retailer = excluded.retailer, collection_window = excluded.collection_window,
           window_end = excluded.window_end, dataset_version = excluded.dataset_version,
           observed_at = excluded.observed_at, known_at = excluded.known_at,
           deleted = excluded.deleted, payload = excluded.payload, payload_hash = excluded.payload_hash
     where (excluded.window_end, excluded.dataset_version) > (t.window_end, t.dataset_version)"""
)

_NOTE = sql.SQL(
    """
    insert into {deliveries} (idempotency_key, event_id, event_type, dataset, collection_window, dataset_version,
                              content_hash, applied_rows, event)
    values (%(key)s, %(event_id)s, %(event_type)s, %(dataset)s, %(window)s, %(dataset_version)s, %(content_hash)s,
            %(rows)s, %(event)s)
    on conflict (idempotency_key) do nothing"""
)


def _checked(url: str) -> str:
    """The URL; DeclarationError for text that is none, without saying it: it may hold a password."""
    try:
        conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        raise DeclarationError(
            "the environment holds no address of a database under that name; expected postgresql://user@host/database"
        ) from None
    return url


def send(url: str, table: str, shipment: Shipment) -> Sent:
    """The table holds the version's rows, or newer ones, and that it arrived; or nothing of it."""
    url = _checked(url)
    committing = False
    try:
        with psycopg.connect(url, connect_timeout=CONNECT_SECONDS) as connection:
            rows = 0
            with connection.cursor() as cursor:
                names = _names(table)
                _make_tables(cursor, names)
                if shipment.event_type != LATE:
                    rows = _upsert(cursor, names, shipment)
                _note(cursor, names, shipment, rows)
            committing = True
        failpoints.reach("K18")
        return Applied({"table": table, "rows": rows})
    except psycopg.Error as error:
        told, code = f"{table}: {_first_line(error)}", error.sqlstate or ""
        if committing and not code:
            return Uncertain(told)
        if code == "42501" or code[:2] in _OWNERS:
            return NotApplied(f"{told}. {_granted(url, table)}")
        return Refused(told) if code[:2] in ("22", "23", "42") else NotApplied(told)


def _granted(url: str, table: str) -> str:
    """What the database's owner runs, so that this role can deliver."""
    schema = table.rpartition(".")[0]
    role = sql.Identifier(str(conninfo_to_dict(url).get("user") or "ROLE")).as_string()
    where = sql.Identifier(schema or "public").as_string()
    tables = ", ".join(sql.Identifier(*name.split(".")).as_string() for name in (table, _deliveries(table)))
    return (
        f"Its owner runs: create schema if not exists {where}; grant usage, create on schema {where} to {role}; "
        f"and where the tables are there: grant select, insert, update on {tables} to {role}"
    )


def _make_tables(cursor: psycopg.Cursor[Any], names: dict[str, sql.Composable]) -> None:
    """Both tables are there. Made one after the other by those who come at once; a role that finds them makes none."""
    for name, statement in (("table", _TABLE), ("deliveries", _DELIVERIES)):
        text = names[name].as_string(cursor)
        cursor.execute("select to_regclass(%s) is not null", (text,))
        if not (cursor.fetchone() or (False,))[0]:
            cursor.execute("select pg_advisory_xact_lock(hashtextextended(%s, 0))", (text,))
            cursor.execute(statement.format(**names))


def _upsert(cursor: psycopg.Cursor[Any], names: dict[str, sql.Composable], shipment: Shipment) -> int:
    """How many rows of the table are other than before."""
    event = shipment.event
    cursor.execute(_INCOMING)
    with cursor.copy(
        "copy incoming (entity_key, context, retailer, row_version, observed_at, known_at, deleted, payload,"
        " payload_hash) from stdin"
    ) as copy:
        for row, deleted in _rows(shipment):
            copy.write_row(
                (
                    row["entity_key"],
                    row["context"],
                    row["retailer"],
                    row[ROW_VERSION],
                    row["observed_at"],
                    row["known_at"],
                    deleted,
                    json.dumps(row[PAYLOAD], ensure_ascii=False),
                    row[PAYLOAD_HASH],
                )
            )
    cursor.execute(
        _UPSERT.format(**names),
        {"dataset": event["dataset"], "window": event["window"], "window_end": event["window_end"]},
    )
    return cursor.rowcount


def _note(cursor: psycopg.Cursor[Any], names: dict[str, sql.Composable], shipment: Shipment, rows: int) -> None:
    event = shipment.event
    cursor.execute(
        _NOTE.format(**names),
        {
            "key": shipment.idempotency_key,
            "event_id": shipment.event_id,
            "event_type": shipment.event_type,
            "dataset": event["dataset"],
            "window": event["window"],
            "dataset_version": event.get("dataset_version"),
            "content_hash": shipment.content_hash,
            "rows": rows,
            "event": json.dumps(dict(event)),
        },
    )


def find(url: str, table: str, shipment: Shipment) -> Found:
    """Whether the destination says that this version arrived."""
    url = _checked(url)
    names = _names(table)
    try:
        with psycopg.connect(url, connect_timeout=CONNECT_SECONDS) as connection, connection.cursor() as cursor:
            cursor.execute("select to_regclass(%s)", (names["deliveries"].as_string(connection),))
            if (cursor.fetchone() or (None,))[0] is None:
                return NotApplied(f"{table}: nothing was ever delivered")
            cursor.execute(
                sql.SQL("select content_hash, applied_rows from {deliveries} where idempotency_key = %s").format(
                    **names
                ),
                (shipment.idempotency_key,),
            )
            row = cursor.fetchone()
    except psycopg.Error as error:
        return Uncertain(f"{table}: {_first_line(error)}")
    if row is None:
        return NotApplied(f"{table}: it does not hold it")
    if row[0] != shipment.content_hash:
        return Refused(f"{table} has something else under this key: {row[0]}")
    return Applied({"table": table, "rows": row[1], "found": True})


def _rows(shipment: Shipment) -> Iterator[tuple[Record, bool]]:
    for row in shipment.rows():
        yield row, row["change"] == "withdrawn"
    if shipment.payload == "full":
        for row in shipment.withdrawn():
            yield row, True


def _names(table: str) -> dict[str, sql.Composable]:
    return {
        "table": sql.Identifier(*table.split(".")),
        "deliveries": sql.Identifier(*_deliveries(table).split(".")),
    }


def _deliveries(table: str) -> str:
    return f"{table}_deliveries"


def _first_line(error: psycopg.Error) -> str:
    return " ".join(str(error).splitlines()[0].split()) if str(error) else type(error).__name__
