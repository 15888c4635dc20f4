"""The networks of configs/models in plain PyTorch, with Muster's layer names, so that load_state_dict accepts
the model.safetensors of a run (docs/PYTORCH.md).

    from safetensors.torch import load_file
    from torch_models import MODELS
    model = MODELS["resnet20"]()
    model.load_state_dict(load_file("runs/.../model.safetensors"))
    logits = model.eval()(images)        # [batch, channels, height, width], preprocessed

A layer "layer1/0/conv1" is the module layer1.0.conv1. Layers without parameters need no name and are in
forward. ResNets and MobileNetV2 use the names of torchvision, whose resnet18, resnet34 and resnet50 are the
..._imagenet of configs/models.
"""
import torch.nn as nn
import torch.nn.functional as functional


class Linear(nn.Module):
    """configs/models/linear.txtpb."""

    def __init__(self, shape=(3, 32, 32), classes=10):
        super().__init__()
        channels, height, width = shape
        self.linear = nn.Linear(channels * height * width, classes)

    def forward(self, x):
        return self.linear(x.flatten(1))


class Tutorial(nn.Module):
    """configs/models/cifar10_tutorial.txtpb."""

    def __init__(self, shape=(3, 24, 24), classes=10):
        super().__init__()
        channels, height, width = shape
        self.conv1 = nn.Conv2d(channels, 64, 5, padding=2)
        self.conv2 = nn.Conv2d(64, 64, 5, padding=2)
        self.local3 = nn.Linear(64 * ((height + 3) // 4) * ((width + 3) // 4), 384)
        self.local4 = nn.Linear(384, 192)
        self.softmax_linear = nn.Linear(192, classes)
        # PyTorch divides alpha by the size of the window, 2 depth_radius + 1.
        self.norm = nn.LocalResponseNorm(9, alpha=9 * 0.00011111111, beta=0.75, k=1.0)

    def forward(self, x):
        # SAME padding of a 3x3 window with stride 2 on an even size adds a column and a row at the end.
        x = functional.relu(self.conv1(x))
        x = self.norm(functional.max_pool2d(x, 3, 2, ceil_mode=True))
        x = self.norm(functional.relu(self.conv2(x)))
        x = functional.max_pool2d(x, 3, 2, ceil_mode=True).flatten(1)
        x = functional.relu(self.local4(functional.relu(self.local3(x))))
        return self.softmax_linear(x)


class MultiGpuCnn(nn.Module):
    """configs/models/multigpu_cnn.txtpb."""

    def __init__(self, shape=(1, 28, 28), classes=10):
        super().__init__()
        channels, height, width = shape
        self.conv1 = nn.Conv2d(channels, 64, 5)
        self.conv2 = nn.Conv2d(64, 256, 3)
        self.conv3 = nn.Conv2d(256, 512, 3)
        end = lambda side: ((side - 4) // 2 - 4) // 2
        self.fc1 = nn.Linear(512 * end(height) * end(width), 2048)
        self.fc2 = nn.Linear(2048, 1024)
        self.fc3 = nn.Linear(1024, classes)
        self.dropout = nn.Dropout(0.75)

    def forward(self, x):
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.relu(self.conv3(functional.relu(self.conv2(x))))
        x = functional.max_pool2d(x, 2).flatten(1)
        return self.fc3(self.dropout(self.fc2(self.dropout(self.fc1(x)))))


class ResidualBlock(nn.Module):
    def __init__(self, inputs, channels, stride):
        super().__init__()
        self.downsample = None
        if stride != 1 or inputs != channels:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, channels, 1, stride, bias=False),
                                            nn.BatchNorm2d(channels))
        self.conv1 = nn.Conv2d(inputs, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x):
        y = functional.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return functional.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    """configs/models/resnet20.txtpb, resnet18.txtpb."""

    def __init__(self, widths, blocks, classes=10):
        super().__init__()
        self.conv1 = nn.Conv2d(3, widths[0], 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(widths[0])
        self.stages, inputs = [], widths[0]
        for number, channels in enumerate(widths, start=1):
            stage = nn.Sequential()
            for block in range(blocks):
                stage.append(ResidualBlock(inputs, channels, 2 if number > 1 and block == 0 else 1))
                inputs = channels
            self.add_module(f"layer{number}", stage)
            self.stages.append(stage)
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x):
        x = functional.relu(self.bn1(self.conv1(x)))
        for stage in self.stages:
            x = stage(x)
        return self.fc(x.mean((2, 3)))


def conv_relu6(inputs, channels, kernel=1, stride=1, groups=1):
    return nn.Sequential(nn.Conv2d(inputs, channels, kernel, stride, kernel // 2, groups=groups, bias=False),
                         nn.BatchNorm2d(channels), nn.ReLU6())


class InvertedResidual(nn.Module):
    def __init__(self, inputs, channels, stride, expansion):
        super().__init__()
        hidden = inputs * expansion
        expand = [conv_relu6(inputs, hidden)] if expansion > 1 else []
        self.conv = nn.Sequential(*expand, conv_relu6(hidden, hidden, 3, stride, groups=hidden),
                                  nn.Conv2d(hidden, channels, 1, bias=False), nn.BatchNorm2d(channels))
        self.adds = stride == 1 and inputs == channels

    def forward(self, x):
        return x + self.conv(x) if self.adds else self.conv(x)


class MobileNetV2(nn.Module):
    """configs/models/mobilenet_v2.txtpb; torchvision's mobilenet_v2."""

    def __init__(self, classes=1000):
        super().__init__()
        self.features, inputs = nn.Sequential(conv_relu6(3, 32, 3, 2)), 32
        plan = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
                (6, 320, 1, 1)]
        for expansion, channels, blocks, stride in plan:
            for block in range(blocks):
                self.features.append(InvertedResidual(inputs, channels, stride if block == 0 else 1, expansion))
                inputs = channels
        self.features.append(conv_relu6(inputs, 1280))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, classes))

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))


# Keyed by the name of the file in configs/models.
MODELS = {
    "linear": Linear,
    "cifar10_tutorial": Tutorial,
    "multigpu_cnn": MultiGpuCnn,
    "resnet20": lambda **how: ResNet([16, 32, 64], 3, **how),
    "resnet18": lambda **how: ResNet([64, 128, 256, 512], 2, **how),
    "mobilenet_v2": MobileNetV2,
}
