"""The extraction process: reads pages from a socket, answers what they say. Starts fast, holds nothing durable.

The parent sends setups and pages, the child answers pages in their order; it ends when the socket does.
"""

from __future__ import annotations

import ctypes
import functools
import os
import resource
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import orjson

from scrape_assets.rules.context import MAX_STEPS
from scrape_assets.rules.document import Document
from scrape_assets.rules.judge import judge
from scrape_assets.rules.page import Response
from scrape_assets.rules.page_object import PageView
from scrape_assets.rules.rows import Duplicates, Identified, Place, RowFault, identify
from scrape_assets.rules.spec import ExtractRule
from scrape_assets.rules.states import FailureClass
from scrape_assets.sources.frames import LENGTHS, frame
from scrape_assets.sources.memory import give_back

if TYPE_CHECKING:
    from scrape_assets.rules.discover import DiscoverRule

_PR_SET_PDEATHSIG = 1
_MB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A setup ready for use; `fault` says why its pages cannot be read."""

    rule: ExtractRule
    dataset_id: str
    retailer: str
    collection_window: str
    duplicates: Duplicates
    page_object: Callable[..., Any] | None = None
    fault: str | None = None
    discover: DiscoverRule | None = None


def main(arguments: list[str]) -> None:
    """Serves the socket whose descriptor is the first argument until it closes."""
    descriptor, parent, memory_bytes = (int(argument) for argument in arguments)
    _die_with(parent)
    give_back()
    # The terminal's interrupt is the parent's business: it lets pages finish and then closes the socket.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = socket.socket(fileno=descriptor)
    memory = _Memory()
    base = memory.limit(memory_bytes)
    # A reserve to let go of, so that a page that took all the memory can still be reported.
    reserve = [bytearray(_MB)]
    setups: dict[str, _Prepared] = {}
    # A parent that was killed leaves a reset behind, which is an end like any other.
    with suppress(ConnectionError), connection, connection.makefile("rb") as stream:
        connection.sendall(frame({"ready": base}, b""))
        while (received := _receive(stream)) is not None:
            header, body = received
            if "setup" in header:
                setups[header["key"]] = _prepare(header["setup"])
                continue
            started = time.perf_counter()
            leaving = False
            rows = b""
            try:
                answer, rows = _judge(header, body, setups[header["key"]])
            except (MemoryError, _OutOfMemory):
                reserve.clear()
                leaving = True
                reason = (
                    f"the page needed more than the {memory_bytes // _MB} MB an extraction process may use; "
                    f"peak memory {memory.peak():.0f} MB"
                )
                answer = _failed(FailureClass.EXTRACTOR_CRASHED, reason)
            except (Exception, SystemExit) as error:  # noqa: BLE001 # user code may raise anything
                answer = _failed(FailureClass.EXTRACTION, _words(error))
            peak = memory.peak()
            # Memory once taken is seldom given back: a process that grew is replaced between two pages.
            leaving = leaving or peak - base > memory_bytes / _MB / 2
            # Reasons quote pages and user code: what neither JSON nor the database takes is replaced.
            answer["reason"] = (
                answer["reason"].encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
            )
            answer |= {"seconds": time.perf_counter() - started, "peak": peak, "leaving": leaving}
            connection.sendall(frame(answer, rows))
            if leaving:
                # Gone at once, it would take the answer with it: a parent that sends another page just now is told of
                # a broken pipe, and reads no further.
                connection.shutdown(socket.SHUT_WR)
                while stream.read(_MB):
                    pass
                return


def _judge(header: dict[str, Any], body: bytes, prepared: _Prepared) -> tuple[dict[str, Any], bytes]:
    page = Response(
        header["url"], header["final_url"], header["status"], header["headers"], body, tuple(header["redirects"])
    )
    if prepared.fault is not None and not header.get("discovers"):
        return _failed(FailureClass.EXTRACTION, prepared.fault), b""
    if "values" in header:
        return _call(page, header["values"], prepared)
    if header["discovers"]:
        return _discover(header, page, prepared)
    judged = judge(page, prepared.rule, page_object=prepared.page_object, in_context=header["context"])
    answer: dict[str, Any] = {
        "page_state": judged.page_state,
        "failure_class": judged.failure_class,
        "reason": judged.reason,
        "count": 0,
        "collisions": 0,
        "template": judged.template,
    }
    if judged.failure_class is not None:
        return answer, b""
    place = Place(
        prepared.dataset_id,
        prepared.retailer,
        header["context"],
        prepared.collection_window,
        header["canonical_url"],
        header["entity"],
    )
    match identify(judged.rows, place, key=prepared.rule.key, duplicates=prepared.duplicates):
        case RowFault(failure_class, reason):
            return answer | {"failure_class": failure_class, "reason": reason}, b""
        case Identified(rows, collisions):
            return answer | {"count": len(rows), "collisions": collisions}, orjson.dumps(rows)


def _discover(header: dict[str, Any], page: Response, prepared: _Prepared) -> tuple[dict[str, Any], bytes]:
    """What the page names, as tasks that its commit makes."""
    # Only here: most retailers list their pages themselves, and what it needs costs every child's start.
    from scrape_assets.rules import discover, keys, urls  # noqa: PLC0415 # see above
    from scrape_assets.rules.context import unproven  # noqa: PLC0415 # see above

    rule = prepared.discover
    assert rule is not None
    # A web page shows whose it is; a sitemap and an answer for programs do not.
    proofs = () if rule.mode == "sitemap" or rule.items else prepared.rule.proofs.get(header["context"], ())
    if (doubt := unproven(Document.of(page), proofs)) is not None:
        return {**_failed(FailureClass.WRONG_CONTEXT, doubt.reason), "page_state": "wrong_context"}, b""
    first = header["entity"] or header["canonical_url"]
    found = discover.read(page, rule, first=first, depth=header["depth"], of_pages=header["of_pages"])
    if isinstance(found, discover.NotRead):
        return {**_failed(found.failure_class, found.reason), "page_state": found.page_state}, b""

    def child(address: str, page_type: str, position: int, *, discovers: bool, depth: int) -> dict[str, Any]:
        place = (prepared.dataset_id, prepared.retailer, header["context"], page_type, address)
        return {
            "task_key": str(keys.task_key(*place, prepared.collection_window)),
            "page_type": page_type,
            "discovers": discovers,
            "url": address,
            "canonical_url": address,
            "origin": urls.origin(address),
            "entity": first if discovers else None,
            "depth": depth,
            "barren": 0,
            "of_pages": found.of_pages,
            "position": position,
            "modified_at": found.modified.get(address),
        }

    own, deeper = header["page_type"], header["depth"] + 1
    children = [child(one, "product", at, discovers=False, depth=deeper) for at, one in enumerate(found.items)]
    children += [child(one, own, at, discovers=True, depth=deeper) for at, one in enumerate(found.pages)]
    passes = discover.page_types(rule)
    later = passes[passes.index(own) + 1 :] if own in passes else ()
    described = {
        "problem": None if found.problem is None else f"{header['canonical_url']}: {found.problem}",
        "children": children,
        "next": child(found.next, own, 0, discovers=True, depth=deeper) if found.next else None,
        "again": child(first, later[0], 0, discovers=True, depth=0) if later else None,
    }
    dropped = ", ".join(f"{count} {why}" for why, count in sorted(found.dropped.items()))
    answer = _failed(None, f"left out: {dropped}" if dropped else "")
    return {**answer, "page_state": "expected", "discovered": True}, orjson.dumps(described)


def _call(page: Response, values: dict[str, str], prepared: _Prepared) -> tuple[dict[str, Any], bytes]:
    """What the user's page function asks for, now that it has seen the page."""
    assert prepared.page_object is not None
    document = Document.of(page)
    given = prepared.page_object(PageView(document.url, document.text, document), values)
    asked = [] if given is None else list(given) if isinstance(given, list | tuple) else [given]
    if len(asked) > MAX_STEPS or not all(isinstance(one, dict) for one in asked):
        said = f"expected a dict, a list of at most {MAX_STEPS} or None; got {type(given).__name__}"
        return _failed(FailureClass.EXTRACTION, said), b""
    answer = {"page_state": None, "failure_class": None, "reason": "", "count": len(asked), "collisions": 0}
    return answer, orjson.dumps(asked)


