#!/usr/bin/python3
"""Writes the model files of configs/models that are too long to write by hand, and compares the number of
parameters of each with its paper or reference implementation.

    scripts/make_models.py            # writes the files of MODELS in configs/models
    scripts/make_models.py --check    # writes nothing; exit code 1 if a file differs from the generated one
"""
import argparse
import os
import sys
import textwrap

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "configs/models")


class Model:
    """Layers in execution order, as text, and their number of parameters.

    Each method appends a layer and returns its name. `source` is the layer that it reads; None means
    the previous layer, which the file then omits."""

    def __init__(self, name, channels, comment):
        paragraphs = [textwrap.fill(one.strip(), 96) for one in comment.strip().split("\n\n")]
        lines = "\n\n".join(paragraphs + ["Made by scripts/make_models.py."]).split("\n")
        self.text = "".join(f"# {line}".rstrip() + "\n" for line in lines)
        self.text += f'name: "{name}"\n'
        self.parameters = 0
        self.previous = "data"
        self.channels = {"data": channels}  # of each layer's output

    def group(self, comment):
        self.text += f"\n# {comment}\n"

    def _append(self, name, kind, settings, channels, source=None):
        sources = [source] if isinstance(source, str) else source or []
        if sources == [self.previous]:
            sources = []
        inputs = "".join(f'input: "{one}" ' for one in sources)
        body = f"{kind} {{ {settings} }}" if settings else f"{kind} {{}}"
        line = f'layer {{ name: "{name}" {inputs}{body} }}'
        if len(line) > 100:
            line = f'layer {{\n  name: "{name}" {inputs}'.rstrip() + f"\n  {body}\n}}"
        self.text += line + "\n"
        self.previous = name
        self.channels[name] = channels
        return name

    def conv(self, name, filters, kernel, settings="", source=None, groups=1, bias=False):
        inputs = self.channels[source or self.previous]
        assert inputs % groups == 0 and filters % groups == 0
        self.parameters += filters * kernel * kernel * inputs // groups + (filters if bias else 0)
        text = f"filters: {filters} kernel: {kernel}"
        if groups > 1:
            text += f" groups: {groups}"
        if settings:
            text += " " + settings
        if not bias:
            text += " use_bias: false"
        return self._append(name, "conv2d", text, filters, source)

    def dense(self, name, units, inputs, initializer):
        """With `units` None there is a unit for each class of the data; these parameters are not counted."""
        self.parameters += units * inputs + units if units else 0
        size = f"units: {units} " if units else ""
        return self._append(name, "dense", f"{size}weights {{ initializer {{ {initializer} }} }}", units)

    def batch_norm(self, name, settings=""):
        self.parameters += 2 * self.channels[self.previous]
        return self._append(name, "batch_norm", settings, self.channels[self.previous])

    def plain(self, name, kind, settings="", source=None):
        first = source[0] if source else self.previous
        return self._append(name, kind, settings, self.channels[first], source)


def shortcut_of(model, name, channels, stride):
    """x or, if the shape changes, bn(conv 1x1(x)). Must come first in a block, so that the last batch norm comes
    directly before the sum and can be fused with it."""
    if stride == 1 and model.channels[model.previous] == channels:
        return model.previous
    model.conv(f"{name}/downsample/0", channels, 1, "stride: 2" if stride > 1 else "")
    return model.batch_norm(f"{name}/downsample/1")


def residual_block(model, name, channels, stride):
    """relu(shortcut(x) + bn(conv(relu(bn(conv(x))))))."""
    block_input = model.previous
    shortcut = shortcut_of(model, name, channels, stride)
    strided = "stride: 2 " if stride > 1 else ""
    model.conv(f"{name}/conv1", channels, 3, f"{strided}padding: EXPLICIT pad: 1", block_input)
    model.batch_norm(f"{name}/bn1")
    model.plain(f"{name}/relu1", "relu")
    model.conv(f"{name}/conv2", channels, 3, "padding: EXPLICIT pad: 1")
    last = model.batch_norm(f"{name}/bn2")
    model.plain(f"{name}/add", "add", source=[last, shortcut])
    model.plain(f"{name}/relu2", "relu")


def bottleneck_block(model, name, channels, stride):
    """Like residual_block, but with 1x1, 3x3, and 1x1 (to four times as many channels) instead of two 3x3."""
    block_input = model.previous
    shortcut = shortcut_of(model, name, 4 * channels, stride)
    strided = "stride: 2 " if stride > 1 else ""
    model.conv(f"{name}/conv1", channels, 1, source=block_input)
    model.batch_norm(f"{name}/bn1")
    model.plain(f"{name}/relu1", "relu")
    model.conv(f"{name}/conv2", channels, 3, f"{strided}padding: EXPLICIT pad: 1")
    model.batch_norm(f"{name}/bn2")
    model.plain(f"{name}/relu2", "relu")
    model.conv(f"{name}/conv3", 4 * channels, 1)
    last = model.batch_norm(f"{name}/bn3")
    model.plain(f"{name}/add", "add", source=[last, shortcut])
    model.plain(f"{name}/relu3", "relu")


