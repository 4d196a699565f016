# SPDX-License-Identifier: BSD-3-Clause
"""Hugging Face Trainer: loom unasked, bf16, torch_compile, accumulation, checkpoints, resuming."""

import os

import pytest
import torch
import torch._inductor.metrics
from torch.utils.data import Dataset

os.environ["HF_HUB_OFFLINE"] = "1"
transformers = pytest.importorskip("transformers")
accelerate = pytest.importorskip("accelerate")

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_fallback")]

WORDS = 53


@pytest.fixture(autouse=True)
def forget_the_last_accelerator():
    """accelerate keeps the device and the precision of a process for good."""
    yield
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerate.state.GradientState._reset_state()


class Texts(Dataset):
    """Texts that count upwards: easy to learn."""

    def __init__(self, count=32, length=16):
        starts = torch.randint(WORDS, (count, 1), generator=torch.Generator().manual_seed(2))
        self.words = (starts + torch.arange(length)) % WORDS

    def __len__(self):
        return len(self.words)

    def __getitem__(self, index):
        return {"input_ids": self.words[index], "labels": self.words[index]}


def make_model():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=WORDS,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=32,
        tie_word_embeddings=True,
    )
    return transformers.LlamaForCausalLM(config)


class Watch(transformers.TrainerCallback):
    """Notes where a trainer's model is at each step."""

    def __init__(self):
        self.devices = set()

    def on_step_end(self, args, state, control, model=None, **more):
        self.devices |= {p.device for p in model.parameters()}


def make_trainer(folder, model=None, **options):
    options = {
        "per_device_train_batch_size": 8,
        "learning_rate": 5e-3,
        "num_train_epochs": 3,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        **options,
    }
    trainer = transformers.Trainer(
        model=model or make_model(),
        args=transformers.TrainingArguments(output_dir=str(folder), **options),
        train_dataset=Texts(),
        eval_dataset=Texts(8),
    )
    trainer.add_callback(Watch())
    return trainer


def losses(trainer):
    return torch.tensor([entry["loss"] for entry in trainer.state.log_history if "loss" in entry])


def devices(trainer):
    return trainer.pop_callback(Watch).devices


def train_on_cpu(folder, **options):
    trainer = make_trainer(folder, use_cpu=True, **options)
    trainer.train()
    assert devices(trainer) == {torch.device("cpu")}
    return trainer


def test_arguments_choose_loom():
    arguments = transformers.TrainingArguments("unused", report_to=[])
    assert arguments.device == torch.device("loom", 0)
    assert arguments.n_gpu == 0


@pytest.mark.parametrize(
    "names", ["Trainer, TrainingArguments", "TrainingArguments, Trainer"], ids=["a", "b"]
)
def test_torch_need_not_be_imported_first(names, check, tmp_path):
    done = check(
        f"""
        from transformers import {names}
        print(TrainingArguments({str(tmp_path)!r}, bf16=True, report_to=[]).device)
        """
    )
    assert done.out.split() == ["loom:0"]


@pytest.mark.parametrize("name", ["cpu", "loom:1"])
def test_the_variable_of_accelerate_comes_first(name, monkeypatch):
    monkeypatch.setenv("ACCELERATE_TORCH_DEVICE", name)
    arguments = transformers.TrainingArguments("unused", report_to=[])
    assert arguments.device == torch.device(name)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_training_follows_the_cpu(tmp_path, accumulate):
    options = {"gradient_accumulation_steps": accumulate}
    trainer = make_trainer(tmp_path, **options)
    torch.loom.reset_fallbacks()
    trainer.train()
    assert torch.loom.fallbacks() == {}
    assert devices(trainer) == {torch.device("loom", 0)}
    expected = train_on_cpu(tmp_path, **options)
    assert len(losses(trainer)) == 12 // accumulate
    assert losses(trainer)[-1] < losses(trainer)[0] - 0.5
    torch.testing.assert_close(losses(trainer), losses(expected), rtol=2e-3, atol=2e-3)
    for p, q in zip(trainer.model.parameters(), expected.model.parameters(), strict=True):
        torch.testing.assert_close(p.detach().cpu(), q.detach(), rtol=1e-2, atol=1e-3)


def test_training_in_mixed_precision(tmp_path):
    trainer = make_trainer(tmp_path, bf16=True)
    seen = set()
    layer = trainer.model.model.layers[0].mlp.gate_proj
    layer.register_forward_hook(lambda _, __, output: seen.add((output.device.type, output.dtype)))
    trainer.train()
    assert seen == {("loom", torch.bfloat16)}
    assert devices(trainer) == {torch.device("loom", 0)}
    assert {p.dtype for p in trainer.model.parameters()} == {torch.float32}
    expected = train_on_cpu(tmp_path, bf16=True)
    torch.testing.assert_close(losses(trainer), losses(expected), rtol=0.05, atol=0.05)


def test_evaluation_and_prediction(tmp_path):
    trainer = make_trainer(tmp_path, eval_strategy="epoch")
    trainer.train()
    loss = trainer.evaluate()["eval_loss"]
    predictions = trainer.predict(Texts(8)).predictions
    model = trainer.model.cpu().eval()
    words = Texts(8).words
    with torch.no_grad():
        expected = model(input_ids=words, labels=words)
    assert loss == pytest.approx(expected.loss.item(), rel=1e-3)
    logits = predictions[0] if isinstance(predictions, tuple) else predictions
    torch.testing.assert_close(torch.from_numpy(logits), expected.logits, rtol=1e-3, atol=1e-3)


