"""The site that both sides of the bench collect: N product pages of 10 KB, prebuilt, from one quick process.

    python bench/site.py PAGES      prints the port, serves until its parent ends

A bare protocol instead of a web framework: the site shares two cores with what is measured, and must cost little.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

PAGE_BYTES = 10_000
FILLER = "<p>Weather-proof, tested for a thousand hours, and shipped from a warehouse near you within two days.</p>\n"


def page(number: int) -> bytes:
    """One product page with JSON-LD, a price in the text, and ordinary markup up to 10 KB."""
    price = f"{number % 900 + 10}.{number % 100:02d}"
    product = {
        "@context": "https://schema.org",
        "@type": "Product",
        "name": f"Product {number}",
        "sku": f"SKU-{number:07d}",
        "offers": {
            "@type": "Offer",
            "price": price,
            "priceCurrency": "EUR",
            "availability": "https://schema.org/InStock",
        },
    }
    head = (
        f"<!doctype html><html lang=en><head><meta charset=utf-8><title>Product {number}</title>"
        f'<script type="application/ld+json">{json.dumps(product)}</script></head>'
        f'<body><article class="product"><h1>Product {number}</h1><span class="price">EUR {price}</span>\n'
    )
    rest = (PAGE_BYTES - len(head) - 30) // len(FILLER)
    return (head + FILLER * rest + "</article></body></html>").encode()


class Site(asyncio.Protocol):
    """Answers GET /p/NUMBER; keeps connections open; pipelined requests are answered in order."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.waiting = b""

    def data_received(self, data: bytes) -> None:
        self.waiting += data
        while b"\r\n\r\n" in self.waiting:
            request, self.waiting = self.waiting.split(b"\r\n\r\n", 1)
            path = request.split(b" ", 2)[1]
            body = page(int(path[3:])) if path.startswith(b"/p/") else b"not found"
            status = b"200 OK" if path.startswith(b"/p/") else b"404 Not Found"
            self.transport.write(
                b"HTTP/1.1 %b\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: %d\r\n\r\n%b"
                % (status, len(body), body)
            )


async def main() -> None:
    """Serve until the parent process is gone."""
    server = await asyncio.get_running_loop().create_server(Site, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    parent = os.getppid()
    while os.getppid() == parent:
        await asyncio.sleep(0.5)


if __name__ == "__main__":
    if "-h" in sys.argv:
        sys.exit(__doc__)
    asyncio.run(main())
