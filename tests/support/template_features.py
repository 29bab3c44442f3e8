"""Small chat templates, each for some of what real ones do, and the chats that are put through templates.

Shared by the tests and by scripts/make_template_golden.py, which lets Hugging Face's renderer render them.
"""

from __future__ import annotations

from typing import Any

NOW = "2031-01-02T03:04:05"
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}

_WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": 'The weather of a <city> & "more"',
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Name, e.g. Zürich"},
                "days": {"type": "integer", "enum": [1, 2, 3]},
                "tags": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["city"],
        },
    },
}
_CLOCK = {
    "type": "function",
    "function": {"name": "clock", "description": "The time", "parameters": {"type": "object", "properties": {}}},
}
_QUESTION = "What's <1 & 2>? é😀\n\n  two lines "


def _turn(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def _call(arguments: Any) -> dict[str, Any]:
    return {
        "id": "call00001",
        "type": "function",
        "function": {"name": "get_weather", "arguments": arguments},
    }


def _chat(*messages: dict[str, Any], **variables: Any) -> dict[str, Any]:
    return {"messages": list(messages), "add_generation_prompt": True, **variables}


_RESULT = _turn("tool", '{"sky": "clear"}', tool_call_id="call00001", name="get_weather")
_SHORT, _ONE, _TWO = _turn("system", "Be short. "), _turn("user", "one"), _turn("assistant", "two")
_ASK, _NEXT = _turn("user", "Weather?"), _turn("user", "three")

CHATS: dict[str, dict[str, Any]] = {
    "question": _chat(_turn("user", _QUESTION)),
    "no prompt": _chat(_turn("user", _QUESTION), add_generation_prompt=False),
    "system": _chat(_SHORT, _turn("user", _QUESTION)),
    "turns": _chat(_SHORT, _ONE, _TWO, _NEXT),
    "closed": _chat(_ONE, _TWO, _NEXT, _turn("assistant", "four"), add_generation_prompt=False),
    "thought": _chat(_ONE, _turn("assistant", "<think>\nhm\n</think>\n\ntwo"), _NEXT),
    "reasoning": _chat(_ONE, _turn("assistant", "two", reasoning_content="hm", thinking="hm"), _NEXT),
    "thinking on": _chat(_ONE, enable_thinking=True, thinking=True),
    "thinking off": _chat(_SHORT, _ONE, _TWO, _NEXT, enable_thinking=False, thinking=False),
    "tools": _chat(_ASK, tools=[_WEATHER, _CLOCK]),
    "tools and system": _chat(_SHORT, _ASK, tools=[_WEATHER]),
    "tool round": _chat(
        *(_ASK, _turn("assistant", "", tool_calls=[_call({"city": "Zürich", "days": 2})]), _RESULT),
        *(_turn("assistant", "Clear."), _turn("user", "Thanks")),
        tools=[_WEATHER],
    ),
    "tool open": _chat(
        *(_SHORT, _ASK, _turn("assistant", "Let me look.", tool_calls=[_call({"city": "Rome", "tags": ["a", "b"]})])),
        _RESULT,
        tools=[_WEATHER],
    ),
    "two questions": _chat(_ONE, _turn("user", "two")),
    "developer": _chat(_turn("developer", "Be short."), _ONE),
    "late system": _chat(_ONE, _TWO, _SHORT, _NEXT),
    "parts": _chat(_turn("user", [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}])),
    "blanks": _chat(_turn("system", ""), _ONE, _turn("assistant", " two \n"), _NEXT),
    "nothing": _chat(),
}
"""Variables by the chat's name; what a template does with messages and tools that programs send."""

