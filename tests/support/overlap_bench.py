"""What guessing meanwhile gains on an artificial device with latency: run it, it prints docs/speculation.md's table.

    PYTHONPATH=.:tests/support python tests/support/overlap_bench.py

Owns the figures' shape.  The device and the draft model compute nothing; a clock that only they move says how long
their passes take, so that the table is the same on every machine but for a pass more or less.
"""

from __future__ import annotations

from drafts import Change, MeanwhileBinding, Pair, now_and_then, perfect

_TOKENS = 300


def rate(latency_ms: float, draft_ms: float, change: Change | None, *, meanwhile: bool) -> float:
    """Tokens a second of an answer.  change None: without guesses."""
    with Pair(
        change=change,
        target=MeanwhileBinding,
        cost=lambda count: latency_ms + 0.2 * count,
        draft_cost=lambda count: draft_ms,
        draft_max=16,
        guesses_meanwhile=meanwhile,
    ) as pair:
        began_s = pair.clock.now_s
        pair.ask([1, 2, 3], max_tokens=_TOKENS).result  # noqa: B018 -- waits for the end
        return _TOKENS / (pair.clock.now_s - began_s)


def main() -> None:
    print("| pass of the device | pass of the draft | guesses are right | plain | in turn | meanwhile |")
    print("|---|---|---|---:|---:|---:|")
    for latency_ms in (10.0, 20.0, 40.0):
        for draft_ms in (2.0, 5.0):
            for words, change in (("always", perfect), ("two of three", now_and_then)):
                plain = rate(latency_ms, draft_ms, None, meanwhile=False)
                turn, beside = (rate(latency_ms, draft_ms, change, meanwhile=one) for one in (False, True))
                rates = f"{plain:.0f} | {turn:.0f} | {beside:.0f} ({beside / turn:.2f} x)"
                print(f"| {latency_ms:g} ms | {draft_ms:g} ms | {words} | {rates} |")


if __name__ == "__main__":
    main()
