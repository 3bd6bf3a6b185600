"""Reference writings that the benchmarks compare with; not part of the installed package."""
