"""What all tests share: the option that rewrites the stories."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-stories", action="store_true", help="rewrite tests/stories/*.txt; refused where CI is set")
