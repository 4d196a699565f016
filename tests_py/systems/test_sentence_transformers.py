# SPDX-License-Identifier: BSD-3-Clause
"""Sentence Transformers: models on loom unasked, embeddings of the cpu, training, pools."""

import os

import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"
pytest.importorskip("sentence_transformers")

from sentence_transformers import SentenceTransformer, util
from sentence_transformers.sentence_transformer.modules import Dense, StaticEmbedding

tokenizers = pytest.importorskip("tokenizers")

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_fallback")]

TEXTS = [f"w{a} w{(5 * a) % 40} w{(7 * a) % 40}" for a in range(24)]


def make_model(**options):
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({f"w{number}": number for number in range(40)}, unk_token="w0")
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    torch.manual_seed(0)
    modules = [StaticEmbedding(tokenizer, embedding_dim=16), Dense(16, 8)]
    return SentenceTransformer(modules=modules, **options)


PLACES = {None: "loom:0", "loom:1": "loom:1", "cpu": "cpu"}


@pytest.mark.parametrize("device", PLACES)
def test_models_are_where_they_should_be(device):
    model = make_model(device=device)
    assert {str(p.device) for p in model.parameters()} == {PLACES[device]}
    assert model.encode(TEXTS[:2], convert_to_tensor=True).device == torch.device(PLACES[device])


def test_the_rank_of_a_process_chooses_the_device(monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert make_model().device == torch.device("loom", 1)
    monkeypatch.setenv("LOCAL_RANK", "2")
    assert make_model().device == torch.device("loom", 0)


def test_embeddings_are_those_of_the_cpu():
    mine, theirs = make_model(), make_model(device="cpu")
    found = mine.encode(TEXTS, batch_size=5)
    expected = theirs.encode(TEXTS, batch_size=5)
    torch.testing.assert_close(torch.from_numpy(found), torch.from_numpy(expected))


def test_searches_find_what_the_cpu_finds():
    hits = []
    for options in ({}, {"device": "cpu"}):
        embeddings = make_model(**options).encode(TEXTS, convert_to_tensor=True)
        hits.append(util.semantic_search(embeddings[:4], embeddings, top_k=3))
    for mine, theirs in zip(*hits, strict=True):
        assert [hit["corpus_id"] for hit in mine] == [hit["corpus_id"] for hit in theirs]


def test_training_follows_the_cpu():
    found = []
    for options in ({}, {"device": "cpu"}):
        model = make_model(**options)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
        targets = torch.linspace(-1, 1, 12, device=model.device)
        losses = []
        for _ in range(5):
            pairs = [
                model({k: v.to(model.device) for k, v in model.preprocess(part).items()})
                for part in (TEXTS[:12], TEXTS[12:])
            ]
            left, right = (pair["sentence_embedding"] for pair in pairs)
            loss = (util.pairwise_cos_sim(left, right) - targets).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        found.append(torch.stack(losses))
    assert found[0].is_loom
    assert found[0][-1] < found[0][0]
    torch.testing.assert_close(found[0].cpu(), found[1], rtol=1e-3, atol=1e-4)


def test_a_pool_has_a_process_for_each_device(monkeypatch):
    model = make_model()
    started = []
    monkeypatch.setattr(
        SentenceTransformer,
        "_multi_process_worker",
        staticmethod(lambda device, *rest: started.append(device)),
    )
    monkeypatch.setattr("multiprocessing.context.SpawnProcess.start", lambda self: self.run())
    model.start_multi_process_pool()
    model.start_multi_process_pool(["cpu"])
    assert started == ["loom:0", "loom:1", "cpu"]
