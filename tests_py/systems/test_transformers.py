# SPDX-License-Identifier: BSD-3-Clause
"""Hugging Face transformers: GPT-2, Llama and BERT: training, generation, saving, pipelines."""

import copy
import inspect
import os

import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"
transformers = pytest.importorskip("transformers")

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_fallback")]

WORDS = 97
PAD, START, END = 0, 1, 2
ATTENTION = ["eager", "sdpa"]
# The argument and result of models that is their cache: `past_key_values` before 5.24.
FORWARD = inspect.signature(transformers.LlamaForCausalLM.forward)
CACHE = "cache" if "cache" in FORWARD.parameters else "past_key_values"


def gpt2(**options):
    # Weights that are not tiny make texts that do not repeat one word.
    config = transformers.GPT2Config(
        vocab_size=WORDS,
        n_positions=64,
        n_embd=32,
        n_layer=2,
        n_head=4,
        initializer_range=0.3,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        pad_token_id=PAD,
        bos_token_id=START,
        eos_token_id=END,
        loss_type="ForCausalLMLoss",
        **options,
    )
    return transformers.GPT2LMHeadModel(config)


def llama(num_hidden_layers=2, **options):
    config = transformers.LlamaConfig(
        vocab_size=WORDS,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=num_hidden_layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        initializer_range=0.3,
        tie_word_embeddings=True,
        pad_token_id=PAD,
        bos_token_id=START,
        eos_token_id=END,
        **options,
    )
    return transformers.LlamaForCausalLM(config)


def bert(**options):
    config = transformers.BertConfig(
        vocab_size=WORDS,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=PAD,
        **options,
    )
    return transformers.BertForMaskedLM(config)


every_model = pytest.mark.parametrize("make", [gpt2, llama, bert])
every_decoder = pytest.mark.parametrize("make", [gpt2, llama])
every_attention = pytest.mark.parametrize("attention", ATTENTION)


def pair(make, **options):
    """The same model twice: on loom and on cpu."""
    torch.manual_seed(0)
    reference = make(**options)
    return copy.deepcopy(reference).to("loom"), reference


def texts(count=4, length=24):
    """Words and a mask, with texts of different lengths."""
    generator = torch.Generator().manual_seed(1)
    words = torch.randint(3, WORDS, (count, length), generator=generator)
    mask = torch.ones_like(words)
    for row in range(1, count):
        mask[row, length - 4 * row :] = 0
    return words, mask


def loss_and_gradients(model):
    words, mask = (tensor.to(model.device) for tensor in texts())
    labels = words.masked_fill(mask == 0, -100)
    output = model(input_ids=words, attention_mask=mask, labels=labels)
    output.loss.backward()
    return output


def assert_same_gradients(mine, theirs, **tolerance):
    for (name, p), q in zip(mine.named_parameters(), theirs.parameters(), strict=True):
        assert p.grad.device == torch.device("loom", 0)
        torch.testing.assert_close(
            p.grad.cpu(), q.grad, msg=lambda m, name=name: f"{name}: {m}", **tolerance
        )


@every_attention
@every_model
def test_a_training_step_is_the_one_of_the_cpu(make, attention):
    mine, theirs = pair(make, attn_implementation=attention)
    torch.loom.reset_fallbacks()
    output = loss_and_gradients(mine)
    assert torch.loom.fallbacks() == {}
    expected = loss_and_gradients(theirs)
    assert output.loss.is_loom
    assert output.logits.is_loom
    torch.testing.assert_close(output.loss.cpu(), expected.loss)
    torch.testing.assert_close(output.logits.cpu(), expected.logits, rtol=1e-4, atol=1e-4)
    assert_same_gradients(mine, theirs, rtol=1e-4, atol=1e-5)


@every_model
def test_word_weights_stay_tied(make):
    mine, _ = pair(make)
    assert mine.get_output_embeddings().weight is mine.get_input_embeddings().weight
    assert mine.get_output_embeddings().weight.is_loom


