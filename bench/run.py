"""Durable pages end to end against Scrapy with JOBDIR, on one site, alternating in one run; medians.

    make bench                                        10,000 pages, three turns each
    python bench/run.py PEERS_PYTHON [--pages N] [--turns N] [--json]
    python bench/run.py PEERS_PYTHON --profile        where a worker's CPU goes, instead of the comparison

One process each with 32 requests in flight; both read the same JSON-LD of the same 10 KB pages. Ours commits every
page to Postgres (fsync on) before it counts; theirs writes a feed file. The times leave start-up and imports out on
both sides. A worker's own CPU is what its process used, less what the same client needs to fetch the same pages
without a store, less what compressing the same bytes takes; extraction runs in a process of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import os
import pstats
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
IN_FLIGHT = 32
DATASET = """\
dataset: bench
window: {every: day, at: "00:00", timezone: UTC, start: 2026-01-01}
publish: {to: {lake: {files: {path: published, format: jsonl}}}}
"""
RETAILER = """\
site: SITE
basis: our own site
urls: {file: site.csv}
fetch: {rate: none, concurrency: 32}
key: [sku]
"""
TARGETS = {"times Scrapy": (">=", 5.0), "worker memory, MB": ("<", 300.0), "own CPU per page, us": ("<", 150.0)}


def ours(folder: Path, url: str, profile: bool) -> dict[str, Any]:
    """One worker drains the planned window in this process; what it took."""
    from scrape_assets.datasets import load
    from scrape_assets.flow import run
    from scrape_assets.store import postgres

    dataset = load.dataset(folder, "bench")
    window = datetime.now(UTC).strftime("%Y-%m-%d")
    machine = run.Machine(folder / "artifacts", f"bench-{os.getpid()}", {})
    profiler = cProfile.Profile()
    with postgres.open_pool(url) as pool:
        work = run.assignments(pool, dataset, window, ["site"])
        before = time.process_time()
        if profile:
            profiler.enable()
        tally = asyncio.run(run.collect_partitions(pool, machine, work))
        if profile:
            profiler.disable()
            pstats.Stats(profiler, stream=sys.stderr).sort_stats("tottime").print_stats(45)
        cpu = time.process_time() - before
    return {
        "seconds": tally.seconds,
        "pages": tally.outcomes["committed"],
        "cpu_us": cpu / max(1, tally.outcomes["committed"]) * 1e6,
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


async def network(base: str, pages: int) -> dict[str, Any]:
    """The same client fetches the same pages and drops them; then the same bytes are compressed."""
    import zstandard

    from scrape_assets.sources.http import HttpSource
    from scrape_assets.store import artifacts

    bodies: list[bytes] = []
    numbers = iter(range(pages))

    async def fetch_some(source: HttpSource) -> None:
        for number in numbers:
            answer = await source.fetch(
                f"{base}/p/{number}", site=base, headers={}, timeout_seconds=60, max_body_bytes=10_000_000
            )
            if number < 500:
                bodies.append(answer.body)  # type: ignore[union-attr]

    before = time.process_time()
    async with HttpSource() as source:
        await asyncio.gather(*(fetch_some(source) for _ in range(IN_FLIGHT)))
    network_us = (time.process_time() - before) / pages * 1e6
    compressor = zstandard.ZstdCompressor(level=artifacts.LEVEL)
    before = time.process_time()
    for body in bodies:
        compressor.compress(body)
    return {"network_us": network_us, "compression_us": (time.process_time() - before) / len(bodies) * 1e6}


def child(python: str, *arguments: str) -> dict[str, Any]:
    """What a process of its own printed, as JSON."""
    ended = subprocess.run([python, *arguments], capture_output=True, text=True, cwd=HERE.parent, check=False)
    if ended.returncode:
        raise SystemExit(f"{' '.join(arguments)}: exit code {ended.returncode}\n{ended.stderr[-3000:]}")
    if "--profile" in arguments:
        print(ended.stderr)
    return json.loads(ended.stdout.splitlines()[-1])


def compare(peers: str, pages: int, turns: int, profile: bool) -> dict[str, Any]:
    """Both sides, turn by turn, on a database, a site and folders of their own."""
    from scrape_assets.datasets import load
    from scrape_assets.flow import plan
    from scrape_assets.store import embedded, embedded_cluster, postgres

    site = subprocess.Popen([sys.executable, HERE / "site.py"], stdout=subprocess.PIPE, text=True)
    assert site.stdout
    base = f"http://127.0.0.1:{site.stdout.readline().strip()}"
    turn_results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="scrape-assets-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        server = embedded.ensure(folder / "state")
        try:
            home = folder / "datasets" / "bench"
            (home / "retailers").mkdir(parents=True)
            (home / "dataset.yaml").write_text(DATASET)
            (home / "retailers" / "site.yaml").write_text(RETAILER.replace("SITE", base))
            (home / "site.csv").write_text("url\n" + "".join(f"{base}/p/{n}\n" for n in range(pages)))
            dataset = load.dataset(folder, "bench")
            now = datetime.now(UTC)
            for turn in range(turns):
                owner = postgres.create_database(server.owner_url, f"bench_{turn}")
                postgres.migrate(owner, application_role=embedded_cluster.APPLICATION_ROLE)
                url = postgres.with_database(server.url, f"bench_{turn}")
                with postgres.open_pool(url) as pool:
                    plan.plan(pool, dataset, f"{now:%Y-%m-%d}", now=now)
                flags = ["--profile"] if profile else []
                mine = child(sys.executable, str(HERE / "run.py"), "ours", str(folder), url, *flags)
                if mine["pages"] != pages:
                    raise SystemExit(f"we committed {mine['pages']} of {pages} pages")
                if profile:
                    return {"profiled": mine}
                parts = child(sys.executable, str(HERE / "run.py"), "network", base, str(pages))
                theirs = child(peers, str(HERE / "scrapy_spider.py"), base, str(pages), str(folder / f"scrapy{turn}"))
                if theirs["items"] != pages:
                    raise SystemExit(f"Scrapy gave {theirs['items']} of {pages} items")
                turn_results.append({"ours": mine, "parts": parts, "scrapy": theirs})
                print(f"turn {turn + 1}: {json.dumps(turn_results[-1])}", file=sys.stderr, flush=True)
        finally:
            embedded.stop(folder / "state")
            site.terminate()
            site.wait()
    ours_rate = statistics.median(pages / t["ours"]["seconds"] for t in turn_results)
    scrapy_rate = statistics.median(pages / t["scrapy"]["seconds"] for t in turn_results)
    own = statistics.median(
        t["ours"]["cpu_us"] - t["parts"]["network_us"] - t["parts"]["compression_us"] for t in turn_results
    )
    return {
        "pages": pages,
        "turns": turns,
        "ours, pages/s": round(ours_rate, 1),
        "Scrapy with JOBDIR, pages/s": round(scrapy_rate, 1),
        "times Scrapy": round(
            statistics.median(t["scrapy"]["seconds"] / t["ours"]["seconds"] for t in turn_results), 2
        ),
        "worker memory, MB": round(max(t["ours"]["memory_mb"] for t in turn_results), 1),
        "own CPU per page, us": round(own, 1),
        "worker CPU per page, us": round(statistics.median(t["ours"]["cpu_us"] for t in turn_results), 1),
        "of it network, us": round(statistics.median(t["parts"]["network_us"] for t in turn_results), 1),
        "of it compression, us": round(statistics.median(t["parts"]["compression_us"] for t in turn_results), 1),
    }


def main() -> None:
    """Print the figures, each beside what it must reach."""
    if sys.argv[1:2] == ["ours"]:
        print(json.dumps(ours(Path(sys.argv[2]), sys.argv[3], "--profile" in sys.argv)))
        return
    if sys.argv[1:2] == ["network"]:
        print(json.dumps(asyncio.run(network(sys.argv[2], int(sys.argv[3])))))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peers", help="the Python of the peers' environment")
    parser.add_argument("--pages", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    result = compare(given.peers, given.pages, given.turns, given.profile)
    if given.json or given.profile:
        print(json.dumps(result, indent=2))
        return
    for name, figure in result.items():
        relation, target = TARGETS.get(name, ("", 0.0))
        reached = (figure >= target if relation == ">=" else figure < target) if relation else True
        wanted = f"   {'reached' if reached else 'MISSED'}: {relation} {target:g}" if relation else ""
        print(f"{name:30} {figure:>10}{wanted}")


if __name__ == "__main__":
    main()
