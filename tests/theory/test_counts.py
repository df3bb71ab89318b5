"""Counts: against hand-made answers, published ones, a table of tensors, and their own laws."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferlab.theory import counts, shapes
from inferlab.theory.counts import Sequence, step
from inferlab.theory.shapes import ModelShape

TINY = ModelShape(
    "tiny", n_layers=2, d_model=8, n_heads=4, n_kv_heads=2, head_dim=4, d_ff=24, vocab=32
)


def test_every_operation_of_a_tiny_llama_by_hand():
    """d 8, 4 query and 2 KV heads of 4, MLP 24, vocabulary 32, 2 layers; 3 new tokens after 5.

    Pairs of query and key: 6 + 7 + 8 = 21. Widths: weights 2 bytes, activations 2, KV 1.
    """
    count = step(TINY, [Sequence(3, 5)], weight_dtype="bf16", kv_dtype="fp8")
    flops = {op.name: op.flops for op in count.ops}
    assert flops == {
        "embed": 0,
        "attn_norm": 2 * 3 * (4 * 8 + 2),
        "q": 2 * 2 * 3 * 16 * 8,
        "k": 2 * 2 * 3 * 8 * 8,
        "v": 2 * 2 * 3 * 8 * 8,
        "rope": 2 * 3 * (16 + 8) * 3,
        "cache": 0,
        "scores": 2 * 2 * 4 * 21 * 4,
        "softmax": 2 * 4 * (6 * 21 - 2 * 3),
        "values": 2 * 2 * 4 * 21 * 4,
        "o": 2 * 2 * 3 * 8 * 16,
        "ffn_norm": 2 * 3 * (4 * 8 + 2),
        "gate": 2 * 2 * 3 * 24 * 8,
        "up": 2 * 2 * 3 * 24 * 8,
        "act": 2 * 3 * 24 * 5,
        "down": 2 * 2 * 3 * 8 * 24,
        "residual": 4 * 3 * 8,
        "output_norm": 1 * (4 * 8 + 2),
        "head": 2 * 1 * 32 * 8,
    }
    assert count.flops == sum(flops.values())
    weights = 2 * (2 * 8 + 16 * 8 + 2 * 8 * 8 + 8 * 16 + 3 * 24 * 8) + 8 + 32 * 8
    assert count.weight_bytes == 2 * weights == 2 * TINY.params_streamed
    assert count.kv_read == 2 * 2 * 8 * (5 + 3)
    assert count.kv_written == 2 * 2 * 8 * 3
    assert count.op("q").read_bytes == 2 * 3 * 8 * 2
    assert count.op("q").written_bytes == 2 * 3 * 16 * 2
    assert count.op("embed").read_bytes == 3 * 8 * 2
    assert (count.op("scores").read_bytes, count.op("scores").written_bytes) == (2 * 3 * 16 * 2, 0)
    assert (count.tokens, count.sequences) == (3, 1)
    gate = count.op("gate")
    assert (gate.m, gate.n, gate.k, gate.times) == (3, 24, 8, 2)
    assert gate.bytes == gate.weight_bytes + gate.read_bytes + gate.written_bytes
    assert gate.intensity == gate.flops / gate.bytes


def test_the_source_s_own_numbers():
    """What is inference?, the math: 70e9 parameters, 500 prompt and 500 answer tokens."""
    prefill = counts.rule_of_thumb_flops(70e9, 500)
    decode = counts.rule_of_thumb_flops(70e9, 500)
    assert f"{prefill:.2e} {decode:.2e} {prefill + decode:.2e}" == "7.00e+13 7.00e+13 1.40e+14"


def test_deepseek_v3_as_recounted_elsewhere():
    """Matrix products of DeepSeek-V3's base forward, an independent recount tensor by tensor.

    8192 tokens of prefill with logits at every position and the causal half: 767,753,388,556,288
    FLOP. One token after 8192, keys and values kept expanded as transformers does:
    114,190,598,144 FLOP; ours expands nothing, so the expansion is undone here.
    """
    shape = shapes.get("deepseek-v3")
    assert step(shape, [Sequence(8192)], head="all").matmul_flops == 767_753_388_556_288
    one = step(shape, [Sequence(1)])
    attention = 2 * 61 * 128 * (192 + 128)
    assert one.op("scores_expanded").flops + one.op("values_expanded").flops == attention
    assert one.matmul_flops + 8192 * attention == 114_190_598_144


def test_kaplan_s_forward_flops():
    """2 N + 2 n_layer n_ctx d_attn per token (arXiv 2001.08361, section 2.1), no causal half.

    N counts the layers' matrices. The score-value product and the head are left out there, so of
    ours the scores are compared with theirs, and the layers' matrices with 2 N.
    """
    shape, context = shapes.get("opt-6.7b"), 1024
    count = step(shape, [Sequence(context)], causal_half=False)
    layers = sum(count.op(name).flops for name in ("q", "k", "v", "o", "up", "down"))
    assert layers / context == 2 * 12 * 32 * 4096**2
    assert count.op("scores").flops / context == 2 * 32 * context * 4096
    assert count.op("values").flops == count.op("scores").flops


@pytest.mark.parametrize("name", shapes.names())
def test_weights_read_are_the_tensors_of_the_table(name):
    """Two derivations of one number: operations, and names and shapes of tensors."""
    shape = shapes.get(name)
    # Enough tokens that a fraction of an expert below 1e-9 stays unread.
    count = step(shape, [Sequence(20_000)])
    assert count.weight_bytes == pytest.approx(2 * shape.params_streamed, rel=1e-12)
    one = step(shape, [Sequence(1)])
    looked_up = shape.params - shape.params_streamed
    assert one.weight_bytes == pytest.approx(2 * (shape.params_active - looked_up), rel=1e-12)
    # 2 FLOP per parameter of a matrix that one token passes through.
    products = one.matmul_flops - sum(
        op.flops for op in one.ops if op.name.startswith(("scores", "values"))
    )
    vectors = sum(op.weight_bytes / 2 for op in one.ops if op.weight_bytes and not op.m)
    assert products / 2 + vectors == pytest.approx(shape.params_active - looked_up, rel=1e-12)


WRONG = {
    "KV with query heads": {"n_kv_heads": 32},
    "head_dim halved": {"head_dim": 64},
    "MLP without gate": {"gated_mlp": False},
    "head tied to nothing": {"vocab": 32000},
    "a layer lost": {"n_layers": 31},
}


@pytest.mark.parametrize("fault", WRONG)
def test_planted_faults_change_the_count(fault):
    right = step(shapes.get("llama-3-8b"), [Sequence(1, 1024)])
    wrong = step(replace(shapes.get("llama-3-8b"), **WRONG[fault]), [Sequence(1, 1024)])
    assert wrong.flops != right.flops
    assert wrong.bytes_streamed != pytest.approx(right.bytes_streamed, rel=1e-3)


def test_contracts_of_llama_3_8b():
    shape = shapes.get("llama-3-8b")
    # 2 FLOP per streamed parameter but norms, 4 L H D_h per position attended; the rest by hand.
    norms = 65 * 4096
    products = 2 * (7504924672 - norms)
    for context in (0, 1024):
        attention = 4 * 32 * 4096 * (context + 1)
        rest = (
            65 * (4 * 4096 + 2)  # norms
            + 32 * 3 * (4096 + 1024)  # rotary embedding
            + 32 * 32 * (6 * (context + 1) - 2)  # softmax
            + 32 * 5 * 14336  # silu and product
            + 64 * 4096  # residuals
        )
        assert counts.flops_per_token(shape, context) == products + attention + rest
    assert counts.flops_per_token(shape) == counts.flops_per_token(shape, context=0)
    assert counts.bytes_per_step(shape) == 2 * 7504924672 + 2 * 131072
    by_hand = 2 * 7504924672 + 4 * (1024 + 2) * 131072
    assert counts.bytes_per_step(shape, batch=4, context=1024) == by_hand
    half = counts.bytes_per_step(shape, context=1024, kv_dtype="fp8")
    assert half == 2 * 7504924672 + 1026 * 131072 / 2
    assert counts.bytes_per_step(shape, weight_dtype="fp32") == 4 * 7504924672 + 2 * 131072
    assert counts.bytes_resident(shape, 100) == 2 * 8030261248 + 100 * 131072


def test_quantized_weights_and_another_type_for_the_head():
    """SmolLM2's file: Q4_1 matrices, a Q8_0 table that is embedding and head, F32 norms.

    210 matrices of 106,168,320 elements, 28,311,552 of the table, 35,136 of the norms; the tensors
    of the file hold 96,576,768 bytes.
    """
    shape = shapes.get("smollm2-135m")
    count = step(shape, [Sequence(1)], weight_dtype="q4_1", head_dtype="q8_0", act_dtype="fp32")
    assert count.weight_bytes == 106168320 * 0.625 + 28311552 * 34 / 32 + 35136 * 4 == 96576768
    assert count.op("embed").read_bytes == 576 * 34 / 32


@pytest.mark.parametrize("block", ["q4_0", "q4_1", "q5_0", "q8_0", "q4_k", "q6_k", "int8", "fp8"])
def test_quantized_is_never_more_than_bf16(block):
    for name in ("llama-3-8b", "qwen2.5-0.5b", "mixtral-8x7b", "deepseek-v3"):
        shape = shapes.get(name)
        assert counts.bytes_per_step(shape, 2, 100, block) < counts.bytes_per_step(shape, 2, 100)


def test_experts_touched():
    assert counts.experts_touched(8, 2, 0) == 0
    assert counts.experts_touched(8, 2, 1) == 2
    assert counts.experts_touched(8, 2, 2) == pytest.approx(8 * (1 - 0.75**2))
    assert counts.experts_touched(8, 8, 3) == 8
    # Mixtral at batch 2 reads 3.5 of 8 experts per layer, not the 2 of one token nor 4.
    shape = shapes.get("mixtral-8x7b")
    count = step(shape, [Sequence(1)] * 2)
    assert count.op("expert_up").weight_bytes == pytest.approx(3.5 * 32 * 2 * 4096 * 14336)
    assert count.op("expert_up").flops == 2 * 2 * 32 * 2 * 4096 * 14336
    with pytest.raises(ValueError, match="9 of 8 experts"):
        counts.experts_touched(8, 9, 1)


@pytest.mark.parametrize(("experts", "active", "tokens"), [(4, 2, 3), (5, 1, 4), (6, 4, 2)])
def test_experts_touched_is_the_mean_over_every_draw(experts, active, tokens):
    """Every way to send the tokens to their experts, one by one."""
    choices = list(itertools.combinations(range(experts), active))
    draws = list(itertools.product(choices, repeat=tokens))
    mean = sum(len(set().union(*draw)) for draw in draws) / len(draws)
    assert counts.experts_touched(experts, active, tokens) == pytest.approx(mean, rel=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Sequence(0, 5), "at least one new token"),
        (lambda: Sequence(1, -1), "zero or more cached"),
        (lambda: step(TINY, []), "at least one sequence"),
        (lambda: step(TINY, [Sequence(1)], head="first"), "'last' or at 'all'"),
        (lambda: step(TINY, [Sequence(1)], weight_dtype="int3"), "unknown data type"),
        (lambda: counts.bytes_per_step(TINY, batch=0), "batch=0"),
        (lambda: counts.bytes_resident(TINY, -1), "cached_tokens=-1"),
        (lambda: step(TINY, [Sequence(1)]).op("query"), "no operation 'query'.*scores"),
    ],
)
def test_bad_input_is_explained(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# --- laws -----------------------------------------------------------------------------------------

sequences = st.builds(Sequence, st.integers(1, 300), st.integers(0, 2000))
batches = st.lists(sequences, min_size=1, max_size=5)
families = st.sampled_from(
    [
        shapes.get(name)
        for name in (
            "smollm2-135m",
            "mistral-7b",
            "qwen2.5-0.5b",
            "qwen3-4b",
            "mixtral-8x7b",
            "qwen3-30b-a3b",
            "deepseek-v3",
            "opt-125m",
            "mpt-7b",
            "palm-540b",
        )
    ]  # fmt: skip
)
FIELDS = ("flops", "read_bytes", "written_bytes", "kv_read", "kv_written")
quick = settings(deadline=None, max_examples=60)


@quick
@given(families, batches, st.sampled_from(["last", "all"]), st.booleans())
def test_counts_are_never_negative_and_sums_are_sums(shape, batch, head, half):
    count = step(shape, batch, head=head, causal_half=half)
    for op in count.ops:
        for field in (*FIELDS, "weight_bytes", "m", "n", "k"):
            assert getattr(op, field) >= 0, (op.name, field)
        assert op.times >= 1
        if op.m:
            assert op.flops == 2 * op.m * op.n * op.k * op.times, op.name
    assert count.bytes == count.bytes_read + count.bytes_written
    assert count.matmul_flops <= count.flops
    assert len({op.name for op in count.ops}) == len(count.ops)


@quick
@given(families, batches, st.sampled_from(["last", "all"]), st.booleans())
def test_everything_but_weights_is_additive_over_sequences(shape, batch, head, half):
    whole = step(shape, batch, head=head, causal_half=half)
    parts = [step(shape, [s], head=head, causal_half=half) for s in batch]
    for field in FIELDS:
        assert getattr(whole, field) == pytest.approx(
            sum(getattr(part, field) for part in parts), rel=1e-12
        ), field
    assert whole.weight_bytes <= sum(part.weight_bytes for part in parts) * (1 + 1e-12)
    assert whole.weight_bytes >= max(part.weight_bytes for part in parts) * (1 - 1e-12)


@quick
@given(families, batches, sequences, st.integers(1, 500))
def test_monotone_in_context_and_batch(shape, batch, another, more):
    count = step(shape, batch)
    larger = step(shape, [*batch, another])
    longer = step(shape, [replace(batch[0], past=batch[0].past + more), *batch[1:]])
    for field in (*FIELDS, "weight_bytes"):
        assert getattr(larger, field) >= getattr(count, field) * (1 - 1e-12), field
    for field in ("flops", "kv_read"):
        assert getattr(longer, field) >= getattr(count, field), field
    if not shape.sliding_window:
        assert longer.kv_read > count.kv_read


@quick
@given(st.integers(1, 200), st.integers(0, 400), st.integers(1, 600), st.booleans())
def test_windowed_attention_against_a_mask_drawn_out(new, past, window, half):
    """Every (query, key) position looked at one by one."""
    shape = replace(TINY, sliding_window=window)
    count = step(shape, [Sequence(new, past)], causal_half=half)
    seen, pairs = set(), 0
    for query in range(past, past + new):
        keys = range(max(0, query - window + 1), query + 1)
        seen.update(keys)
        pairs += len(keys)
    if not half:
        pairs = new * len(seen)
    assert count.op("scores").n == pairs
    assert count.kv_read == 2 * 2 * 2 * 8 * len(seen)


@quick
@given(batches, st.booleans())
def test_gqa_with_as_many_kv_heads_is_mha(batch, half):
    """Grouped attention with H = H_kv, against multi-head attention written out."""
    shape = replace(TINY, n_kv_heads=4)
    count = step(shape, batch, causal_half=half)
    tokens = sum(s.new for s in batch)
    pairs = sum(
        s.new * s.past + (s.new * (s.new + 1) // 2 if half else s.new * s.new) for s in batch
    )
    assert count.op("q").flops == count.op("k").flops == count.op("v").flops == 2 * 2 * tokens * 128
    assert count.op("scores").flops + count.op("values").flops == 2 * 4 * 16 * pairs
    assert count.kv_read == 2 * 2 * 2 * 16 * sum(s.past + s.new for s in batch)
    grouped = step(TINY, batch, causal_half=half)
    assert grouped.op("scores").flops == count.op("scores").flops
    assert grouped.kv_read == count.kv_read / 2


@quick
@given(batches, st.integers(1, 8))
def test_moe_with_every_expert_chosen_is_dense(batch, experts):
    """k = E, width f each, against one dense MLP of width E f, up to router and combination."""
    dense = step(replace(TINY, d_ff=experts * 6), batch)
    moe = step(replace(TINY, n_experts=experts, n_experts_active=experts, d_ff_expert=6), batch)
    for name in ("gate", "up", "down"):
        one, other = moe.op(f"expert_{name}"), dense.op(name)
        assert (one.flops, one.weight_bytes) == (other.flops, other.weight_bytes)
    router = moe.op("router")
    assert moe.matmul_flops - router.flops == dense.matmul_flops
    assert moe.weight_bytes - router.weight_bytes == dense.weight_bytes
    assert (moe.kv_read, moe.kv_written) == (dense.kv_read, dense.kv_written)


@quick
@given(families, sequences, st.integers(1, 4))
def test_prefill_in_chunks_needs_the_same_products(shape, sequence, chunks):
    """FLOP of a prompt do not depend on how it is cut; MLA may choose another form per chunk."""
    if shape.kv_lora_rank:
        return
    size = -(-sequence.new // chunks)
    cuts = [
        Sequence(min(size, sequence.new - done), sequence.past + done)
        for done in range(0, sequence.new, size)
    ]
    whole = step(shape, [sequence], head="all")
    assert sum(step(shape, [cut], head="all").flops for cut in cuts) == whole.flops
    assert sum(step(shape, [cut]).kv_written for cut in cuts) == whole.kv_written


@quick
@given(sequences)
def test_latent_attention_takes_the_cheaper_form(sequence):
    shape = shapes.get("deepseek-v3")
    count = step(shape, [sequence])
    names = {op.name for op in count.ops}
    heads, seen = 128, sequence.past + sequence.new
    pairs = sequence.new * sequence.past + sequence.new * (sequence.new + 1) // 2
    expanded = 2 * 61 * (heads * 256 * 512 * seen + heads * (192 + 128) * pairs)
    absorbed = 2 * 61 * (heads * 256 * 512 * sequence.new + heads * (576 + 512) * pairs)
    taken = sum(op.flops for op in count.ops if op.name.startswith(("kv_b", "scores", "values")))
    assert taken == min(expanded, absorbed)
    assert ("scores_expanded" in names) == (expanded <= absorbed)
    assert count.kv_read == 70272 * seen
    assert count.kv_written == 70272 * sequence.new


@quick
@given(families, sequences)
def test_what_is_streamed_is_part_of_what_moves(shape, sequence):
    count = step(shape, [sequence])
    assert count.bytes_streamed == count.weight_bytes + count.kv_read + count.kv_written
    assert count.bytes_streamed <= count.bytes
    assert count.intensity == count.flops / count.bytes
    decode = counts.bytes_per_step(shape, 3, sequence.past)
    assert decode == step(shape, [Sequence(1, sequence.past)] * 3).bytes_streamed


@given(past=st.integers(0, 40), new=st.integers(1, 40), block=st.integers(1, 17))
def test_a_kernel_that_computes_keys_in_blocks(past, new, block):
    """Between the needed pairs and the full square, counted query by query."""
    shape = shapes.get("smollm2-135m")

    def pairs(**how) -> int:
        found = counts.step(shape, [counts.Sequence(new, past)], **how).op("scores")
        return found.flops // (2 * shape.n_layers * shape.n_heads * shape.head_dim)

    by_hand = sum(min(-(-p // block) * block, past + new) for p in range(past + 1, past + new + 1))
    assert pairs(causal_block=block) == by_hand
    assert pairs() == pairs(causal_block=1) <= by_hand <= pairs(causal_half=False)


def test_a_block_of_no_keys_is_refused():
    with pytest.raises(ValueError, match="causal_block=0"):
        counts.step(shapes.get("smollm2-135m"), [counts.Sequence(1)], causal_block=0)
