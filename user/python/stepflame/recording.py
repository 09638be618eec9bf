# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A recording as tables, texts and a page. The program reads the file; what it says of a bad one is the error here."""

import html
import importlib
import json
import os
import sys
import tempfile
from typing import TYPE_CHECKING, Any, Dict, Optional, Union

from . import program
from .errors import StepflameError

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

MAGIC = b"stepflam"  # with which a recording begins
PAGE_BYTES = 32 << 20  # of a page in a notebook, which keeps it
PATH = Union[str, "os.PathLike[str]"]


class Table:
    """An attribute of Recording: the table of that name, read when it is first asked for."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, recording: "Recording", owner: Optional[type] = None) -> "pyarrow.Table":
        return recording.table(self.name)


class Recording:
    """A recording in a file. Its tables are pyarrow's, with the columns that docs/tables.md lists."""

    ranks = Table()
    windows = Table()
    steps = Table()
    waits = Table()
    samples = Table()
    stacks = Table()
    actions = Table()
    ops = Table()
    gpu = Table()

    def __init__(self, path: PATH) -> None:
        try:
            self.path = os.path.abspath(path)
        except OSError:  # the working folder is no more; the program says what that means for the file
            self.path = os.fspath(path)
        self.error: Optional[StepflameError] = None  # why there is nothing to read
        self._tables: Optional[Dict[str, "pyarrow.Table"]] = None

    def __repr__(self) -> str:
        return "Recording(%r)" % self.path

    def _read(self, command: str, *arguments: str) -> str:
        if self.error:
            raise self.error
        return program.run(command, *arguments, "--", self.path)

    def _export(self) -> Dict[str, "pyarrow.Table"]:
        """Of all tables. Memory is mapped, so that the files may go at once, and a table takes memory only where it is read."""
        pyarrow, tables = needed("pyarrow"), {}
        try:
            with tempfile.TemporaryDirectory(prefix="stepflame-") as folder:
                self._read("export", "-f", "arrow", "-o", folder)
                for name in TABLES:
                    with pyarrow.memory_map(os.path.join(folder, name + ".arrow")) as file:
                        tables[name] = pyarrow.ipc.open_file(file).read_all()
        except (OSError, pyarrow.ArrowException) as failure:
            raise StepflameError("cannot read the tables of %s: %s" % (self.path, failure), "check the temporary folder (TMPDIR), and use the program that came with this package") from None
        return tables

    def table(self, name: str) -> "pyarrow.Table":
        if name not in TABLES:
            raise StepflameError("a recording has no table %r" % name, "name one of these: " + ", ".join(TABLES))
        if self._tables is None:
            self._tables = self._export()
        return self._tables[name]

    def pandas(self, name: str) -> "pandas.DataFrame":
        """A table as a frame of pandas, which has to be installed."""
        needed("pandas")
        return self.table(name).to_pandas()

    def polars(self, name: str) -> "polars.DataFrame":
        """A table as a frame of polars, which has to be installed."""
        frame: "polars.DataFrame" = needed("polars").from_arrow(self.table(name))
        return frame

    @property
    def summary(self) -> Dict[str, Any]:
        """What `stepflame report --summary --json` says: docs/summary.md."""
        found: Dict[str, Any] = json.loads(self.report("summary", json=True))
        return found

    def report(self, kind: str = "summary", **options: Any) -> str:
        """The text of a report, with the options of `stepflame report`: report("ops", sort="count", limit=5)."""
        return self._read("report", *program.words({kind: True, **options}))

    def flame(self, path: PATH = "flame.html", **options: Any) -> str:
        """Writes the page that `stepflame flame` writes, with its options; its path."""
        self._read("flame", *program.words(options), "-o", os.path.abspath(path))
        return os.fspath(path)

    def _repr_html_(self) -> str:
        """
        The summary, and the flame page in a frame. Names in a recording are those of somebody's program: the frame may run the page's scripts, but
        in an origin of its own, so that nothing of the notebook is in their reach.
        """
        try:
            summary, page = self.report(), self._read("flame", "-o", "-")
        except StepflameError as error:
            return "<pre>stepflame: %s</pre>" % html.escape(str(error))
        if len(page) > PAGE_BYTES:
            frame = "<p>The page has %d MB: write it to a file with .flame(path).</p>" % (len(page) >> 20)
        else:
            frame = '<iframe sandbox="allow-scripts allow-downloads" style="width: 100%%; height: 640px; border: 0" srcdoc="%s"></iframe>' % html.escape(page)
        return "<pre>%s</pre>%s" % (html.escape(summary), frame)


TABLES = tuple(name for name, value in vars(Recording).items() if isinstance(value, Table))


def needed(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise StepflameError("this needs %s, which this Python (%s) has not" % (name, sys.executable), "pip install " + name) from None


def load(path: PATH) -> Recording:
    """The recording in a file; its tables are read when they are asked for."""
    try:
        with open(path, "rb") as file:
            known = file.read(len(MAGIC)) == MAGIC
    except OSError:
        known = False
    recording = Recording(path)
    if not known:
        recording.report()  # tells what is wrong
    return recording
