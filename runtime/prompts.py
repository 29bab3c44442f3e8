"""From what a caller asks to the ids of a prompt.

Owns the choice between text as it is, messages through the chat template, and ids; and the checks on ids.  Does not
know how text becomes tokens, nor what happens to the ids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral

from models.chat_encoding import ChatEncoder
from models.chat_template import TOOLS_TEMPLATE, ChatTemplate, Message
from models.vocabulary import Vocabulary
from runtime.errors import OptionError
from runtime.options import GenerateOptions
from runtime.templates import check_name
from runtime.thinking import opens_thinking

Prompt = str | Sequence[int] | Sequence[Message]


@dataclass(frozen=True, kw_only=True)
class EncodedPrompt:
    """A prompt.

    end_ids: tokens that end the answer.  notes: sentences for the user on what was done to it.  starts_in_thinking:
    whether the reply begins inside a thinking block.
    """

    ids: tuple[int, ...]
    end_ids: frozenset[int]
    notes: tuple[str, ...] = ()
    starts_in_thinking: bool = False


class PromptEncoder:
    """Encodes prompts for one model.

    chat_templates: by name, the first for who chooses none; empty for a base model.  num_tokens: ids the device knows.
    """

    def __init__(self, vocabulary: Vocabulary, chat_templates: Mapping[str, ChatTemplate], *, num_tokens: int) -> None:
        self._vocabulary = vocabulary
        self._chats = {name: ChatEncoder(vocabulary, template) for name, template in chat_templates.items()}
        self._plain = next(iter(self._chats.values()), None) or ChatEncoder(vocabulary, None)
        self._num_tokens = num_tokens

    def encode(self, prompt: Prompt, options: GenerateOptions) -> EncodedPrompt:
        """Raises OptionError for what is no prompt, TemplateError for messages that the template refuses."""
        if isinstance(prompt, str):
            encoded = self._encode_text(prompt, options)
        elif messages := [part for part in prompt if isinstance(part, Message)]:
            _check_all(prompt, len(messages))
            encoded = self._encode_messages(messages, options)
        else:
            ids = tuple(int(part) for part in prompt if isinstance(part, Integral) and not isinstance(part, bool))
            _check_all(prompt, len(ids))
            encoded = EncodedPrompt(ids=ids, end_ids=self._vocabulary.end_ids)
        self._check(encoded.ids)
        return encoded

    def _encode_text(self, text: str, options: GenerateOptions) -> EncodedPrompt:
        if not options.raw:
            return self._encode_messages([Message(role="user", content=text)], options)
        vocabulary = self._vocabulary
        parse_special = options.parse_special is not False
        return EncodedPrompt(
            ids=tuple(vocabulary.encode_prompt(text, add_bos=options.add_bos, parse_special=parse_special)),
            end_ids=vocabulary.end_ids,
            starts_in_thinking=parse_special and opens_thinking(text),
        )

    def _encode_messages(self, messages: Sequence[Message], options: GenerateOptions) -> EncodedPrompt:
        encoded = self._chat(options).encode(
            messages,
            enable_thinking=options.enable_thinking,
            variables=options.template_variables,
            parse_control_text=options.parse_special is True,
        )
        return EncodedPrompt(
            ids=encoded.ids,
            end_ids=encoded.end_ids,
            notes=encoded.notes,
            starts_in_thinking=opens_thinking(encoded.text),
        )

    def _chat(self, options: GenerateOptions) -> ChatEncoder:
        """With the template that was chosen, or that for tools where there are some, or the first."""
        name = options.chat_template
        if name is None:
            has_tools = options.template_variables.get("tools") is not None
            return self._chats.get(TOOLS_TEMPLATE, self._plain) if has_tools else self._plain
        check_name(name, self._chats)
        return self._chats[name]

    def _check(self, ids: Sequence[int]) -> None:
        if not ids:
            raise OptionError(option="prompt", flag=None, value="", expected="at least one token")
        wrong = next((token_id for token_id in ids if not 0 <= token_id < self._num_tokens), None)
        if wrong is not None:
            expected = f"token ids from 0 to {self._num_tokens - 1}"
            raise OptionError(option="prompt", flag="--prompt-ids", value=wrong, expected=expected)


def _check_all(prompt: Sequence[object], num_known: int) -> None:
    if num_known != len(prompt):
        expected = "a text, a list of token ids, or a list of messages"
        raise OptionError(option="prompt", flag=None, value=prompt, expected=expected)
