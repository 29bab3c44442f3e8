"""What stands at the head of a conversation: the model loading, then what it is, or why it can't be had."""

from __future__ import annotations

from textual import events
from textual.content import Content
from textual.widgets import Static

from app.chat.engine_port import LoadStep, ModelFacts
from app.chat.load_lines import LoadLines
from app.chat.plain_text import one_line


class ModelPanel(Static):
    """Lines of progress; once the model is there, one line about it and its notes."""

    DEFAULT_CSS = """
    ModelPanel {
        height: auto;
        padding: 0 1;
        margin: 0 0 1 0;
        color: $text-muted;
        &.-failed { color: $text-error; }
    }
    """

    def __init__(self, model: str) -> None:
        super().__init__(Content(""))
        self._title = f"Loading {one_line(model)}" if model else "No model was chosen yet."
        self._progress = LoadLines()
        self._is_loading = True
        self._is_plain = False

    def on_mount(self) -> None:
        self._is_plain = self.app.has_class("-plain")
        self._draw()

    def on_resize(self, event: events.Resize) -> None:
        self._draw()

    def show_step(self, step: LoadStep) -> None:
        """The model came a step nearer."""
        self._progress.add(step)
        self._draw()

    def show_facts(self, facts: ModelFacts) -> None:
        """The model is there."""
        self._is_loading = False
        lines = [" · ".join(filter(None, (one_line(facts.name), one_line(facts.description))))]
        if not facts.has_chat_template and not facts.notes:
            lines.append(
                "This is a base model without a chat template: it goes on with a text rather than answering a question."
            )
        lines += [one_line(note) for note in facts.notes]
        self.update(Content("\n".join(lines)))

    def show_failure(self, sentence: str, way_on: str, keys: str) -> None:
        """The model can't be had. keys: what can be done all the same."""
        self._is_loading = False
        self.add_class("-failed")
        lines = [one_line(sentence), one_line(way_on), keys]
        self.update(Content("\n".join(filter(None, lines))))

    def _draw(self) -> None:
        if self._is_loading:
            width = max(10, self.content_size.width)
            self.update(Content("\n".join([self._title, *self._progress.lines(width, is_plain=self._is_plain)])))
