"""A small random GPT-2 of Hugging Face: gpt2_tiny.safetensors, as its save_pretrained writes it,
its logits, and the losses of ten steps of training with some gradients of the first.
"""

import pathlib
import tempfile

import torch
import torch.nn.functional as F
import transformers

from files import HERE, numbers, write


def make():
    torch.manual_seed(1)
    layers, width, heads, context, vocabulary = 2, 24, 3, 16, 50
    config = transformers.GPT2Config(
        vocab_size=vocabulary, n_positions=context, n_embd=width, n_layer=layers, n_head=heads,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0)
    model = transformers.GPT2LMHeadModel(config)
    # Larger than at first, and biases too, so that every part matters.
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.copy_(0.3 * torch.randn_like(parameter))
            elif "ln_" in name:
                parameter.copy_(1 + 0.3 * torch.randn_like(parameter))
            else:
                parameter.mul_(8)
    with tempfile.TemporaryDirectory(dir=HERE) as folder:
        model.save_pretrained(folder)
        (pathlib.Path(folder) / "model.safetensors").rename(HERE / "gpt2_tiny.safetensors")

    steps, samples = 10, 4
    tokens = torch.randint(0, vocabulary, (steps, samples, context + 1))
    model.eval()
    logits = model(tokens[0, :, :-1]).logits
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        output = model(tokens[step, :, :-1]).logits
        loss = F.cross_entropy(output.flatten(0, 1), tokens[step, :, 1:].flatten())
        loss.backward()
        if step == 0:
            gradients = {name: numbers(parameter.grad)
                         for name, parameter in model.named_parameters()
                         if name.endswith(("wpe.weight", "ln_1.bias", "h.0.attn.c_proj.weight"))}
        optimizer.step()
        losses.append(loss.item())
    write("gpt2_tiny.json", {
        "transformers": transformers.__version__,
        "layers": layers, "width": width, "heads": heads, "context": context,
        "vocabulary": vocabulary, "samples": samples, "tokens": tokens.flatten(1).tolist(),
        "logits": numbers(logits.detach()), "gradients": gradients, "losses": losses,
        "optimizer": {"lr": 1e-3, "weight_decay": 0.1}})
