"""`python -m dra_driver` is `dra-driver`."""

from dra_driver import cli

if __name__ == "__main__":
    cli.main()
