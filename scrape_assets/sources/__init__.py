"""Network in: pages over HTTP, and what extraction processes read from them. Answers are values."""
