"""Settings in the chat: what a change costs before it is taken, what does not fit, what is kept."""

from dataclasses import replace
from pathlib import Path

import pytest
from chat_stage import FakeEngine, chat, says
from fake_shelf import FREE_BYTES, MB, FakeKeeper, FakeShelf, desk_for
from hypothesis import given
from hypothesis import strategies as st

from app.chat.engine_port import MemoryUse
from app.chat.settings_cost import cost_of
from app.chat.settings_fields import (
    CARD_KEYS,
    FIELDS,
    field_of,
    preset_of,
    read_list,
    shown_value,
    stepped,
    typed_list,
    with_preset,
    with_text,
)
from app.errors import UsageError
from app.preferences import Preferences

CHOSEN = Preferences(model="tiny-1m")
MEMORY = MemoryUse(device="CPU", weights_bytes=100 * MB, kv_bytes=4096 * 1600, workspace_bytes=10 * MB)


def engine_with_memory(*scripts: object) -> FakeEngine:
    engine = FakeEngine(scripts=list(scripts))  # type: ignore[arg-type]
    engine.facts = replace(engine.facts, memory=(MEMORY,))
    return engine


async def test_sampling_costs_nothing_and_holds_at_once(tmp_path: Path) -> None:
    engine, loaded = engine_with_memory(), list[Preferences]()
    desk = desk_for(engine, CHOSEN, loaded=loaded)
    async with chat(engine, tmp_path / "chat.db", size=(100, 60), models=desk) as stage:
        await stage.until_idle()
        await stage.press("f3")
        await stage.until_shown("Nothing is changed.", "temp                  0.8", "ctx-size")
        await stage.press(*["down"] * (7 + FIELDS_BEFORE_TEMP), "enter")
        await stage.press(*"0.3", "enter")
        await stage.until_shown(
            "* temp                  0.3  (was 0.8)", "Costs nothing: it holds from the next reply on."
        )
        await stage.press("home", "enter")
        await stage.until(lambda: "Settings" not in stage.text())
        assert desk.preferences.temp == 0.3
    assert len(loaded) == 1


SHOWN = [field for field in FIELDS if field.key not in CARD_KEYS]
FIELDS_BEFORE_TEMP = next(place for place, field in enumerate(SHOWN) if field.key == "temp") - 2


async def test_a_reload_says_what_memory_becomes_and_the_conversation_stays(tmp_path: Path) -> None:
    engine, loaded, keeper = engine_with_memory(says("one"), says("two")), list[Preferences](), FakeKeeper()
    desk = desk_for(engine, CHOSEN, loaded=loaded, keeper=keeper)
    async with chat(engine, tmp_path / "chat.db", size=(120, 40), models=desk) as stage:
        await stage.ask("first")
        await stage.send("/set ctx-size 8192")
        await stage.until_shown(
            "Reloads the model; the conversation stays.",
            "Memory 116.6 MB → 123.1 MB (8.1 GB free): KV 6.6 MB → 13.1 MB.",
            "The next reply reads the conversation anew",
            "* ctx-size              8192  (was trained size, 8192 or what fits)",
        )
        assert len(loaded) == 1
        await stage.press("home", "down", "enter")
        await stage.until_shown("Kept for the next time: ctx_size.")
        await stage.until_idle()
        await stage.ask("second")
        assert stage.app.controller.facts is not None and stage.app.controller.facts.context_size == 8192
    assert [preferences.ctx_size for preferences in loaded] == [None, 8192]
    assert keeper.saved == {"ctx_size": 8192}
    assert [turn.text for turn in engine.asked[-1]] == ["first", "one", "second"]


async def test_what_does_not_fit_is_refused_with_the_nearest_that_does(tmp_path: Path) -> None:
    engine = engine_with_memory()
    desk = desk_for(engine, CHOSEN)
    async with chat(engine, tmp_path / "chat.db", size=(120, 40), models=desk) as stage:
        await stage.until_idle()
        await stage.send("/set ctx-size 999999")
        await stage.until_shown("! Does not fit with a window of 999,999 tokens", "Take 65,536 tokens instead")
        await stage.press("home", "enter")
        await stage.until_shown("! Does not fit")
        await stage.press("home", "down", "down", "enter")
        await stage.until_shown("* ctx-size              65536", "Reloads the model")
        await stage.press("home", "enter")
        await stage.until(lambda: desk.preferences.ctx_size == 65_536)
        await stage.until_idle()


