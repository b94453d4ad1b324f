"""The command line: one module a command, found through the table in `commands.py`.

A command module `hkvtool/cli/<name>.py` (a dash becomes `_`, `import` becomes `import_`) has one
typed function `command`, whose docstring is its help, or a `typer.Typer()` named `command` where
it has subcommands. It returns its exit code (or None for 0), raises `HkvError` for what a user
can mend, writes data to stdout and talk to stderr, and imports anything heavy inside the function.
"""
