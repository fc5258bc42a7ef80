"""The user's own trusted code beside a declaration: pages.py with page objects and schemas, and what it imports.

Modules beside pages.py are importable from it by their plain names. Each load runs the code afresh, so an
edited file takes effect without a restart, and two datasets may each have a `helpers.py` of their own.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
import traceback
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from scrape_assets.errors import DeclarationError

PAGES = "pages.py"


def load(folder: Path, reference: str) -> Callable[..., Any]:
    """The page object `pages.py:Name` of the dataset's folder; DeclarationError with one line when there is none."""
    found: Any = attribute(folder, reference)
    if not callable(found):
        raise DeclarationError(f"{reference} is a {type(found).__name__}; expected a function or a class")
    return cast("Callable[..., Any]", found)


def sources(folder: Path) -> dict[str, str]:
    """The texts of pages.py, the modules and the packages beside it, by relative path; empty without a pages.py."""
    if not (folder / PAGES).is_file():
        return {}
    found = [path for path in folder.rglob("*.py") if _is_importable(folder, path)]
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8", errors="replace")
        for path in sorted(found)
    }


def attribute(folder: Path, reference: str) -> Any:
    """What `pages.py:Name` names, whatever it is; DeclarationError with one line when it names nothing."""
    file, _, name = reference.partition(":")
    if file != PAGES or not name.isidentifier():
        raise DeclarationError(f"{reference!r} cannot be looked up; expected pages.py:Name")
    module = _run(folder)
    if not hasattr(module, name):
        near = get_close_matches(name, [known for known in vars(module) if not known.startswith("_")], n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise DeclarationError(f"pages.py has no {name!r}{hint}")
    return getattr(module, name)


def _is_importable(folder: Path, path: Path) -> bool:
    """Beside pages.py, or in packages all the way down."""
    inner = path.relative_to(folder).parents
    return all((folder / parent / "__init__.py").is_file() for parent in list(inner)[:-1])


def _run(folder: Path) -> ModuleType:
    file = (folder / PAGES).resolve()
    if not file.is_file():
        raise DeclarationError(f"there is no pages.py in {folder}")
    name = "scrape_assets_pages_" + hashlib.blake2b(str(file).encode(), digest_size=6).hexdigest()
    module = ModuleType(name)
    module.__file__ = str(file)
    before = set(sys.modules)
    sys.path.insert(0, str(file.parent))
    sys.modules[name] = module
    try:
        # The user's own trusted code; compiled here, since the import system's bytecode cache misses a second
        # edit within one second.
        # What it prints must not end up in a command's output.
        with contextlib.redirect_stdout(sys.stderr):
            exec(compile(file.read_bytes(), str(file), "exec"), module.__dict__)  # noqa: S102
    except (Exception, SystemExit) as error:
        sys.modules.pop(name, None)
        raise DeclarationError(f"pages.py cannot be imported: {_said(error, file.parent)}") from error
    finally:
        sys.path.remove(str(file.parent))
        for imported in set(sys.modules) - before - {name}:
            origin = getattr(sys.modules[imported], "__file__", None)
            if origin and Path(origin).is_relative_to(file.parent):
                del sys.modules[imported]
    return module


def _said(error: BaseException, folder: Path) -> str:
    """The error on one line, with the user's own file and line that raised it."""
    text = " ".join(str(error).split()) or "no message"
    if isinstance(error, SyntaxError):
        return f"{Path(error.filename or PAGES).name}:{error.lineno}: {error.msg}"
    ours = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).is_relative_to(folder)]
    place = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}: " if ours else ""
    return f"{place}{type(error).__name__}: {text[:300]}"
