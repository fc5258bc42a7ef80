"""Postgres: functions that take a transaction and never commit."""
