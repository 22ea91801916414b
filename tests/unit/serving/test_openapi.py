"""The OpenAPI document is what requests go through: the same table reads them, and schemathesis finds nothing."""

from __future__ import annotations

import re

import jsonschema_rs
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from served_folders import open_service
from starlette.testclient import TestClient

from regard.serving.app import all_operations, make_app
from regard.serving.fields import Choice, Field, Flag, ListOf, Number, OneOf, Only, Record, Text, Whole
from regard.serving.keys import Keys
from regard.serving.limits import Limits
from regard.serving.refusals import Refused

SMALL = Limits(characters=60, request_characters=300, texts=3, new_tokens=8, beam=4, alternatives=2)
# What a schema cannot say: that there is no detector, what a file must hold, that best_of is at least n, that a text needs a
# word or a mask; which ways of choosing a translation go together.
MORE_THAN_A_SCHEMA = {
    "/translate",
    "/detect",
    "/translate_file",
    "/v1/completions",
    "/v1/classify",
    "/v1/tag",
    "/v1/fill",
    "/v1/embeddings",
}
EVERY = Record(
    (
        Field("text", Text(3, least=1), required=True),
        Field("some", OneOf((Text(2), ListOf(Text(2), 2), ListOf(Whole(0, 5), 2, least=0)))),
        Field("choice", Choice(("a", "b"))),
        Field("folded", Choice(("EN-GB",), fold=True), null=True),
        Field("count", Whole(-2, 5), default=1),
        Field("number", Number(0, 2)),
        Field("flag", Flag(), null=True),
        Field("only", Only(0, "no", "Leave it out")),
        Field("nothing", Only(None, "no", "Leave it out")),
        Field("inner", Record((Field("flag", Flag()),), closed=True)),
    ),
    closed=True,
)
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-4, 8), st.floats(-3, 8, width=16), st.text(st.sampled_from("abEN-Gén\0"), max_size=5),
    st.sampled_from(["a", "b", "EN-GB", "en-gb", 0, 0.0, 5.0]),
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda v: st.one_of(st.lists(v, max_size=3), st.dictionaries(st.sampled_from(["flag", "x"]), v, max_size=1)),
)


@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(st.sampled_from([*(field.name for field in EVERY.fields), "other"]), VALUES, max_size=4),
    st.booleans(),
)
def test_what_is_read_is_what_the_schema_says(value, with_text):
    value = {**value, "text": "ab"} if with_text else value
    read = True
    try:
        EVERY.read(value, "the request")
    except Refused:
        read = False
    assert read == jsonschema_rs.validator_for(EVERY.schema()).is_valid(value)


@pytest.fixture(scope="module")
def app(folders):
    service = open_service(folders, SMALL)
    yield make_app(service)
    service.close()


@pytest.fixture(scope="module")
def schema(app):
    return schemathesis.openapi.from_asgi("/spec", app)


def test_the_document_has_every_operation_and_only_those(client, service):
    document = client.get("/spec").json()
    assert document["openapi"] == "3.1.0"
    table = [op for op in all_operations(service) if op.path in document["paths"]]
    assert {(op.path, op.method.lower()) for op in table} == {
        (path, method) for path, methods in document["paths"].items() for method in methods
    }
    assert {"/translate", "/v2/translate", "/v1/completions", "/v1/embed", "/metrics"} <= set(document["paths"])
    assert "securitySchemes" not in document["components"]
    names = [methods[m]["operationId"] for methods in document["paths"].values() for m in methods]
    assert len(names) == len(set(names))
    languages = document["paths"]["/translate"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert languages["properties"]["source"]["enum"] == ["en", "auto"]
    assert languages["properties"]["q"]["anyOf"][0]["maxLength"] == 20_000


def test_with_keys_the_document_says_so():
    service = open_service({})
    with TestClient(make_app(service, keys=Keys(["right-key"]))) as client:
        document = client.get("/spec", params={"api_key": "right-key"}).json()
        assert document["paths"]["/v2/usage"]["get"]["security"] == [{"deepl": []}]
        assert document["paths"]["/translate"]["post"]["security"] == [{"key": []}]
        assert "security" not in document["paths"]["/health"]["get"]
    service.close()


def test_the_page_of_the_document_asks_nobody_else(client):
    answer = client.get("/docs")
    assert answer.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "POST /v1/completions" in answer.text
    assert not re.findall(r"(?:src|href)=[\"']?(?:https?:)?//", answer.text)


@pytest.mark.parametrize("mode", ["POSITIVE", "NEGATIVE"])
@pytest.mark.parametrize(
    "path",
    ["/translate", "/detect", "/suggest", "/translate_file", "/v2/translate", "/v2/languages", "/v1/completions",
     "/v1/models/{model}", "/v1/classify", "/v1/tag", "/v1/fill", "/v1/embeddings"],
)  # fmt: skip
def test_schemathesis_finds_nothing(schema, path, mode):
    (method,) = schema[path]
    operation = schema[path][method.upper()]
    strategy = operation.as_strategy(generation_mode=getattr(schemathesis.GenerationMode, mode))
    without = []
    if path in MORE_THAN_A_SCHEMA:
        without.append(schemathesis.openapi.checks.RejectedPositiveData)

    @settings(
        max_examples=4, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )  # fmt: skip
    @given(strategy)
    def check(case):
        try:
            case.call_and_validate()
        except schemathesis.core.failures.FailureGroup as group:
            left = [one for one in group.exceptions if not isinstance(one, tuple(without))]
            assert not left, left

    check()
