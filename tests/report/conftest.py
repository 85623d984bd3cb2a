"""Models whose every number can be checked by hand."""

import dataclasses

import pytest
from support.tiny_results import SHAPE, overlaps, tiny_model

from headspaces.report.results import ModelResults


@pytest.fixture
def model():
    return tiny_model()


@pytest.fixture
def observed(model):
    return dataclasses.replace(model, nulls=None)


@pytest.fixture
def writes_only():
    kept = {name: array for name, array in overlaps().items() if "/O/" in name}
    return ModelResults("writes", SHAPE, kept)
