"""The suite `politeness`: one budget per origin, whoever asks. What the site saw is the only witness."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

from scrape_assets.demo.scripted import Answer, product
from scrape_assets.flow.drill_cases import Case, Stage, stage
from scrape_assets.flow.drill_ground import Scratch, end_of
from scrape_assets.store import embedded

WORKERS = 8
GAP_SECONDS = 0.2
PAGES = tuple(f"/p/{number}" for number in range(100))


def run(scratch: Scratch, say: Callable[[str], None]) -> dict[str, Any]:
    """All cases, with the least gap and the share of the allowed rate that eight workers together reached."""
    say(f"{WORKERS} workers, one origin, {GAP_SECONDS:g} s")
    paced, least_gap, rate_share = _paced(scratch)
    cases = [paced]
    for case in (_in_flight, _retry_after_seconds, _retry_after_date, _robots, _day, _held, _outage, _store_gone):
        say(case.__name__.strip("_").replace("_", " "))
        cases.append(case(scratch))
    return {
        "cases": [case.record() for case in cases],
        "allowed_gap_ms": round(1000 * GAP_SECONDS, 1),
        "least_gap_ms": round(1000 * least_gap, 1),
        "rate_share": round(rate_share, 3),
        "ok": all(case.ok for case in cases),
    }


def _paced(scratch: Scratch) -> tuple[Case, float, float]:
    with stage(scratch, "paced", fetch="{rate: 5/s, allow_private: true}", pages=PAGES) as it:
        it.work_from_one_moment(WORKERS)
        gaps = it.site.gaps()
        least, share = min(gaps), GAP_SECONDS * len(gaps) / sum(gaps)
        case = Case(
            "eight workers share a rate of 5/s",
            f"no gap under {GAP_SECONDS * 1000:g} ms, at least 95 % of the rate, {len(PAGES)} pages once each",
            f"{least * 1000:.1f} ms, {share:.1%}, {_once(it, PAGES)}",
            least >= GAP_SECONDS and share >= 0.95 and _once(it, PAGES) == "each once",
        )
    return case, least, share


def _in_flight(scratch: Scratch) -> Case:
    def slow(path: str) -> Answer:
        return product(int(path.rpartition("/")[2]))._replace(seconds=0.05)

    with stage(
        scratch, "flight", fetch="{rate: none, concurrency: 2, allow_private: true}", pages=PAGES, answer=slow
    ) as it:
        it.work(WORKERS)
        return Case(
            "eight workers share two requests in flight",
            "never more than 2 at one time, each page once",
            f"at most {it.site.peak}, {_once(it, PAGES)}",
            it.site.peak <= 2 and _once(it, PAGES) == "each once",
        )


def _retry_after_seconds(scratch: Scratch) -> Case:
    return _rate_limited(scratch, "after3", "Retry-After: 3", lambda: "3")


def _retry_after_date(scratch: Scratch) -> Case:
    def date() -> str:
        return format_datetime(datetime.now(UTC) + timedelta(seconds=4), usegmt=True)

    return _rate_limited(scratch, "date", "Retry-After: an HTTP date 3 to 4 s away", date)


def _rate_limited(scratch: Scratch, name: str, what: str, header: Callable[[], str]) -> Case:
    pages = PAGES[:30]
    asked: list[float] = []
    lock = threading.Lock()

    def answer(path: str) -> Answer:
        with lock:
            if not asked:
                asked.append(time.monotonic())
                return Answer(429, {"retry-after": header(), "date": format_datetime(datetime.now(UTC), usegmt=True)})
        return product(int(path.rpartition("/")[2]))

    with stage(scratch, name, fetch="{rate: 20/s, allow_private: true}", pages=pages, answer=answer) as it:
        it.work(WORKERS)
        with it.site.lock:
            # What was on its way when the answer came is no request of somebody who knew.
            after = sorted(at - asked[0] for at, _ in it.site.arrivals if at > asked[0] + 0.15)
        quiet = after[0] if after else 0.0
        return Case(
            f"429 with {what}, eight workers",
            "no worker asks for 3 s, then all pages are obtained, the first one too",
            f"{quiet:.2f} s, {it.states()}",
            quiet >= 2.85 and it.states() == {"committed": len(pages)},
        )


def _robots(scratch: Scratch) -> Case:
    pages = [*PAGES[:6], "/private/7", "/private/8"]
    # With a byte-order mark, lines that end as in 1999, and another robot's group.
    body = b"\xef\xbb\xbfUser-agent: *\rDisallow: /private/\rCrawl-delay: 0.3\r\rUser-agent: other\rDisallow: /\r"
    with stage(
        scratch, "robots", fetch="{rate: 50/s, allow_private: true}", pages=pages, robots=Answer(body=body)
    ) as it:
        it.work(2)
        private = [path for path in it.site.requests if path.startswith("/private")]
        least = min(it.site.gaps()[1:])
        asked = sum(1 for _, path in it.site.arrivals if path == "/robots.txt")
        return Case(
            "robots.txt forbids a folder and asks for 0.3 s",
            "asked for once or twice, nothing below /private/ asked for, no gap under 300 ms",
            f"asked for {asked} times, {len(private)} asked for, {least * 1000:.1f} ms, {it.states()}",
            0 < asked <= 2 and not private and least >= 0.3 and it.states() == {"committed": 6, "quarantined": 2},
        )


def _day(scratch: Scratch) -> Case:
    with stage(
        scratch, "day", fetch="{rate: none, per_day: 20, robots: ignore, allow_private: true}", pages=PAGES
    ) as it:
        workers = it.workers(2)
        give_up = time.monotonic() + 30
        while sum(it.site.requests.values()) < 20 and time.monotonic() < give_up:
            time.sleep(0.1)
        time.sleep(1.5)
        for process in workers:
            process.terminate()
            end_of(process)
        made = sum(it.site.requests.values())
        return Case("20 requests a day for two workers", "20 requests", f"{made} requests", made == 20)


def _held(scratch: Scratch) -> Case:
    pages = PAGES[:12]
    ends: list[float] = []

    def slow(path: str) -> Answer:
        time.sleep(0.15)
        ends.append(time.monotonic())
        return product(int(path.rpartition("/")[2]))

    with stage(
        scratch,
        "held",
        fetch="{rate: 10/s, gap: response, robots: ignore, allow_private: true}",
        pages=pages,
        answer=slow,
    ) as it:
        it.work(4)
        starts = sorted(at for at, _ in it.site.arrivals)[1:]
        least = min(start - end for end, start in zip(sorted(ends), starts, strict=False))
        return Case(
            "a gap of 100 ms that counts from the end of an answer, four workers",
            "no request within 100 ms of the last answer, one at a time",
            f"{least * 1000:.1f} ms, at most {it.site.peak} at a time, {it.states()}",
            least >= 0.1 and it.site.peak == 1 and it.states() == {"committed": len(pages)},
        )


def _outage(scratch: Scratch) -> Case:
    """The site resets every connection for some seconds."""
    until = time.monotonic() + 6

    def answer(path: str) -> Answer:
        if time.monotonic() < until:
            raise ConnectionAbortedError
        return product(int(path.rpartition("/")[2]))

    with stage(
        scratch, "outage", fetch="{rate: none, robots: ignore, allow_private: true}", pages=PAGES, answer=answer
    ) as it:
        it.work(2)
        during = sum(1 for at, _ in it.site.arrivals if at < until)
        return Case(
            "nothing can be reached for 6 s",
            "at most 60 requests meanwhile, then all pages are obtained and none is given up",
            f"{during} requests, {it.states()}",
            during <= 60 and it.states() == {"committed": len(PAGES)},
        )


def _store_gone(scratch: Scratch) -> Case:
    name, expected = "the state store stops", f"no request later than {GAP_SECONDS * 1000:g} ms after it"
    if scratch.state is None:
        return Case(name, expected, "skipped: this server is yours, nobody stops it", True)
    with stage(scratch, "gone", fetch="{rate: 5/s, robots: ignore, allow_private: true}", pages=PAGES) as it:
        workers = it.workers(4)
        give_up = time.monotonic() + 60
        while len(it.site.requests) < 10 and time.monotonic() < give_up:
            time.sleep(0.05)
        embedded.stop(scratch.state)
        stopped = time.monotonic()
        time.sleep(2)
        with it.site.lock:
            late = [at - stopped for at, _ in it.site.arrivals if at > stopped + GAP_SECONDS]
        for process in workers:
            process.kill()
            process.join()
        embedded.ensure(scratch.state)
        return Case(name, expected, f"{len(late)} requests later than that, {len(it.site.requests)} before", not late)


def _once(it: Stage, pages: Sequence[str]) -> str:
    wrong = {path: count for path, count in it.site.requests.items() if count != 1}
    missing = len(set(pages) - set(it.site.requests))
    return "each once" if not wrong and not missing else f"{missing} missing, {len(wrong)} more than once"
