# SPDX-License-Identifier: BSD-3-Clause
"""A language model on loom against stock cpu: tokens a second of its prompt and of its answer.

The model is transformers' Llama with random weights, some 125 million of them. Weights are float32,
bfloat16, or int8 and int4 with bfloat16 activations, by ATen's weight-only products. An answer is
greedy: each token is looked at by the host before the next one is computed. Contenders take turns,
an answer each: stock cpu, loom, and loom with the step of a token replayed from a graph, which has
a cache of a fixed size.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import limits
import torch
from measure import SETTLE_SECONDS, describe, table, the_pace
from torch import nn

WEIGHTS = ("float32", "bfloat16", "int8", "int4")
GROUP = 64  # inner elements that share a scale of int4 weights
ROUNDS = 7
PROMPT, ANSWER = 128, 32


class Int8Linear(nn.Module):
    """Weights of a byte, with a scale for each feature."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        scales = linear.weight.abs().amax(1) / 127
        whole = (linear.weight / scales[:, None]).round().to(torch.int8)
        self.weight = nn.Parameter(whole, requires_grad=False)
        self.scales = nn.Parameter(scales.to(torch.bfloat16), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = torch._weight_int8pack_mm(x.flatten(0, -2), self.weight, self.scales)
        return made.view(*x.shape[:-1], -1)


class Int4Linear(nn.Module):
    """Weights of half a byte, with a scale and a zero for each group of inner elements."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        groups = linear.weight.unflatten(1, (-1, GROUP))
        least, most = groups.amin(-1), groups.amax(-1)
        scales = (most - least) / 15
        whole = ((groups - least[..., None]) / scales[..., None]).round().clamp(0, 15)
        packed = torch._convert_weight_to_int4pack_for_cpu(whole.flatten(1).int(), 1)
        self.weight = nn.Parameter(packed, requires_grad=False)
        both = torch.stack([scales, least + 8 * scales], -1).transpose(0, 1).contiguous()
        self.scales = nn.Parameter(both.to(torch.bfloat16), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.flatten(0, -2)
        made = torch._weight_int4pack_mm_for_cpu(rows, self.weight, GROUP, self.scales)
        return made.view(*x.shape[:-1], -1)


def llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=768,
        intermediate_size=2048,
        num_hidden_layers=12,
        num_attention_heads=12,
        num_key_value_heads=4,
        vocab_size=32000,
        max_position_embeddings=2048,
        eos_token_id=None,
        pad_token_id=0,
    )
    return LlamaForCausalLM(config).eval().requires_grad_(False)


def quantized(model: nn.Module, form: Callable[[nn.Linear], nn.Module]) -> nn.Module:
    for name, layer in list(model.named_modules()):
        if isinstance(layer, nn.Linear):
            model.set_submodule(name, form(layer))
    return model


def with_weights(model: nn.Module, weights: str) -> nn.Module:
    model = copy.deepcopy(model)
    if weights in ("int8", "int4"):
        model = quantized(model, Int8Linear if weights == "int8" else Int4Linear)
    return model if weights == "float32" else model.to(torch.bfloat16)


def bytes_of_token(model: nn.Module, length: int) -> int:
    """What is read to make one token behind so many: all weights but the table of tokens' vectors,
    of which one row is read, and the keys and values."""
    table_of_tokens = model.get_input_embeddings().weight
    read = {p.data_ptr(): p.nbytes for p in model.parameters() if p is not table_of_tokens}
    config = model.config
    cached = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * length
    return sum(read.values()) + cached * table_of_tokens.element_size()


class Reader:
    """Reads memory with all cores and does nothing else: what an answer is held against."""

    def __init__(self) -> None:
        streams = limits.compile_streams()
        self._function = None if streams is None else streams["read"]
        self._arrays = limits.huge_arrays(2)
        self._share = limits.BYTES // limits.cores() // 64 * 64
        self._pool = ThreadPoolExecutor(limits.cores())

    def _read(self, *starts: int) -> None:
        if self._function is not None:
            self._function(starts[0], *starts, 0, self._share // 4)

    def rate(self) -> float:
        """Bytes a second; none where there is no compiler."""
        if self._function is None:
            return 0.0
        pointers = [array.data_ptr() for array in self._arrays]
        start = time.perf_counter()
        limits.run_on_threads(self._pool, self._read, pointers, self._share)
        seconds = time.perf_counter() - start
        return len(pointers) * self._share * limits.cores() / seconds


class Answer(NamedTuple):
    """Seconds of the prompt and of all tokens behind the first one, and the tokens."""

    prompt_seconds: float
    seconds: float
    tokens: list[int]


class Contender:
    """A model on a device, which answers prompts."""

    def __init__(self, model: nn.Module, device: str) -> None:
        self.model = copy.deepcopy(model).to(device)
        self.device = device
        self.answers: list[Answer] = []

    @torch.inference_mode()
    def answer(self, prompt: torch.Tensor) -> Answer:
        given = prompt.to(self.device)
        start = time.perf_counter()
        step = self.model(input_ids=given, use_cache=True, logits_to_keep=1)
        token = step.logits[:, -1].argmax(-1, keepdim=True)
        tokens = [token.item()]
        begin = time.perf_counter()
        for _ in range(ANSWER):
            step = self.model(input_ids=token, cache=step.past_key_values, use_cache=True)
            token = step.logits[:, -1].argmax(-1, keepdim=True)
            tokens.append(token.item())
        end = time.perf_counter()
        return Answer(begin - start, end - begin, tokens)

    def prompt_rate(self) -> float:
        return PROMPT / statistics.median(each.prompt_seconds for each in self.answers)

    def token_rate(self) -> float:
        return ANSWER / statistics.median(each.seconds for each in self.answers)

    def tokens(self) -> list[int]:
        return self.answers[-1].tokens


class Replayed(Contender):
    """The step of a token is recorded once, and replayed for each."""

    def __init__(self, model: nn.Module) -> None:
        from transformers import StaticCache

        super().__init__(model, "loom")
        self.cache = StaticCache(config=self.model.config, max_cache_len=PROMPT + ANSWER + 1)
        self.token = torch.zeros(1, 1, dtype=torch.int64, device="loom")
        self.graph = torch.loom.Graph()
        with torch.inference_mode():
            self.step(self.token)  # what is made at the first call is not the graph's
            with torch.loom.graph(self.graph):
                self.step(self.token)

    def step(self, tokens: torch.Tensor) -> None:
        made = self.model(input_ids=tokens, cache=self.cache, use_cache=True, logits_to_keep=1)
        self.token.copy_(made.logits[:, -1].argmax(-1, keepdim=True))

    @torch.inference_mode()
    def answer(self, prompt: torch.Tensor) -> Answer:
        given = prompt.to(self.device)
        start = time.perf_counter()
        self.cache.reset()
        self.step(given)
        tokens = [self.token.item()]
        begin = time.perf_counter()
        for _ in range(ANSWER):
            self.graph.replay()
            tokens.append(self.token.item())
        return Answer(begin - start, time.perf_counter() - begin, tokens)


def measured(model: nn.Module, rounds: int) -> tuple[list[Contender], float | None]:
    contenders = [Contender(model, "cpu"), Contender(model, "loom"), Replayed(model)]
    reader = Reader()
    rates: list[float] = []
    generator = torch.Generator().manual_seed(0)
    prompt = torch.randint(0, model.config.vocab_size, (1, PROMPT), generator=generator)
    for number in range(rounds + 1):
        for contender in contenders:
            time.sleep(SETTLE_SECONDS)
            answer = the_pace().measure(lambda c=contender: c.answer(prompt))
            if number > 0:  # the first warms up
                contender.answers.append(answer)
        time.sleep(SETTLE_SECONDS)
        rates.append(the_pace().measure(reader.rate))
    return contenders, statistics.median(rates) or None


def row(model: nn.Module, weights: str, rounds: int) -> list[str]:
    model = with_weights(model, weights)
    (cpu, loom, replayed), bandwidth = measured(model, rounds)
    read = bytes_of_token(model, PROMPT + ANSWER // 2)

    def share(contender: Contender) -> str:
        moved = read * contender.token_rate()
        part = "" if bandwidth is None else f", {moved / bandwidth:.0%}"
        return f"{moved / 1e9:.1f} GB/s{part}"

    def same(contender: Contender) -> str:
        return str(sum(a == b for a, b in zip(cpu.tokens(), contender.tokens(), strict=True)))

    return [
        weights,
        f"{cpu.prompt_rate():.0f}",
        f"{loom.prompt_rate():.0f}",
        f"{loom.prompt_rate() / cpu.prompt_rate():.2f}",
        f"{cpu.token_rate():.1f}",
        f"{loom.token_rate():.1f}",
        f"{loom.token_rate() / cpu.token_rate():.2f}",
        share(loom),
        f"{replayed.token_rate():.1f}",
        f"{replayed.token_rate() / cpu.token_rate():.2f}",
        share(replayed),
        "" if bandwidth is None else f"{bandwidth / 1e9:.1f} GB/s",
        f"{same(loom)}, {same(replayed)} of {len(cpu.tokens())}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", default=",".join(WEIGHTS), help="some of them, with commas")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    if importlib.util.find_spec("transformers") is None:
        print("\nlanguage: skipped, it needs transformers (pip install 'torch-loom[libraries]')")
        return
    model = llama()
    count = sum(p.numel() for p in model.parameters()) / 1e6
    describe(
        f"a Llama of {count:.0f} M weights: a prompt of {PROMPT} tokens, an answer of {ANSWER}"
        " (loom / cpu: more than 1 is faster than cpu)"
    )
    print(f"  {limits.processor()}")
    rows = [row(model, w, options.rounds) for w in options.weights.split(",")]
    header = ["weights", "prompt, tokens/s: cpu", "loom", "ratio", "answer, tokens/s: cpu", "loom"]
    header += ["ratio", "reads, of memory", "replayed", "ratio", "reads, of memory", "memory has"]
    table([*header, "same tokens"], rows)


if __name__ == "__main__":
    main()
