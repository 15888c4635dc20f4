#!/usr/bin/python3
"""Writes golden values of every layer, computed by PyTorch in double precision, to tests/nn/golden/<layer>.txt.
tests/nn/golden_test.cc compares them with the results of the backend, and reference_test.cc with those of
plain loops. Tests of all layers take their settings and shapes from here.

    scripts/make_golden.py [FOLDER]

Needs PyTorch (Debian: python3-torch); the files in the tree were made with 1.13. Dropout is omitted, because
its mask is Muster's own.

A file contains cases, each with these lines:
    case NAME
    layer SETTINGS              as in a model file
    mode training|inference
    batch N
    input HEIGHT WIDTH CHANNELS one line for each input
    tensor NAME COUNT           followed by the numbers, a few on each line, in Muster's layouts
    end
Given: input (if there are several: input0, input1), weights, bias, scale, shift, running_mean,
running_variance, output_gradient, labels. Expected: output, input_gradient (input_gradient0 …),
weights_gradient, bias_gradient, scale_gradient, shift_gradient, mean_statistic,
variance_statistic; for a loss: loss (sum over the samples), correct, correct_top5, and
input_gradient of that sum. Given numbers are multiples of 1/16, which floats represent exactly.
"""
import os
import sys

import numpy
import torch
import torch.nn.functional as functional

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Case:
    def __init__(self, name, layer, mode="training"):
        self.name, self.layer, self.mode = name, layer, mode
        self.batch, self.inputs, self.tensors = 0, [], {}
        self.random = numpy.random.RandomState(sum(map(ord, name + layer)))

    def draw(self, *shape, low=-32, high=32):
        """Multiples of 1/16 in [-2, 2)."""
        return torch.from_numpy(self.random.randint(low, high, shape) / 16.0)

    def draw_distinct(self, *shape):
        """All numbers are different, because no standard says which of two equal values wins a maximum."""
        count = int(numpy.prod(shape))
        return torch.from_numpy((self.random.permutation(count).reshape(shape) - count // 2) / 16.0)

    def give(self, name, tensor):
        """Records a leaf of the computation and returns it, ready for gradients."""
        tensor = tensor.clone().requires_grad_()
        self.tensors[name] = tensor.detach()
        return tensor

    def give_image(self, tensor, name="input"):
        """[batch, height, width, channels], given as [batch, channels, height, width]."""
        self.batch = tensor.shape[0]
        self.inputs.append(tuple(tensor.shape[1:]))
        return self.give(name, tensor)

    def expect(self, name, tensor):
        self.tensors[name] = tensor.detach()

    def differentiate(self, output, leaves):
        """output: [batch, height, width, channels]. leaves: {name: leaf}."""
        self.expect("output", output)
        gradient = self.draw(*output.shape)
        self.tensors["output_gradient"] = gradient
        for (name, _), found in zip(leaves.items(), torch.autograd.grad(output, list(leaves.values()), gradient)):
            self.expect(suffixed(name), found)

    def text(self):
        lines = [f"case {self.name}", f"layer {self.layer}", f"mode {self.mode}", f"batch {self.batch}"]
        lines += ["input {} {} {}".format(*shape) for shape in self.inputs]
        for name, tensor in self.tensors.items():
            numbers = [f"{value:.9g}" for value in tensor.reshape(-1).tolist()]
            lines.append(f"tensor {name} {len(numbers)}")
            lines += [" ".join(numbers[at:at + 10]) for at in range(0, len(numbers), 10)]
        return "\n".join(lines + ["end"]) + "\n"


def suffixed(name):
    """input1 → input_gradient1"""
    return name.rstrip("0123456789") + "_gradient" + name[len(name.rstrip("0123456789")):]


def first_channels(x):
    return x.permute(0, 3, 1, 2)


def last_channels(x):
    return x.permute(0, 2, 3, 1)


def pads(size, kernel, stride, padding, pad):
    """The padding before and after, as defined in proto/config.proto."""
    if padding == "SAME":
        total = max(0, (-(-size // stride) - 1) * stride + kernel - size)
        return total // 2, total - total // 2
    return (pad, pad) if padding == "EXPLICIT" else (0, 0)


def window(settings):
    """The settings {kernel, stride, padding, pad} as text."""
    kernel, stride = settings["kernel"], settings.get("stride")
    text = f"kernel: {list(kernel)}"
    if stride:
        text += f" stride: {list(stride)}"
    if "padding" in settings:
        text += f" padding: {settings['padding']}"
    if "pad" in settings:
        text += f" pad: {settings['pad']}"
    return text


def pad_image(x, kernel, stride, settings, value):
    padding, pad = settings.get("padding", "VALID"), settings.get("pad", 0)
    top, bottom = pads(x.shape[2], kernel[0], stride[0], padding, pad)
    left, right = pads(x.shape[3], kernel[1], stride[1], padding, pad)
    return functional.pad(x, (left, right, top, bottom), value=value)


def conv2d(name, batch, shape, filters, groups=1, bias=True, **settings):
    text = f"filters: {filters} {window(settings)}"
    if groups > 1:
        text += f" groups: {groups}"
    if not bias:
        text += " use_bias: false"
    case = Case(name, f"conv2d {{ {text} }}")
    kernel, stride = settings["kernel"], settings.get("stride", (1, 1))
    leaves = {"input": case.give_image(case.draw(batch, *shape)),
              "weights": case.give("weights", case.draw(filters, *kernel, shape[2] // groups))}
    if bias:
        leaves["bias"] = case.give("bias", case.draw(filters))
    x = pad_image(first_channels(leaves["input"]), kernel, stride, settings, 0.0)
    y = functional.conv2d(x, first_channels(leaves["weights"]), leaves.get("bias"), stride, groups=groups)
    case.differentiate(last_channels(y), leaves)
    return case


def dense(name, batch, shape, units, bias=True):
    case = Case(name, f"dense {{ units: {units}{'' if bias else ' use_bias: false'} }}")
    inputs = shape[0] * shape[1] * shape[2]
    leaves = {"input": case.give_image(case.draw(batch, *shape)),
              "weights": case.give("weights", case.draw(units, inputs))}
    if bias:
        leaves["bias"] = case.give("bias", case.draw(units))
    case.differentiate(functional.linear(leaves["input"].flatten(1), leaves["weights"], leaves.get("bias")), leaves)
    return case


def max_pool(name, batch, shape, **settings):
    case = Case(name, f"max_pool {{ {window(settings)} }}")
    kernel = settings["kernel"]
    stride = settings.get("stride", kernel)
    x = case.give_image(case.draw_distinct(batch, *shape))
    padded = pad_image(first_channels(x), kernel, stride, settings, float("-inf"))
    case.differentiate(last_channels(functional.max_pool2d(padded, kernel, stride)), {"input": x})
    return case


def avg_pool(name, batch, shape, **settings):
    case = Case(name, f"avg_pool {{ {window(settings)} }}")
    kernel = settings["kernel"]
    stride = settings.get("stride", kernel)
    x = case.give_image(case.draw(batch, *shape))
    means = lambda image: functional.avg_pool2d(pad_image(image, kernel, stride, settings, 0.0), kernel, stride)
    # Padding does not count: divide by the share of the window that is in the image.
    y = means(first_channels(x)) / means(torch.ones_like(first_channels(x).detach()))
    case.differentiate(last_channels(y), {"input": x})
    return case


def reflect_pad(name, batch, shape, rows, columns):
    case = Case(name, f"reflect_pad {{ pad: [{rows}, {columns}] }}")
    x = case.give_image(case.draw(batch, *shape))
    y = functional.pad(first_channels(x), (columns, columns, rows, rows), mode="reflect")
    case.differentiate(last_channels(y), {"input": x})
    return case


def lrn(name, batch, shape, depth_radius, bias, alpha, beta):
    case = Case(name, f"lrn {{ depth_radius: {depth_radius} bias: {bias} alpha: {alpha} beta: {beta} }}")
    x = case.give_image(case.draw(batch, *shape))
    size = 2 * depth_radius + 1
    y = functional.local_response_norm(first_channels(x), size, alpha * size, beta, bias)
    case.differentiate(last_channels(y), {"input": x})
    return case


def elementwise(name, kind, function, batch, shape, scale=1, settings=""):
    case = Case(name, f"{kind} {{ {settings} }}" if settings else f"{kind} {{}}")
    x = case.give_image(scale * case.draw(batch, *shape))
    case.differentiate(function(x), {"input": x})
    return case


def batch_norm(name, batch, shape, mode="training", momentum=0.1, epsilon=1e-5, variance="UNBIASED"):
    case = Case(name, f"batch_norm {{ momentum: {momentum} epsilon: {epsilon} running_variance: {variance} }}", mode)
    channels = shape[2]
    x = case.give_image(case.draw(batch, *shape) + 0.5)
    scale, shift = case.give("scale", case.draw(channels)), case.give("shift", case.draw(channels))
    if mode == "inference":
        mean = case.draw(channels)
        var = case.draw(channels, low=1, high=48)
        case.tensors["running_mean"], case.tensors["running_variance"] = mean, var
        y = functional.batch_norm(first_channels(x), mean, var, scale, shift, False, 0.0, epsilon)
        case.expect("output", last_channels(y))
        return case
    # With momentum 1, the running statistics are those of the batch; PyTorch's variance is unbiased.
    mean, var = torch.zeros(channels).double(), torch.zeros(channels).double()
    y = functional.batch_norm(first_channels(x), mean, var, scale, shift, True, 1.0, epsilon)
    values = batch * shape[0] * shape[1]
    case.expect("mean_statistic", mean)
    case.expect("variance_statistic", var * (values - 1) / values if variance == "BIASED" else var)
    case.differentiate(last_channels(y), {"input": x, "scale": scale, "shift": shift})
    return case


def group_norm(name, batch, shape, groups, epsilon=1e-5):
    case = Case(name, f"group_norm {{ groups: {groups} epsilon: {epsilon} }}")
    x = case.give_image(case.draw(batch, *shape) + 0.5)
    scale, shift = case.give("scale", case.draw(shape[2])), case.give("shift", case.draw(shape[2]))
    y = functional.group_norm(first_channels(x), groups, scale, shift, epsilon)
    case.differentiate(last_channels(y), {"input": x, "scale": scale, "shift": shift})
    return case


def layer_norm(name, batch, shape, epsilon=1e-5):
    case = Case(name, f"layer_norm {{ epsilon: {epsilon} }}")
    x = case.give_image(case.draw(batch, *shape) + 0.5)
    scale, shift = case.give("scale", case.draw(shape[2])), case.give("shift", case.draw(shape[2]))
    y = functional.layer_norm(x, shape[2:], scale, shift, epsilon)
    case.differentiate(y, {"input": x, "scale": scale, "shift": shift})
    return case


def add(name, batch, shape, inputs):
    case = Case(name, "add {}")
    leaves = {f"input{i}": case.give_image(case.draw(batch, *shape), f"input{i}") for i in range(inputs)}
    case.differentiate(sum(leaves.values()), leaves)
    return case


def concat(name, batch, size, channels):
    case = Case(name, "concat {}")
    leaves = {f"input{i}": case.give_image(case.draw(batch, *size, n), f"input{i}") for i, n in enumerate(channels)}
    case.differentiate(torch.cat(list(leaves.values()), 3), leaves)
    return case


def loss(name, layer, function, labels, classes, scale=1):
    case = Case(name, layer)
    x = case.give_image(scale * case.draw_distinct(len(labels), 1, 1, classes))
    logits, labels = x.flatten(1), torch.tensor(labels)
    case.tensors["labels"] = labels.double()
    total = function(logits, labels)
    case.expect("loss", total)
    counted = labels >= 0
    scores = torch.cat([0 * logits, logits], 1) if classes == 1 else logits
    hits = torch.topk(scores, min(5, scores.shape[1])).indices == labels[:, None]
    case.expect("correct", (hits[:, 0] & counted).sum().double())
    case.expect("correct_top5", (hits.any(1) & counted).sum().double())
    case.expect("input_gradient", torch.autograd.grad(total, x)[0])
    return case


def cross_entropy(smoothing):
    return lambda logits, labels: functional.cross_entropy(logits, labels, reduction="sum", ignore_index=-1,
                                                           label_smoothing=smoothing)


def squared_error(logits, labels):
    """The sum over the samples of the mean over the classes."""
    target = functional.one_hot(labels, logits.shape[1]).double()
    return functional.mse_loss(logits, target, reduction="none").mean(1).sum()


def sigmoid_entropy(logits, labels):
    """The sum over the samples of the mean over the outputs."""
    one = logits.shape[1] == 1
    target = labels[:, None].double() if one else functional.one_hot(labels, logits.shape[1]).double()
    return functional.binary_cross_entropy_with_logits(logits, target, reduction="none").mean(1).sum()


def cases():
    """The first word of each layer's settings names its file."""
    yield conv2d("valid 3x3", 2, (5, 6, 3), 4, kernel=(3, 3))
    yield conv2d("same 5x5 on a single channel", 1, (7, 6, 1), 5, kernel=(5, 5), padding="SAME")
    yield conv2d("same with an even kernel", 2, (5, 4, 3), 3, kernel=(4, 2), padding="SAME")
    yield conv2d("same with stride 2 on an odd and an even side", 2, (7, 6, 3), 4, kernel=(3, 3), stride=(2, 2),
                 padding="SAME")
    yield conv2d("explicit padding and stride 2, no bias", 2, (6, 5, 8), 8, bias=False, kernel=(3, 3), stride=(2, 2),
                 padding="EXPLICIT", pad=1)
    yield conv2d("different strides, kernels and sides", 1, (4, 9, 2), 3, kernel=(1, 4), stride=(1, 3), padding="SAME")
    yield conv2d("projection 1x1 with stride 2", 2, (5, 5, 8), 16, bias=False, kernel=(1, 1), stride=(2, 2))
    yield conv2d("three groups", 2, (4, 5, 6), 9, groups=3, kernel=(3, 3), padding="SAME")
    yield conv2d("two groups of eight, no bias", 1, (3, 3, 16), 16, groups=2, bias=False, kernel=(3, 3), padding="SAME")
    yield conv2d("depthwise", 2, (5, 4, 7), 7, groups=7, bias=False, kernel=(3, 3), padding="EXPLICIT", pad=1)
    yield conv2d("depthwise of 16 with stride 2", 2, (5, 5, 16), 16, groups=16, bias=False, kernel=(3, 3),
                 stride=(2, 2), padding="EXPLICIT", pad=1)
    yield conv2d("depthwise with two filters each and bias", 1, (4, 4, 3), 6, groups=3, kernel=(2, 2), padding="SAME")
    yield dense("a row", 3, (1, 1, 17), 5)
    yield dense("an image, no bias", 2, (2, 3, 5), 7, bias=False)
    yield elementwise("any values", "relu", torch.relu, 3, (3, 5, 7))
    yield elementwise("both bends", "relu6", functional.relu6, 3, (3, 5, 7), scale=5)
    yield elementwise("exact", "gelu", functional.gelu, 2, (3, 5, 7), scale=3)
    yield elementwise("approximation", "gelu", lambda x: functional.gelu(x, approximate="tanh"), 2, (3, 5, 7), scale=3,
                      settings="approximate: TANH")
    yield elementwise("any values", "silu", functional.silu, 2, (3, 5, 7), scale=5)
    yield elementwise("any values", "sigmoid", torch.sigmoid, 2, (3, 5, 7), scale=5)
    yield elementwise("any values", "tanh", torch.tanh, 2, (3, 5, 7), scale=2)
    yield elementwise("the default slope", "leaky_relu", functional.leaky_relu, 2, (3, 5, 7))
    yield elementwise("another slope", "leaky_relu", lambda x: functional.leaky_relu(x, 0.25), 2, (3, 5, 7),
                      settings="slope: 0.25")
    yield max_pool("2x2", 2, (6, 5, 5), kernel=(2, 2))
    yield max_pool("same 3x3, overlapping", 2, (6, 5, 3), kernel=(3, 3), stride=(2, 2), padding="SAME")
    yield max_pool("explicit padding", 1, (5, 7, 8), kernel=(3, 3), stride=(2, 2), padding="EXPLICIT", pad=1)
    yield avg_pool("2x2", 2, (6, 5, 5), kernel=(2, 2))
    yield avg_pool("same 3x3, overlapping", 2, (6, 5, 3), kernel=(3, 3), stride=(2, 2), padding="SAME")
    yield avg_pool("explicit padding", 1, (5, 7, 8), kernel=(3, 2), stride=(2, 1), padding="EXPLICIT", pad=1)
    yield reflect_pad("one pixel", 2, (3, 4, 3), 1, 1)
    yield reflect_pad("as far as possible, other columns", 2, (3, 5, 2), 2, 3)
    yield lrn("the tutorial's, made strong", 2, (2, 3, 13), 4, 1.0, 0.05, 0.75)
    yield lrn("another power, fewer channels than the window", 2, (3, 2, 5), 3, 2.0, 0.5, 0.5)
    yield batch_norm("unbiased running variance (PyTorch)", 3, (3, 2, 5))
    yield batch_norm("biased running variance (Keras without fusion)", 2, (2, 3, 9), momentum=0.01, epsilon=1e-3,
                     variance="BIASED")
    yield batch_norm("rows of 16", 7, (1, 1, 16))
    yield batch_norm("inference", 2, (3, 2, 5), mode="inference")
    yield batch_norm("inference with a large epsilon", 1, (2, 2, 16), mode="inference", epsilon=0.01)
    yield group_norm("two groups", 2, (3, 2, 6), 2)
    yield group_norm("one group, a large epsilon", 2, (2, 3, 5), 1, epsilon=0.01)
    yield group_norm("as many groups as channels", 1, (3, 3, 4), 4)
    yield layer_norm("each pixel", 2, (3, 2, 5))
    yield layer_norm("rows of 16, a large epsilon", 3, (1, 1, 16), epsilon=0.01)
    yield add("two", 2, (3, 2, 5), 2)
    yield add("three", 2, (2, 3, 8), 3)
    yield concat("two, odd numbers of channels", 2, (3, 2), (3, 5))
    yield concat("three", 2, (2, 3), (8, 1, 16))
    case = Case("7x5", "global_avg_pool {}")
    x = case.give_image(case.draw(2, 7, 5, 3))
    case.differentiate(x.mean((1, 2), keepdim=True), {"input": x})
    yield case
    case = Case("many channels", "global_avg_pool {}")
    x = case.give_image(case.draw(2, 3, 2, 17))
    case.differentiate(x.mean((1, 2), keepdim=True), {"input": x})
    yield case
    yield elementwise("rows", "softmax", lambda x: x.softmax(3), 3, (1, 1, 11), scale=2)
    yield elementwise("each pixel", "softmax", lambda x: x.softmax(3), 2, (2, 3, 5))
    yield loss("ten classes", "softmax_cross_entropy {}", cross_entropy(0.0), [3, 0, 9, 5, 5, 1], 10)
    yield loss("large logits, one sample without a label", "softmax_cross_entropy {}", cross_entropy(0.0), [6, -1, 2], 7, 64)
    yield loss("smoothed", "softmax_cross_entropy { label_smoothing: 0.125 }", cross_entropy(0.125), [3, 0, 9, 5], 10)
    yield loss("smoothed, three classes", "softmax_cross_entropy { label_smoothing: 0.5 }", cross_entropy(0.5),
               [2, 0, 1, 1, 0], 3)
    yield loss("ten classes", "mean_squared_error {}", squared_error, [3, 0, 9, 5], 10)
    yield loss("three classes", "mean_squared_error {}", squared_error, [2, 0, 1, 1, 0], 3)
    yield loss("ten classes", "sigmoid_cross_entropy {}", sigmoid_entropy, [3, 0, 9, 5, 1], 10)
    yield loss("large logits", "sigmoid_cross_entropy {}", sigmoid_entropy, [1, 0, 2, 2], 3, 64)
    yield loss("one output for two classes", "sigmoid_cross_entropy {}", sigmoid_entropy, [0, 0, 1, 1, 1, 1], 1, 4)


def main():
    if len(sys.argv) > 2 or sys.argv[1:] in (["-h"], ["--help"]):
        sys.exit(__doc__)
    folder = sys.argv[1] if len(sys.argv) == 2 else os.path.join(ROOT, "tests/nn/golden")
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    os.makedirs(folder, exist_ok=True)
    files = {}
    for case in cases():
        files.setdefault(case.layer.split()[0], []).append(case.text())
    for kind, texts in files.items():
        with open(os.path.join(folder, kind + ".txt"), "w") as out:
            out.write(f"# Made by scripts/make_golden.py, which says what this means, with PyTorch "
                      f"{torch.__version__.split('+')[0]}.\n" + "".join(texts))


if __name__ == "__main__":
    main()