def _prepare(setup: dict[str, Any]) -> _Prepared:
    prepared = _prepare_extraction(setup)
    if setup["discover_json"] is None:
        return prepared
    from scrape_assets.rules.discover import DiscoverRule  # noqa: PLC0415 # as above

    given = orjson.loads(setup["discover_json"])
    lists = {name: tuple(value) for name, value in given.items() if isinstance(value, list)}
    return replace(prepared, discover=DiscoverRule(**{**given, **lists}))


def _prepare_extraction(setup: dict[str, Any]) -> _Prepared:
    rule = ExtractRule.model_validate_json(setup["rule_json"])
    identity = (rule, setup["dataset_id"], setup["retailer"], setup["collection_window"])
    duplicates = rule.page.duplicates or ("first" if rule.page.rows else "refuse")
    if setup["page_object"] is None:
        return _Prepared(*identity, duplicates)
    try:
        # Only here: most retailers need none, and the import costs every child's start.
        from scrape_assets.datasets import page_objects  # noqa: PLC0415 # see above

        folder = Path(setup["pages_folder"])
        if page_objects.sources(folder) == setup["page_sources"]:
            loaded = page_objects.load(folder, setup["page_object"])
        else:
            # Edited since the run was planned: this run goes on with what it was planned with.
            with tempfile.TemporaryDirectory(prefix="scrape-assets-pages-") as name:
                _restore(folder, Path(name), setup["page_sources"])
                loaded = page_objects.load(Path(name), setup["page_object"])
    except (Exception, SystemExit) as error:  # noqa: BLE001 # user code may raise anything
        return _Prepared(*identity, duplicates, fault=f"page object {setup['page_object']}: {_words(error)}")
    return _Prepared(*identity, duplicates, page_object=_honest(loaded))


