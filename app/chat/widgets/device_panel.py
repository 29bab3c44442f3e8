"""The panel that shows what the machine does while it does it.

Owns where its figures come from and how often it is drawn. Takes no keys: it stands beside the conversation.
"""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from app.chat.device_words import DeviceFigures, device_lines
from app.chat.events import ReplyGrew
from app.chat.model_desk import ModelDesk
from app.chat.pass_log import PassLog
from app.chat.plain_text import neutralise

_DRAW_S = 0.25
_WIDE_ENOUGH = 100


class DevicePanel(Vertical):
    """Hidden until it is opened. Beside the conversation where there is room, else above it."""

    DEFAULT_CSS = """
    DevicePanel {
        display: none;
        dock: right;
        width: 46;
        height: 100%;
        border-left: solid $border-blurred;
        padding: 0 1;
        &.-shown { display: block; }
        &.-above {
            dock: top;
            width: 100%;
            height: auto;
            max-height: 50%;
            border-left: none;
            border-bottom: solid $border-blurred;
        }
        & > Static { height: auto; }
        & > .latest { margin: 1 0 0 0; }
        &.-above > .latest { display: none; }
        &.-above.-tinted > .latest { display: block; max-height: 4; }
    }
    """

    def __init__(self, desk: ModelDesk) -> None:
        super().__init__()
        self._desk = desk
        self._is_tinted = False
        self._drawn: tuple[list[str], int] | None = None
        self._num_pieces = 0
        self.passes = PassLog()
        self.position: int | None = None

    def compose(self) -> ComposeResult:
        yield Static(Content(""), classes="figures")
        yield Static(Content(""), classes="latest")

    def on_mount(self) -> None:
        self.set_interval(_DRAW_S, self.draw)

    @property
    def is_open(self) -> bool:
        """Whether it is shown."""
        return self.has_class("-shown")

    def toggle(self) -> None:
        """Opens or closes it."""
        self.toggle_class("-shown")
        self.draw()

    def toggle_tint(self) -> bool:
        """Shows the latest tokens, those that had been guessed marked, or no longer; True where it does now."""
        self._is_tinted = not self._is_tinted
        self.set_class(self._is_tinted, "-tinted")
        if self._is_tinted:
            self.add_class("-shown")
        self.draw()
        return self._is_tinted

    def fit(self, screen_width: int) -> None:
        """Stands beside the conversation in a wide window, above it in a narrow one."""
        self.set_class(screen_width < _WIDE_ENOUGH, "-above")

    def follow(self, piece: ReplyGrew) -> None:
        """A token came."""
        self._num_pieces += 1
        self.passes.add(
            piece.text,
            num_tokens=len(piece.token_ids),
            is_guessed=piece.is_guessed,
            num_drafted=piece.num_drafted,
            spent=piece.spent,
            at_s=piece.at_s,
        )

    def on_resize(self, event: events.Resize) -> None:
        self.draw()

    def draw(self) -> None:
        """Brings it up to date, if it is shown; draws nothing where nothing has changed."""
        if not self.is_open or not self.is_mounted:
            return
        width = max(10, self.content_size.width)
        lines = device_lines(self._figures(), width, is_plain=self.app.has_class("-plain"))
        now = (lines, self._num_pieces if self._is_tinted else -1)
        if now == self._drawn:
            return
        self._drawn = now
        self.query_one(".figures", Static).update(Content("\n".join(lines)))
        self.query_one(".latest", Static).update(self._latest() if self._is_tinted else Content(""))

    def _figures(self) -> DeviceFigures:
        desk = self._desk
        facts, pass_bytes = desk.facts, desk.pass_bytes
        return DeviceFigures(
            memory=facts.memory if facts is not None else (),
            passes=self.passes.figures,
            read_bytes_a_pass=pass_bytes(self.position or 0) if pass_bytes is not None else None,
            limit_bytes_per_s=desk.limit_bytes_per_s,
        )

    def _latest(self) -> Content:
        """The latest text; what had been guessed stands out, without colours too."""
        pieces = [("Guessed ahead, and right: underlined\n", "dim")]
        pieces += [
            (neutralise(piece.text), "underline $text-success" if piece.is_guessed else "")
            for piece in self.passes.pieces
        ]
        return Content.assemble(*pieces)