async def test_nonsense_is_refused_in_words(tmp_path: Path) -> None:
    engine = engine_with_memory()
    desk = desk_for(engine, CHOSEN)
    async with chat(engine, tmp_path / "chat.db", size=(110, 30), models=desk) as stage:
        await stage.until_idle()
        await stage.send("/set temp warm")
        await stage.until_shown("! temp is a number, not 'warm'.")
        await stage.send("/set temp -1")
        await stage.until_shown("! temperature (--temp) is -1.0; expected a number from 0 to 100.")
        await stage.send("/set tempo 1")
        await stage.until_shown("There is no setting tempo")
        assert desk.preferences == CHOSEN


async def test_presets_are_taken_made_and_kept(tmp_path: Path) -> None:
    engine, keeper = engine_with_memory(says("one")), FakeKeeper()
    desk = desk_for(engine, CHOSEN, keeper=keeper)
    async with chat(engine, tmp_path / "chat.db", size=(110, 50), models=desk) as stage:
        await stage.until_idle()
        await stage.send("/preset brief")
        await stage.until_shown("The preset brief holds from the next reply on.")
        await stage.ask("first")
        assert [turn.text for turn in engine.asked[-1]] == ["Answer in one or two sentences.", "first"]
        await stage.send("/set temp 0.2")
        await stage.press("f3")
        await stage.until_shown("Keep these as a preset…")
        await stage.press(*["down"] * (5 + len(desk.presets)), "enter")
        await stage.press(*"mine [x]", "enter")
        await stage.until_shown("Kept as the preset mine [x].")
        await stage.send("/preset usual")
        await stage.until(lambda: desk.preferences == CHOSEN)
        await stage.send("/preset mine [x]")
        await stage.until(lambda: desk.preferences.temp == 0.2)
    assert keeper.presets == {"mine [x]": {"system": "Answer in one or two sentences.", "temp": 0.2}}


async def test_a_preset_that_was_kept_is_removed_and_brought_back(tmp_path: Path) -> None:
    engine, keeper = engine_with_memory(), FakeKeeper()
    desk = desk_for(engine, CHOSEN, keeper=keeper)
    async with chat(engine, tmp_path / "chat.db", size=(110, 50), models=desk) as stage:
        await stage.until_idle()
        await stage.send("/forget mine")
        await stage.until_shown("! No preset was kept yet.")
        desk.keep_preset("mine [x]", {"temp": 0.2})
        desk.keep_preset("brief", {"system": "One word."})
        await stage.send("/forget usual")
        await stage.until_shown("The preset usual belongs to Tandem and stays.")
        await stage.send("/forget mine [x]")
        await stage.until_shown("The preset mine [x] is gone. Alt+U brings it back.")
        assert "mine [x]" not in desk.presets and keeper.presets["mine [x]"] is None
        await stage.press("alt+u")
        await stage.until_shown("Taken back: the removal of the preset mine [x].")
        assert keeper.presets["mine [x]"] == {"temp": 0.2}
        await stage.press("f3")
        await stage.until_shown("mine [x]")
        await stage.press(*["down"] * (5 + list(desk.presets).index("mine [x]")))
        await stage.until_shown("Enter takes this preset, Delete removes it")
        await stage.press("delete")
        await stage.until_shown("The preset mine [x] is gone.")
        assert stage.text().count("mine [x]") == 1
        await stage.press("escape")
        await stage.send("/forget brief")
        await stage.until_shown("The preset brief is gone.")
        assert desk.presets["brief"] == {"system": "Answer in one or two sentences."}


