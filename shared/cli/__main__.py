"""`python -m shared.cli`, for children of `b3os dev` that must run with the same interpreter."""

from shared.cli import main

if __name__ == "__main__":
    main()
