"""``python -m headspaces``: a quick look at models without the workflow."""

from headspaces.command_line import main

if __name__ == "__main__":
    raise SystemExit(main())
