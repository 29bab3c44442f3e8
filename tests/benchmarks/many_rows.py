"""Rows for `tandem generate --jsonl`: short requests for new code behind one long system text.

    python tests/benchmarks/many_rows.py 64 > rows.jsonl
    tandem generate -m qwen2.5-coder-1.5b --jsonl rows.jsonl --out eight.jsonl --parallel 8 --temp 0 -n 128

Owns the texts: 500 tokens for the model named above, requests of 8 to 28.  Measures nothing; the command says its rate.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator

RULES = """You write code for a team that keeps many small programs in one repository. Follow its rules.
Answer with one block of code and at most two sentences after it. Name the language at the beginning of the block.
Names are whole words: `count` and not `cnt`, `customer` and not `cust`. Constants are written in capitals where the
language's own guide asks for that, and otherwise as its standard library writes them.
A function does one thing, takes no more than four arguments, and says in its first comment what comes in, what goes out
and which errors it raises. Numbers that have a unit carry it in their name: `timeout_s`, `size_bytes`, `distance_km`.
Do not use packages from outside the standard library unless the request names one. Where the standard library already
has what is asked for, show how it is used, and add only what is missing.
Check what comes from outside before you use it: files may be absent or empty, lists may hold nothing, numbers may be
negative, text may hold any character of Unicode, and two programs may run at once. Raise an error with a sentence that
says what was found and what was expected; never return a value that only stands for a failure.
Close what you open, with the construct that the language has for it. Do not catch an error that you cannot handle, do
not print from a function that computes, and do not change the arguments that you were given.
Prefer loops that can be read aloud to clever expressions. Do not write a class where a function is enough, nor a
configuration for something that never changes. Leave out everything that was not asked for: no logging, no command
line, no tests, unless the request says so.
Say how time and memory grow with the size of the input if that is not plain from the code. If there are two usual ways
to do it, take the simpler one and name the other in a sentence. If the request leaves something open, choose what most
people would expect and say in one sentence what you chose.
Use four spaces for a level in every language but Go and Makefiles, keep lines below one hundred characters, and end
each file with a new line. Write comments in English, in the present tense, about the reason and not about the syntax.
Dates are written as in ISO 8601 and kept in UTC; money is kept in whole cents and never in floating point.
"""

TASKS = (
    "merges two sorted lists into one",
    "finds the longest word of a text",
    "counts how often each character occurs in a string and prints the five most frequent",
    "reverses a singly linked list in place",
    "checks whether the brackets (), [] and {} in a text are balanced",
    "turns a Roman numeral into a number",
    "removes duplicates from a list but keeps the order in which values occur first",
    "reads a file line by line and returns the lines that hold a given word, with their numbers",
    "computes the greatest common divisor of two numbers",
    "splits a list into pieces of a given length",
    "finds all prime numbers below a limit with a sieve",
    "transposes a matrix that is given as a list of rows",
    "formats a number of bytes for people, such as 1.5 MiB",
    "searches a sorted array by halving",
    "validates an IPv4 address without regular expressions",
    "computes the edit distance of two words",
)

LANGUAGES = ("Python", "Go", "JavaScript", "Java")


def requests() -> Iterator[str]:
    """All there are, the languages taking turns."""
    for turn in range(len(LANGUAGES)):
        for place, task in enumerate(TASKS):
            yield f"Write a {LANGUAGES[(turn + place) % len(LANGUAGES)]} function that {task}."


def main() -> None:
    """Prints that many rows, from one on."""
    most = len(TASKS) * len(LANGUAGES)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int, nargs="?", default=most, choices=range(1, most + 1), metavar="COUNT")
    parser.add_argument("--first", type=int, default=0, help="rows to leave out at the beginning (0)")
    chosen = parser.parse_args()
    for idx, request in list(enumerate(requests()))[chosen.first :][: chosen.count]:
        messages = [{"role": "system", "content": RULES}, {"role": "user", "content": request}]
        print(json.dumps({"id": idx, "messages": messages}))


if __name__ == "__main__":
    main()
