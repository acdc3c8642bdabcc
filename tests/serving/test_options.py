"""Prompts and left truncation are asked by the client and by serving.score as by the gateway, or refused by name."""

import asyncio
import json

import pytest
from numpy.testing import assert_allclose, assert_array_equal

from serving.client import AsyncClient, Client
from serving.score.__main__ import ScoringSettings, main
from tests.refusals import refused
from tests.serving.gateway.conftest import cut_left, logits, vector

LONG = "z a b c d e f g h i j k l m n o"


@pytest.fixture
def target_of(fake_server):
    """target_of(kind): the address of a fake model of that kind."""
    return lambda kind: fake_server(kind)[1].target


def test_the_clients_ask_for_options(target_of):
    expected = {
        (): vector(LONG.encode()),
        ("prompt_name",): vector(b"query: " + LONG.encode()),
        ("truncate_left",): vector(cut_left(LONG.encode())),
        ("prompt_name", "truncate_left"): vector(cut_left(b"query: " + LONG.encode())),
    }
    asked = {"prompt_name": "query", "truncate_left": True}

    async def embed(options):
        async with AsyncClient(target_of("prompted embedder"), "default") as client:
            return await client.embed([LONG], **options)

    with Client(target_of("prompted embedder"), "default") as client:
        for names, found in expected.items():
            options = {name: asked[name] for name in names}
            assert_array_equal(client.embed([LONG], **options), [found])
            assert_array_equal(asyncio.run(embed(options)), [found])
    with Client(target_of("optional classifier"), "default") as client:
        answer = client.classify([LONG], truncate_left=True)
        assert_allclose(answer["logits"], [logits([cut_left(LONG.encode())])])
        assert set(answer) == {"classes", "label", "logits", "probabilities"}


def test_the_client_names_the_option_that_a_model_does_not_take(target_of):
    message = r"prompt_name is none of the options of this model \(none\)"
    with Client(target_of("embedder"), "default") as client, refused(message):
        client.embed(["a"], prompt_name="query")
    message = "truncate_left is none of the options"
    with Client(target_of("cross-encoder"), "default") as client, refused(message):
        client.rerank("q", ["a"], truncate_left=True)


def score(target, tmp_path, **options):
    (tmp_path / "in.txt").write_text(f"{LONG}\na\n")
    folder = tmp_path / "out"
    main(
        ScoringSettings(
            model="default", target=target, input=str(tmp_path / "in.txt"), output_dir=str(folder), **options
        )
    )
    lines = [json.loads(line) for line in (folder / "in.jsonl").read_text().splitlines()]
    return lines, json.loads((folder / "manifest.json").read_text())


def test_scoring_asks_for_options(target_of, tmp_path):
    lines, manifest = score(target_of("prompted embedder"), tmp_path, prompt_name="query", truncate_left=True)
    expected = [vector(cut_left(b"query: " + LONG.encode())), vector(b"query: a")]
    assert_allclose([line["embedding"] for line in lines], expected, rtol=1e-6)
    assert manifest["truncated_rows"] == 1 and manifest["job"]["options"]["prompt_name"] == "query"
    # By others it is another job.
    with refused("its options was another"):
        score(target_of("prompted embedder"), tmp_path, prompt_name="passage", truncate_left=True)


@pytest.mark.parametrize(
    "kind, options, message",
    [
        ("embedder", {"prompt_name": "query"}, "--prompt_name: the model has no signature 'with_options'"),
        ("optional classifier", {"prompt_name": "query"}, "--prompt_name is not known to the model; it takes text"),
        (
            "embedder", {"truncate_left": True, "signature": "tokenize"},
            "--truncate_left are for the signature serving_default"
        )
    ]
)  # fmt: skip
def test_scoring_names_what_cannot_be(target_of, tmp_path, kind, options, message):
    with refused(message):
        score(target_of(kind), tmp_path, **options)
