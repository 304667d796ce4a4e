"""A sandbox for each chat: variables and files stay between messages, and it sleeps in between.

Run it with HUTCH_URL and HUTCH_TOKEN set, as `hutch serve` prints them.
"""
# Prints:
# 42

import hashlib

from hutch import Hutch, Network


def sandbox_id(chat: str) -> str:
    """The id of a chat's sandbox: lower case, and never that of another chat."""
    return "chat-" + hashlib.sha256(chat.encode()).hexdigest()[:32]


def answer(hutch: Hutch, chat: str, code: str) -> str:
    """Run the code of a message, and return what the model needs to see."""
    sandbox = hutch.create(sandbox_id(chat), network=Network(mode="none"), sleep_after=300, timeout=30 * 24 * 3600)
    run = sandbox.run_code(code, timeout=60)
    if run.error:
        return f"{run.error.name}: {run.error.message}"
    return run.stdout + (run.text or "")


if __name__ == "__main__":
    with Hutch() as hutch:
        answer(hutch, "Chat 4711", "x = 40")
        print(answer(hutch, "Chat 4711", "x + 2"))
        hutch.sandbox(sandbox_id("Chat 4711")).destroy()
