"""These tests need torch, which only the extra `bench` installs: without it they are not collected."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch") else ["test_*.py"]
