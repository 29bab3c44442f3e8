"""The models to choose from: on this disk, in the catalog, and on the hub when it is asked.

Owns the list and what Enter does to each line of it. The name of the model to be used is the screen's result. Nothing
is asked of the hub before the user says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from app.chat.beside import run_all_beside, run_beside
from app.chat.downloads import DownloadState
from app.chat.model_desk import ModelDesk
from app.chat.model_port import Bill, ModelLine, ModelPlace, RepositoryLine, ShelfFault
from app.chat.model_words import model_facts, model_head, repository_facts
from app.chat.plain_text import one_line
from app.chat.screens.answer import AnswerScreen
from app.chat.widgets.choice_list import ChoiceList
from app.chat.widgets.plain_title import PlainTitle

Answer = TypeVar("Answer")

_LOOK_S = 0.2
_SEARCH = "search"


@dataclass(frozen=True, kw_only=True)
class _Row:
    """A line of the list: a heading (nothing to choose), a model, a repository, or the search."""

    id: str
    text: str
    is_heading: bool = False
    is_dim: bool = False
    model: ModelLine | None = None
    repository: RepositoryLine | None = None


class ModelsScreen(AnswerScreen[str | None]):
    """Lets the user choose a model, and download it first where it is not here."""

    CSS_PATH = "models.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Back", priority=True),
        Binding("up", "move(-1)", "Up", priority=True, show=False),
        Binding("down", "move(1)", "Down", priority=True, show=False),
    ]

    def __init__(self, desk: ModelDesk, *, search: str = "") -> None:
        """`search`: what stands in the field at the beginning."""
        super().__init__()
        self._desk = desk
        self._begins_with = search
        self._lines: list[ModelLine] | None = None
        self._bills: dict[str, Bill] = {}
        self._repositories: list[RepositoryLine] = []
        self._opened: RepositoryLine | None = None
        self._files: list[ModelLine] = []
        self._says = ""
        self._num_asked = 0
        self._rows: list[_Row] = []
        self._drawn: list[tuple[str, str]] = []

    def compose(self) -> ComposeResult:
        with Vertical() as frame:
            frame.border_title = "Models"
            yield PlainTitle("Models. Enter chooses, Esc goes back.")
            frame.border_subtitle = "Enter chooses · Esc back"
            yield Input(self._begins_with, placeholder="Name, or words to search Hugging Face for")
            yield ChoiceList()
            yield Static(Content(""), classes="hint")

    def on_mount(self) -> None:
        self._look()
        self.set_interval(_LOOK_S, self._follow_downloads)
        self._draw()

    def on_resize(self, event: events.Resize) -> None:
        self._draw()

    # What is there.

    def _look(self) -> None:
        shelf = self._desk.shelf
        run_beside(self, lambda: [*shelf.on_disk(), *shelf.in_catalog()], self._take_lines, self._miss_lines)

    def _take_lines(self, lines: list[ModelLine]) -> None:
        self._lines = lines
        self._price([line for line in lines if not line.refusal and line.name not in self._bills])
        self._draw()

    def _miss_lines(self, sentence: str) -> None:
        self._lines = self._lines or []
        self._fail(sentence)

    def _price(self, lines: Sequence[ModelLine]) -> None:
        desk = self._desk

        def bills() -> Iterator[tuple[str, Bill]]:
            for line in lines:
                try:
                    yield line.name, desk.bill(line)
                except ShelfFault as fault:
                    yield line.name, Bill(needed_bytes=0, available_bytes=None, fits=None, sentence=str(fault))

        run_all_beside(self, bills, self._take_bill, self._fail)

    def _take_bill(self, priced: tuple[str, Bill]) -> None:
        self._bills[priced[0]] = priced[1]
        self._draw()

    def _fail(self, sentence: str) -> None:
        self._say(sentence)
        self._draw()

    def _follow_downloads(self) -> None:
        downloads = self._desk.downloads
        ended = [
            line
            for line in (*(self._lines or ()), *self._files)
            if line.place is not ModelPlace.DISK
            and (download := downloads.of(line.name)) is not None
            and download.state is DownloadState.DONE
        ]
        if ended:
            here = {line.name for line in ended}
            for name in here:
                self._bills.pop(name, None)  # it was an estimate
            self._files = [line for line in self._files if line.name not in here]
            self._opened = self._opened if self._files else None
            self._say(f"{', '.join(sorted(here))} is here: Enter uses it.")
            self._look()
        self._draw()

    # What the user does.

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self._draw()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.query_one(OptionList).action_select()

    def action_move(self, step: int) -> None:
        """Moves the choice."""
        options = self.query_one(OptionList)
        if step < 0:
            options.action_cursor_up()
        else:
            options.action_cursor_down()

    def action_back(self) -> None:
        """Out of a repository, or back to the chat."""
        if self._opened is not None:
            self._opened, self._files = None, []
            self._say("")
            self._draw()
        else:
            self.dismiss(None)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        row = next((row for row in self._rows if row.id == event.option_id), None)
        if row is None:
            return
        if row.model is not None:
            self._choose(row.model)
        elif row.repository is not None:
            self._open(row.repository)
        elif row.id == _SEARCH:
            self._search()

    def _choose(self, line: ModelLine) -> None:
        if line.refusal:
            self._say(line.refusal)
        elif line.place is ModelPlace.DISK:
            self.dismiss(line.name)
        else:
            download = self._desk.downloads.of(line.name)
            if download is not None and download.state is DownloadState.RUNNING:
                download.stop()
            elif self._desk.shelf.is_offline():
                self._say("Downloads are off (--offline or HF_HUB_OFFLINE): what is on this disk can be used.")
            else:
                self._say("The download goes on when this list is closed; a stopped one goes on where it was.")
                self._desk.downloads.start(line.name, line.unfinished_bytes)
        self._draw()

    def _search(self) -> None:
        text = self.query_one(Input).value.strip()
        self._say(f"Asking Hugging Face for {one_line(text)}…")
        shelf = self._desk.shelf

        def found(repositories: tuple[RepositoryLine, ...]) -> None:
            self._repositories = list(repositories)
            self._say("" if repositories else f"Hugging Face has no GGUF files for {one_line(text)}.")
            self._draw()
            if repositories:
                self._highlight(f"repository {repositories[0].name}")

        self._ask(lambda: shelf.search(text), found)

    def _open(self, repository: RepositoryLine) -> None:
        self._say(f"Looking into {one_line(repository.name)}…")
        shelf = self._desk.shelf

        def opened(files: tuple[ModelLine, ...]) -> None:
            self._opened, self._files = repository, list(files)
            here = {line.name for line in self._lines or () if line.place is ModelPlace.DISK}
            self._files = [line for line in files if line.name not in here]
            self._say("" if self._files else f"{one_line(repository.name)} has nothing that is not here already.")
            self._price(self._files)
            self._draw()

        self._ask(lambda: shelf.in_repository(repository), opened)

    def _ask(self, question: Callable[[], Answer], then: Callable[[Answer], None]) -> None:
        """Asks the hub; what comes after something else was asked is no answer any more."""
        self._num_asked += 1
        number = self._num_asked

        def take(answer: Answer) -> None:
            if number == self._num_asked:
                then(answer)

        def fail(sentence: str) -> None:
            if number == self._num_asked:
                self._fail(sentence)

        run_beside(self, question, take, fail)

    # What is shown.

    def _say(self, text: str) -> None:
        self._says = text
        # Of two updates before a refresh, the first one's height would stay.
        self.call_after_refresh(self.query_one(".hint", Static).update, Content(one_line(text)))

    def _draw(self) -> None:
        """Brings the list up to date, keeping the choice."""
        self._rows = self._opened_rows() if self._opened is not None else self._all_rows()
        drawn = [(row.id, row.text) for row in self._rows]
        if drawn == self._drawn:
            return
        options = self.query_one(OptionList)
        if [row_id for row_id, _ in drawn] == [row_id for row_id, _ in self._drawn]:
            for place, (new, old) in enumerate(zip(drawn, self._drawn, strict=True)):
                if new != old:
                    options.replace_option_prompt_at_index(place, _prompt(self._rows[place]))
        else:
            chosen = options.highlighted_option.id if options.highlighted_option is not None else None
            options.clear_options()
            options.add_options([Option(_prompt(row), id=row.id, disabled=row.is_heading) for row in self._rows])
            self._highlight(chosen)
        self._drawn = drawn

    def _highlight(self, row_id: str | None) -> None:
        """Chooses this line, or the first that can be chosen."""
        options = self.query_one(OptionList)
        places = [place for place, row in enumerate(self._rows) if not row.is_heading]
        wanted = [place for place in places if self._rows[place].id == row_id]
        options.highlighted = (wanted or places or [None])[0]

    def _all_rows(self) -> list[_Row]:
        text = self.query_one(Input).value.strip().lower()
        is_looking = self._lines is None
        rows = [_Row(id="wait", text="Looking for models…", is_heading=True)] if is_looking else []
        for place, title in ((ModelPlace.DISK, "On this disk"), (ModelPlace.CATALOG, "In the catalog")):
            shown = [line for line in self._lines or () if line.place is place and _matches(line, text)]
            if shown:
                rows.append(_Row(id=place, text=title, is_heading=True))
                rows += [self._model_row(line) for line in shown]
        if self._repositories:
            rows.append(_Row(id="hub", text="On Hugging Face", is_heading=True))
            rows += [_repository_row(repository) for repository in self._repositories]
        if text:
            rows.append(_Row(id=_SEARCH, text=f"Search Hugging Face for {one_line(text)}"))
        return rows

    def _opened_rows(self) -> list[_Row]:
        assert self._opened is not None
        heading = f"{one_line(self._opened.name)} (Esc goes back)"
        return [_Row(id="opened", text=heading, is_heading=True), *map(self._model_row, self._files)]

    def _model_row(self, line: ModelLine) -> _Row:
        head = model_head(line, is_loaded=line.name == self._desk.loaded_name)
        facts = model_facts(line, self._bills.get(line.name), self._desk.downloads.of(line.name))
        is_dim = bool(line.refusal)
        return _Row(id=f"{line.place} {line.name}", text=f"{head}\n  {facts}", model=line, is_dim=is_dim)


def _prompt(row: _Row) -> Content:
    if row.is_heading:
        return Content.styled(row.text, "bold")
    head, _, facts = row.text.partition("\n")
    if row.is_dim:
        return Content.styled(row.text, "dim")
    return Content.assemble(head, Content.styled(f"\n{facts}", "dim")) if facts else Content(head)


def _repository_row(repository: RepositoryLine) -> _Row:
    text = f"{one_line(repository.name)}\n  {repository_facts(repository)}"
    return _Row(id=f"repository {repository.name}", text=text, repository=repository)


def _matches(line: ModelLine, text: str) -> bool:
    words = f"{line.name} {line.title}".lower()
    return all(word in words for word in text.split())
