"""Which test keeps which promise on files, tokens and templates: none of these tests may go without the promise."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent

# What must happen, and the tests of it: a file under tests/, and names without test_ and .py.
PROMISES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "files: a lying header is refused before anything is allocated": {
        "models/gguf_damage": (
            "a_lying_header_is_refused_by_name",
            "text_beyond_all_measure_is_refused",
            "tensors_may_touch_but_not_share_a_byte",
        ),
        "models/gguf_mutations": (
            "every_mutation_is_read_or_refused_within_bounds",
            "claims_that_a_large_file_could_hold_are_refused_within_bounds",
        ),
    },
    "files: what is cut says what it has, what it needs, and why it may be": {
        "models/gguf_damage": (
            "a_cut_file_says_what_it_has_what_it_needs_and_what_is_missing",
            "not_one_byte_of_a_header_may_be_missing",
            "not_one_byte_of_the_last_tensor_may_be_missing",
            "the_name_of_a_cut_file_is_a_hint",
        ),
        "models/gguf_mutations": ("every_truncation_is_refused_within_bounds",),
    },
    "files: control characters are shown escaped": {
        "models/gguf_damage": ("names_are_shown_escaped",),
        "models/errors": (
            "escaped_text_holds_nothing_that_steers_a_terminal",
            "a_message_keeps_line_breaks_and_no_other_control_character",
        ),
        "app/generate": ("control_characters_of_the_answer_are_shown_and_not_sent",),
    },
    "files: paths in any script": {
        "models/gguf_file": ("paths_in_any_script_work",),
        "app/command": ("the_text_goes_to_stdout_and_nothing_else_does",),
        "app/settings": ("every_kind_is_read_from_both",),
        "app/chat/store": ("a_conversation_comes_back_as_it_was",),
    },
    "files: one that does not answer is told of and can be left": {
        "runtime/patience": ("a_load_tells_that_it_waits_and_can_be_given_up",),
        "app/stalled_files": ("it_is_said_and_ctrl_c_ends_it",),
    },
    "tokens: ids equal the golden lists": {
        "models/vocabulary_golden": ("ids_equal_the_reference",),
        "models/word_golden": ("ids_equal_the_published_rule",),
    },
    "tokens: any bytes come back": {
        "models/vocabulary_golden": ("any_bytes_come_back", "half_a_character_at_each_border"),
        "models/vocabulary": ("any_bytes_come_back", "lone_bytes_become_byte_tokens"),
    },
    "tokens: one BOS, whoever puts it": {
        "models/chat_encoding": ("one_bos_whoever_puts_it",),
        "models/vocabulary": ("a_prompt_has_one_bos_or_none", "a_prompt_gets_no_bos_where_the_file_wants_none"),
    },
    "tokens: what is typed never becomes a control token": {
        "models/chat_encoding": (
            "what_is_typed_never_becomes_a_control_token",
            "control_text_can_be_let_through",
            "thinking_opened_by_the_template_is_a_token_and_typed_thinking_is_not",
            "control_text_in_tools_and_in_json_stays_text",
            "merges_across_joins_are_those_of_the_whole_text",
            "typed_control_text_is_cut_into_tokens_like_any_text",
        ),
        "models/template_choices": ("control_text_in_a_variable_stays_text",),
        "models/chat_turns": ("any_generated_ids_are_kept",),
    },
    "templates: none reaches for Python, works without end or fills the memory": {
        "models/template_sandbox": (
            "reaching_for_python_is_refused",
            "the_lock_holds_even_outside_the_sandbox",
            "endless_work_is_stopped_and_the_next_template_rendered",
            "gigabytes_are_refused",
            "long_prompts_are_refused",
        ),
    },
    "templates: rendered as the reference renders them": {
        "models/template_sandbox": ("renders_as_hugging_face_does",),
        "models/template_golden": (
            "what_templates_do_is_done_as_the_reference_does_it",
            "real_templates_are_rendered_as_the_reference_does_it",
        ),
    },
    "templates: refused roles are told in the template's words, a refused system text is folded": {
        "models/template_sandbox": ("the_templates_own_words_reach_the_user",),
        "models/chat_template": (
            "a_refused_system_text_is_folded_into_the_first_user_turn",
            "folding_that_helps_nothing_gives_the_templates_own_words",
            "a_system_text_that_the_template_leaves_out_is_folded_too",
        ),
    },
}


@pytest.mark.parametrize("promise", PROMISES)
def test_every_promise_has_its_tests(promise: str) -> None:
    for place, names in PROMISES[promise].items():
        path = (TESTS / place).with_name(f"test_{Path(place).name}.py")
        there = {
            node.name for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.FunctionDef)
        }
        assert {f"test_{name}" for name in names} <= there, path
