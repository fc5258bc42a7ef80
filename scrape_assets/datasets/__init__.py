"""What to collect: the declaration as models, its loader, its inventories and the user's own code beside it."""
