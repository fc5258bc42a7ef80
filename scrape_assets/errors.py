"""What a person must act on. Failures of pages are values (`rules.states`); these are for everything else.

Each class carries the exit code that the commands document, and its message says what happened, where,
what was expected and what to do.
"""

from __future__ import annotations


class ScrapeAssetsError(Exception):
    """Something a person must act on."""

    exit_code = 1


class DeclarationError(ScrapeAssetsError):
    """The declaration or a command's arguments are wrong; nothing was started."""

    exit_code = 2


class ManifestChanged(ScrapeAssetsError):
    """A retailer's frozen part differs from what its run was planned with; that retailer does not resume."""

    exit_code = 2


class CandidateRejected(ScrapeAssetsError):
    """The candidate did not pass; nothing was published and the last good version stands."""

    exit_code = 3


class StoreUnreachable(ScrapeAssetsError):
    """The Postgres state store cannot be reached or refuses to serve."""

    exit_code = 4


class Interrupted(ScrapeAssetsError):
    """The work stopped before its end; running the same command again resumes it."""

    exit_code = 5
