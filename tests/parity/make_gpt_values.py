#!/usr/bin/env python3
"""Writes the values that the operators of transformers and GPT-2 are checked against.

    pip install torch numpy transformers safetensors && python3 make_gpt_values.py

Numbers come from a fixed seed; each file records the versions that made it. Not part of the build
or of any test: the tests read the files. gpt2_tiny.safetensors is what transformers' save_pretrained
writes of a small random GPT-2.
"""

import json
import pathlib

import torch
import torch.nn.functional as F
import transformers

torch.manual_seed(1)
HERE = pathlib.Path(__file__).parent


def numbers(tensor):
    """All values in order; nine digits are exact for float32."""
    return [float(f"{value:.9g}") for value in tensor.detach().flatten().tolist()]


def write(name, content):
    content = {"torch": torch.__version__, "transformers": transformers.__version__, **content}
    (HERE / name).write_text(json.dumps(content, separators=(",", ":")) + "\n")


def backward(outputs, inputs):
    """{"y": ..., "dy": ..., and the gradient "d" + name of each input}."""
    dy = torch.randn_like(outputs)
    gradients = torch.autograd.grad(outputs, list(inputs.values()), dy)
    result = {"shape": list(outputs.shape), "y": numbers(outputs), "dy": numbers(dy)}
    for (name, value), gradient in zip(inputs.items(), gradients):
        result[name] = numbers(value)
        result["d" + name] = numbers(gradient)
    return result


def leaf(*shape):
    return torch.randn(*shape).requires_grad_()


def operators():
    x, weight, bias = leaf(3, 5, 19), leaf(19), leaf(19)
    layer_norm = backward(F.layer_norm(x, (19,), weight, bias, 1e-5),
                          {"x": x, "weight": weight, "bias": bias})
    x, weight = leaf(3, 5, 19), leaf(19)
    rms_norm = backward(F.rms_norm(x, (19,), weight, 1e-5), {"x": x, "weight": weight})
    x = (3 * torch.randn(4, 37)).requires_grad_()
    silu = backward(F.silu(x), {"x": x})
    gelu_tanh = backward(F.gelu(x, approximate="tanh"), {"x": x})
    table = leaf(9, 7)
    tokens = torch.randint(0, 9, (3, 6))
    embedding = {"tokens": tokens.flatten().tolist(),
                 **backward(F.embedding(tokens, table), {"table": table})}

    attention = []
    for queries, keys, causal, masked, heads, size in [
            (5, 5, True, False, 3, 8), (70, 70, True, False, 2, 5), (6, 9, False, True, 3, 8),
            (66, 67, False, False, 1, 4)]:
        samples = 2
        q, k, v = leaf(samples, queries, heads * size), leaf(samples, keys, heads * size), \
            leaf(samples, keys, heads * size)
        mask = torch.ones(samples, keys, dtype=torch.bool)
        if masked:
            mask[0, keys - 3:] = False
            mask[1, :2] = False
        split = lambda t: t.view(samples, -1, heads, size).transpose(1, 2)
        y = F.scaled_dot_product_attention(
            split(q), split(k), split(v), is_causal=causal,
            attn_mask=mask[:, None, None, :].expand(-1, heads, queries, -1) if masked else None)
        y = y.transpose(1, 2).reshape(samples, queries, heads * size)
        attention.append({"heads": heads, "causal": causal, "masked": masked, "keys": keys,
                          "mask": mask.int().flatten().tolist(),
                          **backward(y, {"q": q, "k": k, "v": v})})
    write("gpt_operators.json",
          {"layer_norm": layer_norm, "rms_norm": rms_norm, "silu": silu, "gelu_tanh": gelu_tanh,
           "embedding": embedding, "attention": attention})


def tiny_gpt2():
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
    folder = HERE / "made"
    model.save_pretrained(folder)
    (folder / "model.safetensors").rename(HERE / "gpt2_tiny.safetensors")
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()

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
        "layers": layers, "width": width, "heads": heads, "context": context,
        "vocabulary": vocabulary, "samples": samples, "tokens": tokens.flatten(1).tolist(),
        "logits": numbers(logits), "gradients": gradients, "losses": losses,
        "optimizer": {"lr": 1e-3, "weight_decay": 0.1}})


if __name__ == "__main__":
    operators()
    tiny_gpt2()
