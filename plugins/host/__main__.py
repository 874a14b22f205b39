"""Makes `python -m plugins.host` the same as the script `kernel`."""

from plugins.host.cli import main

if __name__ == "__main__":
    main()
