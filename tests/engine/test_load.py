"""`load`: what it takes, what it refuses before loading anything, and the words it says it in."""

import subprocess
import sys

import pytest
import torch

from inferlab.engine import device as devices
from inferlab.engine import kernels, load, random_model
from inferlab.engine.weights import gguf, random, safetensors
from inferlab.theory import shapes

CPU = torch.device("cpu")
CHECK_MEMORY = sys.modules["inferlab.engine.load"].check_memory


def test_the_default_model(smollm2):
    assert smollm2.shape.name == "smollm2-135m"
    assert smollm2.source == "smollm2-135m"
    assert (smollm2.dtype, smollm2.device) == (torch.float32, CPU)
    assert smollm2.tokenizer.vocab_size == smollm2.shape.vocab


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_a_folder_and_a_gguf_file_are_the_same_model(tiny_checkpoint, tiny_gguf, dtype):
    folder, path = tiny_checkpoint("llama3")[0], tiny_gguf("llama3")[0]
    one, other = load(folder, "cpu", dtype), load(str(path), "cpu", dtype)
    assert one.dtype == other.dtype == devices.DTYPES[dtype]
    for name in shapes.weight_shapes(one.shape):
        assert torch.equal(one.weights[name], other.weights[name]), name
    assert one.tokenizer.encode("héllo") == other.tokenizer.encode("héllo")
    assert one.source == str(folder)


def test_without_its_tokenizer(tiny_checkpoint):
    assert load(tiny_checkpoint("qwen3")[0], "cpu", "fp32", tokenizer=False).tokenizer is None


def test_a_model_of_the_hub(tiny_checkpoint, monkeypatch):
    asked = []

    def download(repo, accept):
        folder = tiny_checkpoint("qwen2")[0]
        accept(safetensors.describe(safetensors.read_config(folder), repo))
        asked.append(repo)
        return folder

    monkeypatch.setattr(safetensors, "download", download)
    model = load("org/some-model_1.5", "cpu", "fp32")
    assert asked == ["org/some-model_1.5"]
    assert model.source == "org/some-model_1.5"
    assert model.shape.qkv_bias


def test_random_weights_of_a_shape_and_of_a_published_one():
    shape = shapes.ModelShape("tiny", 1, 64, 4, 2, 16, 128, 100)
    model = random_model(shape, "cpu", "bf16", seed=5)
    assert model.shape == shape
    assert model.source == "random weights, seed 5"
    expected = random.random_weights(shape, CPU, torch.bfloat16, seed=5)
    assert torch.equal(model.weights["token_embd.weight"], expected["token_embd.weight"])
    with pytest.raises(ValueError, match="no model shape named 'llama-3-8'.*llama-3-8b"):
        random_model("llama-3-8")


# --- what is not to be had ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("smollm2-135", "no model is named 'smollm2-135': near are smollm2-135m"),
        ("SmolLM2-135M-instruct", "near are smollm2-135m"),
        ("xyzzy", r"no model is named 'xyzzy': load takes a known name \(smollm2-135m\)"),
        ("llama-3-8b", r"weights are not fetched by name: random_model\('llama-3-8b'\)"),
        ("a/b/c", "no model is named 'a/b/c'"),
        ("model.pth", r"model\.pth is a pickle checkpoint, which runs code"),
        ("somewhere/pytorch_model.bin", "is a pickle checkpoint"),
    ],
)
def test_unknown_names(source, words):
    with pytest.raises(ValueError, match=words):
        load(source, "cpu")


@pytest.mark.parametrize("source", ["./nowhere", "gone.gguf", "/no/such/folder", "~/no-such-file"])
def test_paths_that_lead_nowhere(source):
    with pytest.raises(FileNotFoundError, match="there is no file or folder"):
        load(source, "cpu")


def test_one_safetensors_file_is_not_a_model(tiny_checkpoint):
    with pytest.raises(ValueError, match="give the folder that holds it together with config.json"):
        load(tiny_checkpoint("llama3")[0] / "model.safetensors", "cpu")


