"""Choosing a model in the chat: what is here, in the catalog and on the hub; downloads; the conversation stays."""

import threading
from dataclasses import replace
from pathlib import Path

from chat_stage import FakeEngine, chat, says
from fake_shelf import MB, FakeShelf, desk_for

from app.chat.engine_port import EngineFault, MemoryUse
from app.chat.model_port import ModelLine, ModelPlace, RepositoryLine
from app.preferences import Preferences

CHOSEN = Preferences(model="tiny-1m")
FOUND = RepositoryLine(
    name="someone/Found-GGUF", licence="mit", architecture="llama", num_parameters=1_200_000_000, num_downloads=1234
)
FILE = ModelLine(
    name="someone/Found-GGUF:Q4_K_M", title="", place=ModelPlace.HUB, size_bytes=700 * MB, quantisation="Q4_K_M"
)


async def test_another_model_takes_up_the_conversation(tmp_path: Path) -> None:
    engine, loaded = FakeEngine(scripts=[says("one"), says("two")]), list[Preferences]()
    desk = desk_for(engine, CHOSEN, loaded=loaded)
    async with chat(engine, tmp_path / "chat.db", models=desk) as stage:
        await stage.ask("first")
        await stage.press("f2")
        await stage.until_shown(
            "tiny-1m: Tiny 1M, Q8_0 (loaded now)", "3.0 MB · Q4_0 · Apache-2.0 · fits, 4,096 context"
        )
        await stage.press("down", "enter")
        await stage.until_shown("other-2m · llama · 1M")
        await stage.until_idle()
        await stage.ask("second")
        assert stage.app.controller.conversation.turns[-1].model == "other-2m"
        assert "first" in stage.text()
    assert [preferences.model for preferences in loaded] == ["tiny-1m", "other-2m"]
    assert [turn.text for turn in engine.asked[-1]] == ["first", "one", "second"]


async def test_the_status_line_forgets_the_figures_of_the_model_before(tmp_path: Path) -> None:
    engine = FakeEngine(scripts=[says("one"), says("two")])
    async with chat(engine, tmp_path / "chat.db", size=(110, 24), models=desk_for(engine, CHOSEN)) as stage:
        await stage.ask("first")
        await stage.until_shown("40.0 tokens/s · first token 250 ms · context 3 of 4,096")
        engine.facts = replace(engine.facts, vocabulary="other words")
        await stage.send("/model other-2m")
        await stage.until_shown("other-2m · llama · 1M")
        await stage.until_idle()
        await stage.until(lambda: stage.lines()[-1].strip() == "other-2m", "a status line without figures")


async def test_a_lost_card_is_seen_in_the_device_panel(tmp_path: Path) -> None:
    engine = FakeEngine()
    card = MemoryUse(device="Fast Card", weights_bytes=100 * MB)
    engine.facts = replace(engine.facts, memory=(card,), uses_gpu=True)
    async with chat(engine, tmp_path / "chat.db", size=(110, 24), models=desk_for(engine, CHOSEN)) as stage:
        await stage.until_idle()
        await stage.press("f4")
        await stage.until_shown("Fast Card 100.0 MB")
        engine.facts = replace(engine.facts, memory=(MemoryUse(device="CPU", weights_bytes=120 * MB),), uses_gpu=False)
        await stage.ask("first")
        await stage.until_shown("CPU     120.0 MB")
        assert "Fast Card" not in stage.text()


