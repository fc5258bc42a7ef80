"""Scrapy with JOBDIR on the same pages: the baseline. Run by bench/run.py in an environment of its own.

python bench/scrapy_spider.py BASE_URL PAGES FOLDER     prints {"seconds": ..., "items": ...}
"""

from __future__ import annotations

import json
import sys

import scrapy
from scrapy.crawler import CrawlerProcess


class Products(scrapy.Spider):
    """Reads the same JSON-LD that the other side reads, and writes a JSON-lines feed."""

    name = "products"

    async def start(self):
        for number in range(int(sys.argv[2])):
            yield scrapy.Request(f"{sys.argv[1]}/p/{number}")

    def parse(self, response):
        product = json.loads(response.css('script[type="application/ld+json"]::text').get())
        yield {
            "url": response.url,
            "name": product["name"],
            "sku": product["sku"],
            "price": product["offers"]["price"],
            "currency": product["offers"]["priceCurrency"],
        }


process = CrawlerProcess(
    {
        "CONCURRENT_REQUESTS": 32,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 32,
        "DOWNLOAD_DELAY": 0,
        "ROBOTSTXT_OBEY": False,
        "JOBDIR": f"{sys.argv[3]}/job",
        "FEEDS": {f"{sys.argv[3]}/items.jsonl": {"format": "jsonlines"}},
        "LOG_LEVEL": "ERROR",
        "TELNETCONSOLE_ENABLED": False,
    }
)
crawler = process.create_crawler(Products)
process.crawl(crawler)
process.start()
stats = crawler.stats.get_stats()
print(json.dumps({"seconds": stats["elapsed_time_seconds"], "items": stats.get("item_scraped_count", 0)}))