async def test_what_the_template_reads_can_be_set_and_thinking_switched(tmp_path: Path) -> None:
    engine = engine_with_memory(says("one"))
    engine.facts = replace(engine.facts, chat_templates=("today", "enable_thinking"))
    desk = desk_for(engine, CHOSEN)
    async with chat(engine, tmp_path / "chat.db", size=(110, 50), models=desk) as stage:
        await stage.ask("first")
        await stage.send("/set enable_thinking perhaps")
        await stage.until_shown("! enable_thinking is one of true, false, not 'perhaps'.")
        await stage.send("/reason off")
        await stage.until_shown("enable_thinking is false from the next reply on.")
        assert desk.preferences.chat_template_kwargs == '{"enable_thinking": false}'
        await stage.send('/set today {"day": 3}')
        await stage.send("/reason")
        await stage.until_shown("enable_thinking is true from the next reply on.")
        assert desk.preferences.chat_template_kwargs == '{"today": {"day": 3}, "enable_thinking": true}'
        await stage.press("f3")
        await stage.until_shown("enable_thinking       true", 'today                 {"day": 3}')
        await stage.press(*["down"] * 5, "right")
        await stage.until_shown(
            "* enable_thinking       false  (was true)", "The next reply reads the conversation anew"
        )
        await stage.press("down", "delete")
        await stage.until_shown("* today                 as the model's template has it")
        await stage.press("home", "enter")
        await stage.until(lambda: desk.preferences.chat_template_kwargs == '{"enable_thinking": false}')


async def test_the_models_templates_are_stepped_through_and_a_file_needs_a_reload(tmp_path: Path) -> None:
    engine = engine_with_memory(says("one"))
    engine.facts = replace(engine.facts, template_names=("default", "rag"))
    desk = desk_for(engine, CHOSEN)
    async with chat(engine, tmp_path / "chat.db", size=(110, 50), models=desk) as stage:
        await stage.until_idle()
        await stage.send("/set chat-template chatml")
        await stage.until_shown("! chat-template is one of default, rag, not 'chatml'.")
        await stage.send("/set chat-template rag")
        await stage.until_shown("chat-template is rag from the next reply on.")
        await stage.send("/set chat-template-file my template.jinja")
        await stage.until_shown("* chat-template-file", "my template.jinja", "Reloads the model")


async def test_another_model_is_loaded_without_what_was_given_for_the_one_before(tmp_path: Path) -> None:
    engine = engine_with_memory()
    given = replace(CHOSEN, lora=("style.gguf",), chat_template_file="mine.jinja", temp=0.5)
    desk = desk_for(engine, given)
    async with chat(engine, tmp_path / "chat.db", size=(110, 30), models=desk) as stage:
        await stage.until_idle()
        await stage.send("/models")
        await stage.until_shown("other-2m")
        await stage.press("down", "enter")
        await stage.until_shown("Left out, since it was given for tiny-1m: --lora, --chat-template-file.")
        await stage.until_idle()
        assert desk.preferences == replace(CHOSEN, model="other-2m", temp=0.5)


async def test_a_model_without_a_switch_for_thinking_says_so(tmp_path: Path) -> None:
    engine = engine_with_memory()
    async with chat(engine, tmp_path / "chat.db", size=(110, 30), models=desk_for(engine, CHOSEN)) as stage:
        await stage.until_idle()
        await stage.send("/reason off")
        await stage.until_shown("! This model's chat template has no switch for thinking.")


async def test_the_system_prompt_of_this_conversation_and_the_next(tmp_path: Path) -> None:
    engine = engine_with_memory(says("one"), says("two"), says("three"))
    async with chat(engine, tmp_path / "chat.db", size=(110, 30), models=desk_for(engine, CHOSEN)) as stage:
        await stage.ask("first")
        await stage.send("/system Be kind.")
        await stage.ask("second")
        assert [turn.text for turn in engine.asked[-1]] == ["Be kind.", "first", "one", "second"]
        await stage.press("ctrl+n")
        await stage.ask("third")
        assert [turn.text for turn in engine.asked[-1]] == ["Be kind.", "third"]
        await stage.send("/system")
        await stage.ask("fourth")
        assert engine.asked[-1][0].text == "third"