@every_model
def test_training_with_adamw_follows_the_cpu(make):
    mine, theirs = pair(make)
    losses = {}
    torch.loom.reset_fallbacks()
    for model in (mine, theirs):
        # The biases of keys have no gradient but for rounding, which a small eps would magnify.
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, eps=1e-5)
        schedule = transformers.get_linear_schedule_with_warmup(optimizer, 2, 8)
        history = []
        for _ in range(6):
            optimizer.zero_grad()
            history.append(loss_and_gradients(model).loss.detach())
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        losses[model.device.type] = torch.stack(history).cpu()
    assert torch.loom.fallbacks() == {}
    assert losses["loom"][-1] < losses["loom"][0]
    torch.testing.assert_close(losses["loom"], losses["cpu"], rtol=1e-4, atol=1e-4)
    for p, q in zip(mine.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p.detach().cpu(), q.detach(), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("offload", [False, True])
@every_decoder
def test_checkpointed_layers_have_the_same_gradients(make, offload):
    mine, theirs = pair(make)
    mine.activation_checkpointing_enable({"use_reentrant": False}, offload=offload)
    mine.train()
    theirs.train()
    loss_and_gradients(mine)
    loss_and_gradients(theirs)
    assert_same_gradients(mine, theirs, rtol=1e-4, atol=1e-5)


@every_attention
@every_model
def test_a_step_under_autocast(make, attention):
    mine, theirs = pair(make, attn_implementation=attention)
    torch.loom.reset_fallbacks()
    with torch.autocast("loom", dtype=torch.bfloat16):
        output = loss_and_gradients(mine)
    assert torch.loom.fallbacks() == {}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = loss_and_gradients(theirs)
    assert output.logits.dtype == torch.bfloat16
    assert all(p.grad.dtype == torch.float32 for p in mine.parameters())
    torch.testing.assert_close(output.loss.cpu(), expected.loss, rtol=0.02, atol=0.02)


GREEDY = {
    "with cache": {},
    "without cache": {"use_cache": False},
    "static cache": {"cache_implementation": "static"},
    "three beams": {"num_beams": 3},
    "penalties": {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2, "min_new_tokens": 4},
}


@pytest.mark.parametrize("how", GREEDY)
@every_attention
@every_decoder
def test_generated_texts_are_those_of_the_cpu(make, attention, how):
    found = []
    words, mask = texts(count=3, length=12)
    prompt, mask = words.flip(1), mask.flip(1)  # padded on the left, as decoders want it
    torch.loom.reset_fallbacks()
    for model in pair(make, attn_implementation=attention):
        model.eval()
        found.append(
            model.generate(
                prompt.to(model.device),
                attention_mask=mask.to(model.device),
                max_new_tokens=12,
                do_sample=False,
                **GREEDY[how],
            )
        )
    assert torch.loom.fallbacks() == {}
    mine, theirs = found
    assert mine.is_loom
    assert mine.cpu().tolist() == theirs.tolist()
    assert mine[:, prompt.shape[1] :].unique().numel() > 6  # otherwise the test shows nothing


@every_decoder
def test_sampled_texts_depend_on_the_seed_only(make):
    model, _ = pair(make)
    model.eval()
    prompt = texts(count=2, length=6)[0].to("loom")

    def sample(seed):
        torch.manual_seed(seed)
        with torch.no_grad():
            return model.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                max_new_tokens=16,
                do_sample=True,
                temperature=1.5,
                top_k=40,
                top_p=0.95,
            ).tolist()

    assert sample(5) == sample(5)
    assert sample(5) != sample(6)