def _restore(folder: Path, copy: Path, sources: dict[str, str]) -> None:
    """The copy holds the sources as given, and links to everything else that lies beside them."""
    for path in folder.iterdir():
        if path.suffix != ".py" and path.name not in {Path(source).parts[0] for source in sources}:
            (copy / path.name).symlink_to(path)
    for name, text in sources.items():
        file = copy / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


class _OutOfMemory(BaseException):
    """A page object met the memory limit; not an Exception, so that it is not taken for a fault of its code."""


def _honest(page_object: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(page_object, updated=())
    def run(*given: Any) -> Any:
        try:
            return page_object(*given)
        except MemoryError as error:
            raise _OutOfMemory from error

    return run


def _failed(failure_class: FailureClass | None, reason: str) -> dict[str, Any]:
    return {"page_state": None, "failure_class": failure_class, "reason": reason, "count": 0, "collisions": 0}


def _words(error: BaseException) -> str:
    """The error in one line, with the place in the code that raised it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f" ({Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno})" if trace is not None else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:500]}{where}"


class _Memory:
    """What this process took at most, from the kernel's own page where there is one."""

    def __init__(self) -> None:
        self._status: int | None = None
        if sys.platform == "linux":
            self._status = os.open("/proc/self/status", os.O_RDONLY)

    def peak(self) -> float:
        """The greatest resident size so far, in MB."""
        # The resource usage of a process starts at its parent's size, so it is only the second choice.
        return self._field(b"VmHWM:") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    def limit(self, memory_bytes: int) -> float:
        """Allocations beyond `memory_bytes` over what the process took to start fail; gives its size in MB."""
        if sys.platform == "linux":
            allowed = int(self._field(b"VmSize:") * _MB) + memory_bytes
            resource.setrlimit(resource.RLIMIT_AS, (allowed, allowed))
        return self.peak()

    def _field(self, name: bytes) -> float:
        if self._status is None:
            return 0.0
        text = os.pread(self._status, 4096, 0)
        start = text.find(name)
        return int(text[start + len(name) :].split(None, 1)[0]) / 1024 if start >= 0 else 0.0


def _die_with(parent: int) -> None:
    """The kernel ends this process with its parent, even in the middle of a page that never returns."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            raise SystemExit(1)  # nobody is left to be told


def _receive(stream: BinaryIO) -> tuple[dict[str, Any], bytes] | None:
    prefix = stream.read(LENGTHS.size)
    if len(prefix) < LENGTHS.size:
        return None
    header_length, body_length = LENGTHS.unpack(prefix)
    whole = stream.read(header_length + body_length)
    if len(whole) < header_length + body_length:
        return None
    return orjson.loads(whole[:header_length]), whole[header_length:]


if __name__ == "__main__":
    main(sys.argv[1:])
