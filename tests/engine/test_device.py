"""Which device and which type, on every kind of machine: made-up facts, the real rule."""

import pytest
import torch

from inferlab.engine import device as devices
from inferlab.engine.device import Facts, Gpu, pick_device, pick_dtype

T4, A100 = Gpu("Tesla T4", (7, 5)), Gpu("NVIDIA A100-SXM4-80GB", (8, 0))
V100, H100 = Gpu("Tesla V100-SXM2-16GB", (7, 0)), Gpu("NVIDIA H100", (9, 0))
NOTHING = Facts()
MAC = Facts(mps=True, mps_bf16=True)
OLD_MAC = Facts(mps=True, mps_bf16=False)
CPU, CUDA, MPS = (torch.device(name) for name in ("cpu", "cuda", "mps"))


@pytest.mark.parametrize(
    ("have", "expected"),
    [
        (NOTHING, "cpu"),
        (MAC, "mps"),
        (Facts(gpus=(T4,), built_for="CUDA"), "cuda"),
        (Facts(gpus=(A100,), mps=True), "cuda"),
    ],
)
def test_auto_takes_the_best_device(have, expected):
    assert pick_device("auto", have) == torch.device(expected)


@pytest.mark.parametrize("wish", ["cpu", CPU])
def test_a_wish_that_can_be_met(wish):
    assert pick_device(wish, Facts(gpus=(A100,))) == CPU
    assert pick_device("cuda:1", Facts(gpus=(A100, H100))) == torch.device("cuda:1")
    assert pick_device("mps", MAC) == MPS


@pytest.mark.parametrize(
    ("wish", "have", "words"),
    [
        (
            "cuda",
            NOTHING,
            "cuda was asked for and this torch was built without CUDA.*here are: cpu",
        ),
        ("cuda", Facts(built_for="CUDA"), "torch, built for CUDA, finds no GPU or no driver"),
        ("cuda", Facts(built_for="ROCm"), "torch, built for ROCm, finds no GPU"),
        ("cuda", MAC, "here are: mps, cpu"),
        ("cuda:1", Facts(gpus=(A100,)), r"only cuda:0 \(NVIDIA A100-SXM4-80GB\)"),
        ("mps", NOTHING, "mps was asked for and is not here: it takes a Mac"),
        ("tpu", NOTHING, "unknown device 'tpu': the engine runs on 'cpu', 'cuda'"),
        ("meta", NOTHING, "unknown device 'meta'"),
        ("cuda:x", Facts(gpus=(A100,)), "unknown device 'cuda:x'"),
    ],
)
def test_a_wish_that_cannot_be_met(wish, have, words):
    with pytest.raises(ValueError, match=words):
        pick_device(wish, have)


@pytest.mark.parametrize(
    ("device", "have", "expected"),
    [
        (CPU, NOTHING, "fp32"),
        (CPU, Facts(cpu_bf16=True), "bf16"),
        (CUDA, Facts(gpus=(V100,)), "fp16"),
        (CUDA, Facts(gpus=(T4,)), "fp16"),
        (CUDA, Facts(gpus=(A100,)), "bf16"),
        (CUDA, Facts(gpus=(H100,)), "bf16"),
        (torch.device("cuda:1"), Facts(gpus=(A100, T4)), "fp16"),
        (MPS, MAC, "fp16"),
        (MPS, OLD_MAC, "fp16"),
    ],
)
def test_auto_takes_the_type_that_suits_the_device(device, have, expected):
    assert pick_dtype("auto", device, have) == devices.DTYPES[expected]


@pytest.mark.parametrize(
    ("wish", "expected"),
    [("fp32", torch.float32), ("float32", torch.float32), ("BF16", torch.bfloat16),
     ("torch.bfloat16", torch.bfloat16), (torch.float16, torch.float16), ("half", torch.float16)],
)  # fmt: skip
def test_every_spelling_of_a_type(wish, expected):
    assert pick_dtype(wish, CPU, NOTHING) == expected
    assert devices.DTYPES[devices.short_name(expected)] == expected


@pytest.mark.parametrize("wish", ["int8", "q4_0", "fp64", torch.float64, None, ""])
def test_an_unknown_type(wish):
    with pytest.raises(ValueError, match="unknown data type .* computes in fp32, bf16, fp16"):
        pick_dtype(wish, CPU, NOTHING)


@pytest.mark.parametrize(("gpu", "version"), [(T4, "7.5"), (V100, "7.0")])
def test_bf16_on_a_gpu_without_it(gpu, version):
    have = Facts(gpus=(gpu,), built_for="CUDA")
    with pytest.raises(ValueError, match=rf"{gpu.name}, .* is {version}: bf16 takes 8\.0.*'fp16'"):
        pick_dtype("bf16", CUDA, have)
    assert pick_dtype("bf16", CUDA, Facts(gpus=(A100,))) == torch.bfloat16
    assert pick_dtype("fp32", CUDA, have) == torch.float32


def test_bf16_on_an_old_mac():
    with pytest.raises(ValueError, match=r"bf16 was asked for on mps, .* macOS 14"):
        pick_dtype("bf16", MPS, OLD_MAC)
    assert pick_dtype("bf16", MPS, MAC) == torch.bfloat16


@pytest.mark.parametrize(
    ("machine", "flags", "expected"),
    [
        ("x86_64", {"avx512_bf16", "avx2"}, True),
        ("x86_64", {"amx_bf16", "amx_tile"}, True),
        ("x86_64", {"avx512f", "avx512bw", "avx2"}, False),
        ("x86_64", {"bf16"}, False),
        ("aarch64", {"asimd", "bf16"}, True),
        ("aarch64", {"asimd"}, False),
        ("arm64", set(), False),
    ],
)
def test_which_cpus_multiply_bf16(machine, flags, expected):
    assert devices.has_bf16(machine, frozenset(flags)) is expected


def test_the_flags_are_read_from_linux_lists(tmp_path):
    file = tmp_path / "cpuinfo"
    file.write_text("processor : 0\nflags\t\t: fpu avx2 avx512_bf16\n\nprocessor : 1\n")
    assert devices._cpu_flags(file)[1] == {"fpu", "avx2", "avx512_bf16"}
    file.write_text("processor\t: 0\nFeatures\t: fp asimd bf16\n")
    assert devices._cpu_flags(file)[1] == {"fp", "asimd", "bf16"}
    assert devices._cpu_flags(tmp_path / "absent")[1] == frozenset()


def test_this_machine_can_be_asked():
    have = devices.facts()
    device = pick_device("auto", have)
    assert pick_dtype("auto", device, have) in devices.DTYPES.values()
    assert len(have.gpus) == torch.cuda.device_count()


def test_memory_that_is_free():
    import psutil

    assert 0 < devices.free_memory(CPU) <= psutil.virtual_memory().total


def test_a_limit_of_the_container_counts(tmp_path):
    assert devices.container_memory(tmp_path) == float("inf")
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("700000\n")
    (tmp_path / "memory.stat").write_text("anon 500000\ninactive_file 100000\n")
    assert devices.container_memory(tmp_path) == 400_000
    (tmp_path / "memory.max").write_text("max\n")
    assert devices.container_memory(tmp_path) == float("inf")