def resnet(model, widths, blocks, classes=10, large=False, block=residual_block):
    """A ResNet with torchvision's names, for images of 32x32: a 3x3 stem, no pooling before the last layer.
    `large` selects the paper's network for 224x224. `blocks` is the number of blocks in each stage."""
    model.group("stem")
    if large:
        model.conv("conv1", widths[0], 7, "stride: 2 padding: EXPLICIT pad: 3")
    else:
        model.conv("conv1", widths[0], 3, "padding: EXPLICIT pad: 1")
    model.batch_norm("bn1")
    model.plain("relu", "relu")
    if large:
        model.plain("maxpool", "max_pool", "kernel: 3 stride: 2 padding: EXPLICIT pad: 1")
    for stage, (channels, count) in enumerate(zip(widths, blocks), start=1):
        for number in range(count):
            stride = 2 if stage > 1 and number == 0 else 1
            model.group(f"stage {stage}, block {number + 1}")
            block(model, f"layer{stage}/{number}", channels, stride)
    model.group("classifier")
    inputs = model.channels[model.previous]
    model.plain("avgpool", "global_avg_pool")
    model.dense("fc", classes, inputs, "type: TRUNCATED_NORMAL stddev: 0.01")
    model.plain("loss", "softmax_cross_entropy")


RESNET_NOTES = """

Convolutions have no bias, because the batch norm after them has a shift. They start as N(0, 2 / fan_in)
(He et al. 2015, the default), which keeps the size of the forward signal; the batch norms keep that of
the backward signal. The last layer starts near zero, so that the first loss is the logarithm of the
number of classes."""
WIDTHS = [64, 128, 256, 512]


def resnet20():
    model = Model("resnet20", 3, """
ResNet-20 for CIFAR-10 (He et al. 2016, section 4.2): a 3x3 stem, three stages of three blocks with 16,
32 and 64 channels at 32x32, 16x16 and 8x8. 272,474 parameters.
Shortcuts that change the shape are 1x1 convolutions with batch norm (the paper's option B). The paper's
CIFAR networks pad with zeros instead (option A, 269,722 parameters).
""" + RESNET_NOTES)
    resnet(model, [16, 32, 64], [3, 3, 3])
    return model


def resnet18():
    model = Model("resnet18", 3, """
ResNet-18 for 32x32 images: the blocks of He et al. 2016, table 1 (two of 64, 128, 256 and 512 channels
each), with a 3x3 stem of stride 1 and no max pool, as usual for CIFAR-10. 11,173,962 parameters.
Shortcuts that change the shape are 1x1 convolutions with batch norm.
""" + RESNET_NOTES)
    resnet(model, WIDTHS, [2, 2, 2, 2])
    return model


def resnet18_imagenet():
    model = Model("resnet18_imagenet", 3, """
ResNet-18 for photos of about 224x224 (He et al. 2016, table 1; torchvision's resnet18): a 7x7 stem of
stride 2, a 3x3 max pool, two blocks each of 64, 128, 256 and 512 channels. 11,176,512 parameters without
the last layer, which has one output per class of the data. Shortcuts that change the shape are 1x1
convolutions with batch norm.
""" + RESNET_NOTES)
    resnet(model, WIDTHS, [2, 2, 2, 2], classes=None, large=True)
    return model


def resnet34_imagenet():
    model = Model("resnet34_imagenet", 3, """
ResNet-34 for photos of about 224x224 (He et al. 2016, table 1; torchvision's resnet34): resnet18_imagenet with
3, 4, 6 and 3 blocks. 21,284,672 parameters without the last layer, which has one output per class of the
data.
""" + RESNET_NOTES)
    resnet(model, WIDTHS, [3, 4, 6, 3], classes=None, large=True)
    return model


def resnet50_imagenet():
    model = Model("resnet50_imagenet", 3, """
ResNet-50 for photos of about 224x224 (He et al. 2016, table 1; torchvision's resnet50): 3, 4, 6 and 3 blocks of
a 1x1, a 3x3 and a 1x1 convolution. As in torchvision, the 3x3 convolution has the stride of a block ("v1.5"); in
the paper the first 1x1 has it. 23,508,032 parameters without the last layer, which has one output per class of
the data.
""" + RESNET_NOTES)
    resnet(model, WIDTHS, [3, 4, 6, 3], classes=None, large=True, block=bottleneck_block)
    return model


def conv_relu6(model, name, *how, **more):
    model.conv(f"{name}/0", *how, **more)
    model.batch_norm(f"{name}/1")
    model.plain(f"{name}/2", "relu6")


