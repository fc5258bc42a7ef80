"""A service of the own machine that is nobody's business: it counts who comes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field

_ADDRESSES = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "127.0.0.2"), (socket.AF_INET6, "::1"))


@dataclass
class Service:
    """Listens on one port of several loopback addresses; `connections` has the address of each that was accepted."""

    port: int = 0
    listeners: dict[str, socket.socket] = field(default_factory=dict)
    connections: list[str] = field(default_factory=list)

    def accept(self, address: str) -> None:
        """Counts, and answers with something that would be believed."""
        with suppress(OSError):  # closed: that is its end
            while True:
                connection, _ = self.listeners[address].accept()
                self.connections.append(address)
                with connection, suppress(OSError):
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret")

    def counts(self) -> bool:
        """Whether it notices a connection to each of its addresses; they are then forgotten."""
        for listener in self.listeners.values():
            with socket.create_connection(listener.getsockname()[:2], timeout=10) as connection:
                connection.recv(1)
        seen = sorted(self.connections) == sorted(self.listeners)
        self.connections.clear()
        return seen


@contextmanager
def listening() -> Iterator[Service]:
    """It listens for as long as the block lasts, on those loopback addresses that this machine has."""
    it = Service()
    with ExitStack() as opened:
        for family, address in _ADDRESSES:
            listener = opened.enter_context(socket.socket(family, socket.SOCK_STREAM))
            try:
                listener.bind((address, it.port))
            except OSError:
                if not it.listeners:
                    raise
                continue  # no such address here (macOS has no 127.0.0.2), or the port is taken there
            listener.listen(16)
            it.port = it.port or listener.getsockname()[1]
            it.listeners[address] = listener
        threads = [threading.Thread(target=it.accept, args=[one], daemon=True) for one in it.listeners]
        for thread in threads:
            thread.start()
        try:
            yield it
        finally:
            for listener in it.listeners.values():
                with suppress(OSError):
                    listener.shutdown(socket.SHUT_RDWR)  # what wakes `accept`
    for thread in threads:
        thread.join(5)
