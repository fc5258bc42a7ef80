"""A TCP proxy before Postgres that cuts a connection at the COMMIT of a result, before or after the server had it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

COMMIT = b"Q\x00\x00\x00\x0bCOMMIT\x00"
"""The whole message of the wire protocol, as libpq sends it."""

RESULT = b'"row_count"'
"""What only a transaction that stores results carries: a name in its one JSON parameter."""


class Proxy:
    """`cut` is None, "request" (the server never sees that COMMIT) or "answer" (nobody sees what it answered)."""

    def __init__(self, target: str | tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.cut: str | None = None
        self.left = 0
        self.times = 0
        self._spared = True
        self._lock = threading.Lock()

    def serve(self) -> None:
        """Until the listener is closed."""
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def close(self) -> None:
        """No further connection is taken."""
        # Closing alone would leave `accept` waiting.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _take(self) -> str | None:
        """What happens to this COMMIT; the firing is counted."""
        with self._lock:
            if self.cut is None or self.left == 0:
                return None
            # Every second one: what was cut is sent again, and a worker that never succeeds gives up.
            self._spared = not self._spared
            if self._spared:
                return None
            self.left -= 1
            self.times += 1
            return self.cut

    def _carry(self, client: socket.socket) -> None:
        try:
            if isinstance(self._target, str):
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._target)
            else:
                server = socket.create_connection(self._target)
        except OSError:
            client.close()
            return
        back = threading.Thread(target=_pump, args=(server, client), daemon=True)
        back.start()
        seen = b""
        with client, server, suppress(OSError):
            while data := client.recv(65536):
                seen += data
                if COMMIT in data:
                    how = self._take() if RESULT in seen else None
                    seen = b""
                    if how == "request":
                        break
                    if how == "answer":
                        client.shutdown(socket.SHUT_RDWR)  # what the server says goes nowhere
                        server.sendall(data)
                        back.join(10)
                        break
                elif len(seen) > 1_000_000:
                    seen = seen[-1_000_000:]
                server.sendall(data)
            for end in (client, server):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_RDWR)


@contextmanager
def running(host: str, port: int) -> Iterator[Proxy]:
    """A proxy before the server at `host` (a folder of a unix socket, or a name) and `port`."""
    target: str | tuple[str, int] = str(Path(host) / f".s.PGSQL.{port}") if host.startswith("/") else (host, port)
    proxy = Proxy(target)
    threading.Thread(target=proxy.serve, daemon=True).start()
    try:
        yield proxy
    finally:
        proxy.close()
