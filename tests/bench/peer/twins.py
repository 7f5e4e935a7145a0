"""The models of dtrain once more in PyTorch: the same layers, the same parameter names.

Images are NCHW here and NHWC in dtrain, so the first linear layer after `flatten` sees its inputs
in another order: `flatten_order` gives the permutation.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn


class Mlp(nn.Module):
    def __init__(self, inputs, hidden, outputs):
        super().__init__()
        widths = [inputs, *hidden, outputs]
        self.layers = len(widths) - 1
        for i in range(self.layers):
            setattr(self, f"fc{i + 1}", nn.Linear(widths[i], widths[i + 1]))

    def forward(self, x):
        x = x.flatten(1)
        for i in range(1, self.layers):
            x = F.relu(getattr(self, f"fc{i}")(x))
        return getattr(self, f"fc{self.layers}")(x)


class Convnet(nn.Module):
    """`image`: (height, width, channels)."""

    def __init__(self, image, channels, hidden, classes):
        super().__init__()
        height, width, before = image
        self.stages = len(channels)
        for i, after in enumerate(channels, 1):
            setattr(self, f"conv{i}", nn.Conv2d(before, after, 3, padding=1, bias=False))
            setattr(self, f"bn{i}", nn.BatchNorm2d(after))
            before, height, width = after, height // 2, width // 2
        self.flattened = (before, height, width)
        self.fc1 = nn.Linear(before * height * width, hidden)
        self.fc2 = nn.Linear(hidden, classes)

    def forward(self, x):
        for i in range(1, self.stages + 1):
            x = F.relu(getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(x)))
            x = F.max_pool2d(x, 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


def flatten_order(flattened):
    """Column j of dtrain's fc1.weight is column flatten_order(...)[j] of PyTorch's."""
    channels, height, width = flattened
    return torch.arange(channels * height * width).reshape(flattened).permute(1, 2, 0).flatten()


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, before, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(before, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = shortcut(before, width, stride)

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, before, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(before, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, width * 4, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(width * 4)
        self.downsample = shortcut(before, width * 4, stride)

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


def shortcut(before, after, stride):
    if stride == 1 and before == after:
        return None
    return nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))


class ResNet(nn.Module):
    """Names are torchvision's. `stem`: imagenet (7x7, stride 2, max pool) or cifar (3x3)."""

    DEPTHS = {18: (BasicBlock, (2, 2, 2, 2)), 34: (BasicBlock, (3, 4, 6, 3)),
              50: (Bottleneck, (3, 4, 6, 3)), 101: (Bottleneck, (3, 4, 23, 3)),
              152: (Bottleneck, (3, 8, 36, 3))}

    def __init__(self, depth, stem, classes, channels=3):
        super().__init__()
        block, blocks = self.DEPTHS[depth]
        self.stem = stem
        if stem == "imagenet":
            self.conv1 = nn.Conv2d(channels, 64, 7, 2, 3, bias=False)
        else:
            self.conv1 = nn.Conv2d(channels, 64, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        before = 64
        for i, count in enumerate(blocks):
            width, layers = 64 << i, []
            for j in range(count):
                layers.append(block(before, width, 2 if i > 0 and j == 0 else 1))
                before = width * block.expansion
            setattr(self, f"layer{i + 1}", nn.Sequential(*layers))
        self.fc = nn.Linear(before, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        if self.stem == "imagenet":
            x = F.max_pool2d(x, 3, 2, 1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)

    def forward(self, x):
        n, t, width = x.shape
        q, k, v = (part.view(n, t, self.heads, width // self.heads).transpose(1, 2)
                   for part in self.c_attn(x).split(width, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(n, t, width))


class FeedForward(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc = nn.Linear(width, 4 * width)
        self.c_proj = nn.Linear(4 * width, width)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class GptBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = FeedForward(width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    """GPT-2: learned positions, norms before, head tied to the token embedding."""

    def __init__(self, layers, width, heads, context, vocabulary):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = nn.Embedding(context, width)
        self.h = nn.ModuleList(GptBlock(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        for name, parameter in self.named_parameters():
            if name.endswith("weight") and parameter.dim() == 2:
                deep = name.endswith("c_proj.weight")
                nn.init.normal_(parameter, std=0.02 / (math.sqrt(2 * layers) if deep else 1))
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens):
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.wte(tokens) + self.wpe(positions)
        for block in self.h:
            x = block(x)
        return F.linear(self.ln_f(x), self.wte.weight)


def loss_of(logits, targets):
    """Mean over targets: [N, C] with [N], or [N, T, V] with [N, T]."""
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))
