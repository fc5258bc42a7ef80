"""What Dagster runs, thin: each body opens the store, calls one verb of `flow`, and says what happened."""
