"""An agent's code interpreter: state, files and figures, with output while the code runs.

Run it with HUTCH_URL and HUTCH_TOKEN set, as `hutch serve` prints them.
"""
# Prints:
# reading
# total: 42
# the last value is 42
# NameError: name 'missing' is not defined

from hutch import Hutch

with Hutch() as hutch, hutch.create(labels={"example": "code-interpreter"}) as sandbox:
    sandbox.write_file("numbers.txt", "\n".join(["12", "14", "16"]))
    first = """
print("reading", flush=True)
numbers = [int(line) for line in open("numbers.txt")]
print("total:", sum(numbers))
"""
    sandbox.run_code(first, on_output=lambda output: print(output.text, end=""))
    print("the last value is", sandbox.run_code("sum(numbers)").text)
    failed = sandbox.run_code("missing + 1")
    if failed.error:
        print(f"{failed.error.name}: {failed.error.message}")
