"""Pure decisions: what a page is, what it says, what happens next. `now` and `jitter` are arguments; no I/O."""
