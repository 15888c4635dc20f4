#!/usr/bin/env python3
"""Checks that PyTorch and onnxruntime compute the same logits from Muster's model files.

    compare.py --bin DIR --source DIR --dump PROGRAM CASE

CASE: a model of configs/models; modern: layers that they lack; onnx-MODEL: the same as ONNX; onnx-all, onnx-hwc:
networks of every kind of layer; onnx-binary: a single logit; npz; trained: a real run.

Exit code 77, which ctest counts as skipped, if PyTorch or safetensors is missing.
"""
import argparse
import os
import subprocess
import sys
import tempfile

try:
    import torch
    from safetensors import safe_open
    from safetensors.torch import load_file
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

# The largest difference of two logits of about 1. The difference is relative for larger ones.
TOLERANCE = 1e-5

# model: (height, width, channels), classes, images
SHAPES = {
    "all": ((13, 10, 6), 7, 8),
    "hwc": ((6, 4, 3), 5, 8),
    "binary": ((5, 4, 3), 2, 8),
    "modern": ((7, 6, 3), 5, 8),

    "linear": ((32, 32, 3), 10, 8),
    "cifar10_tutorial": ((24, 24, 3), 10, 8),
    "multigpu_cnn": ((28, 28, 1), 10, 8),
    "resnet20": ((32, 32, 3), 10, 8),
    "resnet18": ((32, 32, 3), 10, 4),
    "mobilenet_v2": ((224, 224, 3), 1000, 2),
}


# Every kind of layer, with unusual settings: asymmetric padding, groups, rows that become images
# again, sums and concatenations of rows and of images, a batch norm of a row.
ALL_LAYERS = """
layer { name: "c1" conv2d { filters: 8 kernel: [3, 2] stride: 2 padding: SAME groups: 2 } }
layer { name: "l1" leaky_relu { slope: 0.3 } }
layer { name: "n1" lrn { depth_radius: 2 bias: 1.5 alpha: 0.3 beta: 0.75 } }
layer { name: "p1" avg_pool { kernel: 3 stride: 2 padding: SAME } }
layer { name: "r6" relu6 {} }
layer { name: "c2" conv2d { filters: 8 kernel: 1 use_bias: false } }
layer { name: "g2" gelu {} }
layer { name: "gn2" group_norm { groups: 4 epsilon: 0.001 } }
layer { name: "ln2" layer_norm {} }
layer { name: "b2" batch_norm { epsilon: 0.01 } }
layer { name: "a" input: ["b2", "r6"] add {} }
layer { name: "p2" input: "c1" max_pool { kernel: 3 stride: 2 padding: EXPLICIT pad: 1 } }
layer { name: "both" input: ["a", "p2", "a"] concat {} }
layer { name: "s" softmax {} }
layer { name: "mirror" reflect_pad { pad: [2, 1] } }
layer { name: "f" flatten {} }
layer { name: "bf" batch_norm {} }
layer { name: "lf" layer_norm { epsilon: 0.1 } }
layer { name: "d" dropout { rate: 0.5 } }
layer { name: "h1" dense { units: 12 use_bias: false } }
layer { name: "g1" gelu { approximate: TANH } }
layer { name: "i1" silu {} }
layer { name: "h1/relu" relu {} }
layer { name: "c3" conv2d { filters: 12 kernel: 1 } }
layer { name: "sum" input: ["c3", "h1/relu", "c3"] add {} }
layer { name: "g" input: "both" global_avg_pool {} }
layer { name: "rows" input: ["sum", "g"] concat {} }
layer { name: "ln" lrn { depth_radius: 1 } }
layer { name: "rp" max_pool { kernel: 1 } }
layer { name: "t" tanh {} }
layer { name: "si" sigmoid {} }
layer { name: "out" dense { units: 7 } }
layer { name: "loss" softmax_cross_entropy {} }
"""
# The order of a flattened image matters.
HWC_LAYERS = """
layer { name: "c" conv2d { filters: 4 kernel: 3 } }
layer { name: "f" flatten {} }
layer { name: "gn" group_norm { groups: 4 } }
layer { name: "n" lrn { depth_radius: 2 } }
layer { name: "out" dense { units: 5 } }
layer { name: "loss" mean_squared_error {} }
"""
# One output for two classes.
BINARY_LAYERS = """
layer { name: "c" conv2d { filters: 4 kernel: 3 } }
layer { name: "out" dense { units: 1 } }
layer { name: "loss" sigmoid_cross_entropy {} }
"""


