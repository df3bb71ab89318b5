"""Other people's machines: every published row is mapped or said why not, and predicted unseen."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from inferlab.lab import holdout, published
from inferlab.lab.published import Unmapped
from inferlab.theory import hardware, shapes


@pytest.fixture(scope="module")
def points():
    return published.read()


@pytest.fixture(scope="module")
def mapped(points):
    return published.cases(points)


@pytest.fixture(scope="module")
def cases(mapped):
    return mapped[0]


@pytest.fixture(scope="module")
def held(cases):
    return holdout.leave_one_model_out(cases)


def of(cases, number):
    return next(c for c in cases if c.point.id == number)


def test_every_row_has_a_source_and_is_mapped_or_says_why(points, mapped):
    cases, left = mapped
    assert len(points) == len({p.id for p in points}) == len(cases) + len(left)
    assert all(p.address.startswith("https://") for p in points if p.address)
    assert all(p.source and p.where and p.status for p in points)
    assert all(len(why) > 20 for _, why in left)
    # What is left is no time of a step on a machine and a shape that we know.
    assert len(cases) > 350
    assert {p.source for p, _ in left} & {"TRT-LLM 0.9.0 static batch (NVIDIA DLI)"} == set()


def test_rows_by_hand(cases):
    llama = of(cases, "345")  # TRT-LLM, Llama-2-7B, H100, fp16, batch 8, 2,048 + 128, TTFT
    assert (llama.machine, llama.phase, llama.kind) == ("h100-sxm", "prefill", "step")
    assert (llama.row.batch, llama.row.prompt, llama.seconds) == (8, 2048, 0.39131)
    assert (llama.row.weight_dtype, llama.row.kv_dtype) == ("fp16", "bf16")
    narrow = of(cases, "421")  # the same in fp8, batch 64, TPOT: the middle step sees 2,048 + 63
    assert (narrow.row.context, narrow.row.dtype, narrow.row.kv_dtype) == (2111, "fp8", "fp8")
    assert narrow.row.head_dtype == "fp16"
    assert len(narrow.assumed) == 2
    four_bit = of(cases, "5")  # gpt-fast: 4 bits and a scale and a zero of 16 bits for 32 weights
    # The source states 1097.66 GB/s at 25.25 tokens/s, so its weights are 43.5 GB.
    weights = of(cases, "5").row.shape.params * 20 / 32
    assert four_bit.row.weight_dtype == "q4_1"
    assert weights == pytest.approx(1097.66e9 / 25.25, rel=0.02)
    tokens = of(cases, "82")  # llama.cpp: 512 prompt tokens at 9,382 per second
    assert (tokens.phase, tokens.seconds) == ("prefill", pytest.approx(512 / 9382))
    whole = of(cases, "125")  # 4 requests of 512 + 64 in 4 / 3.2 s: one pass and 63 steps
    assert whole.seconds == pytest.approx(1.25)
    assert [k for k, _ in whole.parts] == [1.0, 63.0]
    loop = of(cases, "560")  # closed loop of 50: ITL carries the reading of the 49 others
    assert [k for k, _ in loop.parts] == [1.0, pytest.approx(49 / 50 / 200)]
    with pytest.raises(ValueError, match="only single steps"):
        _ = loop.row


def test_what_cannot_be_mapped_says_so(points):
    whole = next(p for p in points if p.id == "345")
    for change, message in (
        ({"model": "Orca 7Q"}, "no shape"),
        ({"hw": "abacus"}, "no machine"),
        ({"dtype": "trits"}, "data type"),
        ({"batch": "max"}, "batch is not stated"),
        ({"published": "155 -> 84"}, "more than one number"),
        ({"quantity": "joy"}, "neither the time"),
    ):
        with pytest.raises(Unmapped, match=message):
            published.case(replace(whole, **change))


def test_a_file_with_the_same_columns_is_read(tmp_path, points):
    path = tmp_path / "more.csv"
    path.write_text("id,source,model,hw,n,dtype,batch,prompt,gen,quantity,published,unit\n"
                    "1,me,Llama v2 7B,A100-80,1,fp16,2,64,3,TPOT ms,9.5,ms\n")  # fmt: skip
    ((case,), left) = published.cases(published.read(path))
    assert left == []
    assert (case.shape, case.row.context, case.seconds) == ("llama-2-7b", 64, 0.0095)


def test_faster_than_light_is_found_and_explained(mapped):
    cases, left = mapped
    found = holdout.faster_than_light(cases)
    assert all(ratio > 1 for _, ratio, _ in found)
    assert Counter(c.shape for c, _, _ in found) == {"mixtral-8x7b": 9, "llama-2-13b": 2}
    assert not any(why == "unexplained" for _, _, why in found)
    speculative = holdout.faster_than_weights([p for p, _ in left])
    assert [p.id for p, _, _ in speculative] == ["263", "262"]
    # Planted: the published time read as if it were half, and one that nothing explains.
    fast = of(cases, "345")
    assert holdout.faster_than_light([replace(fast, seconds=fast.seconds / 3)])[0][2] == (
        "unexplained"
    )


def test_a_16_bit_cache_would_outrun_its_bytes(cases):
    """Why the static fp8 rows are taken to hold their KV cache in fp8."""
    narrow = of(cases, "421")
    wide = replace(narrow, parts=((1.0, replace(narrow.row, kv_dtype="fp16")),))
    assert wide.light() > wide.seconds > narrow.light()


def steps(held, phase):
    rows = [h for h in held if h.case.kind == "step" and h.case.phase == phase]
    return np.array([h.error for h in rows])


def median(errors):
    return float(np.median(np.abs(errors)))


def test_a_model_left_out_is_predicted(held):
    """Single steps on one H100 or A100, each by constants fitted to other models alone."""
    assert {h.case.machine for h in held if h.case.kind == "step"} == {"h100-sxm", "a100-80gb-sxm"}
    assert len(steps(held, "decode")) > 40
    assert len(steps(held, "prefill")) > 40
    assert median(steps(held, "decode")) <= 0.08
    assert median(steps(held, "prefill")) <= 0.10
    loops = [h.error for h in held if h.case.kind == "closed loop"]
    assert median(loops) <= 0.12  # requests that share steps: a mapping, and no constant of it


def test_16_bits_are_predicted_from_8(cases):
    found = holdout.fp16_from_fp8(cases)
    assert {h.case.machine for h in found} == {"h100-sxm"}
    assert {h.case.row.weight_dtype for h in found} == {"fp16"}
    assert median(steps(found, "decode")) <= 0.08
    assert median(steps(found, "prefill")) <= 0.10


@pytest.mark.parametrize(
    "fault",
    ["batch forgotten", "two bytes for one", "KV of all heads", "the plain roofline", "one prompt"],
)
def test_planted_faults_miss_the_target(cases, fault):
    """The bars above are not so wide that a wrong prediction passes under them."""
    chosen = [c for c in cases if c.stack == "TensorRT-LLM" and c.machine == "h100-sxm"]
    phase = "prefill" if fault in ("one prompt", "the plain roofline") else "decode"
    bar = 0.10 if phase == "prefill" else 0.08
    if fault == "the plain roofline":
        chosen = [c for c in chosen if c.kind == "step" and c.n_gpus == 1]
        off = [c.light() / c.seconds - 1 for c in chosen if c.phase == phase]
    else:
        held = [h for h in holdout.leave_one_model_out(chosen) if h.case.kind == "step"]
        off = []
        for h in (h for h in held if h.case.phase == phase):
            row = h.case.row
            if fault == "batch forgotten" and row.batch > 1:
                row = replace(row, batch=1)
            elif fault == "two bytes for one" and row.weight_dtype == "fp8":
                row = replace(row, weight_dtype="fp16")
            elif fault == "KV of all heads" and row.batch * row.context > 5e4:
                row = replace(row, shape=replace(row.shape, n_kv_heads=row.shape.n_heads))
            elif fault == "one prompt" and row.batch > 1:
                row = replace(row, batch=1)
            else:
                continue
            wrong = replace(h.case, parts=((1.0, row),))
            off.append(wrong.predicted(h.machine) / h.case.seconds - 1)
    assert len(off) >= 3
    assert median(off) > bar


def test_constants_of_several_gpus(cases):
    chosen = [c for c in cases if c.machine == "h100-sxm" and c.stack == "TensorRT-LLM"]
    machine = holdout.parallel_constants(chosen)
    prefill = machine.constants["prefill", "any"]
    assert 5e10 < prefill.link < 4.5e11  # NVLink 4 gives 450 GB/s each way; NVIDIA H100 datasheet
    dense = [c for c in chosen if c.kind == "step" and c.n_gpus > 1 and c.shape == "llama-2-70b"]
    assert median([c.predicted(machine) / c.seconds - 1 for c in dense]) < 0.08
    with pytest.raises(ValueError, match="one machine"):
        holdout.constants(cases)


def test_the_summary_of_a_group(held):
    (row,) = holdout.summary(held[:9], by=lambda h: "all")
    sizes = np.abs([h.error for h in held[:9]])
    assert row["n"] == 9
    assert row["median"] == pytest.approx(np.median(sizes))
    assert row["low"] <= row["median"] <= row["high"]


def test_ids_are_of_the_tables(cases):
    assert {c.machine for c in cases} <= set(hardware.names())
    assert {c.shape for c in cases} <= set(shapes.names())


@pytest.mark.parametrize(
    ("number", "shape", "elements"),
    [("253", "opt-13b", 0), ("254", "llama-3.1-405b", 0), ("255", "qwen3-4b", 0),
     ("256", "deepseek-v3", 0), ("257", "qwen2.5-72b", 0),
     ("258", None, 2 * 64 * 8192)],  # kipply's 52B: 64 layers, d 8192, every head its own keys
)  # fmt: skip
def test_kv_bytes_per_token_of_the_file(points, number, shape, elements):
    (point,) = (p for p in points if p.id == number)
    kappa = shapes.get(shape).kv_bytes_per_token("fp16") if shape else 2 * elements
    assert kappa == float(point.published)