FEATURES: dict[str, str] = {
    "whitespace control": (
        "{{ bos_token }}\n{%- for m in messages %}\n  {% if m.role == 'user' -%}\n  U: {{- m.content }}\n"
        "  {%- elif m.role == 'assistant' %}\n A: {{ m.content + eos_token -}}\n  {% endif %}\n{# a remark #}\n"
        "{% endfor %}\n  {%+ if add_generation_prompt %}A:{% endif %}\n"
    ),
    "negative steps and namespaces": (
        "{% set ns = namespace(last=-1, seen=false, words=[]) %}{% for m in messages[::-1] %}"
        "{% set i = (messages|length - 1) - loop.index0 %}{% if m.role == 'user' and not ns.seen %}"
        "{% set ns.last = i %}{% set ns.seen = true %}{% endif %}{% endfor %}{{ ns.last }}"
        "{% for m in messages[-1::-2] %}|{{ m.role[::-1] }}{% endfor %}{% for m in messages[1:] %}{{ m.role[:2] }}"
        "{% endfor %}{{ messages[-1].role if messages else 'none' }}"
    ),
    "loop neighbours": (
        "{% for m in messages %}{{ loop.index }}/{{ loop.length }} {{ loop.first }} {{ loop.last }}"
        " {{ loop.revindex0 }}"
        "{% if loop.previtem is defined and loop.previtem.role == m.role %} again{% endif %}"
        "{% if loop.nextitem is defined %} before {{ loop.nextitem.role }}{% endif %} {{ loop.cycle('a', 'b') }}"
        " {{ loop.changed(m.role) }};{% else %}empty{% endfor %}"
    ),
    "break and continue": (
        "{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}{{ m.role }} "
        "{% if m.role == 'assistant' %}{% break %}{% endif %}{% endfor %}"
    ),
    "refusals": (
        "{% if messages and messages[0].role == 'system' %}{% set system = messages[0].content %}"
        "{% set turns = messages[1:] %}{% else %}{% set system = '' %}{% set turns = messages %}{% endif %}"
        "{% for m in turns %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('Roles must alternate, found ' + m.role) }}{% endif %}"
        "[{{ m.role }}] {{ (system ~ '\n' if loop.first and system else '') ~ m.content | trim }} {% endfor %}"
    ),
    "tools as JSON": (
        "{% if tools %}{{ tools | length }}{% for t in tools %}\n{{ t | tojson }}\n{{ t.function |"
        " tojson(indent=4) }}\n"
        "{{ t.function.parameters | tojson(separators=(',', ':'), sort_keys=true) }}\n"
        "{{ t | tojson(ensure_ascii=true) }}{% endfor %}{% else %}no tools {{ tools is none }}{% endif %}"
    ),
    "tools as declarations": (
        "{% macro type_of(p) %}{% if p.enum %}{{ p.enum | join(' | ') }}{% elif p.type == 'array' %}"
        "{{ type_of(p['items']) }}[]{% elif p.type in ['integer', 'number'] %}number{% else %}{{ p.type }}{% endif %}"
        "{% endmacro %}{% for t in tools or [] %}{% set f = t.function %}// {{ f.description }}"
        "\ntype {{ f.name }} = (_:"
        " { {% for name, p in f.parameters.properties | dictsort %}\n  {{ name }}"
        "{{ '' if name in (f.parameters.required or []) else '?' }}: {{ type_of(p) }}"
        "{%- if p.description is defined %} // {{ p.description }}{% endif %}{% endfor %}\n}) => any;\n{% endfor %}"
    ),
    "tool calls": (
        "{% for m in messages %}{% if m.tool_calls is defined and m.tool_calls %}{% for c in m.tool_calls %}"
        "{% if c.function %}{% set c = c.function %}{% endif %}<call {{ c.name }}>"
        "{% if c.arguments is mapping %}{% for k, v in c.arguments.items() %}{{ k }}="
        "{{ v if v is string else v | tojson }};{% endfor %}{% else %}{{ c.arguments }}{% endif %}</call>{% endfor %}"
        "{% elif m.role == 'tool' %}<result>{{ m.content }}</result>{% else %}{{ m.role }}: {{ m.content }}\n"
        "{% endif %}{% endfor %}"
    ),
    "thinking": (
        "{% for m in messages %}{% if m.role == 'assistant' %}{% set think = '' %}{% set text = m.content %}"
        "{% if m.reasoning_content is string %}{% set think = m.reasoning_content %}{% elif '</think>' in text %}"
        "{% set think = text.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}"
        "{% set text = text.split('</think>')[-1].lstrip('\\n') %}{% endif %}A({{ think }}): {{ text }}\n"
        "{% else %}{{ m.role }}: {{ m.content }}\n{% endif %}{% endfor %}{% if add_generation_prompt %}A: "
        "{%- if enable_thinking is defined and enable_thinking is false %}{{ '<think>\\n\\n</think>\\n\\n' }}"
        "{%- elif thinking is defined and thinking %}{{ '<think>\\n' }}{% endif %}{% endif %}"
    ),
    "date": "{{ strftime_now('%d %b %Y, %H:%M %A') }}{% if date_string is not defined %}{% set d = 'x' %}"
    "{{ d }}{% endif %}",
    "strings": (
        "{% set t = '  Some words, some MORE words  ' %}{{ t.strip().lower().title() }}|{{ t.split() | join('_') }}|"
        "{{ t.strip().split(' ', 1)[1] }}|{{ t.rstrip().endswith('words') }}|{{ t.find('some') }}|"
        "{{ t.replace('o', '0', 1) }}"
        "|{{ t | trim | replace('words', 'w') | upper | length }}|{{ '%s is %d' % ('x', 3) }}|"
        "{{ 'a' * 3 }}|{{ 7 // 2 }}"
        "|{{ 7 / 2 }}|{{ -7 % 3 }}|{{ 2 ** 10 }}|{{ '{:>5}|{}'.format('a', none) }}|{{ 'b' in t }}|{{ 'é😀'[::-1] }}"
        "|{{ t | capitalize | truncate(12) }}|{{ 'a\nb' | indent(2, true) }}|{{ '<&>' | e }}|{{ 'x,y'.partition(',') }}"
    ),
    "filters and tests": (
        "{{ messages | map(attribute='role') | list }}{{ messages |"
        " selectattr('role', 'equalto', 'user') | list | length }}"
        "{{ messages | rejectattr('role', 'in', ['user', 'tool']) | map(attribute='role') | join(',') }}"
        "{% for role, turns in messages | groupby('role') %}{{ role }}{{ turns | list | length }}{% endfor %}"
        "{{ [3, 1, 2, 1] | unique | sort(reverse=true) | list }}{{ [1, 2, 3] | sum }}{{ [1, [2]] | last | first }}"
        "{{ range(7) | batch(3) | list }}{{ 1 is number }}{{ 'a' is string }}{{ {} is mapping }}{{ [] is sequence }}"
        "{{ none is none }}{{ x is undefined }}{{ true is boolean }}{{ 3 is odd }}{{ x | default('d') }}"
        "{{ '' | default('e', true) }}{{ [1, 2] | reverse | list }}{{ {'b': 1, 'a': 2} | dictsort }}"
        "{{ 3.7 | round | int }}"
        "{{ ['a', 'b'] | map('upper') | join }}{{ dict(a=1, **{'b': 2}) }}{{ {'a': 1} | items | list }}"
    ),
    "blocks and macros": (
        "{% macro turn(role, text='-', end='\\n') %}<{{ role }}>{{ text }}{{ caller() if caller }}{{ varargs | join }}"
        "{{ kwargs.get('mark', '') }}{{ end }}{% endmacro %}{% set head %}  {{ bos_token }} head {% endset %}"
        "{{ head | trim }}{% for m in messages %}{{ turn(m.role, m.content, mark='!') }}{% endfor %}"
        "{% call turn('x') %}inner{% endcall %}{% filter upper %}loud {{ eos_token }}{% endfilter %}"
        "{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{% generation %}mine{% endgeneration %}"
        "{% raw %}{{ not this }}{% endraw %}{% if not x and (1 < 2 <= 2 or false) %}yes{% endif %}"
    ),
    "parts": (
        "{% for m in messages %}{{ m.role }}:{% if m.content is string %}{{ m.content }}{% else %}"
        "{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}{% elif p['type'] == 'image' %}<image>{% endif %}"
        "{% endfor %}{% endif %};{% endfor %}"
    ),
}
"""Templates by what they try out."""
