"""Which variables a chat template reads: what a person may set.

Owns that question alone.  The template is parsed, never compiled or run: parsing folds no constants and calls nothing.
"""

from __future__ import annotations

_GIVEN = frozenset(
    ("messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token", "unk_token", "pad_token")
)
_FUNCTIONS = frozenset(
    ("namespace", "raise_exception", "strftime_now", "range", "dict", "cycler", "joiner", "loop", "caller", "varargs",
     "kwargs", "self", "super", "true", "false", "none", "True", "False", "None")
)  # fmt: skip
_MOST_CHARACTERS = 1 << 20


def variables_of(source: str) -> tuple[str, ...]:
    """Names that a template reads and does not set, besides the chat itself; none of one that can't be parsed."""
    from jinja2 import Environment, nodes
    from jinja2.exceptions import TemplateError
    from jinja2.ext import loopcontrols

    from models.template_sandbox import GenerationBlock

    if len(source) > _MOST_CHARACTERS:
        return ()
    try:
        tree = Environment(extensions=[GenerationBlock, loopcontrols]).parse(source)
        names = list(tree.find_all(nodes.Name))
    except (TemplateError, RecursionError):
        return ()
    own = {name.name for name in names if name.ctx != "load"}
    own |= {macro.name for macro in tree.find_all(nodes.Macro)}
    # What it sets where nobody has: `{% if x is not defined %}{% set x = 1 %}`, `{% set x = x | default(1) %}`.
    asked = [test.node for test in tree.find_all(nodes.Test) if test.name in ("defined", "undefined")]
    asked += [found.node for found in tree.find_all(nodes.Filter) if found.name in ("default", "d")]
    own -= {node.name for node in asked if isinstance(node, nodes.Name)}
    return tuple(sorted({name.name for name in names} - own - _GIVEN - _FUNCTIONS))
