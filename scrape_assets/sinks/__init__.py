"""Network and disk out: send, and find by idempotency key."""
