"""Trains a small transformer to predict the next character of a text.

    muster launch --workers 2 -- python3 examples/pytorch_transformer.py README.md
"""

import math
import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

import muster.torch

LENGTH, WIDTH, HEADS, LAYERS, EPOCHS = 64, 128, 4, 3, 3


class Windows(torch.utils.data.Dataset):
    """All windows of LENGTH characters, and the characters after each."""

    def __init__(self, text):
        self.text = text

    def __len__(self):
        return len(self.text) - LENGTH

    def __getitem__(self, index):
        return self.text[index:index + LENGTH], self.text[index + 1:index + LENGTH + 1]


class Model(nn.Module):
    def __init__(self, symbols):
        super().__init__()
        self.embed = nn.Embedding(symbols, WIDTH)
        self.position = nn.Parameter(torch.zeros(LENGTH, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, 0.1, F.gelu, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS, nn.LayerNorm(WIDTH), enable_nested_tensor=False)
        self.read = nn.Linear(WIDTH, symbols, bias=False)
        self.read.weight = self.embed.weight  # tied
        mask = torch.full((LENGTH, LENGTH), -math.inf).triu(1)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, text):
        return self.read(self.layers(self.embed(text) / math.sqrt(WIDTH) + self.position, self.mask, is_causal=True))


def loss_of(model, text, following):
    return F.cross_entropy(model(text).flatten(0, 1), following.flatten())


if len(sys.argv) != 2:
    sys.exit("usage: muster launch --workers 2 -- python3 examples/pytorch_transformer.py FILE")
text = open(sys.argv[1], encoding="utf-8").read()
symbols = sorted(set(text))
codes = torch.tensor([symbols.index(one) for one in text])
split = len(codes) * 9 // 10
job = muster.torch.Job(clip_norm=1)
model = Model(len(symbols)).to(job.device)
decayed = [one for one in model.parameters() if one.dim() > 1]
others = [one for one in model.parameters() if one.dim() <= 1]
optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                              lr=1e-3, betas=(0.9, 0.95))
loader = DataLoader(Windows(codes[:split]), batch_size=32, shuffle=True)
warm_up, all_steps = 20, EPOCHS * len(loader)
scheduler = torch.optim.lr_scheduler.LambdaLR(
    optimizer, lambda i: min((i + 1) / warm_up, 0.5 * (1 + math.cos(math.pi * i / all_steps))))
model, optimizer, loader, scheduler = job.prepare(model, optimizer, loader, scheduler)
job.evaluation(Windows(codes[split:]), lambda *batch: loss_of(model, *batch))
for epoch in job.epochs(EPOCHS):
    for batch in loader:
        loss = loss_of(model, *batch)
        job.backward(loss, bits_per_character=loss.detach() / math.log(2))
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
    job.print(f"epoch {epoch + 1}: {epoch.mean('bits_per_character'):.3f} bits per character")
