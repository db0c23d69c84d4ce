"""The fixtures that every test may ask for."""

pytest_plugins = ("tests.support.servers", "tests.support.database")
