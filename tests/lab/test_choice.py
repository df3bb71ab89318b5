"""Which device, type, model and scale: made-up machines, the real rule."""

from __future__ import annotations

import threading

import huggingface_hub
import pytest
import torch
from huggingface_hub import constants, errors

from inferlab.engine import device as devices
from inferlab.engine.device import Facts, Gpu
from inferlab.engine.load import DEFAULT
from inferlab.engine.weights import contract
from inferlab.lab import choice
from inferlab.lab.experiments import predictor
from inferlab.theory import shapes

LARGE, SMALL = choice.HUB_MODELS
GIB = 2**30
# name, compute capability, memory that is free: nameplate less what driver and context take
GPUS = {
    "t4": (Gpu("Tesla T4", (7, 5)), 14.5 * GIB),
    "l4": (Gpu("NVIDIA L4", (8, 9)), 22.0 * GIB),
    "a100": (Gpu("NVIDIA A100-SXM4-40GB", (8, 0)), 39.0 * GIB),
    "h100": (Gpu("NVIDIA H100 80GB HBM3", (9, 0)), 79.0 * GIB),
    "v100": (Gpu("Tesla V100-SXM2-32GB", (7, 0)), 31.0 * GIB),
    "gtx": (Gpu("NVIDIA GeForce GTX 1650", (7, 5)), 3.5 * GIB),
}
WITH_AVX512 = {"fpu", "avx2", "avx512f", "avx512_bf16", "amx_bf16"}
AVX512_WITHOUT_BF16 = {"fpu", "avx2", "avx512f", "avx512bw"}
WITHOUT_AVX512 = {"fpu", "avx2"}


@pytest.fixture(autouse=True)
def no_surroundings(monkeypatch):
    monkeypatch.delenv("INFERLAB_CI", raising=False)


def on(gpu, obstacle=lambda repo, nbytes: "", **wishes):
    fact, free = GPUS[gpu]
    have = Facts(gpus=(fact,), built_for="CUDA")
    return choice.choose(have=have, free=lambda device: int(free), obstacle=obstacle, **wishes)


def without_gpu(**facts):
    def unasked(*_):
        raise AssertionError("the Hub was asked where no model of it is wanted")

    return choice.choose(have=Facts(**facts), obstacle=unasked)


@pytest.mark.parametrize(
    ("gpu", "dtype", "model"),
    [
        ("t4", "fp16", SMALL),
        ("l4", "bf16", LARGE),
        ("a100", "bf16", LARGE),
        ("h100", "bf16", LARGE),
        ("v100", "fp16", SMALL),
        ("gtx", "fp16", DEFAULT),
    ],
)
def test_on_a_gpu(gpu, dtype, model):
    chosen = on(gpu)
    assert (chosen.device, chosen.dtype, chosen.model) == ("cuda", dtype, model)
    assert chosen.scale == "gpu"


def test_the_reasons_are_said():
    assert "Tesla T4 (compute capability 7.5) has neither bf16 nor FlashAttention" in on("t4").why
    assert f"{SMALL} (3.09 GB) is the largest of ours" in on("t4").why
    assert "NVIDIA L4 multiplies bf16" in on("l4").why
    assert "3.76 GB are free on this GPU, too little" in on("gtx").why
    assert f"So the model is {DEFAULT}." in on("gtx").why


def test_what_torch_claims_of_a_t4_is_not_asked(monkeypatch):
    """torch says that a T4 has bf16, since it emulates it."""

    def claims(*_, **__):
        raise AssertionError("torch was asked")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda i: "Tesla T4")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda i: (7, 5))
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", claims)
    have = devices.facts()
    assert have.gpus == (Gpu("Tesla T4", (7, 5)),)
    assert not have.gpus[0].ampere
    free = {"free": lambda device: 15 * GIB, "obstacle": lambda repo, nbytes: ""}
    assert choice.choose(have=have, **free).dtype == "fp16"
    with pytest.raises(ValueError, match="bf16 takes 8.0 or newer"):
        choice.choose(dtype="bf16", have=have, **free)


@pytest.mark.parametrize(
    ("flags", "dtype", "words"),
    [
        (WITH_AVX512, "bf16", "this CPU multiplies bf16"),
        (AVX512_WITHOUT_BF16, "fp32", "this CPU has no arithmetic for bf16"),
        (WITHOUT_AVX512, "fp32", "this CPU has no arithmetic for bf16"),
    ],
)
def test_on_a_cpu(flags, dtype, words):
    chosen = without_gpu(cpu_bf16=devices.has_bf16("x86_64", frozenset(flags)))
    assert (chosen.device, chosen.dtype, chosen.model) == ("cpu", dtype, DEFAULT)
    assert chosen.scale == "laptop"
    assert words in chosen.why


@pytest.mark.parametrize("macos14", [True, False])
def test_on_a_mac(macos14):
    chosen = without_gpu(mps=True, mps_bf16=macos14)
    assert (chosen.device, chosen.dtype, chosen.model) == ("mps", "fp16", DEFAULT)
    assert chosen.scale == "laptop"
    assert "Apple GPU" in chosen.why


@pytest.mark.parametrize(("gpu", "model"), [("h100", LARGE), ("t4", SMALL)])
def test_memory_decides_to_the_byte(gpu, model):
    have = Facts(gpus=(GPUS[gpu][0],))
    kind = torch.float16  # as many bytes as bf16
    needed = contract.nbytes(shapes.get(choice.HUB_MODELS[model]), kind) + choice.ROOM
    found = [
        choice.choose(have=have, free=lambda d, b=b: b, obstacle=lambda r, n: "").model
        for b in (needed, needed - 1)
    ]
    assert found[0] == model
    assert found[1] != model


