#include "dtrain/models/gpt.h"

#include <cmath>
#include <regex>

namespace dtrain {

namespace {

constexpr float deviation = 0.02F;

LinearOptions linear_options(float weight_deviation = deviation) {
  return {
      .init = InitScheme::normal, .deviation = weight_deviation, .order = ops::WeightOrder::in_out};
}

// Of layers that add to the residual stream, of which there are two per block: so its variance does
// not grow with depth.
LinearOptions residual_options(const config::Gpt& options) {
  return linear_options(deviation / std::sqrt(2.0F * static_cast<float>(options.layers())));
}

}  // namespace

GptBlock::GptBlock(const config::Gpt& options)
    : heads_(options.heads()),
      ln_1_(add<LayerNorm>("ln_1", options.width())),
      c_attn_(add<Linear>("attn.c_attn", options.width(), 3 * options.width(), linear_options())),
      attention_dropout_(add<Dropout>("attn.attn_dropout", static_cast<float>(options.dropout()))),
      attention_proj_(
          add<Linear>("attn.c_proj", options.width(), options.width(), residual_options(options))),
      attention_proj_dropout_(
          add<Dropout>("attn.resid_dropout", static_cast<float>(options.dropout()))),
      ln_2_(add<LayerNorm>("ln_2", options.width())),
      c_fc_(add<Linear>("mlp.c_fc", options.width(), 4 * options.width(), linear_options())),
      mlp_proj_(add<Linear>("mlp.c_proj", 4 * options.width(), options.width(),
                            residual_options(options))),
      mlp_proj_dropout_(add<Dropout>("mlp.dropout", static_cast<float>(options.dropout()))) {}

Value GptBlock::forward(Pass& pass, const Value& x) const {
  const Value qkv = functions::layer_norm_linear(pass, x, ln_1_.weights(), c_attn_.weights());
  const Value heads = functions::attention(pass, qkv, {.heads = heads_, .causal = true},
                                           attention_dropout_.p(), attention_dropout_.site());
  // A sublayer's output is added to its input by the product itself, unless some of it is dropped.
  const bool drops = pass.training() && mlp_proj_dropout_.p() > 0;
  const auto add_dropped = [&](const Value& residual, const Dropout& dropout, const Value& out) {
    return functions::add(pass, residual, dropout.forward(pass, out));
  };
  const Value middle =
      drops ? add_dropped(x, attention_proj_dropout_, attention_proj_.forward(pass, heads))
            : functions::linear_residual(pass, heads, attention_proj_.weights(), x);
  const Value hidden = functions::layer_norm_linear(pass, middle, ln_2_.weights(), c_fc_.weights());
  return drops ? add_dropped(middle, mlp_proj_dropout_,
                             mlp_proj_.forward(pass, functions::gelu_tanh(pass, hidden)))
               : functions::gelu_tanh_linear_residual(pass, hidden, mlp_proj_.weights(), middle);
}

Gpt::Gpt(const config::Gpt& options, const ModelInput& input)
    : wte_(add<Embedding>("wte", options.vocabulary(), options.width(), deviation)),
      wpe_(add<Embedding>("wpe", options.context(), options.width(), deviation)),
      dropout_(add<Dropout>("drop", static_cast<float>(options.dropout()))) {
  if (input.dtype != DType::i32 || input.shape.rank() != 1) {
    throw ConfigError(fmt::format(
        "model.name: gpt wants sequences of tokens, but the data's samples are {} {}: use data of "
        "kind text or tokens",
        to_string(input.dtype), to_string(input.shape)));
  }
  if (options.width() % options.heads() != 0) {
    throw ConfigError(fmt::format("model.heads: {} heads do not divide the width of {}",
                                  options.heads(), options.width()));
  }
  if (input.shape[0] > options.context()) {
    throw ConfigError(fmt::format(
        "model.context: {} is less than the {} tokens of the data's samples: they must be at most "
        "as long",
        options.context(), input.shape[0]));
  }
  if (input.classes > options.vocabulary()) {
    throw ConfigError(
        fmt::format("model.vocabulary: {} is less than the {} tokens that the data has",
                    options.vocabulary(), input.classes));
  }
  for (int i = 0; i < options.layers(); ++i) {
    blocks_.push_back(&add<GptBlock>(fmt::format("h.{}", i), options));
  }
  ln_f_ = &add<LayerNorm>("ln_f", options.width());
}

Value Gpt::forward(Pass& pass, const Value& x) const {
  Value value =
      dropout_.forward(pass, functions::embedding(pass, x, wte_.weight(), &wpe_.weight()));
  for (const GptBlock* block : blocks_) value = block->forward(pass, value);
  return functions::layer_norm_linear(pass, value, ln_f_->weights(),
                                      {wte_.weight(), nullptr, ops::WeightOrder::out_in});
}

std::string Gpt::name_in_model(std::string_view name_in_file) const {
  std::string name(name_in_file);
  const std::string prefix = "transformer.";
  if (const auto at = name.find(prefix); at != std::string::npos) {
    name.erase(0, at + prefix.size());
  }
  if (name == "lm_head.weight" || name.ends_with(".lm_head.weight")) return "wte.weight";
  // Causal masks, which older files hold.
  static const std::regex mask(R"((.*\.)?h\.\d+\.attn\.(masked_)?bias)");
  return std::regex_match(name, mask) ? "" : name;
}

}  // namespace dtrain
