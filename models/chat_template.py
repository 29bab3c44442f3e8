"""A model's chat template: from messages to the text of a prompt.

Owns what a message is, which templates render where, and what happens to messages that a template refuses or leaves
out.  Does not know tokens (chat_encoding.py) or jinja2 (template_sandbox.py), which is imported with the first
rendering.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from models.errors import TemplateError, quoted
from models.gguf_values import MetadataValue
from models.known_templates import is_known_good
from models.template_process import SandboxLimits, TemplateProcess
from models.vocabulary import Vocabulary

if TYPE_CHECKING:
    from datetime import datetime

    from models.template_sandbox import Renderer

_TEMPLATE_KEY = "tokenizer.chat_template"
DEFAULT_NAME = "default"
TOOLS_TEMPLATE = "tool_use"
"""The name under which files carry a template for prompts with tools, where it is another."""
RESERVED_VARIABLES = ("messages", "add_generation_prompt")
"""What a template is given of the chat itself."""
_VARIABLES = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}
THINKING_VARIABLES = ("enable_thinking", "thinking")  # Qwen's name for it, and DeepSeek's and Granite's
_KNOWN_ROLES = ("user", "assistant")
_ROLE = re.compile(r"[\w-]{1,64}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Message:
    """One turn.  ids: the tokens that the model generated for it, if it did, with or without the one that ended it."""

    role: str
    content: str
    ids: tuple[int, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Rendered:
    """A prompt's text, and sentences for the user on what was done to get it."""

    text: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RenderOptions:
    """What a rendering depends on besides the messages.

    tools: JSON schemas.  enable_thinking: None leaves the choice to the template.  date: what the template takes for
    now, the clock's date if None.  variables: others that the template may read (reasoning_effort, say), JSON values by
    name; they win over the rest.
    """

    tools: Sequence[Mapping[str, Any]] | None = None
    enable_thinking: bool | None = None
    date: datetime | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)