def test_a_type_that_is_twice_as_large_takes_a_smaller_model():
    assert on("l4", dtype="fp32").model == SMALL
    assert on("h100", dtype="fp32").model == LARGE


def test_without_the_hub_the_default_and_it_is_said():
    chosen = on("h100", obstacle=lambda repo, nbytes: "the Hub cannot be reached (no route)")
    assert chosen.model == DEFAULT
    said = chosen.why.count("would suit this GPU, but the Hub cannot be reached (no route).")
    assert said == 2
    assert f"So the model is {DEFAULT}." in chosen.why


def test_a_disk_too_small_for_the_larger_one():
    def obstacle(repo, nbytes):
        return "the disk has 9 GB free" if nbytes > 9e9 else ""

    chosen = on("a100", obstacle=obstacle)
    assert chosen.model == SMALL
    assert f"{LARGE} (16.4 GB) would suit this GPU, but the disk has 9 GB free." in chosen.why


def test_wishes_are_kept():
    chosen = on("a100", device="cpu", model="some/model", scale="ci", dtype="fp32")
    assert chosen == choice.Choice("cpu", "fp32", "some/model", "ci", "")
    with pytest.raises(ValueError, match="cuda was asked for"):
        choice.choose(device="cuda", have=Facts())
    with pytest.raises(ValueError, match="unknown scale 'huge': there are auto, ci, laptop, gpu"):
        choice.choose(scale="huge", have=Facts())


CPU, CUDA, MPS = (torch.device(name) for name in ("cpu", "cuda", "mps"))


@pytest.mark.parametrize(
    ("scale", "device", "environment", "expected"),
    [
        ("auto", CPU, {}, "laptop"),
        ("auto", MPS, {}, "laptop"),
        ("auto", CUDA, {}, "gpu"),
        ("auto", CUDA, {"INFERLAB_CI": "1"}, "ci"),
        ("auto", CPU, {"INFERLAB_CI": "0"}, "laptop"),
        ("auto", CPU, {"INFERLAB_CI": ""}, "laptop"),
        ("laptop", CUDA, {"INFERLAB_CI": "1"}, "laptop"),
        ("gpu", CPU, {}, "gpu"),
    ],
)
def test_scale(scale, device, environment, expected):
    assert choice.pick_scale(scale, device, environment) == expected


def test_ci_uses_the_default_model_everywhere(monkeypatch):
    monkeypatch.setenv("INFERLAB_CI", "1")
    chosen = on("h100")
    assert (chosen.scale, chosen.model) == ("ci", DEFAULT)


def test_the_models_can_be_loaded_and_fit_their_descriptions():
    for name in choice.HUB_MODELS.values():
        contract.check_shape(shapes.get(name), name)
    sizes = [shapes.get(name).params for name in choice.HUB_MODELS.values()]
    assert sizes == sorted(sizes, reverse=True)
    assert 16_000 * shapes.get("qwen3-8b").kv_bytes_per_token("bf16") < choice.ROOM


class Hub:
    """A Hub that answers as it is told; `stored` is the folder of what is in the cache."""

    def __init__(self, monkeypatch, tmp_path, answer):
        self.answer = answer
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "a" / "b"))
        monkeypatch.setattr(huggingface_hub, "HfApi", lambda: self)
        monkeypatch.setattr(huggingface_hub, "snapshot_download", self.snapshot)
        self.stored = None

    def model_info(self, repo, timeout):
        return self.answer()

    def snapshot(self, repo, local_files_only):
        assert local_files_only
        if self.stored is None:
            raise errors.LocalEntryNotFoundError("not here")
        return self.stored


class Info:
    def __init__(self, gated):
        self.gated = gated


def raising():
    raise ConnectionError("no route to host.\nmore")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda: Info(False), ""),
        (lambda: Info("manual"), "it is gated now"),
        (raising, "the Hugging Face Hub cannot be reached (no route to host)"),
    ],
)
def test_what_the_hub_answers(monkeypatch, tmp_path, answer, words):
    Hub(monkeypatch, tmp_path, answer)
    assert choice.hub_obstacle("some/model", 1000) == words


def test_a_hub_that_hangs(monkeypatch, tmp_path):
    release = threading.Event()
    Hub(monkeypatch, tmp_path, release.wait)
    monkeypatch.setattr(choice, "WAIT", -0.9)
    assert "did not answer" in choice.hub_obstacle("some/model", 1000)
    release.set()


def test_a_full_disk(monkeypatch, tmp_path):
    Hub(monkeypatch, tmp_path, lambda: Info(False))
    assert choice.hub_obstacle("some/model", 10**18).startswith("the disk has ")


def test_what_is_in_the_cache_needs_no_network(monkeypatch, tmp_path, tiny_checkpoint):
    folder, _ = tiny_checkpoint("qwen3")
    hub = Hub(monkeypatch, tmp_path, raising)
    hub.stored = str(folder)
    assert choice.hub_obstacle("some/model", 10**18) == ""
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "config.json").write_bytes((folder / "config.json").read_bytes())
    hub.stored = str(tmp_path / "part")
    assert "cannot be reached" in choice.hub_obstacle("some/model", 1000)


@pytest.mark.parametrize(
    ("rate", "picked"), [(1e12, 0), (6e10, 1), (1e9, 1)], ids=["fast", "slow", "slowest"]
)
def test_the_shape_to_time_is_the_largest_that_reads_fast_enough(rate, picked):
    machine = predictor.Ceilings(1e11, rate)
    found = choice.pick_shape("auto", machine, "fp32", 512)
    assert found == choice.TIMED[picked]
    assert choice.pick_shape("llama-3-8b", machine, "fp32", 512) == "llama-3-8b"
    params = [shapes.get(name).params for name in choice.TIMED]
    assert params == sorted(params, reverse=True)
