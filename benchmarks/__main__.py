"""`python -m benchmarks`: the engine beside its peers. See `benchmarks.peers`."""

from benchmarks.peers import main

if __name__ == "__main__":
    main()