async def test_settings_stand_at_forty_columns(tmp_path: Path) -> None:
    engine = engine_with_memory()
    async with chat(engine, tmp_path / "chat.db", size=(40, 20), models=desk_for(engine, CHOSEN)) as stage:
        await stage.until_idle()
        await stage.press("f3")
        await stage.until_shown("Settings", "system", "Nothing is changed.")
        await stage.press("escape")
        await stage.until(lambda: "Settings" not in stage.text())


def test_every_setting_can_be_read_back_and_has_a_default_in_words() -> None:
    for field in FIELDS:
        assert field_of(field.title) is field and field_of(f"--{field.title}") is field
        assert shown_value(field, Preferences()) == field.default
        assert with_text(field, "", Preferences()) == Preferences()
        for choice in field.choices:
            assert shown_value(field, with_text(field, choice, Preferences())) == choice
    cache = field_of("cache-type-k")
    assert cache is not None
    seen = [Preferences()]
    for _ in range(4):
        seen.append(stepped(cache, 1, seen[-1]))
    assert [preferences.cache_type_k for preferences in seen] == [None, "f16", "q8_0", "q4_0", None]
    with pytest.raises(UsageError, match="one of f16, q8_0, q4_0"):
        with_text(cache, "f32", Preferences())


def test_a_preset_takes_the_place_of_all_that_presets_keep() -> None:
    before = Preferences(model="x", temp=0.5, system="A", ctx_size=64)
    assert with_preset({"top_k": 3}, before) == Preferences(model="x", ctx_size=64, top_k=3)
    assert preset_of(before) == {"system": "A", "temp": 0.5}


def test_a_model_that_fits_nowhere_says_so() -> None:
    engine = engine_with_memory()

    class Full(FakeShelf):
        def largest_context(self, line, preferences, *, freed_bytes):  # type: ignore[no-untyped-def]
            return None

    desk = desk_for(engine, CHOSEN, shelf=Full())
    cost = cost_of(desk, replace(CHOSEN, ctx_size=10**6), 0)
    assert not cost.can_be_paid and cost.nearest is None
    assert "No window is small enough." in cost.sentence and "8.0 GB can be had" in cost.sentence
    assert FREE_BYTES == 8_000 * MB


def test_lists_are_typed_on_one_line_and_come_back_as_they_were() -> None:
    stop = field_of("stop")
    assert stop is not None
    chosen = with_text(stop, 'END "two words" "\\n\\n"', Preferences())
    assert chosen.stop == ("END", "two words", "\n\n")
    assert shown_value(stop, Preferences()) == "none"
    assert with_text(stop, "", chosen).stop is None


@given(st.lists(st.text(alphabet="ab \n\"'#;|日"), min_size=1).map(tuple))
def test_any_list_is_read_as_it_was_written(texts: tuple[str, ...]) -> None:
    assert read_list(typed_list(texts)) == texts


async def test_lists_and_adapters_are_settings_with_their_costs(tmp_path: Path) -> None:
    engine, loaded = engine_with_memory(), list[Preferences]()
    desk = desk_for(engine, CHOSEN, loaded=loaded)
    async with chat(engine, tmp_path / "chat.db", size=(110, 30), models=desk) as stage:
        await stage.until_idle()
        await stage.send('/set stop END "two words"')
        await stage.until_shown('stop is END "two words" from the next reply on.')
        await stage.send("/set logit-bias 7")
        await stage.until_shown("! --logit-bias is '7'; expected a token id and what is added")
        await stage.send('/set banned-string "open')
        await stage.until_shown("! banned-string: a quotation mark is open")
        await stage.send("/set lora style.gguf:0.5")
        await stage.until_shown("* lora                  style.gguf:0.5  (was none)", "Reloads the model")
        await stage.press("home", "enter")
        await stage.until(lambda: desk.preferences.lora == ("style.gguf:0.5",))
        await stage.until_idle()
    assert [preferences.lora for preferences in loaded] == [None, ("style.gguf:0.5",)]
    assert desk.preferences.stop == ("END", "two words")