def test_the_cache_lives_on_loom():
    model, _ = pair(llama)
    words = texts(count=1, length=6)[0].to("loom")
    with torch.no_grad():
        first = model(words[:, :5], use_cache=True)
        second = model(words[:, 5:], **{CACHE: first[CACHE]})
        whole = model(words)
    assert first[CACHE].layers[0].keys.is_loom
    torch.testing.assert_close(second.logits, whole.logits[:, 5:], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("cache", ["offloaded", "offloaded_static"])
@every_decoder
def test_texts_with_a_cache_on_the_host_are_those_of_the_cpu(make, cache):
    mine, theirs = pair(make)
    words = texts(count=3, length=12)[0]
    options = {"max_new_tokens": 40, "do_sample": False}
    found = mine.eval().generate(words.to("loom"), cache_implementation=cache, **options)
    assert found.is_loom
    assert found.tolist() == theirs.eval().generate(words, **options).tolist()


def test_layers_of_an_offloaded_cache_wait_on_the_host():
    model, _ = pair(lambda: llama(num_hidden_layers=4))
    words = texts(count=2, length=12)[0].to("loom")
    with torch.no_grad():
        cache = transformers.DynamicCache(offloading=True)
        for part in words.split(4, 1):
            found = model(part, **{CACHE: cache}).logits
        # The first one is fetched ahead for the next step.
        assert [layer.keys.device.type for layer in cache.layers] == ["loom", "cpu", "cpu", "cpu"]
        expected = model(words).logits[:, -4:]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


LOADING = {
    "auto": lambda cls, path: cls.from_pretrained(path, device_map="auto", max_memory={0: "1GB"}),
    "to": lambda cls, path: cls.from_pretrained(path).to("loom"),
    "device_map": lambda cls, path: cls.from_pretrained(path, device_map="loom"),
    "device_map by module": lambda cls, path: cls.from_pretrained(path, device_map={"": "loom:0"}),
    "default device": None,
}


@pytest.mark.parametrize("how", LOADING)
@every_model
def test_saved_models_load_onto_loom(make, how, tmp_path):
    if how != "to":
        pytest.importorskip("accelerate")
    mine, theirs = pair(make)
    mine.save_pretrained(tmp_path)
    if how == "default device":
        with torch.device("loom"):
            loaded = type(mine).from_pretrained(tmp_path)
    else:
        loaded = LOADING[how](type(mine), tmp_path)
    assert loaded.device == torch.device("loom", 0)
    assert loaded.get_output_embeddings().weight is loaded.get_input_embeddings().weight
    words, mask = texts()
    with torch.no_grad():
        found = loaded(words.to("loom"), attention_mask=mask.to("loom")).logits
        expected = theirs.eval()(words, attention_mask=mask).logits
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-4)


SHARED = {
    "auto": {},
    "balanced": {"device_map": "balanced"},
    "a device and the host": {"max_memory": {0: "70KB", "cpu": "1GB"}},
    "a device and the disk": {"max_memory": {0: "70KB"}, "offload_folder": "offloaded"},
}


@pytest.mark.parametrize("how", SHARED)
def test_models_that_are_shared_out_compute_what_the_cpu_does(how, tmp_path):
    pytest.importorskip("accelerate")
    mine, theirs = pair(lambda: llama(num_hidden_layers=6))
    mine.save_pretrained(tmp_path)
    options = {"device_map": "auto", **SHARED[how]}
    if "offload_folder" in options:
        options["offload_folder"] = tmp_path / options["offload_folder"]
    loaded = type(mine).from_pretrained(tmp_path, **options)
    places = {str(p.device) for p in loaded.parameters()}
    assert places == ({"loom:0", "meta"} if "max_memory" in options else {"loom:0", "loom:1"})
    words = texts()[0]
    options = {"max_new_tokens": 6, "do_sample": False}
    found = loaded.generate(words.to("loom"), **options)
    assert found.tolist() == theirs.eval().generate(words, **options).tolist()


def test_memory_that_is_kept_for_reuse_is_shared_out():
    accelerate = pytest.importorskip("accelerate")
    integration = pytest.importorskip("transformers.integrations.accelerate")
    torch.empty(2**26, device="loom").zero_()
    kept = torch.accelerator.memory_reserved() - torch.accelerator.memory_allocated()
    assert kept >= 2**28
    more = integration.get_max_memory()[0] - accelerate.utils.get_max_memory()[0]
    assert kept - 2**27 < more < kept + 2**27  # the host's memory changes between the two


def test_loading_in_half_precision(tmp_path):
    pair(llama)[0].save_pretrained(tmp_path)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, dtype=torch.bfloat16, device_map="loom"
    )
    assert {(p.dtype, p.device.type) for p in loaded.parameters()} == {(torch.bfloat16, "loom")}
    assert loaded(texts()[0].to("loom")).logits.isfinite().all()


PLACES = {None: "loom:0", 0: "loom:0", 1: "loom:1", "loom:1": "loom:1", "cpu": "cpu", -1: "cpu"}


@pytest.mark.parametrize("device", PLACES)
def test_a_pipeline_generates_text(device):
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary = {f"w{number}": number for number in range(WORDS)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="w3"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="w0", bos_token="w1", eos_token="w2"
    )
    _, model = pair(gpt2)
    found = []
    for place in (device, "cpu"):
        pipe = transformers.pipeline("text-generation", model, tokenizer=fast, device=place)
        found.append(pipe(["w5 w6 w7", "w8 w9 w10"], do_sample=False, max_new_tokens=8))
        where = torch.device(PLACES[place])
        assert pipe.device == where
        assert model.device == where
    assert found[0] == found[1]
