"""A small shop on loopback and the dataset that collects it: the newcomer's first run, the tests' target.

`catalogue` is the truth (what is sold, what each page does wrong), `pages` and `books` render it,
`shop` serves it as a process of its own, `running` starts and stops that process, `project` writes the
declaration.
"""