def test_an_absent_device_is_found_before_anything_is_fetched(monkeypatch):
    monkeypatch.setattr(devices, "facts", lambda: devices.Facts())
    monkeypatch.setattr(safetensors, "download", None)
    for device in ("cuda", "mps"):
        with pytest.raises(ValueError, match=f"{device} was asked for"):
            load("org/name", device)
    monkeypatch.setattr(
        devices, "facts", lambda: devices.Facts(gpus=(devices.Gpu("Tesla T4", (7, 5)),))
    )
    with pytest.raises(ValueError, match="bf16 was asked for on Tesla T4"):
        load("org/name", "cuda", "bf16")


@pytest.mark.parametrize("kind", ["gguf", "folder", "hub", "random"])
def test_too_large_is_said_before_a_weight_is_read(kind, tiny_gguf, tiny_checkpoint, monkeypatch):
    def read(*_, **__):
        raise AssertionError("a weight was read")

    for module in (gguf, safetensors):
        monkeypatch.setattr(module, "load_weights", read)
    monkeypatch.setattr(random, "random_weights", read)
    monkeypatch.setattr(devices, "free_memory", lambda device: 1_000_000)
    folder = tiny_checkpoint("llama3")[0]
    hub = lambda repo, accept: accept(shapes.get("llama-3-8b"))  # noqa: E731
    monkeypatch.setattr(safetensors, "download", hub)
    make, source = {
        "gguf": (load, tiny_gguf("llama3")[0]),
        "folder": (load, folder),
        "hub": (load, "org/name"),
        "random": (random_model, "llama-3-8b"),
    }[kind]
    with pytest.raises(MemoryError, match=r"needs .*B for its .* and 1\.00 MB are free on cpu"):
        make(source, "cpu", "fp32")


@pytest.mark.parametrize(
    ("dtype", "free", "words"),
    [
        (torch.float32, 20e9, r"llama-3-8b in fp32 needs 32\.1 GB .* 20\.0 GB .* dtype='bf16'"),
        (torch.bfloat16, 3e9, r"bf16 needs 16\.1 GB .* fits in this type: .*llama-3\.2-1b"),
        (torch.bfloat16, 1e6, "no model of the zoo fits"),
    ],
)
def test_what_would_fit_is_said(dtype, free, words):
    with pytest.raises(MemoryError, match=words):
        CHECK_MEMORY(shapes.get("llama-3-8b"), CPU, dtype, int(free))


def test_what_just_fits_is_let_through():
    shape = shapes.get("smollm2-135m")
    needed = 4 * shape.params
    CHECK_MEMORY(shape, CPU, torch.float32, needed)
    with pytest.raises(MemoryError):
        CHECK_MEMORY(shape, CPU, torch.float32, needed - 1)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
def test_loading_never_holds_the_model_twice(smollm2_path):
    """Peak memory of a process that loads 538 MB of weights in fp32, measured from outside."""
    program = (
        "import torch\n"
        "from inferlab.engine.weights import gguf\n"
        "def peak():\n"
        "    lines = open('/proc/self/status').read().splitlines()\n"
        "    return next(int(x.split()[1]) * 1024 for x in lines if x.startswith('VmHWM'))\n"
        f"file = gguf.read_header({str(smollm2_path)!r})\n"
        "before = peak()\n"
        "w = gguf.load_weights(file, file.shape, torch.device('cpu'), torch.float32)\n"
        "print(before, peak(), sum(x.nbytes for x in w.values()))\n"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    before, after, nbytes = map(int, said.stdout.split())
    file_size = smollm2_path.stat().st_size  # pages of the mapped file count as resident too
    assert after - before < nbytes + file_size + 200e6
    assert after - before > 0.9 * nbytes


def test_weights_are_held_in_one_layout_where_memory_is_short(monkeypatch):
    shape, bf16 = shapes.get("smollm2-135m"), torch.bfloat16
    table_for = sys.modules["inferlab.engine.load"]._table
    needed = 2 * shape.params
    for free, copies in ((2 * needed, 2), (2 * needed - 1, 1)):
        monkeypatch.setattr(devices, "free_memory", lambda device, f=free: f)
        assert table_for(shape, CPU, bf16) == kernels.default(CPU, bf16, copies)