def test_resumed_training_ends_where_unbroken_training_does(tmp_path):
    options = {"save_strategy": "steps", "save_steps": 5, "lr_scheduler_type": "cosine"}
    whole = make_trainer(tmp_path / "run", **options)
    whole.train()
    resumed = make_trainer(tmp_path / "run", **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-5"))
    assert devices(resumed) == {torch.device("loom", 0)}
    assert resumed.state.global_step == whole.state.global_step == 12
    assert len(losses(resumed)) == 12
    for p, q in zip(resumed.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(p.detach().cpu(), q.detach().cpu())


def test_a_saved_model_is_loaded_again(tmp_path):
    trainer = make_trainer(tmp_path, max_steps=2)
    trainer.train()
    trainer.save_model(tmp_path / "final")
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "final")
    assert loaded.get_output_embeddings().weight is loaded.get_input_embeddings().weight
    for p, q in zip(trainer.model.parameters(), loaded.parameters(), strict=True):
        assert p.is_loom
        assert torch.equal(p.detach().cpu(), q.detach())


@pytest.mark.parametrize("optimizer", ["adamw_torch_fused", "adafactor", "sgd"])
def test_other_optimizers(tmp_path, optimizer):
    options = {"optim": optimizer, "max_steps": 4}
    trainer = make_trainer(tmp_path, **options)
    trainer.train()
    expected = train_on_cpu(tmp_path, **options)
    torch.testing.assert_close(losses(trainer), losses(expected), rtol=2e-3, atol=2e-3)


def test_training_in_fp16_with_a_scaler(tmp_path):
    trainer = make_trainer(tmp_path, fp16=True)
    seen = set()
    layer = trainer.model.model.layers[0].mlp.gate_proj
    layer.register_forward_hook(lambda _, __, output: seen.add((output.device.type, output.dtype)))
    trainer.train()
    assert seen == {("loom", torch.float16)}
    assert trainer.accelerator.scaler.is_enabled()
    assert {p.dtype for p in trainer.model.parameters()} == {torch.float32}
    expected = train_on_cpu(tmp_path)
    torch.testing.assert_close(losses(trainer), losses(expected), rtol=0.03, atol=0.03)


def test_resumed_training_draws_the_random_numbers_of_unbroken_training(tmp_path):
    def start(**options):
        trainer = make_trainer(tmp_path, num_train_epochs=2, seed=5, **options)
        trainer.model.model.embed_tokens.register_forward_hook(
            lambda _, __, output: torch.nn.functional.dropout(output, 0.3)
        )
        return trainer

    whole = start(save_strategy="epoch")
    whole.train()
    torch.manual_seed(99)  # what else the process draws before it resumes
    resumed = start()
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    assert resumed.state.global_step == whole.state.global_step == 8
    for p, q in zip(resumed.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(p.detach().cpu(), q.detach().cpu())


def test_a_model_on_several_devices_is_trained(tmp_path):
    make_model().save_pretrained(tmp_path)
    places = {"embed_tokens": 0, "rotary_emb": 0, "layers.0": 0, "layers.1": 1, "norm": 1}
    places = {f"model.{name}": place for name, place in places.items()}
    model = transformers.LlamaForCausalLM.from_pretrained(
        tmp_path, device_map={**places, "lm_head": 0}
    )
    assert {str(p.device) for p in model.parameters()} == {"loom:0", "loom:1"}
    trainer = make_trainer(tmp_path, model=model)
    trainer.train()
    assert devices(trainer) == {torch.device("loom", 0), torch.device("loom", 1)}
    expected = train_on_cpu(tmp_path)
    torch.testing.assert_close(losses(trainer), losses(expected), rtol=2e-3, atol=2e-3)


@pytest.fixture
def nothing_compiled():
    torch._dynamo.reset()
    torch._inductor.metrics.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.usefixtures("nothing_compiled")
@pytest.mark.filterwarnings(
    # Compiling imports modules that are written with torch.jit.
    r"ignore:`torch.jit.\w+` is deprecated:DeprecationWarning",
)
@pytest.mark.parametrize(
    "options",
    [{}, {"bf16": True}, {"torch_compile_mode": "reduce-overhead"}],
    ids=["default", "bf16", "reduce_overhead"],
)
def test_compiled_training_follows_the_cpu(tmp_path, options):
    trainer = make_trainer(tmp_path, torch_compile=True, **options)
    assert trainer.args.torch_compile_backend == "inductor"
    trainer.train()
    assert torch._inductor.metrics.generated_kernel_count > 0
    assert devices(trainer) == {torch.device("loom", 0)}
    expected = train_on_cpu(tmp_path, bf16=options.get("bf16", False))
    tolerance = 0.05 if "bf16" in options else 2e-3
    torch.testing.assert_close(losses(trainer), losses(expected), rtol=tolerance, atol=tolerance)
    loss = trainer.evaluate()["eval_loss"]
    model, words = trainer.model.cpu().eval(), Texts(8).words
    with torch.no_grad():
        expected = model(input_ids=words, labels=words).loss.item()
    assert loss == pytest.approx(expected, rel=0.02 if "bf16" in options else 1e-3)


@pytest.mark.usefixtures("nothing_compiled")
@pytest.mark.filterwarnings(r"ignore:`torch.jit.\w+` is deprecated:DeprecationWarning")
def test_a_compiled_training_is_saved_without_traces_of_it(tmp_path):
    trainer = make_trainer(tmp_path, torch_compile=True, max_steps=2)
    trainer.train()
    trainer.save_model(tmp_path / "final")
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "final")
    for p, q in zip(trainer.model.parameters(), loaded.parameters(), strict=True):
        assert torch.equal(p.detach().cpu(), q.detach())
