#!/usr/bin/env python3
"""What PyTorch makes of Muster's model files: the same logits on the same images.

    compare.py --bin DIR --source DIR CASE      # a model of configs/models, or "trained"

Exit code 77, which ctest counts as skipped, where PyTorch or safetensors is missing.
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
    print(f"skipped: {error}. Configure with -DMUSTER_TORCH_PYTHON=/path/to/python (or set it in the environment) "
          "of a Python that has PyTorch and safetensors: pip install torch safetensors")
    sys.exit(77)

# The largest difference of two logits, where these are about 1; larger ones are allowed as much more.
TOLERANCE = 1e-5

# model: (height, width, channels), classes, images
SHAPES = {
    "linear": ((32, 32, 3), 10, 8),
    "cifar10_tutorial": ((24, 24, 3), 10, 8),
    "multigpu_cnn": ((28, 28, 1), 10, 8),
    "resnet20": ((32, 32, 3), 10, 8),
    "resnet18": ((32, 32, 3), 10, 4),
    "mobilenet_v2": ((224, 224, 3), 1000, 2),
}


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
    with open(path, "w") as out:
        out.write(f"""
run {{ steps: 1 global_batch: 8 slices: 1 seed: 5 }}
data {{
  format: SYNTHETIC
  synthetic {{ height: {height} width: {width} channels: {channels} classes: {classes} train_samples: 8 test_samples: 8 }}
  preprocess {{ standardize: true }}
}}
model_file: "{source}/configs/models/{model}.txtpb"
learning_rate {{ base: 0.1 }}
""")
    return path


def logits_of(model, weights, images):
    """Of images [n, height, width, channels]; every tensor of the file has its place in the model, and the
    other way round."""
    model.load_state_dict(load_file(weights), strict=True)
    with torch.no_grad():
        return model.eval()(images.permute(0, 3, 1, 2).contiguous())


def compare_models(arguments, folder, name):
    sys.path.insert(0, os.path.join(arguments.source, "scripts"))
    from torch_models import MODELS
    (height, width, channels), _, count = SHAPES[name]
    config = write_config(folder, name, arguments.source)
    subprocess.run([arguments.dump, config, folder, "--images", str(count)], check=True)
    shape = {"shape": (channels, height, width)} if name in ("linear", "cifar10_tutorial", "multigpu_cnn") else {}
    ours = load_file(os.path.join(folder, "images.safetensors"))
    theirs = logits_of(MODELS[name](**shape), os.path.join(folder, "model.safetensors"), ours["images"])
    scale = max(1.0, float(ours["logits"].abs().max()))
    difference = float((ours["logits"] - theirs).abs().max())
    spread = float(ours["logits"].std(dim=0).max())
    print(f"{name}: largest difference {difference:.1e}, largest logit {scale:.2f}, between images {spread:.2f}")
    # Logits that do not depend on the image would agree, too.
    assert ours["logits"].shape[0] == count and spread > 1e-3, "the images make no difference"
    assert difference <= TOLERANCE * scale, "the logits differ"


def compare_trained(arguments, folder):
    """A real run, and the accuracy that it reported."""
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
        else:
            compare_models(arguments, folder, arguments.case)


main()
