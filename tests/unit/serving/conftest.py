"""What the tests of the facades share: a service over the bundled translator and small models."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from served_folders import NAMES, open_service, small_folder
from starlette.testclient import TestClient

from regard.serving.app import make_app
from regard.serving.service import Service


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("served")
    return {name: small_folder(kind, place / name) for name, kind in NAMES.items()}


@pytest.fixture(scope="session")
def service(folders: dict[str, Path]) -> Iterator[Service]:
    found = open_service(folders)
    yield found
    found.close()


@pytest.fixture(scope="session")
def client(service: Service) -> Iterator[TestClient]:
    with TestClient(make_app(service), raise_server_exceptions=False) as found:
        yield found
