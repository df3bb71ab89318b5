"""Prefill is P single steps, a batch is its sequences, the cache changes nothing but the time."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from inferlab.engine import KVCache, decode, forward, generate, load, prefill, sampler
from inferlab.engine.model import Model
from inferlab.theory.shapes import ModelShape, weight_shapes

SHAPE = ModelShape(
    name="small", n_layers=3, d_model=48, n_heads=6, n_kv_heads=2, head_dim=16, d_ff=80, vocab=96,
    qkv_bias=True, max_context=256,
)  # fmt: skip
NOISE = 1e-5  # of the range of the logits; measured: below 3e-6 in fp32


@pytest.fixture(scope="module")
def model() -> Model:
    generator = torch.Generator().manual_seed(3)
    weights = {
        name: torch.ones(size) if "norm" in name else torch.randn(size, generator=generator) * 0.3
        for name, size in weight_shapes(SHAPE).items()
    }
    return Model.create(SHAPE, weights)


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    return float((a - b).abs().max() / (b.max() - b.min())) < NOISE


def written(steps, row: int = 0) -> list[int]:
    return [s.tokens[row] for s in steps]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 95), min_size=2, max_size=40), st.integers(1, 12))
def test_one_pass_is_many_steps_is_chunks(model, tokens, chunk):
    whole = prefill(model, model.cache(1, 64), tokens, head="all")[0]
    cache = model.cache(1, 64)
    single = torch.stack([decode(model, cache, [t])[0] for t in tokens])
    assert cache.lengths == [len(tokens)]
    assert close(single, whole)
    assert close(prefill(model, model.cache(1, 64), tokens, chunk=chunk)[0], whole[-1])


def test_a_step_that_sees_one_token_too_few_would_show(model):
    tokens = list(range(20))
    whole = prefill(model, model.cache(1, 64), tokens)[0]
    short = prefill(model, model.cache(1, 64), tokens[1:])[0]
    assert not close(short, whole)


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 95), min_size=1, max_size=20), min_size=1, max_size=5),
)
def test_a_batch_of_unequal_prompts_is_its_sequences(model, prompts):
    together = list(generate(model, prompts, 8))
    first = prefill(model, model.cache(len(prompts), 64), prompts)
    for row, prompt in enumerate(prompts):
        alone = list(generate(model, prompt, 8))
        assert written(together, row) == written(alone)
        assert close(first[row], alone[0].logits[0])


def test_unequal_sequences_can_bring_unequal_steps(model):
    """A mixed step: one sequence reads five tokens while another decodes one."""
    a, b = [5, 6, 7, 8, 9, 10, 11, 12], [50, 51, 52]
    cache = model.cache(2, 32)
    prefill(model, cache, [a[:3], b[:2]])
    step = torch.tensor([a[3:], [b[2], 0, 0, 0, 0]])
    logits = forward(model, step, cache, new=[5, 1])
    assert cache.lengths == [8, 3]
    for row, prompt in enumerate((a, b)):
        assert close(logits[row], prefill(model, model.cache(1, 32), prompt)[0])


def test_without_a_cache_the_same_tokens(model):
    prompts = [[1, 2, 3, 4, 5], [60, 61]]
    with_cache = list(generate(model, prompts, 12))
    without = list(generate(model, prompts, 12, cache=model.no_cache(2, 32)))
    for row in range(2):
        assert written(with_cache, row) == written(without, row)
    assert close(without[-1].logits, with_cache[-1].logits)


@pytest.mark.slow
def test_the_default_model_without_a_cache(smollm2):
    tokens = smollm2.tokenizer.encode("The capital of France is")
    kept = list(generate(smollm2, tokens, 24))
    again = list(generate(smollm2, tokens, 24, cache=smollm2.no_cache(1, 64)))
    assert written(kept) == written(again)
    assert close(again[-1].logits, kept[-1].logits)


def test_in_bf16_one_pass_and_steps_part_only_at_near_ties(smollm2_path):
    """bf16 keeps 8 bits: the argmax may differ only where the two best lie within the noise."""
    model = load("smollm2-135m", device="cpu", dtype="bf16")
    text = "Inference runs the model forward and changes nothing in it. The prompt is read once."
    tokens = model.tokenizer.encode(text)
    whole = prefill(model, model.cache(1, 128), tokens, head="all")[0].float()
    cache = model.cache(1, 128)
    steps = torch.stack([decode(model, cache, [t])[0].float() for t in tokens])
    noise = (whole - steps).abs().max()
    assert 0 < noise < 0.03 * (whole.max() - whole.min())
    best = whole.topk(2).values
    margin = best[:, 0] - best[:, 1]
    parted = whole.argmax(-1) != steps.argmax(-1)
    assert (margin[parted] <= 2 * noise).all()


def test_passes_are_counted_and_stops_end(model):
    steps = list(generate(model, [1, 2, 3], 6))
    assert [s.phase for s in steps] == ["prefill"] + ["decode"] * 5
    assert [s.new for s in steps] == [(3,)] + [(1,)] * 5
    assert [s.past for s in steps] == [(0,), (3,), (4,), (5,), (6,), (7,)]
    assert steps[-1].ended == (True,)
    third = written(steps)[2]
    stopped = list(generate(model, [1, 2, 3], 6, stop={third}))
    assert written(stopped) == written(steps)[: written(steps).index(third) + 1]


def test_a_sequence_that_ended_shows_no_tokens(model):
    prompts = [[1, 2, 3], [40, 41]]
    free = list(generate(model, prompts, 8))
    stop = free[1].tokens[0]
    steps = list(generate(model, prompts, 8, stop={stop}))
    first = written(free, 0).index(stop)
    assert written(steps, 0)[: first + 1] == written(free, 0)[: first + 1]
    assert all(t is None for t in written(steps, 0)[first + 1 :])


def test_same_seed_same_draws(model):
    def draw(seed):
        return written(generate(model, [1, 2], 20, sampler=sampler(seed, temperature=1.5)))

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


def test_the_cache_counts_its_bytes(model):
    cache = model.cache(2, 40)
    assert cache.nbytes == 40 * 2 * SHAPE.kv_bytes_per_token(dtype="fp32")
    prefill(model, cache, [[1, 2, 3], [4, 5]])
    assert cache.nbytes_used == 5 * SHAPE.kv_bytes_per_token(dtype="fp32")
    assert cache.nbytes == cache.k.numel() * 4 + cache.v.numel() * 4
    cache.clear()
    assert cache.lengths == [0, 0]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda m: list(generate(m, [], 4)), "prompt is empty"),
        (lambda m: list(generate(m, [[1], []], 4)), "prompt is empty"),
        (lambda m: list(generate(m, [1], 0)), "at least 1 token"),
        (lambda m: list(generate(m, [1] * 300, 4)), "shorten the prompt to 256"),
        (lambda m: list(generate(m, [1] * 200, 100)), "at most 57 new tokens"),
        (lambda m: prefill(m, m.cache(1, 8), [1] * 9), "max_tokens=9 or more"),
        (lambda m: prefill(m, m.cache(1, 8), [96]), "outside the vocabulary"),
        (lambda m: prefill(m, m.cache(2, 8), [1]), "1 prompts for a cache of 2"),
        (lambda m: prefill(m, m.cache(1, 8), [1, 2], chunk=0), "chunk"),
        (lambda m: prefill(m, m.cache(2, 8), [[1, 2], [3]], chunk=1), "unequal"),
        (lambda m: forward(m, torch.tensor([[1]]), m.cache(1, 8), head="x"), "'last' or 'all'"),
        (lambda m: m.cache(1, 257), "trained for 256"),
        (lambda m: KVCache(SHAPE, 0, 8), "at least 1"),
        (lambda m: forward(m, torch.tensor([[1]]), m.cache(1, 8), new=[2]), "1 to 1 tokens"),
        (lambda m: prefill(m, m.no_cache(1, 4), [1] * 5), "made for 4 tokens"),
    ],
)
def test_bad_input_is_answered_in_a_sentence(model, call, says):
    with pytest.raises(ValueError, match=says):
        call(model)


def test_the_longest_request_that_fits(model):
    steps = list(generate(model, [1] * 200, 57))
    assert len(steps) == 57


def test_a_step_that_does_not_fit_leaves_the_cache_as_it_was(model):
    cache = model.cache(1, 4)
    prefill(model, cache, [1, 2, 3])
    before = decode(model, _copy(model, cache), [4])
    with pytest.raises(ValueError, match="4 tokens"):
        prefill(model, cache, [4, 5])
    assert cache.lengths == [3]
    assert torch.equal(decode(model, cache, [4]), before)


def _copy(model: Model, cache: KVCache) -> KVCache:
    new = model.cache(cache.batch, cache.max_tokens)
    new.k.copy_(cache.k)
    new.v.copy_(cache.v)
    new.lengths = list(cache.lengths)
    return new
