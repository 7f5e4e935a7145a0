// GPT-2: a decoder of tokens with learned positions, layer norm before each sublayer, and a head
// that shares the weights of the token embedding.
//
// Parameters have the names, shapes and order of elements of Hugging Face's GPT-2, so a file of
// either loads into the other: linear layers are [in, out].
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dtrain/core/config/train.pb.h"
#include "dtrain/core/nn/layers.h"
#include "dtrain/models/model_input.h"

namespace dtrain {

// x + attention(norm(x)), then x + mlp(norm(x)). x: [N, T, width].
class GptBlock final : public Module {
 public:
  explicit GptBlock(const config::Gpt& options);
  Value forward(Pass& pass, const Value& x) const override;

 private:
  std::int64_t heads_;
  LayerNorm& ln_1_;
  Linear& c_attn_;
  Dropout& attention_dropout_;
  Linear& attention_proj_;
  Dropout& attention_proj_dropout_;
  LayerNorm& ln_2_;
  Linear& c_fc_;
  Linear& mlp_proj_;
  Dropout& mlp_proj_dropout_;
};

class Gpt final : public Module {
 public:
  // input: [T] tokens, T <= context; throws ConfigError where they do not fit.
  Gpt(const config::Gpt& options, const ModelInput& input);
  // x: [N, T] i32, T <= context. Logits: [N, T, vocabulary].
  Value forward(Pass& pass, const Value& x) const override;
  // Also of files whose names start with "transformer.", that hold the tied head again, or masks.
  std::string name_in_model(std::string_view name_in_file) const override;

 private:
  Embedding& wte_;
  Embedding& wpe_;
  Dropout& dropout_;
  std::vector<const GptBlock*> blocks_;
  LayerNorm* ln_f_;
};

}  // namespace dtrain