async def test_the_list_says_what_fits_and_what_can_not_be_run(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with chat(engine, tmp_path / "chat.db", size=(110, 30), models=desk_for(engine, CHOSEN)) as stage:
        await stage.until_idle()
        await stage.press("f2")
        await stage.until_shown(
            "800.0 MB · Q4_K_M · MIT · fits: about 1.0 GB of 8.0 GB free",
            "too large: needs about 50.0 GB",
            "not run by this version: strange-1b has the architecture [strange]",
        )
        await stage.press(*"giant")
        await stage.until(lambda: "other-2m" not in stage.text())
        await stage.press("escape")
        await stage.until(lambda: "Models" not in stage.text())


async def test_a_download_is_stopped_goes_on_and_can_be_used(tmp_path: Path) -> None:
    gate = threading.Event()
    engine, shelf = FakeEngine(), FakeShelf(gate=gate)
    async with chat(engine, tmp_path / "chat.db", models=desk_for(engine, CHOSEN, shelf=shelf)) as stage:
        await stage.until_idle()
        await stage.press("f2")
        await stage.until_shown("large-1b")
        await stage.press("down", "down", "enter")
        await stage.until_shown("downloading 50 %: 400.0 MB of 800.0 MB")
        await stage.press("enter")
        await stage.until_shown("stopped 50 %: 400.0 MB of 800.0 MB (Enter goes on)")
        await stage.press("enter")
        await stage.until_shown("downloading 50 %")
        gate.set()
        await stage.until_shown("large-1b is here: Enter uses it.", "800.0 MB · Q4_K_M · MIT · fits, 4,096 context")
        await stage.press("escape")
        await stage.until_shown("large-1b is here: /models shows it.")
        await stage.send("/model large-1b")
        await stage.until_shown("large-1b · llama")
        await stage.until_idle()
    assert shelf.fetched == ["large-1b"]


async def test_a_download_that_fails_says_why(tmp_path: Path) -> None:
    engine, shelf = FakeEngine(), FakeShelf(fetch_fault="The disk is full [/].")
    async with chat(engine, tmp_path / "chat.db", models=desk_for(engine, CHOSEN, shelf=shelf)) as stage:
        await stage.until_idle()
        await stage.press("f2")
        await stage.until_shown("large-1b")
        await stage.press("down", "down", "enter")
        await stage.until_shown("The disk is full [/]. (Enter tries again)")


async def test_a_disk_that_does_not_answer_leaves_the_search(tmp_path: Path) -> None:
    gate = threading.Event()
    engine, shelf = FakeEngine(), FakeShelf(repositories=(FOUND,), disk_gate=gate, disk_fault="/far is silent [/].")
    async with chat(engine, tmp_path / "chat.db", models=desk_for(engine, CHOSEN, shelf=shelf)) as stage:
        await stage.until_idle()
        await stage.press("f2", *"found")
        await stage.until_shown("Looking for models…", "Search Hugging Face for found")
        await stage.press("enter")
        await stage.until_shown("someone/Found-GGUF")
        gate.set()
        await stage.until_shown("/far is silent [/].", "someone/Found-GGUF")
        assert "Looking for models…" not in stage.text()


async def test_a_name_is_completed_without_waiting_for_the_disk(tmp_path: Path) -> None:
    engine, shelf = FakeEngine(), FakeShelf()
    asked_on: list[str] = []
    names = shelf.names_on_disk()
    shelf.names_on_disk = lambda: (asked_on.append(threading.current_thread().name), names)[1]  # type: ignore[method-assign]
    async with chat(engine, tmp_path / "chat.db", models=desk_for(engine, CHOSEN, shelf=shelf)) as stage:
        await stage.until_idle()
        await stage.press(*"/model oth")
        await stage.until_shown("other-2m")
        await stage.press("tab", "enter")
        await stage.until_shown("other-2m · llama")
    assert set(asked_on) == {"chat-errand"}


async def test_the_hub_is_asked_only_when_the_user_says_so(tmp_path: Path) -> None:
    engine, shelf = FakeEngine(), FakeShelf(repositories=(FOUND,), files={FOUND.name: (FILE,)})
    async with chat(engine, tmp_path / "chat.db", models=desk_for(engine, CHOSEN, shelf=shelf)) as stage:
        await stage.until_idle()
        await stage.send("/models found")
        await stage.until_shown("Search Hugging Face for found")
        assert shelf.searches == []
        await stage.press("enter")
        await stage.until_shown("On Hugging Face", "someone/Found-GGUF", "llama · 1.2B · mit · 1,234 downloads")
        assert shelf.searches == ["found"]
        await stage.press("enter")
        await stage.until_shown("someone/Found-GGUF (Esc goes back)", "700.0 MB · Q4_K_M · fits: about 875.0 MB")
        await stage.press("escape")
        await stage.until_shown("On Hugging Face")
        await stage.press("enter", "enter")
        await stage.until_shown("someone/Found-GGUF:Q4_K_M is here: Enter uses it.")
    assert shelf.fetched == [FILE.name]


async def test_an_answer_that_comes_after_another_question_is_left_alone(tmp_path: Path) -> None:
    engine, shelf, gates = FakeEngine(), FakeShelf(), {"slow": threading.Event(), "quick": threading.Event()}
    gates["quick"].set()

    def search(text: str) -> tuple[RepositoryLine, ...]:
        gates[text].wait()
        shelf.searches.append(text)
        return (replace(FOUND, name=f"someone/{text}-GGUF"),)

    shelf.search = search  # type: ignore[method-assign]
    async with chat(engine, tmp_path / "chat.db", models=desk_for(engine, CHOSEN, shelf=shelf)) as stage:
        await stage.until_idle()
        await stage.send("/models slow")
        await stage.until_shown("Search Hugging Face for slow")
        await stage.press("enter")
        await stage.until_shown("Asking Hugging Face for slow…")
        await stage.press(*["backspace"] * 4, *"quick", "enter")
        await stage.until_shown("someone/quick-GGUF")
        gates["slow"].set()
        await stage.until(lambda: shelf.searches == ["quick", "slow"])
        await stage.pilot.pause(0.1)
        assert "someone/quick-GGUF" in stage.text() and "someone/slow-GGUF" not in stage.text()


async def test_without_a_network_it_is_one_sentence(tmp_path: Path) -> None:
    engine = FakeEngine()
    shelf = FakeShelf(fault="The hub can't be reached [/].", offline=True)
    async with chat(engine, tmp_path / "chat.db", models=desk_for(engine, CHOSEN, shelf=shelf)) as stage:
        await stage.until_idle()
        await stage.press("f2")
        await stage.until_shown("large-1b")
        await stage.press("down", "down", "enter")
        await stage.until_shown("Downloads are off")
        await stage.press(*"qqq", "enter")
        await stage.until_shown("The hub can't be reached [/].")


async def test_a_model_that_can_not_be_loaded_leaves_the_way_to_another(tmp_path: Path) -> None:
    engine = FakeEngine(scripts=[says("one"), says("two")])
    async with chat(engine, tmp_path / "chat.db", size=(100, 24), models=desk_for(engine, CHOSEN)) as stage:
        await stage.ask("first")
        engine.load_error = EngineFault("That file is cut off.", "Fetch it again.")
        await stage.send("/model other-2m")
        await stage.until_shown("That file is cut off.", "F2 chooses another model", "no model")
        await stage.send("second")
        await stage.until_shown("There is no model to answer", "│ second")
        engine.load_error = None
        await stage.press("f2")
        await stage.until_shown("fits, 4,096 context")
        await stage.press("enter")
        await stage.until_idle()
        await stage.press("enter")
        await stage.until_shown("two")
    assert [turn.text for turn in engine.asked[-1]] == ["first", "one", "second"]


async def test_while_a_reply_is_written_no_other_model_is_loaded(tmp_path: Path) -> None:
    gate = threading.Event()
    engine = FakeEngine(scripts=[says("one two three", gate=gate, num_before_gate=1)])
    async with chat(engine, tmp_path / "chat.db", models=desk_for(engine, CHOSEN)) as stage:
        await stage.send("first")
        await stage.until_shown("one")
        await stage.send("/model other-2m")
        await stage.until_shown("The reply is still being written: Esc stops it.")
        gate.set()
        await stage.until_idle()
        assert stage.app.controller.conversation.turns[-1].model == "tiny-1m"


async def test_a_message_sent_while_another_model_loads_waits_for_it(tmp_path: Path) -> None:
    engine, gate = FakeEngine(scripts=[says("Here.")]), threading.Event()
    async with chat(engine, tmp_path / "chat.db", models=desk_for(engine, CHOSEN)) as stage:
        await stage.until_idle()
        engine.load_gate = gate
        await stage.send("/model other-2m")
        await stage.until_shown("Loading other-2m")
        await stage.send("Are you there?")
        await stage.until_shown("waiting for the model")
        await stage.send("/model tiny-1m")
        await stage.until_shown("Loading tiny-1m")
        gate.set()
        await stage.until_idle()
        await stage.until_shown("Here.")
        assert stage.app.controller.conversation.turns[-1].model == "tiny-1m"
    assert engine.facts.name == "tiny-1m"
