"""What the store is told of an attempt, where no worker is needed to see it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest

from scrape_assets.flow import plan
from scrape_assets.flow.assignment import Assignment
from scrape_assets.flow.conclude import conclude
from scrape_assets.rules.page import FetchFailure
from scrape_assets.rules.states import FailureClass
from scrape_assets.store.lease import Claim
from tests.helpers import make

SITE = "http://127.0.0.1:9"
NOW = datetime(2026, 3, 5, 12, tzinfo=UTC)


@pytest.mark.parametrize("failure", [FailureClass.TRANSPORT, FailureClass.TIMEOUT])
@pytest.mark.parametrize(("status", "reached"), [(None, False), (200, None)])
def test_a_page_that_the_site_gave_and_a_browser_could_not_show_is_no_outage_of_the_site(
    tmp_path: Path, failure: FailureClass, status: int | None, reached: bool | None
) -> None:
    dataset = make.dataset(tmp_path, {"north": (SITE, ["/p/1"])})
    north = dataset.retailers["north"]
    run = plan.describe_run(dataset, "2026-03-05", NOW)
    work = Assignment(run, dataset, north, plan.freeze(dataset, north), (SITE,))
    url = f"{SITE}/p/1"
    claim = Claim(
        uuid4(), url, url, "", None, "product", uuid4(), 1, 1, 3, 0, 1, None, NOW, 0, False, 0, 0, 0, None, []
    )
    result = conclude(work, claim, SITE, FetchFailure(failure, "why", status), None, NOW, 0.5)
    assert (result.failure_class, result.reached) == (failure, reached)