# Layers that none of the models has, next to modern() below.
MODERN_LAYERS = """
layer { name: "pad" reflect_pad { pad: [2, 1] } }
layer { name: "conv" conv2d { filters: 8 kernel: [5, 3] } }
layer { name: "group" group_norm { groups: 4 epsilon: 0.01 } }
layer { name: "gelu" gelu {} }
layer { name: "point" conv2d { filters: 8 kernel: 1 } }
layer { name: "pixel" layer_norm {} }
layer { name: "silu" silu {} }
layer { name: "leaky" leaky_relu { slope: 0.2 } }
layer { name: "flat" flatten {} }
layer { name: "row" layer_norm { epsilon: 0.001 } }
layer { name: "hidden" dense { units: 9 } }
layer { name: "approximate" gelu { approximate: TANH } }
layer { name: "tanh" tanh {} }
layer { name: "sigmoid" sigmoid {} }
layer { name: "out" dense { units: 5 } }
layer { name: "loss" softmax_cross_entropy {} }
"""


def modern():
    nn = torch.nn

    class Modern(nn.Module):
        def __init__(self):
            super().__init__()
            self.pad = nn.ReflectionPad2d((1, 1, 2, 2))
            self.conv = nn.Conv2d(3, 8, (5, 3))
            self.group = nn.GroupNorm(4, 8, eps=0.01)
            self.point = nn.Conv2d(8, 8, 1)
            self.pixel = nn.LayerNorm(8)
            self.row = nn.LayerNorm(7 * 6 * 8, eps=0.001)
            self.hidden = nn.Linear(7 * 6 * 8, 9)
            self.out = nn.Linear(9, 5)

        def forward(self, x):
            x = nn.functional.gelu(self.group(self.conv(self.pad(x))))
            x = self.pixel(self.point(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
            x = nn.functional.leaky_relu(nn.functional.silu(x), 0.2)
            x = nn.functional.gelu(self.hidden(self.row(x.flatten(1))), approximate="tanh")
            return self.out(torch.sigmoid(torch.tanh(x)))

    return Modern()


def smoke():
    class Smoke(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = torch.nn.Conv2d(3, 16, 3, padding=1)
            self.conv2 = torch.nn.Conv2d(16, 32, 3, padding=1)
            self.classes = torch.nn.Linear(32, 10)

        def forward(self, x):
            x = torch.nn.functional.max_pool2d(torch.relu(self.conv1(x)), 2)
            x = torch.nn.functional.avg_pool2d(torch.relu(self.conv2(x)), 8)
            return self.classes(x.flatten(1))

    return Smoke()


def write_config(folder, model, source):
    (height, width, channels), classes, _ = SHAPES[model]
    path = os.path.join(folder, "config.txtpb")
    layers = {"all": ALL_LAYERS, "hwc": HWC_LAYERS, "binary": BINARY_LAYERS, "modern": MODERN_LAYERS}.get(model)
    network = f"model {{ {layers} }}" if layers else f'model_file: "{source}/configs/models/{model}.txtpb"'
    with open(path, "w") as out:
        out.write(f"""
run {{ steps: 1 global_batch: 8 slices: 1 seed: 5 }}
data {{
  format: SYNTHETIC
  synthetic {{ height: {height} width: {width} channels: {channels} classes: {classes} train_samples: 8 test_samples: 8 }}
  preprocess {{ standardize: true }}
}}
{network}
learning_rate {{ base: 0.1 }}
""")
    return path


def logits_of(model, weights, images):
    """Returns the logits of images [n, height, width, channels]. The tensors of file and model must match exactly."""
    model.load_state_dict(load_file(weights), strict=True)
    with torch.no_grad():
        return model.eval()(images.permute(0, 3, 1, 2).contiguous())


def dump(arguments, folder, name):
    """Writes synthetic weights to folder/model.safetensors and returns Muster's results for some images."""
    config = write_config(folder, name, arguments.source)
    count = SHAPES[name][2]
    subprocess.run([arguments.dump, config, folder, "--images", str(count)], check=True)
    ours = load_file(os.path.join(folder, "images.safetensors"))
    # Otherwise constant logits would agree as well.
    spread = float(ours["logits"].std(dim=0).max())
    assert ours["logits"].shape[0] == count and spread > 1e-4, f"the images make no difference: {spread}"
    return ours


def compare_logits(name, ours, theirs):
    largest = float(ours.abs().max())
    difference = float((ours - theirs).abs().max())
    print(f"{name}: largest difference {difference:.1e}, largest logit {largest:.2f}")
    assert difference <= TOLERANCE * max(1.0, largest), "the logits differ"


def compare_models(arguments, folder, name):
    sys.path.insert(0, os.path.join(arguments.source, "scripts"))
    from torch_models import MODELS
    height, width, channels = SHAPES[name][0]
    ours = dump(arguments, folder, name)
    shape = {"shape": (channels, height, width)} if name in ("linear", "cifar10_tutorial", "multigpu_cnn") else {}
    made = modern() if name == "modern" else MODELS[name](**shape)
    theirs = logits_of(made, os.path.join(folder, "model.safetensors"), ours["images"])
    compare_logits(name, ours["logits"], theirs)


def export(arguments, folder, out_format):
    out = os.path.join(folder, "exported")
    subprocess.run([os.path.join(arguments.bin, "muster"), "export", os.path.join(folder, "model.safetensors"),
                    "--format", out_format, out, "--force"], check=True)
    return out


def compare_onnx(arguments, folder, name):
    try:
        import onnx
        import onnxruntime
    except ImportError as error:
        print(f"skipped: {error}: pip install onnx onnxruntime")
        sys.exit(77)
    ours = dump(arguments, folder, name)
    out = export(arguments, folder, "onnx")
    network = onnx.load(out)
    onnx.checker.check_model(network, full_check=True)
    about = {entry.key: entry.value for entry in network.metadata_props}
    assert about["flatten"] == ("HWC" if name == "hwc" else "CHW") and about["step"] == "1", about
    session = onnxruntime.InferenceSession(out, providers=["CPUExecutionProvider"])
    images = ours["images"].permute(0, 3, 1, 2).contiguous().numpy()
    for count in (len(images), 1):  # a batch of any size
        theirs = session.run(["logits"], {"images": images[:count]})[0]
        compare_logits(f"{name} as ONNX, {count} images", ours["logits"][:count], torch.from_numpy(theirs))


def compare_npz(arguments, folder):
    try:
        import numpy
    except ImportError as error:
        print(f"skipped: {error}: pip install numpy")
        sys.exit(77)
    dump(arguments, folder, "all")
    tensors = load_file(os.path.join(folder, "model.safetensors"))
    with numpy.load(export(arguments, folder, "npz"), allow_pickle=False) as arrays:
        assert set(arrays.files) == set(tensors), arrays.files
        for name, tensor in tensors.items():
            assert arrays[name].shape == tuple(tensor.shape), name
            assert numpy.array_equal(arrays[name], tensor.numpy()), name
            assert arrays[name].dtype == tensor.numpy().dtype, name
    print(f"{len(tensors)} arrays are the same")


def compare_trained(arguments, folder):
    """Compares the accuracy of a real run with the one that it reported."""
    config = os.path.join(arguments.source, "configs/smoke.txtpb")
    run = os.path.join(folder, "run")
    subprocess.run([os.path.join(arguments.bin, "muster"), "launch", config, "--run-dir", run, "--workers", "2"],
                   check=True, stdout=subprocess.DEVNULL)
    for name in ("best.safetensors", "model.safetensors"):
        weights = os.path.join(run, name)
        out = os.path.join(folder, name + ".images")
        subprocess.run([arguments.dump, config, out, "--weights", weights, "--images", "100000"], check=True)
        ours = load_file(os.path.join(out, "images.safetensors"))
        theirs = logits_of(smoke(), weights, ours["images"])
        difference = float((ours["logits"] - theirs).abs().max())
        accuracy = float((theirs.argmax(1) == ours["labels"]).double().mean())
        with safe_open(weights, "pt") as file:
            metadata = file.metadata()
        print(f"{name}: step {metadata['step']}, largest difference {difference:.1e}, accuracy {accuracy}")
        assert difference <= TOLERANCE * max(1.0, float(ours["logits"].abs().max())), "the logits differ"
        assert accuracy == float(metadata["test_accuracy"]), f"the run reported {metadata['test_accuracy']}"
        assert accuracy > 0.5, "it has learned nothing"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--dump", required=True, help="the program dump_logits")
    parser.add_argument("case")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        if arguments.case == "trained":
            compare_trained(arguments, folder)
        elif arguments.case == "npz":
            compare_npz(arguments, folder)
        elif arguments.case.startswith("onnx-"):
            compare_onnx(arguments, folder, arguments.case.removeprefix("onnx-"))
        else:
            compare_models(arguments, folder, arguments.case)


main()
