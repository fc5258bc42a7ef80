"""Restartable web collection on Dagster and Postgres; docs/architecture.md says where what belongs."""
