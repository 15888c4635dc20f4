#!/usr/bin/env python3
"""torchvision's networks in Muster (docs/PYTORCH.md): logits with their weights, and fine-tuning.

    finetune.py --bin DIR --source DIR --dump PROGRAM CASE

CASE: resnet18, resnet34, resnet50, mobilenet_v2: the same logits from torchvision's weights; photos: from a file of
torch.save to the probabilities of a photo in onnxruntime.

Exit code 77, which ctest counts as skipped, if a package is missing.
"""
import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

try:
    import numpy
    import onnxruntime
    import torch
    import torchvision
    from PIL import Image
    from safetensors.torch import load_file, save_file
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

MEAN, STDDEV = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
CLASSES = ["blue", "green", "red"]  # a photo's brightest colour


def torchvision_model(name):
    """Returns a model with random weights and with batch norm statistics of random images. With initial statistics
    the signal would grow or fade from layer to layer."""
    torch.manual_seed(7)
    model = getattr(torchvision.models, name)()
    norms = [module for module in model.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = 1.0
        torch.nn.init.uniform_(norm.weight, 0.5, 1.5)
        torch.nn.init.uniform_(norm.bias, -0.2, 0.2)
    with torch.no_grad():
        model.train()(torch.randn(8, 3, 224, 224))
    return model.eval()


def compare_logits(arguments, folder, name):
    """Checks that names, shapes and layouts of torchvision's state_dict match our config."""
    model = torchvision_model(name)
    weights = os.path.join(folder, "theirs.safetensors")
    save_file(model.state_dict(), weights)
    file = name if name == "mobilenet_v2" else name + "_imagenet"
    config = os.path.join(folder, "config.txtpb")
    with open(config, "w") as out:
        out.write(f"""
run {{ steps: 1 global_batch: 8 slices: 1 seed: 5 }}
data {{
  format: SYNTHETIC
  synthetic {{ height: 224 width: 224 channels: 3 classes: 1000 train_samples: 8 test_samples: 4 }}
  preprocess {{ standardize: true }}
}}
model_file: "{arguments.source}/configs/models/{file}.txtpb"
learning_rate {{ base: 0.1 }}
""")
    subprocess.run([arguments.dump, config, folder, "--weights", weights, "--images", "4"], check=True)
    dumped = load_file(os.path.join(folder, "images.safetensors"))
    images = dumped["images"].permute(0, 3, 1, 2).contiguous()
    with torch.no_grad():
        single, exact = model(images), model.double()(images.double())
    assert float(exact.std(dim=0).min()) > 1e-4, "the images make no difference"
    distance = lambda logits: float((logits - exact).norm() / exact.norm())
    ours, theirs = distance(dumped["logits"]), distance(single)
    print(f"{name}: relative distance from PyTorch with 64 bits {ours:.1e}, of PyTorch with 32 bits {theirs:.1e}")
    assert ours <= max(1e-5, 2 * theirs), "the logits differ"


def write_photos(folder):
    """Writes PNG and JPEG files of several sizes: smooth noise with one brightest color."""
    generator = numpy.random.default_rng(3)
    for part, count in (("train", 8), ("val", 3)):
        for channel, name in enumerate(reversed(CLASSES)):
            os.makedirs(os.path.join(folder, part, name))
            for number in range(count):
                small = generator.integers(0, 120, (6, 8, 3), dtype=numpy.uint8)
                small[:, :, channel] += 120
                photo = Image.fromarray(small).resize((90 + 7 * number, 120 - 5 * number), Image.BICUBIC)
                photo.save(os.path.join(folder, part, name, f"{number}.{'png' if number % 2 else 'jpg'}"))


def muster(arguments, *words, code=0):
    done = subprocess.run([os.path.join(arguments.bin, "muster"), *words], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    assert done.returncode == code, f"muster {shlex.join(words)}: exit code {done.returncode}\n{done.stdout}"
    return done.stdout


def fine_tune(arguments, folder):
    path = lambda *names: os.path.join(folder, *names)
    config = os.path.join(arguments.source, "configs/imagefolder_resnet18.txtpb")
    write_photos(path("photos"))
    torch.save(torchvision_model("resnet18").state_dict(), path("resnet18.pth"))

    # A file of torch.save is not in safetensors format. The error has the command that converts it.
    importing = ["import", path("resnet18.pth"), path("body.safetensors"), "--config", config, "--data", path("photos")]
    error = muster(arguments, *importing, code=3)
    command = shlex.split(re.search("Convert its state_dict: (python3 -c .*)", error)[1])
    subprocess.run([sys.executable] + command[1:], check=True)

    # A last layer with other classes is refused, or omitted on request, but no other layer.
    importing[1] = path("resnet18.safetensors")
    skipped = ["fc.weight is [1000,512] in the file, and [3,512] in the network",
               "fc.bias is [1000] in the file, and [3] in the network"]
    error = muster(arguments, *importing, code=3)
    assert "; ".join(skipped) in error and "--skip-mismatched" in error, error
    said = muster(arguments, *importing, "--skip-mismatched").splitlines()
    assert "100 of 102 variables" in said[0], said
    assert said[1:3] == [f"  skipped: {one}" for one in skipped], said
    train = shlex.split(said[3].removeprefix("Train from it: muster "))
    assert len(said) == 4, said

    run = path("run")
    small = ["--workers", "1", "--set", "run.global_batch=24", "--set", "run.slices=1", "--set",
             "data.preprocess.crop_height=64", "--set", "data.preprocess.crop_width=64", "--set",
             "data.preprocess.resize=72", "--set", "learning_rate.base=0.02"]
    log = muster(arguments, *train, *small, "--run-dir", run, "--steps", "12")
    assert " ".join(log.split()).count("skipped: fc.") == 2, log

    photo = path("photos", "val", "red", "1.png")
    predicted = json.loads(muster(arguments, "predict", run, photo, "--json"))
    ours = {one["name"]: one["probability"] for one in predicted["top"]}
    muster(arguments, "export", run, "--format", "onnx", path("model.onnx"))

    transforms = torchvision.transforms
    prepare = transforms.Compose([transforms.Resize(72), transforms.CenterCrop(64), transforms.ToTensor(),
                                  transforms.Normalize(MEAN, STDDEV)])
    image = prepare(Image.open(photo).convert("RGB"))[None]
    session = onnxruntime.InferenceSession(path("model.onnx"), providers=["CPUExecutionProvider"])
    of_onnx = torch.from_numpy(session.run(["logits"], {"images": image.numpy()})[0])
    # Back to torchvision.
    network = torchvision.models.resnet18(num_classes=len(CLASSES))
    network.load_state_dict(load_file(os.path.join(run, "best.safetensors")), strict=True)  # as predict
    with torch.no_grad():
        of_torchvision = network.eval()(image)
    for where, logits in (("onnxruntime", of_onnx), ("torchvision", of_torchvision)):
        theirs = dict(zip(CLASSES, logits.double().softmax(1)[0].tolist()))
        difference = max(abs(theirs[name] - ours[name]) for name in CLASSES)
        print(f"{where}: {theirs}, largest difference {difference:.1e}")
        assert max(theirs, key=theirs.get) == max(ours, key=ours.get) == "red", (theirs, ours)
        assert difference <= 1e-4, "the probabilities differ"

    # The page's command freezes all except the last layer, also the statistics.
    page = open(os.path.join(arguments.source, "docs/PYTORCH.md")).read()
    freeze = shlex.split(re.search("--freeze '.*?'", page)[0])
    muster(arguments, *train, *small, *freeze, "--run-dir", path("frozen"), "--steps", "2")
    before = load_file(path("body.safetensors"))
    after = load_file(path("frozen", "model.safetensors"))
    for name, tensor in before.items():
        assert name.endswith("num_batches_tracked") or torch.equal(tensor, after[name]), name
    assert {"fc.weight", "fc.bias"} == set(after) - set(before)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--dump", required=True, help="the program dump_logits")
    parser.add_argument("case")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        if arguments.case == "photos":
            fine_tune(arguments, folder)
        else:
            compare_logits(arguments, folder, arguments.case)


main()
