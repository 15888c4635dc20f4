"""PyTorch versions of the networks in configs/models, with the same layers in the order of the model files.

Every module takes images as [batch, channels, height, width] and returns logits. Modules with parameters are
created in the order in which Muster's forward pass uses them, so that the n-th one is Muster's n-th layer
with variables (bench/compare_curves.py copies weights in that order). Images are flattened as height x width
x channels, as in Muster; with channels-last memory this moves no data. `dropout=False` omits dropout.
"""
import torch.nn as nn
import torch.nn.functional as functional


def flatten(x):
    return x.permute(0, 2, 3, 1).flatten(1)


class Linear(nn.Module):
    """configs/models/linear.txtpb."""

    def __init__(self, shape=(28, 28, 1), **_):
        super().__init__()
        height, width, channels = shape
        self.linear = nn.Linear(height * width * channels, 10)

    def forward(self, x):
        return self.linear(flatten(x))


class Tutorial(nn.Module):
    """configs/models/cifar10_tutorial.txtpb: conv 5x5x64, pool 3/2, LRN, conv 5x5x64, LRN, pool 3/2,
    dense 384, 192, 10."""

    def __init__(self, shape=(24, 24, 3), lrn=True, **_):
        super().__init__()
        height, width, channels = shape
        self.conv1 = nn.Conv2d(channels, 64, 5, padding=2)
        self.conv2 = nn.Conv2d(64, 64, 5, padding=2)
        # PyTorch divides alpha by the window size.
        self.norm = nn.LocalResponseNorm(9, alpha=0.001, beta=0.75, k=1.0) if lrn else nn.Identity()
        self.local3 = nn.Linear(64 * ((height + 3) // 4) * ((width + 3) // 4), 384)
        self.local4 = nn.Linear(384, 192)
        self.linear = nn.Linear(192, 10)

    def forward(self, x):
        x = functional.relu(self.conv1(x))
        x = self.norm(functional.max_pool2d(x, 3, 2, ceil_mode=True))
        x = self.norm(functional.relu(self.conv2(x)))
        x = functional.max_pool2d(x, 3, 2, ceil_mode=True)
        x = functional.relu(self.local3(flatten(x)))
        return self.linear(functional.relu(self.local4(x)))


class MultiGpuCnn(nn.Module):
    """configs/models/multigpu_cnn.txtpb."""

    def __init__(self, shape=(28, 28, 1), dropout=True, **_):
        super().__init__()
        height, width, channels = shape
        self.conv1 = nn.Conv2d(channels, 64, 5)
        self.conv2 = nn.Conv2d(64, 256, 3)
        self.conv3 = nn.Conv2d(256, 512, 3)
        end = lambda side: ((side - 4) // 2 - 4) // 2
        self.fc1 = nn.Linear(512 * end(height) * end(width), 2048)
        self.fc2 = nn.Linear(2048, 1024)
        self.fc3 = nn.Linear(1024, 10)
        self.dropout = nn.Dropout(0.75 if dropout else 0.0)

    def forward(self, x):
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.relu(self.conv3(functional.relu(self.conv2(x))))
        x = self.dropout(self.fc1(flatten(functional.max_pool2d(x, 2))))
        return self.fc3(self.dropout(self.fc2(x)))


class ResidualBlock(nn.Module):
    def __init__(self, inputs, channels, stride):
        super().__init__()
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != channels:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, channels, 1, stride, bias=False), nn.BatchNorm2d(channels))
        self.conv1 = nn.Conv2d(inputs, channels, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)

    def forward(self, x):
        y = functional.relu(self.norm1(self.conv1(x)), inplace=True)
        y = self.norm2(self.conv2(y))
        y += self.shortcut(x)
        return functional.relu(y, inplace=True)


class ResNet(nn.Module):
    """configs/models/resnet20.txtpb and resnet18.txtpb: projection shortcuts (option B)."""

    def __init__(self, widths, blocks):
        super().__init__()
        self.conv = nn.Conv2d(3, widths[0], 3, 1, 1, bias=False)
        self.norm = nn.BatchNorm2d(widths[0])
        inputs, body = widths[0], []
        for stage, channels in enumerate(widths):
            for block in range(blocks):
                body.append(ResidualBlock(inputs, channels, 2 if stage and block == 0 else 1))
                inputs = channels
        self.body = nn.Sequential(*body)
        self.fc = nn.Linear(inputs, 10)

    def forward(self, x):
        x = functional.relu(self.norm(self.conv(x)), inplace=True)
        return self.fc(self.body(x).mean((2, 3)))


class Bottleneck(nn.Module):
    def __init__(self, inputs, channels, stride):
        super().__init__()
        outputs = 4 * channels
        self.layers = nn.Sequential(
            nn.Conv2d(inputs, channels, 1, bias=False), nn.BatchNorm2d(channels), nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels, 3, stride, 1, bias=False), nn.BatchNorm2d(channels), nn.ReLU(inplace=True),
            nn.Conv2d(channels, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        self.shortcut = nn.Identity()
        if stride > 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        return functional.relu(self.layers(x) + self.shortcut(x), inplace=True)


class ResNet50(nn.Module):
    """configs/models/resnet50_imagenet.txtpb."""

    def __init__(self, **_):
        super().__init__()
        body, inputs = [], 64
        for stage, blocks in enumerate([3, 4, 6, 3]):
            for block in range(blocks):
                body.append(Bottleneck(inputs, 64 << stage, 2 if stage and block == 0 else 1))
                inputs = 256 << stage
        self.body = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
                                  nn.MaxPool2d(3, 2, 1), *body)
        self.fc = nn.Linear(inputs, 1000)

    def forward(self, x):
        return self.fc(self.body(x).mean((2, 3)))


class InvertedResidual(nn.Module):
    def __init__(self, inputs, channels, stride, expansion):
        super().__init__()
        hidden = inputs * expansion
        layers = []
        if expansion > 1:
            layers += [nn.Conv2d(inputs, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.ReLU6(inplace=True)]
        layers += [nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False), nn.BatchNorm2d(hidden),
                   nn.ReLU6(inplace=True), nn.Conv2d(hidden, channels, 1, bias=False), nn.BatchNorm2d(channels)]
        self.layers = nn.Sequential(*layers)
        self.adds = stride == 1 and inputs == channels

    def forward(self, x):
        y = self.layers(x)
        return x + y if self.adds else y


class MobileNetV2(nn.Module):
    """configs/models/mobilenet_v2.txtpb."""

    def __init__(self, dropout=True, **_):
        super().__init__()
        layers = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU6(inplace=True)]
        inputs = 32
        for expansion, channels, repeats, stride in [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2),
                                                     (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]:
            for repeat in range(repeats):
                layers.append(InvertedResidual(inputs, channels, stride if repeat == 0 else 1, expansion))
                inputs = channels
        layers += [nn.Conv2d(inputs, 1280, 1, bias=False), nn.BatchNorm2d(1280), nn.ReLU6(inplace=True)]
        self.layers = nn.Sequential(*layers)
        self.dropout = nn.Dropout(0.2 if dropout else 0.0)
        self.fc = nn.Linear(1280, 1000)

    def forward(self, x):
        return self.fc(self.dropout(self.layers(x).mean((2, 3))))


class Wide(nn.Module):
    """25 million weights in one layer, see bench/compare_hosts.py."""

    def __init__(self, **_):
        super().__init__()
        self.wide = nn.Linear(5000, 5000)
        self.classes = nn.Linear(5000, 10)

    def forward(self, x):
        return self.classes(functional.relu(self.wide(flatten(x))))


# name: (constructor, shape of an image (height, width, channels), classes)
MODELS = {
    "linear": (Linear, (28, 28, 1), 10),
    "tutorial": (Tutorial, (24, 24, 3), 10),
    "tutorial_no_lrn": (lambda **how: Tutorial(lrn=False, **how), (24, 24, 3), 10),
    "multigpu_cnn": (MultiGpuCnn, (28, 28, 1), 10),
    "resnet20": (lambda **_: ResNet([16, 32, 64], 3), (32, 32, 3), 10),
    "resnet18": (lambda **_: ResNet([64, 128, 256, 512], 2), (32, 32, 3), 10),
    "resnet50": (ResNet50, (224, 224, 3), 1000),
    "mobilenet_v2": (MobileNetV2, (224, 224, 3), 1000),
    "wide": (Wide, (50, 100, 1), 10),
}
