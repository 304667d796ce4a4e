"""One sandbox is prepared, and copies of it try different things at the same time.

Run it with HUTCH_URL and HUTCH_TOKEN set, as `hutch serve` prints them.
"""
# Prints:
# try 1: 10
# try 2: 20
# try 3: 30

import asyncio

from hutch import AsyncHutch, AsyncSandbox


async def attempt(sandbox: AsyncSandbox, n: int) -> str:
    async with sandbox:
        result = await sandbox.exec(f"echo $(( $(cat base) * {n} ))", check=True)
        return f"try {n}: {result.stdout.strip()}"


async def main() -> None:
    async with AsyncHutch() as hutch, await hutch.create() as sandbox:
        await sandbox.exec("echo 10 > base")
        copies = await sandbox.fork(3)
        for line in await asyncio.gather(*(attempt(copy, n) for n, copy in enumerate(copies, 1))):
            print(line)


asyncio.run(main())