def inverted_residual(model, name, channels, stride, expansion):
    """Expand 1x1, depthwise 3x3, project 1x1 without activation; adds x if the shapes agree."""
    block_input = model.previous
    inputs = model.channels[block_input]
    hidden = inputs * expansion
    number = 0  # torchvision's name of a part
    if expansion > 1:
        conv_relu6(model, f"{name}/conv/{number}", hidden, 1)
        number += 1
    strided = f"stride: {stride} " if stride > 1 else ""
    conv_relu6(model, f"{name}/conv/{number}", hidden, 3, f"{strided}padding: EXPLICIT pad: 1", groups=hidden)
    model.conv(f"{name}/conv/{number + 1}", channels, 1)
    last = model.batch_norm(f"{name}/conv/{number + 2}")
    if stride == 1 and inputs == channels:
        model.plain(f"{name}/add", "add", source=[last, block_input])


def mobilenet_v2():
    model = Model("mobilenet_v2", 3, """
MobileNetV2, width 1.0, for photos of about 224x224 (Sandler et al. 2018, table 2; torchvision's mobilenet_v2,
which pads one pixel on each side). 2,223,872 parameters without the last layer, which has one output per class
of the data; 3,504,872 with 1000 classes.

Convolutions have no bias, because the batch norm after them has a shift. They start as N(0, 2 / fan_in)
(He et al. 2015, the default); for a depthwise 3x3 convolution fan_in is 9. The last layer starts as
N(0, 0.01²), truncated at two standard deviations.
""")
    model.group("stem")
    conv_relu6(model, "features/0", 32, 3, "stride: 2 padding: EXPLICIT pad: 1")
    # expansion t, channels c, repeats n, stride s of the first one
    table = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
    number = 1
    for stage, (expansion, channels, repeats, stride) in enumerate(table, start=1):
        for block in range(1, repeats + 1):
            model.group(f"stage {stage}, block {block}")
            inverted_residual(model, f"features/{number}", channels, stride if block == 1 else 1, expansion)
            number += 1
    model.group("classifier")
    conv_relu6(model, f"features/{number}", 1280, 1)
    model.plain("pool", "global_avg_pool")
    model.plain("classifier/0", "dropout", "rate: 0.2")
    model.dense("classifier/1", None, 1280, "type: TRUNCATED_NORMAL stddev: 0.01")
    model.plain("loss", "softmax_cross_entropy")
    return model


def multigpu_cnn(side=28, channels=1):
    model = Model("multigpu_cnn", channels, """
The convnet of TensorFlow-Examples' multi-GPU tutorial (aymericdamien, multigpu_cnn): 20,217,226
parameters for 28x28x1 (MNIST), 29,657,610 for 32x32x3 (CIFAR-10). As in the tutorial, the two wide dense
layers have no activation, dropout zeroes 75 % of the values, weights start with Glorot and Bengio's
uniform distribution, and biases start at zero.
""")
    xavier = "weights { initializer { type: XAVIER } }"
    model.group("features")
    model.conv("conv1", 64, 5, xavier, bias=True)
    model.plain("relu1", "relu")
    model.plain("pool1", "max_pool", "kernel: 2")
    model.conv("conv2", 256, 3, xavier, bias=True)
    model.plain("relu2", "relu")
    model.conv("conv3", 512, 3, xavier, bias=True)
    model.plain("relu3", "relu")
    model.plain("pool2", "max_pool", "kernel: 2")
    model.group("classifier")
    model.plain("flatten", "flatten")
    end = ((side - 4) // 2 - 4) // 2
    model.dense("fc1", 2048, end * end * 512, "type: XAVIER")
    model.plain("dropout1", "dropout", "rate: 0.75")
    model.dense("fc2", 1024, 2048, "type: XAVIER")
    model.plain("dropout2", "dropout", "rate: 0.75")
    model.dense("fc3", 10, 1024, "type: XAVIER")
    model.plain("loss", "softmax_cross_entropy")
    return model


# The numbers of parameters of the same networks in PyTorch (bench/peers/models.py, torchvision), without last
# layers whose size depends on the data.
EXPECTED = {"resnet20": 272474, "resnet18": 11173962, "resnet18_imagenet": 11176512, "resnet34_imagenet": 21284672,
            "resnet50_imagenet": 23508032, "mobilenet_v2": 2223872, "multigpu_cnn": 20217226}
MODELS = (resnet20, resnet18, resnet18_imagenet, resnet34_imagenet, resnet50_imagenet, mobilenet_v2, multigpu_cnn)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    stale = []
    for make in MODELS:
        model = make()
        name = make.__name__
        print(f"{name}: {model.parameters:,} parameters", file=sys.stderr)
        assert model.parameters == EXPECTED[name], (name, model.parameters, EXPECTED[name])
        assert f"{model.parameters:,}" in model.text, f"{name}: the comment does not state the count"
        path = os.path.join(FOLDER, name + ".txtpb")
        if arguments.check:
            with open(path) as there:
                stale += [path] * (there.read() != model.text)
        else:
            with open(path, "w") as out:
                out.write(model.text)
    assert f"{multigpu_cnn(32, 3).parameters:,}" in multigpu_cnn().text
    for path in stale:
        print(f"{path} differs from the output of scripts/make_models.py: change that script, and run it",
              file=sys.stderr)
    sys.exit(1 if stale else 0)


if __name__ == "__main__":
    main()