class ChatTemplate:
    """One template, compiled with the first rendering."""

    def __init__(
        self,
        source: str,
        special_tokens: Mapping[str, str],
        *,
        process: TemplateProcess | None = None,
        called: str = "The model's chat template",
    ) -> None:
        """special_tokens: `bos_token` and the like, as the template calls them.  called: how sentences about it begin.

        process: the child in which the template renders if it is not known good, one of its own by default.
        """
        self.source = source
        self.called = called
        self.is_known_good = is_known_good(source)
        self._special_tokens = dict(special_tokens)
        self._renderer: Renderer | None = None
        self._process = None if self.is_known_good else process or TemplateProcess(SandboxLimits())

    @cached_property
    def after_reply(self) -> str:
        """What the template writes behind an answer that a question follows; nothing if it can't be found out."""
        question, answer = (Message(role=role, content=f"tandem{role}probe") for role in _KNOWN_ROLES)
        try:
            text = self._text((question, answer, question), False, RenderOptions())
        except TemplateError:
            return ""
        return text.partition(answer.content)[2]

    def prepare(self) -> None:
        """Starts what renders, so that the first rendering waits less.  Returns at once."""
        if self._process is not None:
            self._process.prepare()

    def close(self) -> None:
        """Ends what renders; a later rendering starts it again."""
        if self._process is not None:
            self._process.close()

    def render(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        enable_thinking: bool | None = None,
        date: datetime | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> Rendered:
        """The prompt for these messages, as Hugging Face's renderer makes it.

        A last message of the assistant is not closed: the model goes on from it.  Where the template refuses or leaves
        out a system message, its text is put before the first user turn, and a note says so.

        Raises TemplateError: the template's own words where it refuses the messages, and what is wrong where it fails.
        """
        options = RenderOptions(tools=tools, enable_thinking=enable_thinking, date=date, variables=variables or {})
        return self.render_with(messages, options, add_generation_prompt=add_generation_prompt)

    def render_with(
        self, messages: Sequence[Message], options: RenderOptions, *, add_generation_prompt: bool
    ) -> Rendered:
        """`render`, with the options in one piece."""
        _check(messages)
        is_continued = messages[-1].role == "assistant"
        turns = messages[:-1] if is_continued else messages
        if not turns:
            raise TemplateError("A chat can't begin with the assistant's answer: there is nothing to answer.")
        rendered = self._with_all_messages(turns, add_generation_prompt or is_continued, options)
        rendered = replace(rendered, notes=(*rendered.notes, *self._unread(options.variables)))
        return replace(rendered, text=rendered.text + messages[-1].content) if is_continued else rendered

    def _with_all_messages(self, messages: Sequence[Message], add_prompt: bool, options: RenderOptions) -> Rendered:
        from models.template_sandbox import RefusedMessages

        try:
            text = self._text(messages, add_prompt, options)
        except RefusedMessages as refusal:
            if not any(message.role == "system" for message in messages):
                raise
            reason = f"it says: {quoted(refusal.words, limit=None)}"
            return self._folded(messages, add_prompt, options, f"refuses the system message ({reason})")
        lost = self._lost(messages, text, add_prompt, options)
        if any(message.role == "system" for message in lost):
            return self._folded(messages, add_prompt, options, "leaves the system message out")
        return Rendered(text=text, notes=_notes_on(lost, self.called))

    def _folded(self, messages: Sequence[Message], add_prompt: bool, options: RenderOptions, problem: str) -> Rendered:
        folded = fold_system(messages)
        text = self._text(folded, add_prompt, options)
        lost = self._lost(folded, text, add_prompt, options)
        note = f"{self.called} {problem}: its text stands at the beginning of the user's turn instead."
        return Rendered(text=text, notes=(note, *_notes_on(lost, self.called)))

    def _lost(self, messages: Sequence[Message], text: str, add_prompt: bool, options: RenderOptions) -> list[Message]:
        """Messages of which nothing is in the text.

        A template may rewrite a content (drop the thinking, say), and a short content may stand in the text by chance,
        so what is not there word for word, and all but the two roles that every template knows, is put to the test with
        a content that is unmistakable.
        """
        suspects = [
            idx
            for idx, message in enumerate(messages)
            if (content := message.content.strip()) and (message.role not in _KNOWN_ROLES or content not in text)
        ]
        if not suspects:
            return []
        probes = {idx: f"tandem{idx}probe" for idx in suspects}
        asked = [replace(message, content=probes.get(idx, message.content)) for idx, message in enumerate(messages)]
        try:
            answer = self._text(asked, add_prompt, options)
        except TemplateError:  # it looks into the contents: then it has seen them
            return []
        return [messages[idx] for idx in suspects if probes[idx] not in answer.lower()]

    def _unread(self, variables: Mapping[str, Any]) -> Iterator[str]:
        """A sentence on each variable that stands nowhere in the template."""
        for name in variables:
            if not any(re.search(rf"\b{other}\b", self.source) for other in _with_aliases({name: True})):
                yield f"{self.called} does not read the variable {quoted(name)}: it changes nothing."

    def _text(self, messages: Sequence[Message], add_prompt: bool, options: RenderOptions) -> str:
        from models.template_sandbox import Renderer, RenderRequest

        variables: dict[str, Any] = {
            **self._special_tokens,
            "messages": [{"role": message.role, "content": message.content} for message in messages],
            "tools": None if options.tools is None else [dict(tool) for tool in options.tools],
            "documents": None,
            "add_generation_prompt": add_prompt,
        }
        if options.enable_thinking is not None:
            variables |= dict.fromkeys(THINKING_VARIABLES, options.enable_thinking)
        variables |= _with_aliases(options.variables)
        request = RenderRequest(
            source=self.source,
            variables=variables,
            now=None if options.date is None else options.date.isoformat(),
            max_characters=(SandboxLimits() if self._process is None else self._process.limits).max_characters,
            called=self.called,
        )
        if self._process is not None:
            return self._process.render(request)
        if self._renderer is None:
            self._renderer = Renderer()
        return self._renderer.render(request)


def _with_aliases(variables: Mapping[str, Any]) -> dict[str, Any]:
    """The variables, and where one says whether to think, the other name for it too."""
    chosen = dict(variables)
    for name in THINKING_VARIABLES:
        if name in variables:
            chosen = dict.fromkeys(THINKING_VARIABLES, variables[name]) | chosen
    return chosen


def template_sources(metadata: Mapping[str, MetadataValue]) -> dict[str, str]:
    """The templates in a file's metadata by name, the one without a name as DEFAULT_NAME; empty for base models."""
    found: dict[str, str] = {}
    for key, value in metadata.items():
        name = DEFAULT_NAME if key == _TEMPLATE_KEY else key.removeprefix(f"{_TEMPLATE_KEY}.")
        if name != key and name and isinstance(value, str) and value.strip():
            found[name] = value
    return dict(sorted(found.items(), key=lambda item: (item[0] != DEFAULT_NAME, item[0])))


def load_chat_templates(metadata: Mapping[str, MetadataValue], vocabulary: Vocabulary) -> dict[str, ChatTemplate]:
    """The templates in a file's metadata by name; the first is the one to use where nobody chooses."""
    special_tokens = special_tokens_of(metadata, vocabulary.token_text, vocabulary.size)
    return {name: ChatTemplate(source, special_tokens) for name, source in template_sources(metadata).items()}


def special_tokens_of(
    metadata: Mapping[str, MetadataValue], token_text: Callable[[int], str], num_tokens: int
) -> dict[str, str]:
    """Texts of the tokens that templates know by name (`bos_token` and the like), by that name."""
    found: dict[str, str] = {}
    for role, variable in _VARIABLES.items():
        token_id = metadata.get(f"tokenizer.ggml.{role}_token_id")
        if isinstance(token_id, int) and 0 <= token_id < num_tokens:
            found[variable] = token_text(token_id)
    return found


def fold_system(messages: Sequence[Message]) -> list[Message]:
    """The messages with each system text put before the user turn that follows it, or made a user turn of its own."""
    folded: list[Message] = []
    waiting: list[str] = []
    for message in messages:
        if message.role == "system":
            waiting += [message.content] if message.content.strip() else []
        elif message.role == "user" and waiting:
            folded.append(replace(message, content="\n\n".join((*waiting, message.content))))
            waiting = []
        else:
            folded.append(message)
    if waiting and folded and folded[-1].role == "user":
        folded[-1] = replace(folded[-1], content="\n\n".join((folded[-1].content, *waiting)))
    elif waiting:
        folded.append(Message(role="user", content="\n\n".join(waiting)))
    return folded


def _check(messages: Sequence[Message]) -> None:
    if not messages:
        raise TemplateError("There is no message to answer.")
    for message in messages:
        if not _ROLE.fullmatch(message.role):
            raise TemplateError(
                f"A message has the role {quoted(message.role)}, and a role is a word such as user or system."
            )


def _notes_on(lost: Sequence[Message], called: str) -> tuple[str, ...]:
    roles = dict.fromkeys(message.role for message in lost)
    return tuple(
        f"{called} leaves out the messages of the role {quoted(role)}: the model does not see them." for role in roles
    )
